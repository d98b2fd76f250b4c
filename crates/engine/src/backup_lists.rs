//! The list files of a backup: foreign input, read up to a limit.

use plimsoll_archive::codec;
use plimsoll_store::Store;
use serde::de::DeserializeOwned;

use crate::Error;

/// Reads a list file of a backup; a missing file is an empty list.
pub async fn read_backup_list<T: DeserializeOwned>(store: &Store, key: &str) -> Result<Vec<T>, Error> {
    match store.get_at_most(key, codec::MAX_PACKED_METADATA_BYTES).await {
        Ok(packed) => parse_backup_list(key, &packed),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Parses a list file of a backup.
pub(crate) fn parse_backup_list<T: DeserializeOwned>(key: &str, packed: &[u8]) -> Result<Vec<T>, Error> {
    codec::read_gzip_list(packed).map_err(|source| Error::Archive { name: key.to_owned(), source })
}
