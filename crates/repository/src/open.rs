//! Initializing and opening a repository: from a password to the master key.

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
use crate::prefetch::Prefetched;
use crate::repository::{
    FileKind, MAX_CONCURRENT_LOADS, OpenOptions, Repository, get_limited, parse_listed, too_large, wait,
};
use crate::{RepositoryError, Result, system};

/// The maximum number of key files to try: each takes a good part of a second.
const MAX_KEYS: usize = 20;
/// restic's config has less than 200 bytes.
const MAX_CONFIG_SIZE: u64 = 1024 * 1024;

/// The password in a password file, as in restic: without surrounding white space, because editors and `echo` append a newline.
pub fn password_in_file(content: &[u8]) -> &[u8] {
    std::str::from_utf8(content).map_or_else(|_| content.trim_ascii(), |text| text.trim().as_bytes())
}

impl Repository {
    /// Initializes a repository of version 2. Completes an interrupted initialization with the same password.
    pub fn init(store: Store, runtime: Handle, password: &[u8]) -> Result<Self> {
        let location = store.name().to_owned();
        if runtime.block_on(is_taken(&store))? {
            return Err(RepositoryError::AlreadyInitialized { location });
        }
        let (key, new_key_file) = match interrupted_init_key(&store, &runtime, password)? {
            Some(key) => (key, None),
            None => create_key(&store, &runtime, password).map(|(key, name)| (key, Some(name)))?,
        };
        let mut encrypted = Vec::new();
        key.encrypt(&Config::generate().encode(), &mut encrypted);
        // Two initializations may run at the same time: the stored config decides.
        let stored = runtime.block_on(async {
            match store.put_if_absent("config", encrypted.clone()).await {
                Err(StoreError::Unsupported { .. }) => store.put("config", encrypted).await?,
                written => drop(written?),
            }
            store.get("config").await
        })?;
        let mut plain = Vec::new();
        if key.decrypt(&stored, &mut plain).is_ok() {
            let config = Config::parse(&plain).map_err(|cause| RepositoryError::Unsupported { location, cause })?;
            return Ok(Self::assemble(store, runtime, key, config, OpenOptions::default()));
        }
        // The config of another initialization, with another master key: our key file is useless.
        if let Some(name) = new_key_file {
            runtime.block_on(store.delete(&name))?;
        }
        Err(RepositoryError::AlreadyInitialized { location })
    }

    /// Opens a repository with one of its passwords.
    pub fn open(store: Store, runtime: Handle, password: &[u8], options: OpenOptions) -> Result<Self> {
        let location = store.name().to_owned();
        let prefetched = if options.prefetch { Prefetched::start(&store, &runtime) } else { Prefetched::default() };
        let config = get_limited(&store, "config", MAX_CONFIG_SIZE);
        let loads = async { Ok(tokio::join!(config, key_files(&store))) };
        let (encrypted, keys) = wait(&runtime, &options.cancel, loads)?;
        let encrypted = match encrypted {
            Ok(Ok(config)) => config,
            // Like a damaged config: data can still be restored.
            Ok(Err(_)) => Bytes::new(),
            Err(error) if error.is_not_found() && !options.rescue => {
                return Err(RepositoryError::NotFound { location });
            }
            Err(error) if error.is_not_found() => Bytes::new(),
            Err(error) => return Err(error.into()),
        };
        let keys = keys?;
        let (key, plain) = find_key(&location, keys, password, &encrypted, &options.cancel)?;
        let config = match plain {
            Some(plain) => Config::parse(&plain).map_err(|cause| RepositoryError::Unsupported { location, cause })?,
            None if options.rescue => Config::unknown(),
            None => {
                let cause = "MAC verification failed; open with the rescue option to restore files without it";
                return Err(RepositoryError::corrupt("config", cause));
            }
        };
        Ok(Self::assemble(store, runtime, key, config, options).with_prefetched(prefetched))
    }
}

/// Whether there is a repository, or the rest of one.
async fn is_taken(store: &Store) -> Result<bool> {
    if store.exists("config").await? {
        return Ok(true);
    }
    Ok(store.list(FileKind::Snapshot.folder()).next().await.transpose()?.is_some())
}

/// The master key of an interrupted initialization without a config. A key file with another password belongs to another
/// initialization.
fn interrupted_init_key(store: &Store, runtime: &Handle, password: &[u8]) -> Result<Option<Key>> {
    let location = store.name().to_owned();
    let keys = runtime.block_on(key_files(store))?;
    match find_key(&location, keys, password, &[], &Cancel::default()) {
        Ok((key, _)) => Ok(Some(key)),
        Err(RepositoryError::WrongPassword { .. }) => {
            let has_keys = runtime.block_on(store.list(FileKind::Key.folder()).next()).transpose()?.is_some();
            if has_keys { Err(RepositoryError::AlreadyInitialized { location }) } else { Ok(None) }
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

/// Distinguishes a damaged key file from a wrong password.
const KEY_FILE_DAMAGED: &str = "its hash does not match its ID, so no password opens it; restore it from a copy, or use another \
                                password of the repository";

/// The ID and content of a key file, or its size if it is too large.
type KeyContent = (Id, Result<Result<Bytes, u64>, StoreError>);

/// The key files to try.
async fn key_files(store: &Store) -> Result<Vec<KeyContent>, StoreError> {
    let files: Vec<_> = store.list(FileKind::Key.folder()).try_collect().await?;
    let loads = files.iter().filter_map(parse_listed).take(MAX_KEYS).map(|file| async move {
        let content = get_limited(store, &FileKind::Key.key_of(&file.id), FileKind::Key.max_size()).await;
        (file.id, content)
    });
    Ok(futures::stream::iter(loads).buffered(MAX_CONCURRENT_LOADS).collect().await)
}

/// The master key of a key file with this password, and the decrypted config. Of several such keys, the one that decrypts the
/// config is used; if none does, the first, without a config.
fn find_key(
    location: &str,
    files: Vec<KeyContent>,
    password: &[u8],
    config: &[u8],
    cancel: &Cancel,
) -> Result<(Key, Option<Vec<u8>>)> {
    let (mut damage, mut without_config) = (None, None);
    for (id, content) in files {
        let damaged = |cause: String| Some(RepositoryError::corrupt(FileKind::Key.key_of(&id), cause));
        let content = match content? {
            Ok(content) => content,
            Err(size) => {
                damage = damaged(too_large(size));
                continue;
            }
        };
        let is_intact = Id::of(&content) == id;
        match unlock(content, password, cancel)? {
            Ok(key) => {
                let mut plain = Vec::new();
                if key.decrypt(config, &mut plain).is_ok() {
                    return Ok((key, Some(plain)));
                }
                without_config.get_or_insert((key, None));
            }
            Err(KeyError::WrongPassword) if is_intact => {}
            Err(KeyError::WrongPassword) => damage = damaged(KEY_FILE_DAMAGED.into()),
            Err(KeyError::Malformed(cause)) => damage = damaged(cause),
        }
    }
    without_config.ok_or_else(|| damage.unwrap_or(RepositoryError::WrongPassword { location: location.into() }))
}

/// Derives a key, which may take seconds. Returns early after a cancel.
fn unlock(content: Bytes, password: &[u8], cancel: &Cancel) -> Result<Result<Key, KeyError>> {
    let password = SecretSlice::from(password.to_vec());
    cancel.run(move || Ok(KeyFile::parse(&content).and_then(|key| key.unlock(password.expose_secret()))))
}
