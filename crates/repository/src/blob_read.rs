//! Reading blobs: opened, unpacked and compared with their names, and read from another copy if one is damaged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use plimsoll_store::StoreError;

use crate::blob_index::{BlobIndex, LARGE_PACK, Place};
use crate::cancel::Cancel;
use crate::format::blob::BlobKind;
use crate::format::crypto::Key;
use crate::format::id::Id;
use crate::format::tree::Tree;
use crate::format::unpacked;
use crate::repository::{FileKind, Repository, get_at_most, too_large};
use crate::tree_cache::{Piece, TreeCache, Wished};
use crate::{RepositoryError, Result};

/// A pack whose blobs end before it is large, and the longest header that there can be.
const LARGEST_TREE_PACK: u64 = 2 * LARGE_PACK;
/// Frames that unpack into more are unpacked in steps, so that a lie about the length costs nothing.
const UNPACKED_AT_ONCE: usize = 64 * 1024 * 1024;

/// Buffers of one thread that decodes.
pub(crate) struct Decoder {
    opened: Vec<u8>,
    unpacked: Vec<u8>,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self { opened: Vec::new(), unpacked: Vec::new(), zstd: zstd::bulk::Decompressor::new().ok() }
    }

    /// The plain bytes of a blob, proved to be what their ID says; the error says what is wrong with them.
    pub(crate) fn decode(&mut self, key: &Key, blob: &StoredBlob<'_>) -> Result<&[u8], String> {
        let plain = self.open(key, blob)?;
        proved(plain, Id::of(plain), blob)
    }

    fn open(&mut self, key: &Key, blob: &StoredBlob<'_>) -> Result<&[u8], String> {
        key.open(blob.sealed, &mut self.opened).map_err(|error| error.to_string())?;
        if blob.uncompressed == 0 {
            return Ok(&self.opened);
        }
        self.unpack(blob.uncompressed as usize)?;
        Ok(&self.unpacked)
    }

    fn unpack(&mut self, length: usize) -> Result<(), String> {
        let Self { opened, unpacked, zstd } = self;
        unpacked.clear();
        if length > UNPACKED_AT_ONCE {
            *unpacked = unpacked::decompress(opened, length)?;
        } else {
            unpacked.reserve(length);
            let decoder = zstd.as_mut().ok_or("no decompressor")?;
            decoder.decompress_to_buffer(opened, unpacked).map_err(|error| error.to_string())?;
        }
        if unpacked.len() == length { Ok(()) } else { Err(format!("{} bytes instead of {length}", unpacked.len())) }
    }
}

/// A blob as it lies in a pack.
pub(crate) struct StoredBlob<'s> {
    pub sealed: &'s [u8],
    /// Length of the plain form if it is compressed, else 0.
    pub uncompressed: u32,
    pub id: &'s Id,
}

/// What two blobs are decoded with.
pub(crate) struct TwoDecoders(Decoder, Decoder);

impl TwoDecoders {
    pub(crate) fn new() -> Self {
        Self(Decoder::new(), Decoder::new())
    }

    pub(crate) fn decode_one(&mut self, key: &Key, blob: &StoredBlob<'_>) -> Result<&[u8], String> {
        self.0.decode(key, blob)
    }

    /// Two blobs in less time than one after the other: they are hashed side by side.
    pub(crate) fn decode(&mut self, key: &Key, blobs: [&StoredBlob<'_>; 2]) -> [Result<&[u8], String>; 2] {
        match [self.0.open(key, blobs[0]), self.1.open(key, blobs[1])] {
            [Ok(one), Ok(other)] => {
                let (found, other_found) = Id::of_both(one, other);
                [proved(one, found, blobs[0]), proved(other, other_found, blobs[1])]
            }
            [one, other] => {
                let alone = |plain, blob| proved(plain, Id::of(plain), blob);
                [one.and_then(|plain| alone(plain, blobs[0])), other.and_then(|plain| alone(plain, blobs[1]))]
            }
        }
    }
}

fn proved<'p>(plain: &'p [u8], found: Id, blob: &StoredBlob<'_>) -> Result<&'p [u8], String> {
    if found == *blob.id { Ok(plain) } else { Err("its content does not have the hash that is its name".into()) }
}

/// Reads trees (and single blobs) of one repository.
pub(crate) struct BlobReader<'a> {
    repository: &'a Repository,
    index: &'a BlobIndex,
    cancel: Cancel,
    trees: Mutex<TreeCache>,
    /// Held while a pack of trees is read: whoever wants it too finds it afterwards.
    reading_trees: Mutex<()>,
}

impl<'a> BlobReader<'a> {
    pub(crate) fn new(repository: &'a Repository, index: &'a BlobIndex, cancel: &Cancel) -> Self {
        Self { repository, index, cancel: cancel.clone(), trees: Mutex::default(), reading_trees: Mutex::default() }
    }

    /// A tree, from any copy of it that is good.
    pub(crate) fn tree(&self, id: &Id) -> Result<Arc<Tree>> {
        let tree = self.with_blob(BlobKind::Tree, id, Tree::parse)?;
        tree.map(Arc::new).map_err(|cause| RepositoryError::corrupt(format!("tree {id}"), cause))
    }

    /// The plain bytes of a blob, from any copy of it that is good.
    pub(crate) fn blob(&self, kind: BlobKind, id: &Id) -> Result<Vec<u8>> {
        self.with_blob(kind, id, <[u8]>::to_vec)
    }

    /// What `take` makes of them.
    fn with_blob<T>(&self, kind: BlobKind, id: &Id, take: impl Fn(&[u8]) -> T) -> Result<T> {
        let mut decoder = Decoder::new();
        let mut cause = "it is in no index file".to_owned();
        for place in self.index.places(kind, id) {
            self.cancel.check()?;
            let decoded = self.sealed(kind, &place).and_then(|sealed| {
                let blob = StoredBlob { sealed: &sealed, uncompressed: place.uncompressed, id };
                let plain = decoder.decode(&self.repository.key, &blob);
                plain.map(&take).map_err(|cause| self.damaged(&place, cause))
            });
            match decoded {
                Ok(taken) => return Ok(taken),
                Err(error @ RepositoryError::Corrupt { .. }) => cause = error.to_string(),
                Err(error) => return Err(error),
            }
        }
        let what = if kind == BlobKind::Tree { "tree" } else { "data blob" };
        Err(RepositoryError::corrupt(format!("{what} {id}"), cause))
    }

    fn damaged(&self, place: &Place, cause: String) -> RepositoryError {
        RepositoryError::corrupt(format!("a blob of pack {}", self.index.pack(place.pack)), cause)
    }

    fn sealed(&self, kind: BlobKind, place: &Place) -> Result<Bytes> {
        match kind {
            BlobKind::Tree => self.tree_in_pack(place),
            BlobKind::Data => self.read_range(place),
        }
    }

    fn read_range(&self, place: &Place) -> Result<Bytes> {
        let pack = self.index.pack(place.pack);
        self.repository.wait(&self.cancel, self.repository.read_pack_range(pack, place.range()))
    }

    fn tree_in_pack(&self, place: &Place) -> Result<Bytes> {
        let find = || self.tree_cache().find(place.pack, self.index.is_large(place.pack), &place.range());
        if let Ok(found) = find() {
            return Ok(found);
        }
        let _reading = self.reading_trees.lock().unwrap_or_else(PoisonError::into_inner);
        let wished = match find() {
            Ok(found) => return Ok(found),
            Err(wished) => wished,
        };
        let piece = match wished {
            Wished::Pack => Piece { pack: place.pack, start: 0, content: self.read_tree_pack(place.pack)? },
            Wished::Part(range) => {
                let read = self.repository.read_pack_range(self.index.pack(place.pack), range.clone());
                Piece { pack: place.pack, start: range.start, content: self.repository.wait(&self.cancel, read)? }
            }
        };
        let found = piece.slice(&place.range());
        self.tree_cache().keep(piece);
        found.ok_or_else(|| self.damaged(place, "the pack is too short".into()))
    }

    fn tree_cache(&self) -> MutexGuard<'_, TreeCache> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_tree_pack(&self, number: u32) -> Result<Bytes> {
        let key = FileKind::Pack.key_of(&self.index.pack(number));
        let read = self.repository.read(&key, || get_at_most(&self.repository.store, &key, LARGEST_TREE_PACK));
        let pack = self.repository.wait(&self.cancel, read).map_err(|error| missing(&key, error))?;
        pack.map_err(|size| RepositoryError::corrupt(key, too_large(size)))
    }
}

impl Repository {
    /// A part of a pack. A pack that is missing or too short is damage, not a failure of the store.
    pub(crate) async fn read_pack_range(&self, pack: Id, range: std::ops::Range<u64>) -> Result<Bytes> {
        let key = FileKind::Pack.key_of(&pack);
        let end = range.end;
        let failure = match self.read(&key, || self.store.get_range(&key, range.clone())).await {
            Ok(bytes) => return Ok(bytes),
            Err(failure) => missing(&key, failure),
        };
        match self.store.head(&key).await {
            Ok(info) if info.size < end => {
                let cause = format!("it ends at byte {} and should reach byte {end}", info.size);
                Err(RepositoryError::corrupt(key, cause))
            }
            _ => Err(failure),
        }
    }
}

/// A pack that is not there is damage.
pub(crate) fn missing(key: &str, error: RepositoryError) -> RepositoryError {
    match error {
        RepositoryError::Store(StoreError::NotFound { .. }) => RepositoryError::corrupt(key, "it is missing"),
        error => error,
    }
}
