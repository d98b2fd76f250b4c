//! The settings of uploaders. In a Backup or Restore they have types; on a transfer they travel as strings.

use std::collections::BTreeMap;

use super::{UploaderConfigForBackup, UploaderConfigForRestore};

const PARALLEL_FILES_UPLOAD: &str = "ParallelFilesUpload";
const PARALLEL_FILES_DOWNLOAD: &str = "ParallelFilesDownload";
const WRITE_SPARSE_FILES: &str = "WriteSparseFiles";

/// The `uploaderSettings` or `dataMoverConfig` of a transfer.
pub type UploaderSettings = BTreeMap<String, String>;

impl UploaderConfigForBackup {
    /// As they travel. What nobody asked for is left to whoever moves the data.
    pub fn settings(&self) -> UploaderSettings {
        let parallel = self.parallel_files_upload.filter(|number| *number > 0);
        parallel.map(|number| (PARALLEL_FILES_UPLOAD.to_owned(), number.to_string())).into_iter().collect()
    }
}

impl UploaderConfigForRestore {
    /// As they travel. What nobody asked for is left to whoever moves the data.
    pub fn settings(&self) -> UploaderSettings {
        let parallel = self.parallel_files_download.filter(|number| *number > 0);
        let parallel = parallel.map(|number| (PARALLEL_FILES_DOWNLOAD.to_owned(), number.to_string()));
        let sparse = self.write_sparse_files.map(|sparse| (WRITE_SPARSE_FILES.to_owned(), sparse.to_string()));
        parallel.into_iter().chain(sparse).collect()
    }
}

/// How many files are uploaded at a time, if somebody asked for a number.
pub fn parallel_files_upload(settings: &UploaderSettings) -> Result<Option<u32>, String> {
    number(settings, PARALLEL_FILES_UPLOAD)
}

/// How many files are downloaded at a time, if somebody asked for a number.
pub fn parallel_files_download(settings: &UploaderSettings) -> Result<Option<u32>, String> {
    number(settings, PARALLEL_FILES_DOWNLOAD)
}

/// Whether blocks of zeros are written as holes, if somebody asked for either.
pub fn write_sparse_files(settings: &UploaderSettings) -> Result<Option<bool>, String> {
    read(settings, WRITE_SPARSE_FILES)
}

/// Velero writes 0 where nobody asked.
fn number(settings: &UploaderSettings, key: &str) -> Result<Option<u32>, String> {
    Ok(read(settings, key)?.filter(|number| *number > 0))
}

fn read<T: std::str::FromStr>(settings: &UploaderSettings, key: &str) -> Result<Option<T>, String> {
    let value = settings.get(key);
    value.map(|text| text.parse().map_err(|_| format!("uploader setting {key}: {text:?} is not usable"))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_arrive_as_they_were_meant() {
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
    fn settings_are_spelled_as_velero_spells_them_and_refused_by_name() {
        let of = |key: &str, value: &str| UploaderSettings::from([(key.to_owned(), value.to_owned())]);
        assert_eq!(parallel_files_upload(&of("ParallelFilesUpload", "10")), Ok(Some(10)));
        assert_eq!(parallel_files_upload(&of("ParallelFilesUpload", "0")), Ok(None));
        assert_eq!(parallel_files_download(&of("ParallelFilesDownload", "10")), Ok(Some(10)));
        assert_eq!(write_sparse_files(&of("WriteSparseFiles", "true")), Ok(Some(true)));
        let refused = parallel_files_upload(&of("ParallelFilesUpload", "many")).unwrap_err();
        assert_eq!(refused, "uploader setting ParallelFilesUpload: \"many\" is not usable");
    }
}
