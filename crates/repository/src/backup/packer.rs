//! Filling packs: blobs are compressed, sealed, verified and appended; a full pack gets its header and its name.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::options::Compression;
use crate::blob_read::Decoder;
use crate::format::blob::{BlobKind, PackedBlob};
use crate::format::chunker::LONGEST;
use crate::format::crypto::Key;
use crate::format::id::Id;
use crate::format::pack;
use crate::{RepositoryError, Result};

/// Buffers that go round: a fresh one costs a page fault for every 4 KiB.
#[derive(Clone, Default)]
pub(super) struct BufferPool(Arc<Mutex<Vec<Vec<u8>>>>);

impl BufferPool {
    pub(super) fn take(&self) -> Option<Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub(super) fn give(&self, buffer: Vec<u8>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }

    /// Bytes that give their buffer back when the last reader is done with them.
    fn lend(&self, buffer: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { buffer, pool: self.clone() })
    }
}

struct Lent {
    buffer: Vec<u8>,
    pool: BufferPool,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.buffer));
    }
}

/// A pack that is ready to be stored.
pub(super) struct FinishedPack {
    pub id: Id,
    pub content: Bytes,
    pub blobs: Vec<PackedBlob>,
}

/// A pack being filled.
pub(super) struct Packer {
    kind: BlobKind,
    size: usize,
    buffers: BufferPool,
    buffer: Vec<u8>,
    blobs: Vec<PackedBlob>,
    hash: Sha256,
}

impl Packer {
    pub(super) fn new(kind: BlobKind, size: usize, buffers: BufferPool) -> Self {
        Self { kind, size, buffers, buffer: Vec::new(), blobs: Vec::new(), hash: Sha256::new() }
    }

    /// Appends a blob; `stored` is its compressed form, or the plain one if `uncompressed` is 0.
    fn append(&mut self, key: &Key, id: Id, stored: &[u8], uncompressed: usize) -> Result<&[u8]> {
        if self.buffer.capacity() == 0 {
            self.buffer = self.buffers.take().unwrap_or_else(|| Vec::with_capacity(self.size + LONGEST));
            self.buffer.clear();
        }
        let offset = self.buffer.len();
        key.seal(stored, &mut self.buffer);
        let sealed = &self.buffer[offset..];
        self.hash.update(sealed);
        let too_large = |_| RepositoryError::corrupt(format!("blob {id}"), "it is too large for a pack");
        self.blobs.push(PackedBlob {
            id,
            kind: self.kind,
            offset: u32::try_from(offset).map_err(too_large)?,
            length: u32::try_from(sealed.len()).map_err(too_large)?,
            uncompressed: u32::try_from(uncompressed).map_err(too_large)?,
        });
        Ok(sealed)
    }

    fn is_full(&self) -> bool {
        self.buffer.len() >= self.size || self.blobs.len() >= pack::MOST_BLOBS
    }

    /// Closes the pack; nothing if it is empty.
    pub(super) fn finish(&mut self, key: &Key) -> Option<FinishedPack> {
        if self.blobs.is_empty() {
            return None;
        }
        let (blobs, mut buffer) = (std::mem::take(&mut self.blobs), std::mem::take(&mut self.buffer));
        let header = pack::encode_header(&blobs, key);
        let mut hash = std::mem::replace(&mut self.hash, Sha256::new());
        hash.update(&header);
        buffer.extend_from_slice(&header);
        Some(FinishedPack { id: Id(hash.finalize().into()), content: self.buffers.lend(buffer), blobs })
    }
}

/// Compresses and verifies: the scratch memory of one thread.
pub(super) struct Saver {
    compressor: zstd::bulk::Compressor<'static>,
    probe: zstd::bulk::Compressor<'static>,
    scratch: Vec<u8>,
    decoder: Decoder,
    compression: Compression,
    verify: bool,
}

/// What became of a new blob.
pub(super) struct Saved {
    pub stored: usize,
    pub full: Option<FinishedPack>,
}

impl Saver {
    pub(super) fn new(compression: Compression, verify: bool) -> Result<Self> {
        let level = if compression == Compression::Max { 12 } else { 3 };
        let failed = |error: std::io::Error| RepositoryError::corrupt("the compressor", error.to_string());
        Ok(Self {
            compressor: zstd::bulk::Compressor::new(level).map_err(failed)?,
            probe: zstd::bulk::Compressor::new(1).map_err(failed)?,
            scratch: Vec::new(),
            decoder: Decoder::new(),
            compression,
            verify,
        })
    }

    /// Puts a new blob into the pack; a pack that is full thereby is handed out.
    pub(super) fn save(&mut self, key: &Key, packer: &mut Packer, id: Id, plain: &[u8]) -> Result<Saved> {
        let compressed = self.compress(packer.kind, plain);
        let sealed = if compressed {
            packer.append(key, id, &self.scratch, plain.len())?
        } else {
            packer.append(key, id, plain, 0)?
        };
        let stored = sealed.len();
        if self.verify {
            let uncompressed = if compressed { u32::try_from(plain.len()).unwrap_or(0) } else { 0 };
            let verified = self.decoder.decode(key, sealed, uncompressed, &id);
            verified.map_err(|cause| RepositoryError::corrupt(format!("the new blob {id}"), cause))?;
        }
        let full = if packer.is_full() { packer.finish(key) } else { None };
        Ok(Saved { stored, full })
    }

    /// Compresses into the scratch buffer; says whether that is worth storing. Trees are always compressed: a plain
    /// one makes `prune` rewrite its pack.
    fn compress(&mut self, kind: BlobKind, plain: &[u8]) -> bool {
        let data = kind == BlobKind::Data;
        if data && (self.compression == Compression::Off || !self.looks_compressible(plain)) {
            return false;
        }
        self.scratch.clear();
        self.scratch.reserve(zstd::zstd_safe::compress_bound(plain.len()));
        let compressed = self.compressor.compress_to_buffer(plain, &mut self.scratch);
        compressed.is_ok_and(|length| !data || length < plain.len())
    }

    /// Three samples tell whether the whole is worth the time.
    fn looks_compressible(&mut self, plain: &[u8]) -> bool {
        const SAMPLE: usize = 8 * 1024;
        if plain.len() < 8 * SAMPLE || self.compression == Compression::Max {
            return true;
        }
        let mut compressed = 0;
        for start in [0, (plain.len() - SAMPLE) / 2, plain.len() - SAMPLE] {
            self.scratch.clear();
            self.scratch.reserve(2 * SAMPLE);
            let sample = &plain[start..start + SAMPLE];
            compressed += self.probe.compress_to_buffer(sample, &mut self.scratch).unwrap_or(SAMPLE);
        }
        compressed * 100 < 3 * SAMPLE * 95
    }
}
