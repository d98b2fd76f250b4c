//! Reading blobs: decrypted, decompressed and verified, from another copy if one is damaged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use plimsoll_store::StoreError;

use crate::blob_index::{BlobIndex, BlobLocation, LARGE_PACK};
use crate::cancel::Cancel;
use crate::format::blob::BlobKind;
use crate::format::crypto::Key;
use crate::format::id::Id;
use crate::format::tree::Tree;
use crate::format::unpacked;
use crate::repository::{FileKind, Repository, get_limited, too_large};
use crate::tree_cache::{MissingRange, PackPart, TreeCache};
use crate::{RepositoryError, Result};

/// The maximum size of a pack that is not large, with the longest header.
const MAX_TREE_PACK_SIZE: u64 = 2 * LARGE_PACK;
/// Larger blobs are decompressed in steps, so that a wrong length costs no memory.
const MAX_SINGLE_DECOMPRESSION: usize = 64 * 1024 * 1024;

/// Decodes blobs, with reusable buffers for one thread.
pub(crate) struct Decoder {
    decrypted: Vec<u8>,
    decompressed: Vec<u8>,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self { decrypted: Vec::new(), decompressed: Vec::new(), zstd: zstd::bulk::Decompressor::new().ok() }
    }

    /// The plain bytes of a blob, verified against its ID; or what is wrong with it.
    pub(crate) fn decode(&mut self, key: &Key, blob: &StoredBlob<'_>) -> Result<&[u8], String> {
        let plain = self.decrypt(key, blob)?;
        verify(plain, Id::of(plain), blob)
    }

    fn decrypt(&mut self, key: &Key, blob: &StoredBlob<'_>) -> Result<&[u8], String> {
        key.decrypt(blob.encrypted, &mut self.decrypted).map_err(|error| error.to_string())?;
        if blob.uncompressed == 0 {
            return Ok(&self.decrypted);
        }
        self.decompress(blob.uncompressed as usize)?;
        Ok(&self.decompressed)
    }

    fn decompress(&mut self, length: usize) -> Result<(), String> {
        let Self { decrypted, decompressed, zstd } = self;
        decompressed.clear();
        if length > MAX_SINGLE_DECOMPRESSION {
            *decompressed = unpacked::decompress(decrypted, length)?;
        } else {
            decompressed.reserve(length);
            let decoder = zstd.as_mut().ok_or("no decompressor")?;
            decoder.decompress_to_buffer(decrypted, decompressed).map_err(|error| error.to_string())?;
        }
        if decompressed.len() == length {
            Ok(())
        } else {
            Err(format!("{} bytes instead of {length}", decompressed.len()))
        }
    }
}

/// A blob as stored in a pack.
pub(crate) struct StoredBlob<'s> {
    pub encrypted: &'s [u8],
    /// Length of the plain form if it is compressed, else 0.
    pub uncompressed: u32,
    pub id: &'s Id,
}

/// Decodes two blobs at a time.
pub(crate) struct PairDecoder(Decoder, Decoder);

impl PairDecoder {
    pub(crate) fn new() -> Self {
        Self(Decoder::new(), Decoder::new())
    }

    pub(crate) fn decode_one(&mut self, key: &Key, blob: &StoredBlob<'_>) -> Result<&[u8], String> {
        self.0.decode(key, blob)
    }

    /// Decodes two blobs in less time than one after the other, because they are hashed in parallel.
    pub(crate) fn decode(&mut self, key: &Key, blobs: [&StoredBlob<'_>; 2]) -> [Result<&[u8], String>; 2] {
        match [self.0.decrypt(key, blobs[0]), self.1.decrypt(key, blobs[1])] {
            [Ok(one), Ok(other)] => {
                let (id, other_id) = Id::of_both(one, other);
                [verify(one, id, blobs[0]), verify(other, other_id, blobs[1])]
            }
            [one, other] => {
                let single = |plain, blob| verify(plain, Id::of(plain), blob);
                [one.and_then(|plain| single(plain, blobs[0])), other.and_then(|plain| single(plain, blobs[1]))]
            }
        }
    }
}

fn verify<'p>(plain: &'p [u8], actual: Id, blob: &StoredBlob<'_>) -> Result<&'p [u8], String> {
    if actual == *blob.id { Ok(plain) } else { Err("its hash does not match its ID".into()) }
}

/// Reads trees and single blobs of a repository.
pub(crate) struct BlobReader<'a> {
    repository: &'a Repository,
    index: &'a BlobIndex,
    cancel: Cancel,
    trees: Mutex<TreeCache>,
    /// Locked while a pack of trees is read, so that no pack is read twice.
    reading_trees: Mutex<()>,
}

impl<'a> BlobReader<'a> {
    pub(crate) fn new(repository: &'a Repository, index: &'a BlobIndex, cancel: &Cancel) -> Self {
        Self { repository, index, cancel: cancel.clone(), trees: Mutex::default(), reading_trees: Mutex::default() }
    }

    /// Reads a tree, from any intact copy.
    pub(crate) fn tree(&self, id: &Id) -> Result<Arc<Tree>> {
        let tree = self.with_blob(BlobKind::Tree, id, Tree::parse)?;
        tree.map(Arc::new).map_err(|cause| RepositoryError::corrupt(format!("tree {id}"), cause))
    }

    /// Reads the plain bytes of a blob, from any intact copy.
    pub(crate) fn blob(&self, kind: BlobKind, id: &Id) -> Result<Vec<u8>> {
        self.with_blob(kind, id, <[u8]>::to_vec)
    }

    /// Applies `convert` to the plain bytes of a blob.
    fn with_blob<T>(&self, kind: BlobKind, id: &Id, convert: impl Fn(&[u8]) -> T) -> Result<T> {
        let mut decoder = Decoder::new();
        let mut cause = "not in the index".to_owned();
        for location in self.index.locations(kind, id) {
            self.cancel.check()?;
            let decoded = self.read_encrypted(kind, &location).and_then(|encrypted| {
                let blob = StoredBlob { encrypted: &encrypted, uncompressed: location.uncompressed, id };
                let plain = decoder.decode(&self.repository.key, &blob);
                plain.map(&convert).map_err(|cause| self.damaged(&location, cause))
            });
            match decoded {
                Ok(converted) => return Ok(converted),
                Err(error @ RepositoryError::Corrupt { .. }) => cause = error.to_string(),
                Err(error) => return Err(error),
            }
        }
        let what = if kind == BlobKind::Tree { "tree" } else { "data blob" };
        Err(RepositoryError::corrupt(format!("{what} {id}"), cause))
    }

    fn damaged(&self, location: &BlobLocation, cause: String) -> RepositoryError {
        RepositoryError::corrupt(format!("a blob of pack {}", self.index.pack(location.pack)), cause)
    }

    fn read_encrypted(&self, kind: BlobKind, location: &BlobLocation) -> Result<Bytes> {
        match kind {
            BlobKind::Tree => self.read_tree(location),
            BlobKind::Data => self.read_range(location),
        }
    }

    fn read_range(&self, location: &BlobLocation) -> Result<Bytes> {
        let pack = self.index.pack(location.pack);
        self.repository.wait(&self.cancel, self.repository.read_pack_range(pack, location.range()))
    }

    fn read_tree(&self, location: &BlobLocation) -> Result<Bytes> {
        let find_cached =
            || self.tree_cache().find(location.pack, self.index.is_large(location.pack), &location.range());
        if let Ok(cached) = find_cached() {
            return Ok(cached);
        }
        let _reading = self.reading_trees.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = match find_cached() {
            Ok(cached) => return Ok(cached),
            Err(missing) => missing,
        };
        let part = match missing {
            MissingRange::Pack => {
                PackPart { pack: location.pack, start: 0, content: self.read_tree_pack(location.pack)? }
            }
            MissingRange::Part(range) => {
                let read = self.repository.read_pack_range(self.index.pack(location.pack), range.clone());
                PackPart { pack: location.pack, start: range.start, content: self.repository.wait(&self.cancel, read)? }
            }
        };
        let tree = part.slice(&location.range());
        self.tree_cache().insert(part);
        tree.ok_or_else(|| self.damaged(location, "the pack is too short".into()))
    }

    fn tree_cache(&self) -> MutexGuard<'_, TreeCache> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_tree_pack(&self, number: u32) -> Result<Bytes> {
        let key = FileKind::Pack.key_of(&self.index.pack(number));
        let read = self.repository.read(&key, || get_limited(&self.repository.store, &key, MAX_TREE_PACK_SIZE));
        let pack = self.repository.wait(&self.cancel, read).map_err(|error| missing_as_damage(&key, error))?;
        pack.map_err(|size| RepositoryError::corrupt(key, too_large(size)))
    }
}

impl Repository {
    /// Reads a range of a pack. A missing or too short pack is damage, not a failure of the store.
    pub(crate) async fn read_pack_range(&self, pack: Id, range: std::ops::Range<u64>) -> Result<Bytes> {
        let key = FileKind::Pack.key_of(&pack);
        let end = range.end;
        let failure = match self.read(&key, || self.store.get_range(&key, range.clone())).await {
            Ok(bytes) => return Ok(bytes),
            Err(failure) => missing_as_damage(&key, failure),
        };
        match self.store.head(&key).await {
            Ok(info) if info.size < end => {
                let cause = format!("it has {} bytes instead of at least {end}", info.size);
                Err(RepositoryError::corrupt(key, cause))
            }
            _ => Err(failure),
        }
    }
}

/// Reports a missing pack as damage.
pub(crate) fn missing_as_damage(key: &str, error: RepositoryError) -> RepositoryError {
    match error {
        RepositoryError::Store(StoreError::NotFound { .. }) => RepositoryError::corrupt(key, "file not found"),
        error => error,
    }
}
