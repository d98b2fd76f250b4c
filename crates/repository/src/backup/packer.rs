//! Packs: blobs are compressed, encrypted, verified and appended; a full pack gets its header and its ID.

use bytes::Bytes;
use plimsoll_store::ALIGNMENT;

use super::buffers::{Buffer, Buffers};
use super::options::Compression;
use super::verify::Verifier;
use crate::format::blob::{BlobKind, PackedBlob};
use crate::format::crypto::{EncryptedBytes, Key};
use crate::format::hash::Hash;
use crate::format::id::Id;
use crate::format::pack;
use crate::{RepositoryError, Result};

/// A pack that is ready to be stored.
pub(crate) struct FinishedPack {
    pub id: Id,
    pub content: Bytes,
    pub blobs: Vec<PackedBlob>,
}

/// A pack that is full or last, without its header.
pub(crate) struct FullPack {
    content: Buffer,
    blobs: Vec<PackedBlob>,
}

impl FullPack {
    /// Verifies the uncompressed blobs, and completes the pack with its header and its ID. That is most of the work on a pack, so
    /// the packer must not be locked meanwhile.
    pub(crate) fn finish(self, key: &Key, encoder: &mut BlobEncoder) -> Result<FinishedPack> {
        let Self { mut content, blobs } = self;
        let mut hash = encoder.hash_content(key, content.as_ref(), &blobs)?;
        let header = pack::encode_header(&blobs, key);
        hash.update(&header);
        content.extend_from_slice(&header);
        Ok(FinishedPack { id: hash.finish(), content: Bytes::from_owner(content), blobs })
    }
}

/// A pack being filled.
pub(crate) struct Packer {
    kind: BlobKind,
    size: usize,
    buffers: Buffers,
    buffer: Option<Buffer>,
    blobs: Vec<PackedBlob>,
}

/// How much a pack may exceed its size: for its header and the end of its last blob.
pub(crate) const SLACK: usize = 1024 * 1024;

impl Packer {
    pub(crate) fn new(kind: BlobKind, size: usize, buffers: Buffers) -> Self {
        Self { kind, size, buffers, buffer: None, blobs: Vec::new() }
    }

    /// Appends a blob, which is only copied. Returns the pack that was full before or is full now.
    pub(crate) fn append(&mut self, blob: &EncryptedBlob<'_>, stopped: impl Fn() -> bool) -> Result<Option<FullPack>> {
        let full = if self.has_no_room_for(blob) { self.take() } else { None };
        self.push(blob, stopped)?;
        Ok(match full {
            None if self.is_full() => self.take(),
            full => full,
        })
    }

    fn push(&mut self, blob: &EncryptedBlob<'_>, stopped: impl Fn() -> bool) -> Result<()> {
        if self.buffer.is_none() {
            self.buffer.insert(self.buffers.take(stopped)?).clear_aligned(ALIGNMENT);
        }
        let Some(buffer) = &mut self.buffer else { return Ok(()) };
        let too_large = |_| RepositoryError::corrupt(format!("blob {}", blob.id), "too large for a pack");
        let offset = u32::try_from(buffer.length()).map_err(too_large)?;
        let length = u32::try_from(blob.encrypted.stored_length()).map_err(too_large)?;
        for part in [&blob.encrypted.iv[..], blob.encrypted.text, &blob.encrypted.tag[..]] {
            buffer.extend_from_slice(part);
        }
        let EncryptedBlob { id, uncompressed, .. } = *blob;
        self.blobs.push(PackedBlob { id, kind: self.kind, offset, length, uncompressed });
        Ok(())
    }

    fn length(&self) -> usize {
        self.buffer.as_ref().map_or(0, Buffer::length) + pack::header_length(self.blobs.len() + 1)
    }

    fn has_no_room_for(&self, blob: &EncryptedBlob<'_>) -> bool {
        !self.blobs.is_empty() && self.length() + blob.encrypted.stored_length() > self.size + SLACK
    }

    fn is_full(&self) -> bool {
        self.length() >= self.size || self.blobs.len() >= pack::MAX_BLOBS
    }

    /// Takes the pack and starts a new one; `None` if it is empty.
    pub(crate) fn take(&mut self) -> Option<FullPack> {
        let content = self.buffer.take()?;
        Some(FullPack { content, blobs: std::mem::take(&mut self.blobs) })
    }
}

/// A blob that is ready for a pack. A compressed one is verified; others are verified with their pack.
pub(crate) struct EncryptedBlob<'t> {
    pub id: Id,
    pub encrypted: EncryptedBytes<'t>,
    /// Length of the plain form if it is compressed, else 0.
    pub uncompressed: u32,
}

fn verify_error(id: &Id, cause: String) -> RepositoryError {
    RepositoryError::corrupt(format!("the new blob {id}"), cause)
}

/// Compresses, encrypts and verifies blobs, with the buffers of one thread.
pub(crate) struct BlobEncoder {
    compressor: zstd::bulk::Compressor<'static>,
    probe: zstd::bulk::Compressor<'static>,
    scratch: Vec<u8>,
    verifier: Option<Verifier>,
    compression: Compression,
}

impl BlobEncoder {
    pub(crate) fn new(compression: Compression, verify: bool) -> Result<Self> {
        // Level 3 takes more than 50 % longer and makes text 1 or 2 % smaller.
        let level = if compression == Compression::Max { 12 } else { 2 };
        let failed = |error: std::io::Error| RepositoryError::corrupt("the compressor", error.to_string());
        Ok(Self {
            compressor: zstd::bulk::Compressor::new(level).map_err(failed)?,
            probe: zstd::bulk::Compressor::new(1).map_err(failed)?,
            scratch: Vec::new(),
            verifier: if verify { Some(Verifier::new().map_err(failed)?) } else { None },
            compression,
        })
    }

    /// Encodes plain bytes as a blob. Overwrites them.
    pub(crate) fn encrypt<'t>(
        &'t mut self,
        key: &Key,
        kind: BlobKind,
        id: Id,
        plain: &'t mut [u8],
    ) -> Result<EncryptedBlob<'t>> {
        let too_large = |_| RepositoryError::corrupt(format!("blob {id}"), "too large for a pack");
        let length = u32::try_from(plain.len()).map_err(too_large)?;
        let compressed = self.compress(kind, plain);
        let text = if compressed { self.scratch.as_mut_slice() } else { plain };
        let encrypted = key.encrypt_in_place(text);
        if compressed && let Some(verifier) = &mut self.verifier {
            verifier.verify_compressed(key, encrypted, &id).map_err(|cause| verify_error(&id, cause))?;
        }
        Ok(EncryptedBlob { id, encrypted, uncompressed: if compressed { length } else { 0 } })
    }

    /// The hash of a pack's blobs. Uncompressed blobs are verified meanwhile: two hashes at a time cost little more than one.
    fn hash_content(&mut self, key: &Key, content: &[u8], blobs: &[PackedBlob]) -> Result<Hash> {
        let mut hash = Hash::default();
        let Some(verifier) = &mut self.verifier else {
            hash.update(content);
            return Ok(hash);
        };
        for blob in blobs {
            let stored = content.get(blob.offset as usize..).and_then(|rest| rest.get(..blob.length as usize));
            let stored = stored.unwrap_or_default();
            if blob.uncompressed > 0 {
                hash.update(stored);
                continue;
            }
            let failed = |cause| verify_error(&blob.id, cause);
            let encrypted = EncryptedBytes::split(stored).map_err(|error| failed(error.to_string()))?;
            hash.update(&encrypted.iv);
            verifier.verify_plain(key, encrypted, &blob.id, &mut hash).map_err(failed)?;
            hash.update(&encrypted.tag);
        }
        Ok(hash)
    }

    /// Compresses into the scratch buffer. Returns whether to store the result. Trees are always compressed: an uncompressed tree
    /// makes `prune` rewrite its pack.
    fn compress(&mut self, kind: BlobKind, plain: &[u8]) -> bool {
        let is_data = kind == BlobKind::Data;
        if is_data && (self.compression == Compression::Off || !self.looks_compressible(plain)) {
            return false;
        }
        self.scratch.clear();
        self.scratch.reserve(zstd::zstd_safe::compress_bound(plain.len()));
        let compressed = self.compressor.compress_to_buffer(plain, &mut self.scratch);
        compressed.is_ok_and(|length| !is_data || length < plain.len())
    }

    /// Estimates the compressibility with three samples.
    fn looks_compressible(&mut self, plain: &[u8]) -> bool {
        const SAMPLE_SIZE: usize = 8 * 1024;
        if plain.len() < 8 * SAMPLE_SIZE || self.compression == Compression::Max {
            return true;
        }
        let mut compressed = 0;
        for start in [0, (plain.len() - SAMPLE_SIZE) / 2, plain.len() - SAMPLE_SIZE] {
            self.scratch.clear();
            self.scratch.reserve(2 * SAMPLE_SIZE);
            let sample = &plain[start..start + SAMPLE_SIZE];
            compressed += self.probe.compress_to_buffer(sample, &mut self.scratch).unwrap_or(SAMPLE_SIZE);
        }
        compressed * 100 < 3 * SAMPLE_SIZE * 95
    }
}
