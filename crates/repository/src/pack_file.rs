//! Packs in a local directory, read into a reusable buffer.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::format::id::Id;
use crate::repository::{FileKind, Repository};
use crate::{RepositoryError, Result};

/// Reads packs of a local directory.
#[derive(Default)]
pub(crate) struct PackFiles {
    open: Option<(Id, File)>,
    buffer: Vec<u8>,
}

impl Repository {
    /// Whether the local directory is readable.
    fn is_directory_readable(&self) -> bool {
        self.store.local_file("config").is_some_and(|config| File::open(config).is_ok())
    }
}

impl PackFiles {
    /// Reads a range of a pack. `None` if the store is not a local directory.
    pub(crate) fn read(&mut self, repository: &Repository, pack: Id, range: Range<u64>) -> Option<Result<&[u8]>> {
        let key = FileKind::Pack.key_of(&pack);
        let path = repository.store.local_file(&key)?;
        let damaged = |cause: String| RepositoryError::corrupt(key.clone(), cause);
        let file = match self.open.take() {
            Some((open, file)) if open == pack => file,
            _ => match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    return Some(Err(damaged("file not found".into())));
                }
                // An unreadable file is damage, as long as others are readable.
                Err(error) if repository.is_directory_readable() => return Some(Err(damaged(error.to_string()))),
                Err(error) => return Some(Err(RepositoryError::local(&path, &error))),
            },
        };
        let length = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        if self.buffer.len() < length {
            // Allocate only after the size in the index was verified.
            if file.metadata().is_ok_and(|metadata| metadata.len() < range.end) {
                return Some(Err(damaged(format!("it has less than {} bytes", range.end))));
            }
            self.buffer.resize(length, 0);
        }
        let read = file.read_exact_at(&mut self.buffer[..length], range.start);
        self.open = Some((pack, file));
        Some(match read {
            Ok(()) => Ok(&self.buffer[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(damaged(format!("it has less than {} bytes", range.end)))
            }
            Err(error) => Err(damaged(error.to_string())),
        })
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_store::Store;

    use super::*;

    #[test]
    fn a_wrong_size_in_the_index_allocates_no_memory() {
        let folder = tempfile::tempdir().expect("a directory");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let store = Store::directory(folder.path(), "").expect("a store");
        let repository = Repository::init(store, runtime.handle().clone(), b"password").expect("initializes");
        let pack = Id::of(b"a pack");
        let path = folder.path().join(FileKind::Pack.key_of(&pack));
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, "short").expect("writes");
        let mut files = PackFiles::default();
        let read = files.read(&repository, pack, 0..u64::from(u32::MAX)).expect("a directory");
        assert_eq!(read.expect_err("too short").reason(), "RepositoryDamaged");
        assert_eq!(files.buffer.capacity(), 0);
        let read = files.read(&repository, pack, 1..5).expect("a directory");
        assert_eq!(read.expect("readable"), b"hort");
    }
}
