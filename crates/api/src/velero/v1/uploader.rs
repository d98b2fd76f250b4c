//! The settings of uploaders: typed in a Backup or Restore, a map of strings in a volume transfer.

use std::collections::BTreeMap;

use super::{UploaderConfigForBackup, UploaderConfigForRestore};

const PARALLEL_FILES_UPLOAD: &str = "ParallelFilesUpload";
const PARALLEL_FILES_DOWNLOAD: &str = "ParallelFilesDownload";
const WRITE_SPARSE_FILES: &str = "WriteSparseFiles";

/// The `uploaderSettings` or `dataMoverConfig` of a transfer.
pub type UploaderSettings = BTreeMap<String, String>;

impl UploaderConfigForBackup {
    /// The settings as a map of strings. Unset ones are absent: the data mover uses its default.
    pub fn settings(&self) -> UploaderSettings {
        let parallel = self.parallel_files_upload.filter(|number| *number > 0);
        parallel.map(|number| (PARALLEL_FILES_UPLOAD.to_owned(), number.to_string())).into_iter().collect()
    }
}

impl UploaderConfigForRestore {
    /// The settings as a map of strings. Unset ones are absent: the data mover uses its default.
    pub fn settings(&self) -> UploaderSettings {
        let parallel = self.parallel_files_download.filter(|number| *number > 0);
        let parallel = parallel.map(|number| (PARALLEL_FILES_DOWNLOAD.to_owned(), number.to_string()));
        let sparse = self.write_sparse_files.map(|sparse| (WRITE_SPARSE_FILES.to_owned(), sparse.to_string()));
        parallel.into_iter().chain(sparse).collect()
    }
}

/// How many files are uploaded at a time, if set.
pub fn parallel_files_upload(settings: &UploaderSettings) -> Result<Option<u32>, String> {
    parse_number(settings, PARALLEL_FILES_UPLOAD)
}

/// How many files are downloaded at a time, if set.
pub fn parallel_files_download(settings: &UploaderSettings) -> Result<Option<u32>, String> {
    parse_number(settings, PARALLEL_FILES_DOWNLOAD)
}

/// Whether blocks of zeros are written as holes, if set.
pub fn write_sparse_files(settings: &UploaderSettings) -> Result<Option<bool>, String> {
    parse(settings, WRITE_SPARSE_FILES)
}

/// A number above zero. Velero writes 0 for an unset number.
fn parse_number(settings: &UploaderSettings, key: &str) -> Result<Option<u32>, String> {
    Ok(parse(settings, key)?.filter(|number| *number > 0))
}

fn parse<T: std::str::FromStr>(settings: &UploaderSettings, key: &str) -> Result<Option<T>, String> {
    let value = settings.get(key);
    value.map(|text| text.parse().map_err(|_| format!("invalid uploader setting {key}: {text:?}"))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_the_conversion_to_strings() {
        let of =
            |parallel| UploaderConfigForBackup { parallel_files_upload: parallel, ..Default::default() }.settings();
        assert_eq!(parallel_files_upload(&of(Some(7))), Ok(Some(7)));
        assert!(of(Some(0)).is_empty() && of(None).is_empty());
        let config = UploaderConfigForRestore {
            write_sparse_files: Some(false),
            parallel_files_download: Some(3),
            ..Default::default()
        };
        let settings = config.settings();
        assert_eq!(parallel_files_download(&settings), Ok(Some(3)));
        assert_eq!(write_sparse_files(&settings), Ok(Some(false)));
        assert!(UploaderConfigForRestore::default().settings().is_empty());
    }

    #[test]
    fn settings_have_velero_names_and_an_invalid_value_is_an_error() {
        let of = |key: &str, value: &str| UploaderSettings::from([(key.to_owned(), value.to_owned())]);
        assert_eq!(parallel_files_upload(&of("ParallelFilesUpload", "10")), Ok(Some(10)));
        assert_eq!(parallel_files_upload(&of("ParallelFilesUpload", "0")), Ok(None));
        assert_eq!(parallel_files_download(&of("ParallelFilesDownload", "10")), Ok(Some(10)));
        assert_eq!(write_sparse_files(&of("WriteSparseFiles", "true")), Ok(Some(true)));
        let error = parallel_files_upload(&of("ParallelFilesUpload", "many")).unwrap_err();
        assert_eq!(error, "invalid uploader setting ParallelFilesUpload: \"many\"");
    }
}
