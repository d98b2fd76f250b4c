//! Packs that are files of this machine: read by whoever needs them, into a buffer that is kept.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::format::id::Id;
use crate::repository::{FileKind, Repository};
use crate::{RepositoryError, Result};

/// Reads packs of a directory, one after the other.
#[derive(Default)]
pub(crate) struct PackFiles {
    open: Option<(Id, File)>,
    buffer: Vec<u8>,
}

impl Repository {
    /// Whether the directory as such can be read.
    fn is_readable_here(&self) -> bool {
        self.store.file_of("config").is_some_and(|config| File::open(config).is_ok())
    }
}

impl PackFiles {
    /// A part of a pack. Nothing if the store is no directory of this machine.
    pub(crate) fn read(&mut self, repository: &Repository, pack: Id, range: Range<u64>) -> Option<Result<&[u8]>> {
        let key = FileKind::Pack.key_of(&pack);
        let path = repository.store.file_of(&key)?;
        let damaged = |cause: String| RepositoryError::corrupt(key.clone(), cause);
        let file = match self.open.take() {
            Some((open, file)) if open == pack => file,
            _ => match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    return Some(Err(damaged("it is missing".into())));
                }
                // One that cannot be opened is like one that is missing, as long as others can be.
                Err(error) if repository.is_readable_here() => return Some(Err(damaged(error.to_string()))),
                Err(error) => return Some(Err(RepositoryError::local(&path, &error))),
            },
        };
        let wanted = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        if self.buffer.len() < wanted {
            // What an index file says costs no memory before it is known to be there.
            if file.metadata().is_ok_and(|metadata| metadata.len() < range.end) {
                return Some(Err(damaged(format!("it does not reach byte {}", range.end))));
            }
            self.buffer.resize(wanted, 0);
        }
        let read = file.read_exact_at(&mut self.buffer[..wanted], range.start);
        self.open = Some((pack, file));
        Some(match read {
            Ok(()) => Ok(&self.buffer[..wanted]),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(damaged(format!("it does not reach byte {}", range.end)))
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
    fn what_an_index_file_says_about_a_pack_costs_no_memory_before_it_is_seen_there() {
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
        assert_eq!(read.expect_err("not there").reason(), "RepositoryDamaged");
        assert_eq!(files.buffer.capacity(), 0);
        let read = files.read(&repository, pack, 1..5).expect("a directory");
        assert_eq!(read.expect("there"), b"hort");
    }
}
