//! Making and opening a repository: from a password to the key that seals everything.

use bytes::Bytes;
use futures::stream::{StreamExt, TryStreamExt};
use plimsoll_store::{Store, StoreError};
use secrecy::{ExposeSecret, SecretSlice};
use tokio::runtime::Handle;

use crate::cancel::Cancel;
use crate::format::config::Config;
use crate::format::crypto::Key;
use crate::format::id::Id;
use crate::format::key::{KeyError, KeyFile};
use crate::format::time::Time;
use crate::repository::{FileKind, LOADS_AT_ONCE, OpenOptions, Repository, get_at_most, listed, too_large, wait};
use crate::{RepositoryError, Result, system};

/// More key files than these are not tried: each costs a good part of a second.
const MOST_KEYS: usize = 20;
/// restic's has less than 200 bytes.
const LARGEST_CONFIG: u64 = 1024 * 1024;

/// The password in the content of a file, as restic understands it: without the white space around it. Editors and
/// `echo` leave a newline behind that nobody means.
pub fn password_in_file(content: &[u8]) -> &[u8] {
    std::str::from_utf8(content).map_or_else(|_| content.trim_ascii(), |text| text.trim().as_bytes())
}

impl Repository {
    /// Makes a repository of version 2 where there is none. One that an earlier call with the same password began and did
    /// not complete is completed.
    pub fn init(store: Store, runtime: Handle, password: &[u8]) -> Result<Self> {
        let location = store.name().to_owned();
        if runtime.block_on(is_taken(&store))? {
            return Err(RepositoryError::AlreadyInitialized { location });
        }
        let (key, own) = match begun_key(&store, &runtime, password)? {
            Some(key) => (key, None),
            None => create_key(&store, &runtime, password).map(|(key, name)| (key, Some(name)))?,
        };
        let mut sealed = Vec::new();
        key.seal(&Config::generate().encode(), &mut sealed);
        // Two may begin at the same moment: the config that is there in the end decides.
        let stored = runtime.block_on(async {
            match store.put_if_absent("config", sealed.clone()).await {
                Err(StoreError::Unsupported { .. }) => store.put("config", sealed).await?,
                written => drop(written?),
            }
            store.get("config").await
        })?;
        let mut plain = Vec::new();
        if key.open(&stored, &mut plain).is_ok() {
            let config = Config::parse(&plain).map_err(|cause| RepositoryError::Unsupported { location, cause })?;
            return Ok(Self::assemble(store, runtime, key, config, OpenOptions::default()));
        }
        // It is the other's, and belongs to another key: ours would only mislead.
        if let Some(name) = own {
            runtime.block_on(store.delete(&name))?;
        }
        Err(RepositoryError::AlreadyInitialized { location })
    }

    /// Opens a repository with one of its passwords.
    pub fn open(store: Store, runtime: Handle, password: &[u8], options: OpenOptions) -> Result<Self> {
        let location = store.name().to_owned();
        let config = get_at_most(&store, "config", LARGEST_CONFIG);
        let asked = async { Ok(tokio::join!(config, key_files(&store))) };
        let (sealed, keys) = wait(&runtime, &options.cancel, asked)?;
        let sealed = match sealed {
            Ok(Ok(config)) => config,
            // As if it was damaged: data can still be had.
            Ok(Err(_)) => Bytes::new(),
            Err(error) if error.is_not_found() && !options.rescue => {
                return Err(RepositoryError::NotARepository { location });
            }
            Err(error) if error.is_not_found() => Bytes::new(),
            Err(error) => return Err(error.into()),
        };
        let keys = keys?;
        let (key, plain) = find_key(&location, keys, password, &sealed, &options.cancel)?;
        let config = match plain {
            Some(plain) => Config::parse(&plain).map_err(|cause| RepositoryError::Unsupported { location, cause })?,
            None if options.rescue => Config::unknown(),
            None => {
                let cause = "its seal is broken; opened with the option rescue, files can be restored without it";
                return Err(RepositoryError::corrupt("config", cause));
            }
        };
        Ok(Self::assemble(store, runtime, key, config, options))
    }
}

/// Whether there is a repository, or what is left of one.
async fn is_taken(store: &Store) -> Result<bool> {
    if store.exists("config").await? {
        return Ok(true);
    }
    Ok(store.list(FileKind::Snapshot.folder()).next().await.transpose()?.is_some())
}

/// The key of a repository that was begun and has no config yet. A key that this password does not open is somebody
/// else's beginning.
fn begun_key(store: &Store, runtime: &Handle, password: &[u8]) -> Result<Option<Key>> {
    let location = store.name().to_owned();
    let keys = runtime.block_on(key_files(store))?;
    match find_key(&location, keys, password, &[], &Cancel::default()) {
        Ok((key, _)) => Ok(Some(key)),
        Err(RepositoryError::WrongPassword { .. }) => {
            let any = runtime.block_on(store.list(FileKind::Key.folder()).next()).transpose()?.is_some();
            if any { Err(RepositoryError::AlreadyInitialized { location }) } else { Ok(None) }
        }
        Err(error) => Err(error),
    }
}

fn create_key(store: &Store, runtime: &Handle, password: &[u8]) -> Result<(Key, String)> {
    let key = Key::random();
    let file = KeyFile::create(&key, password, Time::now().to_string(), system::hostname())
        .and_then(|file| file.encode())
        .map_err(|error| RepositoryError::corrupt("the new key file", error.to_string()))?;
    let name = FileKind::Key.key_of(&Id::of(&file));
    runtime.block_on(store.put(&name, file))?;
    Ok((key, name))
}

/// Nobody should think that the password is lost.
const NOT_ITS_HASH: &str = "its content does not have the hash that is its name, so that no password opens it; bring it back \
                            from a copy, or use another of the repository's passwords";

/// A key file's name and what is in it, or how large it is if that is too much.
type KeyContent = (Id, Result<Result<Bytes, u64>, StoreError>);

/// All key files that are tried.
async fn key_files(store: &Store) -> Result<Vec<KeyContent>, StoreError> {
    let files: Vec<_> = store.list(FileKind::Key.folder()).try_collect().await?;
    let loads = files.iter().filter_map(listed).take(MOST_KEYS).map(|file| async move {
        let content = get_at_most(store, &FileKind::Key.key_of(&file.id), FileKind::Key.largest()).await;
        (file.id, content)
    });
    Ok(futures::stream::iter(loads).buffered(LOADS_AT_ONCE).collect().await)
}

/// The master key behind a key file that this password opens, with the opened config. Of several such keys the one that
/// opens the config is taken; if none does, the first, without a config.
fn find_key(
    location: &str,
    files: Vec<KeyContent>,
    password: &[u8],
    config: &[u8],
    cancel: &Cancel,
) -> Result<(Key, Option<Vec<u8>>)> {
    let (mut damage, mut found) = (None, None);
    for (id, content) in files {
        let damaged = |cause: String| Some(RepositoryError::corrupt(FileKind::Key.key_of(&id), cause));
        let content = match content? {
            Ok(content) => content,
            Err(size) => {
                damage = damaged(too_large(size));
                continue;
            }
        };
        let is_whole = Id::of(&content) == id;
        match unlock(content, password, cancel)? {
            Ok(key) => {
                let mut plain = Vec::new();
                if key.open(config, &mut plain).is_ok() {
                    return Ok((key, Some(plain)));
                }
                found.get_or_insert((key, None));
            }
            Err(KeyError::WrongPassword) if is_whole => {}
            Err(KeyError::WrongPassword) => damage = damaged(NOT_ITS_HASH.into()),
            Err(KeyError::Malformed(cause)) => damage = damaged(cause),
        }
    }
    found.ok_or_else(|| damage.unwrap_or(RepositoryError::WrongPassword { location: location.into() }))
}

/// Deriving a key may take seconds, if its file says so: no longer than until somebody asks to stop.
fn unlock(content: Bytes, password: &[u8], cancel: &Cancel) -> Result<Result<Key, KeyError>> {
    let password = SecretSlice::from(password.to_vec());
    cancel.run(move || Ok(KeyFile::parse(&content).and_then(|key| key.unlock(password.expose_secret()))))
}
