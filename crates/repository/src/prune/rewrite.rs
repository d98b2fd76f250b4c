//! Moves the used blobs of packs into new packs.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use plimsoll_progress::Meter;

use super::inventory::Inventory;
use super::pack_use::PackUses;
use super::rewrite_memory::RewriteMemory;
use crate::backup::Compression;
use crate::backup::packer::{BlobEncoder, EncryptedBlob};
use crate::blob_index::{BlobIndex, BlobLocation};
use crate::blob_read::{BlobReader, Decoder, StoredBlob};
use crate::cancel::Cancel;
use crate::format::blob::{BlobKind, PackedBlob};
use crate::format::crypto::EncryptedBytes;
use crate::format::id::Id;
use crate::format::index::IndexedPack;
use crate::format::pack::stored_size;
use crate::lock::Lock;
use crate::pack_writer::PackWriter;
use crate::read_ahead::{FetchedRange, ReadAhead, ReadRequest};
use crate::repository::Repository;
use crate::stop::StopState;
use crate::{RepositoryError, Result, system};

/// A pack to rewrite and the blobs to move, in the order of their offsets.
pub(super) struct PackToRewrite {
    pub number: u32,
    pub id: Id,
    pub blobs: Vec<PackedBlob>,
}

/// The outcome of a rewrite.
#[derive(Default)]
pub(super) struct Rewritten {
    /// The packs whose used blobs are in new packs now.
    pub done: Vec<u32>,
    /// The new packs. They are stored and in no index file.
    pub packs: Vec<IndexedPack>,
}

/// The limits of one rewrite.
#[derive(Clone, Copy)]
pub(super) struct RewriteLimits {
    pub bytes: u64,
    pub pack_size: usize,
    /// No pack is begun after this time.
    pub deadline: Instant,
}

/// The maximum number of blobs that are moved at once, because of their memory.
const MAX_BLOBS: usize = 500_000;
/// Smaller gaps between blobs are read too.
const MAX_GAP: u64 = 1024 * 1024;
/// The maximum size of a range, unless it is a single blob.
const MAX_RANGE_SIZE: u64 = 4 * 1024 * 1024;

/// The first packs of `order` within the limits, at least one, with the blobs to keep of each.
pub(super) fn select(
    inventory: &Inventory,
    uses: &PackUses,
    order: &[u32],
    limits: RewriteLimits,
) -> Vec<PackToRewrite> {
    let mut bytes = 0;
    let within = order.iter().enumerate().take_while(|(position, pack)| {
        bytes += uses.of(**pack).used;
        *position == 0 || bytes <= limits.bytes
    });
    let mut positions = vec![u32::MAX; inventory.index.pack_count()];
    let mut packs = Vec::new();
    for (position, &number) in within {
        if let Some(slot) = positions.get_mut(number as usize) {
            *slot = u32::try_from(position).unwrap_or(u32::MAX);
        }
        packs.push(PackToRewrite { number, id: inventory.index.pack(number), blobs: Vec::new() });
    }
    inventory.index.for_each_blob(|kind, number, id, first| {
        if !inventory.used.has(kind, number) {
            return;
        }
        let copies = inventory.index.further_copies(kind, id);
        let kept = if copies.is_empty() { Some(first) } else { uses.kept_copy(inventory, first, copies) };
        let Some(location) = kept else { return };
        let position = positions.get(location.pack as usize).copied().unwrap_or(u32::MAX);
        if let Some(pack) = packs.get_mut(position as usize) {
            let BlobLocation { offset, length, uncompressed, .. } = location;
            pack.blobs.push(PackedBlob { id: *id, kind, offset, length, uncompressed });
        }
    });
    let mut blobs = 0;
    packs.retain(|pack| {
        blobs += pack.blobs.len();
        blobs <= MAX_BLOBS || blobs == pack.blobs.len()
    });
    for pack in &mut packs {
        pack.blobs.sort_unstable_by_key(|blob| blob.offset);
    }
    packs
}

/// Moves blobs into new packs.
pub(super) struct Rewrite<'a> {
    pub repository: &'a Arc<Repository>,
    pub index: &'a BlobIndex,
    pub lock: &'a Lock,
    pub moved: &'a Meter,
    pub cancel: &'a Cancel,
}

struct WorkerState {
    decoder: Decoder,
    encoder: BlobEncoder,
    finisher: BlobEncoder,
}

impl WorkerState {
    fn new() -> Result<Self> {
        // Moved blobs are verified when they are read, and their bytes stay the same.
        let (encoder, finisher) =
            (BlobEncoder::new(Compression::Auto, true)?, BlobEncoder::new(Compression::Auto, false)?);
        Ok(Self { decoder: Decoder::new(), encoder, finisher })
    }
}

impl Rewrite<'_> {
    /// Moves the blobs of these packs, until the deadline.
    pub(super) fn run(&self, packs: Vec<PackToRewrite>, limits: RewriteLimits) -> Result<Rewritten> {
        let memory = self.repository.memory().for_buffers(self.index.len());
        let plan = RewriteMemory::plan(memory, system::processors());
        let stop = StopState::new(self.cancel);
        let writer = PackWriter::new(self.repository, self.lock, limits.pack_size, plan.packs, &stop);
        let read_ahead = ReadAhead::new(plan.read_ahead);
        let reader = BlobReader::new(self.repository, self.index, self.cancel);
        let mut done = Vec::new();
        std::thread::scope(|scope| {
            for _ in 0..plan.workers {
                scope.spawn(|| {
                    if let Err(error) = self.work(&read_ahead, &writer, &reader, &stop) {
                        stop.fail(error);
                    }
                });
            }
            // At least one, so that every slice gets on.
            let begun = packs.into_iter().enumerate().take_while(|(position, _)| {
                *position == 0 || (Instant::now() < limits.deadline && self.lock.check().is_ok())
            });
            let requests = begun.flat_map(|(_, pack)| {
                done.push(pack.number);
                requests_of(pack)
            });
            read_ahead.fetch_all(self.repository, requests, || stop.is_stopped());
        });
        stop.take_failure()?;
        let packs = writer.finish(&mut WorkerState::new()?.finisher)?;
        Ok(Rewritten { done, packs })
    }

    fn work(
        &self,
        read_ahead: &ReadAhead<RangeBlobs>,
        writer: &PackWriter<'_>,
        reader: &BlobReader<'_>,
        stop: &StopState<'_>,
    ) -> Result<()> {
        let mut state = WorkerState::new()?;
        while let Some(fetched) = read_ahead.next(self.cancel)? {
            stop.check()?;
            self.move_blobs(&fetched, writer, reader, &mut state)?;
        }
        Ok(())
    }

    fn move_blobs(
        &self,
        fetched: &FetchedRange<RangeBlobs>,
        writer: &PackWriter<'_>,
        reader: &BlobReader<'_>,
        state: &mut WorkerState,
    ) -> Result<()> {
        let content = match &fetched.content {
            Ok(content) => content.as_ref(),
            Err(RepositoryError::Corrupt { .. }) => &[],
            Err(_) => return self.fetch_again(&fetched.context),
        };
        for blob in &fetched.context.blobs {
            let from = usize::try_from(u64::from(blob.offset) - fetched.context.start).unwrap_or(usize::MAX);
            let stored = content.get(from..).and_then(|rest| rest.get(..blob.length as usize)).unwrap_or_default();
            self.move_blob(blob, stored, writer, reader, state)?;
            self.moved.add(stored_size(blob.length, blob.uncompressed > 0));
        }
        Ok(())
    }

    /// The error of the store for a range that could not be read.
    fn fetch_again(&self, range: &RangeBlobs) -> Result<()> {
        let Some(last) = range.blobs.last() else { return Ok(()) };
        let end = u64::from(last.offset) + u64::from(last.length);
        self.repository.wait(self.cancel, self.repository.read_pack_range(range.pack, range.start..end)).map(drop)
    }

    /// Appends a blob as it is stored, after its verification. A tree is compressed if it is not.
    fn move_blob(
        &self,
        blob: &PackedBlob,
        stored: &[u8],
        writer: &PackWriter<'_>,
        reader: &BlobReader<'_>,
        state: &mut WorkerState,
    ) -> Result<()> {
        let key = &self.repository.key;
        let encrypted = StoredBlob { encrypted: stored, uncompressed: blob.uncompressed, id: &blob.id };
        let is_plain_tree = blob.kind == BlobKind::Tree && blob.uncompressed == 0 && self.repository.version() > 1;
        let mut plain = match state.decoder.decode(key, &encrypted) {
            Ok(_) if !is_plain_tree => {
                let encrypted = EncryptedBytes::split(stored)
                    .map_err(|error| RepositoryError::corrupt(format!("blob {}", blob.id), error.to_string()))?;
                let moved = EncryptedBlob { id: blob.id, encrypted, uncompressed: blob.uncompressed };
                return writer.append(blob.kind, &moved, &mut state.finisher);
            }
            Ok(plain) => plain.to_vec(),
            // Another copy may be intact.
            Err(_) => reader.blob(blob.kind, &blob.id)?,
        };
        let WorkerState { encoder, finisher, .. } = state;
        let moved = if self.repository.version() > 1 {
            encoder.encrypt(key, blob.kind, blob.id, &mut plain)?
        } else {
            EncryptedBlob { id: blob.id, encrypted: key.encrypt_in_place(&mut plain), uncompressed: 0 }
        };
        writer.append(blob.kind, &moved, finisher)
    }
}

/// A range of a pack and the blobs to move.
struct RangeBlobs {
    pack: Id,
    start: u64,
    blobs: Vec<PackedBlob>,
}

/// The ranges to read of a pack.
fn requests_of(pack: PackToRewrite) -> Vec<ReadRequest<RangeBlobs>> {
    let mut requests: Vec<ReadRequest<RangeBlobs>> = Vec::new();
    for blob in pack.blobs {
        let bytes = range_of(&blob);
        match requests.last_mut() {
            Some(last) if bytes.start <= last.bytes.end + MAX_GAP && bytes.end - last.bytes.start <= MAX_RANGE_SIZE => {
                last.bytes.end = last.bytes.end.max(bytes.end);
                last.context.blobs.push(blob);
            }
            _ => {
                let context = RangeBlobs { pack: pack.id, start: bytes.start, blobs: vec![blob] };
                requests.push(ReadRequest { pack: pack.id, bytes, context });
            }
        }
    }
    requests
}

fn range_of(blob: &PackedBlob) -> Range<u64> {
    let start = u64::from(blob.offset);
    start..start + u64::from(blob.length)
}
