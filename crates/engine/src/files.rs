//! The files an operation leaves in the location beside its main one.

use std::path::Path;

use bytes::Bytes;
use plimsoll_archive::codec;
use plimsoll_progress::{Task, Total, Unit};
use plimsoll_store::Store;
use serde::Serialize;
use tokio::io::AsyncReadExt;

use crate::ports::Guard;
use crate::{Error, Patience, kill};

/// Small contents and spooled files, by key.
#[derive(Default)]
pub struct Files<'a> {
    small: Vec<(String, Bytes)>,
    spooled: Vec<(String, &'a Path)>,
}

impl<'a> Files<'a> {
    /// Adds a value, as JSON in gzip.
    pub fn json(mut self, key: String, value: &impl Serialize) -> Result<Self, Error> {
        let packed = codec::gzip_json(value).map_err(|source| Error::Archive { name: key.clone(), source })?;
        self.small.push((key, packed.into()));
        Ok(self)
    }

    /// Adds a list, as JSON in gzip, unless it is empty.
    pub fn maybe_json(self, key: String, list: &[impl Serialize]) -> Result<Self, Error> {
        if list.is_empty() { Ok(self) } else { self.json(key, &list) }
    }

    /// Adds a file of the scratch directory, as it is.
    pub fn spooled(mut self, key: String, path: &'a Path) -> Self {
        self.spooled.push((key, path));
        self
    }

    /// Writes them. Doing it again replaces them.
    pub async fn write(self, store: &Store, task: &Task, guard: &dyn Guard) -> Result<(), Error> {
        let steps = task.meter(Unit::Steps);
        steps.set_total(Total::Final((self.small.len() + self.spooled.len()) as u64));
        for (key, content) in self.small {
            guard.effect()?;
            task.say(&key);
            kill::point("file.before");
            let put = || async { Ok(store.put(&key, content.clone()).await?) };
            Patience::default().run(task, put).await?;
            kill::point("file.after");
            steps.add(1);
        }
        for (key, path) in self.spooled {
            guard.effect()?;
            task.say(&key);
            Patience::default().run(task, || upload(store, &key, path)).await?;
            steps.add(1);
        }
        Ok(())
    }
}

/// Copies a spooled file into the location, a piece at a time.
async fn upload(store: &Store, key: &str, path: &Path) -> Result<(), Error> {
    let mut file = tokio::fs::File::open(path).await.map_err(|e| Error::scratch(path, e))?;
    let mut upload = store.upload(key).await?;
    loop {
        let mut piece = bytes::BytesMut::with_capacity(1 << 20);
        let read = file.read_buf(&mut piece).await.map_err(|e| Error::scratch(path, e))?;
        if read == 0 {
            break;
        }
        upload.write(piece.freeze()).await?;
    }
    upload.finish().await?;
    Ok(())
}
