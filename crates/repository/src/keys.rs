//! The passwords of a repository: each has a key file with the same master key.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_progress::Task;

use crate::cancel::Cancel;
use crate::format::id::Id;
use crate::format::key::{KeyError, KeyFile};
use crate::format::time::Time;
use crate::lock::{LockKind, take_waiting};
use crate::repository::{FileKind, Repository};
use crate::{RepositoryError, Result, system};

/// A key file, which a password opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// Its ID.
    pub id: Id,
    /// When it was created, as its creator recorded it.
    pub created: String,
    /// The user who created it.
    pub username: String,
    /// The machine on which it was created.
    pub hostname: String,
}

/// The number of key files that restic tries. A password with a further one might not open the repository.
const MAX_KEYS: usize = 20;

impl Repository {
    /// The key files, without secrets.
    pub fn keys(&self) -> Result<Vec<KeyInfo>> {
        let info = |(id, file): (Id, KeyFile)| {
            let (created, username, hostname) = file.description();
            KeyInfo { id, created, username, hostname }
        };
        Ok(self.key_files()?.into_iter().map(info).collect())
    }

    fn key_files(&self) -> Result<Vec<(Id, KeyFile)>> {
        let cancel = &self.options.cancel;
        let mut files = Vec::new();
        for listed in self.list(FileKind::Key, cancel)? {
            let content = self.wait(cancel, self.load_encrypted(FileKind::Key, listed.id))?;
            let parsed = KeyFile::parse(&content);
            let file = parsed
                .map_err(|error| RepositoryError::corrupt(FileKind::Key.key_of(&listed.id), error.to_string()))?;
            files.push((listed.id, file));
        }
        Ok(files)
    }

    /// Adds a password. The new key file is read back and opened before this returns.
    pub fn add_key(self: &Arc<Self>, password: &[u8], task: &Task, cancel: &Cancel) -> Result<Id> {
        self.require_password(password)?;
        let _lock = take_waiting(self, LockKind::Shared, Duration::ZERO, task, cancel)?;
        self.write_key(password)
    }

    fn require_password(&self, password: &[u8]) -> Result<()> {
        if password.is_empty() {
            return Err(self.rejected("an empty password is not allowed"));
        }
        Ok(())
    }

    fn rejected(&self, cause: &str) -> RepositoryError {
        RepositoryError::Unsupported { location: self.store.name().into(), cause: cause.into() }
    }

    fn write_key(&self, password: &[u8]) -> Result<Id> {
        if self.list(FileKind::Key, &self.options.cancel)?.len() >= MAX_KEYS {
            return Err(self.rejected("it has 20 keys, and restic tries no more; remove one first"));
        }
        let failed = |error: KeyError| RepositoryError::corrupt("the new key file", error.to_string());
        let file = KeyFile::create(&self.key, password, Time::now().to_string(), system::hostname()).map_err(failed)?;
        let content = Bytes::from(file.encode().map_err(failed)?);
        let id = Id::of(&content);
        self.runtime.block_on(async {
            self.store.put(&FileKind::Key.key_of(&id), content).await?;
            self.load_encrypted(FileKind::Key, id).await
        })?;
        if self.opens(id, password)? { Ok(id) } else { Err(failed(KeyError::WrongPassword)) }
    }

    /// Whether this password opens this key file, and the key file has the master key of the repository.
    fn opens(&self, id: Id, password: &[u8]) -> Result<bool> {
        let content = self.wait(&self.options.cancel, self.load_encrypted(FileKind::Key, id))?;
        match KeyFile::parse(&content).and_then(|file| file.unlock(password)) {
            Ok(key) => Ok(key.secrets() == self.key.secrets()),
            Err(KeyError::WrongPassword) => Ok(false),
            Err(error) => Err(RepositoryError::corrupt(FileKind::Key.key_of(&id), error.to_string())),
        }
    }

    /// Removes a key file with the exclusive lock. `remaining` is a password that must open another one: otherwise nothing is removed,
    /// because the data could not be read any more.
    pub fn remove_key(self: &Arc<Self>, id: Id, remaining: &[u8], task: &Task, cancel: &Cancel) -> Result<()> {
        let lock = take_waiting(self, LockKind::Exclusive, Duration::ZERO, task, cancel)?;
        let others: Vec<Id> = self.key_files()?.into_iter().map(|(id, _)| id).filter(|other| *other != id).collect();
        let mut opens_another = false;
        for other in others {
            opens_another = opens_another || self.opens(other, remaining)?;
        }
        if !opens_another {
            return Err(self.rejected("the key is kept: the given password opens no other key of the repository"));
        }
        lock.confirm(cancel)?;
        self.wait(cancel, async { Ok(self.store.delete(&FileKind::Key.key_of(&id)).await?) })
    }

    /// Replaces a password: adds a key with the new one, and then removes all keys that the old one opens. Stored data is not rewritten.
    pub fn change_password(self: &Arc<Self>, old: &[u8], new: &[u8], task: &Task, cancel: &Cancel) -> Result<Id> {
        self.require_password(new)?;
        let mut replaced = Vec::new();
        for (id, _) in self.key_files()? {
            if self.opens(id, old)? {
                replaced.push(id);
            }
        }
        if replaced.is_empty() {
            return Err(RepositoryError::WrongPassword { location: self.store.name().into() });
        }
        let id = self.add_key(new, task, cancel)?;
        for old_key in replaced {
            self.remove_key(old_key, new, task, cancel)?;
        }
        Ok(id)
    }
}
