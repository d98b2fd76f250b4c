//! The list files of a backup: foreign input, read up to a limit.

use std::io;
use std::marker::PhantomData;

use bytes::Bytes;
use plimsoll_archive::codec;
use plimsoll_store::Store;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::Error;

/// Reads a list file of a backup; a missing file is an empty list.
pub async fn read_backup_list<T: DeserializeOwned>(store: &Store, key: &str) -> Result<Vec<T>, Error> {
    match get(store, key).await? {
        Some(packed) => parse_backup_list(key, &packed),
        None => Ok(Vec::new()),
    }
}

/// Parses a list file of a backup.
pub(crate) fn parse_backup_list<T: DeserializeOwned>(key: &str, packed: &[u8]) -> Result<Vec<T>, Error> {
    codec::read_gzip_list(packed).map_err(|source| Error::Archive { name: key.to_owned(), source })
}

/// A list file of a backup in which every item is valid. Only the packed file is in memory.
pub struct ValidBackupList<T> {
    packed: Option<Bytes>,
    item: PhantomData<T>,
}

impl<T: DeserializeOwned + Send + 'static> ValidBackupList<T> {
    /// Reads a file to its end; a missing file is an empty list.
    pub async fn read(store: &Store, key: &str) -> Result<Self, Error> {
        let list = Self { packed: get(store, key).await?, item: PhantomData };
        let mut items = list.items();
        while let Some(item) = items.recv().await {
            item.map_err(|source| Error::Archive { name: key.to_owned(), source })?;
        }
        Ok(list)
    }

    /// The items; the last one may be an error.
    pub fn items(&self) -> mpsc::Receiver<ListItem<T>> {
        let (sender, receiver) = mpsc::channel(4);
        if let Some(packed) = self.packed.clone() {
            tokio::task::spawn_blocking(move || send_items(&packed, &sender));
        }
        receiver
    }
}

type ListItem<T> = Result<T, plimsoll_archive::Error>;

/// Ends early when the receiver is dropped.
fn send_items<T: DeserializeOwned>(packed: &[u8], items: &mpsc::Sender<ListItem<T>>) {
    let send = |item| items.blocking_send(item).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe));
    if let Err(error) = codec::visit_gzip_list(packed, |item, _| Ok(send(Ok(item))?)) {
        let _ = send(Err(error));
    }
}

async fn get(store: &Store, key: &str) -> Result<Option<Bytes>, Error> {
    match store.get_at_most(key, codec::MAX_PACKED_METADATA_BYTES).await {
        Ok(packed) => Ok(Some(packed)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
