//! Files of an operation in the location.

use std::io::Read;
use std::path::Path;

use bytes::Bytes;
use futures::StreamExt;
use plimsoll_archive::codec;
use plimsoll_archive::proof::FileDigest;
use plimsoll_progress::{Task, Total, Unit};
use plimsoll_store::{Store, Upload};
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::ports::LeadershipGuard;
use crate::{Error, RetryPolicy, kill};

/// Contents in memory and spooled files, by key.
#[derive(Default)]
pub struct OperationFiles<'a> {
    small: Vec<(String, Bytes)>,
    spooled: Vec<(String, &'a Path)>,
}

impl<'a> OperationFiles<'a> {
    /// Adds a value as gzipped JSON.
    pub fn json(mut self, key: String, value: &impl Serialize) -> Result<Self, Error> {
        let compressed = codec::gzip_json(value).map_err(|source| Error::Archive { name: key.clone(), source })?;
        self.small.push((key, compressed.into()));
        Ok(self)
    }

    /// Adds a list as gzipped JSON, unless it is empty.
    pub fn json_unless_empty(self, key: String, list: &[impl Serialize]) -> Result<Self, Error> {
        if list.is_empty() { Ok(self) } else { self.json(key, &list) }
    }

    /// Adds a file of the scratch directory unchanged.
    pub fn spooled(mut self, key: String, path: &'a Path) -> Self {
        self.spooled.push((key, path));
        self
    }

    /// Writes all files. A second call replaces them.
    pub async fn write(self, store: &Store, task: &Task, guard: &dyn LeadershipGuard) -> Result<(), Error> {
        let steps = task.meter(Unit::Steps);
        steps.set_total(Total::Final((self.small.len() + self.spooled.len()) as u64));
        for (key, content) in self.small {
            guard.check_effect()?;
            task.say(&key);
            kill::point("file.before");
            let put = || async { Ok(store.put(&key, content.clone()).await?) };
            RetryPolicy::default().run(task, put).await?;
            kill::point("file.after");
            steps.add(1);
        }
        for (key, path) in self.spooled {
            guard.check_effect()?;
            task.say(&key);
            RetryPolicy::default().run(task, || upload(store, &key, path, task)).await?;
            steps.add(1);
        }
        Ok(())
    }
}

/// Copies an object of the location into a file, chunk by chunk. Returns the digest of the file.
pub async fn download(store: &Store, key: &str, file: &Path) -> Result<FileDigest, Error> {
    let mut chunks = store.reader(key).await?;
    let mut out = tokio::fs::File::create(file).await.map_err(|e| Error::scratch(file, e))?;
    let mut digest = Sha256::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        digest.update(&chunk);
        out.write_all(&chunk).await.map_err(|e| Error::scratch(file, e))?;
    }
    out.flush().await.map_err(|e| Error::scratch(file, e))?;
    Ok(digest.finalize().into())
}

/// The digest of a spooled file.
pub async fn file_digest(path: &Path) -> Result<FileDigest, Error> {
    let file = path.to_owned();
    let hashing = tokio::task::spawn_blocking(move || {
        let (mut digest, mut input, mut part) = (Sha256::new(), std::fs::File::open(file)?, vec![0; 1 << 20]);
        loop {
            match input.read(&mut part)? {
                0 => return Ok(digest.finalize().into()),
                read => digest.update(&part[..read]),
            }
        }
    });
    hashing.await.map_err(std::io::Error::other).flatten().map_err(|error| Error::scratch(path, error))
}

/// Makes an uploaded object visible. A store joins the parts of a large one for minutes, and reports nothing meanwhile.
pub(crate) async fn complete_upload(mut upload: Upload, key: &str, task: &Task) -> Result<(), Error> {
    upload.flush().await?;
    let _waiting = task.wait_quietly(format!("waiting for the store to complete {key}"), None);
    Ok(upload.finish().await?)
}

/// Copies a spooled file into the location, chunk by chunk.
async fn upload(store: &Store, key: &str, path: &Path, task: &Task) -> Result<(), Error> {
    let mut file = tokio::fs::File::open(path).await.map_err(|e| Error::scratch(path, e))?;
    let mut upload = store.upload(key).await?;
    loop {
        let mut chunk = bytes::BytesMut::with_capacity(1 << 20);
        let read = file.read_buf(&mut chunk).await.map_err(|e| Error::scratch(path, e))?;
        if read == 0 {
            break;
        }
        upload.write(chunk.freeze()).await?;
    }
    Box::pin(complete_upload(upload, key, task)).await
}
