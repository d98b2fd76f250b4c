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
