//! Reads packs completely, and checks their hashes, headers and blobs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_progress::{Meter, Task, Total, Unit};

use crate::blob_read::{Decoder, StoredBlob};
use crate::cancel::Cancel;
use crate::format::blob::PackedBlob;
use crate::format::hash::Hash;
use crate::format::id::Id;
use crate::format::pack;
use crate::pack_file::PackFiles;
use crate::pack_parts::{PackParts, parts};
use crate::read_ahead::{ReadAhead, ReadRequest};
use crate::read_plan::ReadPlan;
use crate::repository::{ListedFile, Repository};
use crate::{RepositoryError, Result, system};

/// Larger packs are read in parts. A pack that was closed at 16 MiB with the longest blob is not.
const MAX_WHOLE_PACK_SIZE: u64 = 25 * 1024 * 1024;

/// Receives what is found, from several threads.
pub(crate) trait PackFindings: Sync {
    /// A blob of a pack is damaged, or the pack as a whole.
    fn damaged(&self, pack: &ListedFile, blob: Option<&PackedBlob>, text: String);
    /// The content of a pack does not have the hash that its ID is. Its blobs are checked one by one.
    fn wrong_hash(&self, pack: &ListedFile, text: String) {
        self.damaged(pack, None, text);
    }
    /// A blob was read, damaged or not.
    fn decoded(&self, _pack: &ListedFile, _blob: &PackedBlob) {}
    /// A pack was read.
    fn read(&self, pack: &ListedFile);
}

/// A check of packs.
pub(crate) struct PackCheck<'a, F> {
    pub repository: &'a Arc<Repository>,
    /// The blobs of the index in memory, which leaves the rest for buffers.
    pub indexed_blobs: usize,
    pub task: &'a Task,
    pub cancel: &'a Cancel,
    pub findings: &'a F,
}

impl<F: PackFindings> PackCheck<'_, F> {
    /// Reports damage, and returns other errors.
    fn record_damage<T>(&self, pack: &ListedFile, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error @ RepositoryError::Corrupt { .. }) => {
                self.findings.damaged(pack, None, error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads packs completely.
    pub(crate) fn read(&self, packs: &[ListedFile]) -> Result<()> {
        if packs.is_empty() {
            return Ok(());
        }
        let task = self.task.child("reading packs");
        let bytes = task.meter(Unit::Bytes);
        bytes.set_total(Total::Final(packs.iter().map(|pack| pack.size).sum()));
        let failure = Mutex::new(None);
        let stopped = || self.cancel.is_cancelled() || locked(&failure).is_some();
        let done = |result: Result<()>| {
            if let Err(error) = result {
                locked(&failure).get_or_insert(error);
            }
        };
        let plan = ReadPlan::check(self.repository.memory().for_buffers(self.indexed_blobs), system::processors());
        let (large, whole): (Vec<_>, Vec<_>) = packs.iter().cloned().partition(|pack| pack.size > MAX_WHOLE_PACK_SIZE);
        if self.repository.store.local_file("config").is_some() {
            let next = AtomicUsize::new(0);
            let readers = plan.workers.min(whole.len());
            on_each_reader(readers, || done(self.check_local_files(&whole, &next, &bytes, &stopped)), || ());
        } else {
            let read_ahead = ReadAhead::new(plan.read_ahead);
            let request = |pack: &ListedFile| ReadRequest { pack: pack.id, bytes: 0..pack.size, context: pack.clone() };
            on_each_reader(
                plan.workers.min(whole.len()),
                || done(self.check_fetched(&read_ahead, &bytes, &stopped)),
                || read_ahead.fetch_all(self.repository, whole.iter().map(request), stopped),
            );
        }
        let next = AtomicUsize::new(0);
        let readers = plan.workers.min(large.len());
        on_each_reader(readers, || done(self.check_large(&large, &next, &bytes, &stopped)), || ());
        if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        self.cancel.check()?;
        task.finish();
        Ok(())
    }

    /// Checks packs in a local directory: each thread reads its own.
    fn check_local_files(
        &self,
        packs: &[ListedFile],
        next: &AtomicUsize,
        bytes: &Meter,
        stopped: &dyn Fn() -> bool,
    ) -> Result<()> {
        let (mut decoder, mut files) = (Decoder::new(), PackFiles::default());
        while let Some(pack) = packs.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !stopped()) {
            if let Some(content) = files.read(self.repository, pack.id, 0..pack.size) {
                self.check_content_of(pack, content, &mut decoder, bytes)?;
            }
        }
        Ok(())
    }

    /// Checks packs of other stores, which are fetched ahead.
    fn check_fetched(
        &self,
        read_ahead: &ReadAhead<ListedFile>,
        bytes: &Meter,
        stopped: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut decoder = Decoder::new();
        while let Some(fetched) = read_ahead.next(self.cancel)? {
            if !stopped() {
                match fetched.content {
                    Ok(content) => self.check_content_of(&fetched.context, Ok(&content), &mut decoder, bytes)?,
                    Err(error) => self.check_content_of(&fetched.context, Err(error), &mut decoder, bytes)?,
                }
            }
        }
        Ok(())
    }

    /// Checks large packs in parts, because of the memory limit.
    fn check_large(
        &self,
        packs: &[ListedFile],
        next: &AtomicUsize,
        bytes: &Meter,
        stopped: &dyn Fn() -> bool,
    ) -> Result<()> {
        let (mut decoder, mut parts) = (Decoder::new(), PackParts::new(self.repository, self.cancel));
        while let Some(pack) = packs.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !stopped()) {
            let mut read = 0;
            let checked = self.check_in_parts(pack, &mut parts, &mut decoder, |part| {
                bytes.add(part);
                read += part;
            });
            self.record_damage(pack, checked)?;
            self.findings.read(pack);
            bytes.add(pack.size.saturating_sub(read));
        }
        Ok(())
    }

    fn check_in_parts(
        &self,
        pack: &ListedFile,
        content: &mut PackParts<'_>,
        decoder: &mut Decoder,
        mut done: impl FnMut(u64),
    ) -> Result<()> {
        let header = content.header(pack.id, pack.size)?;
        let blobs = header.unwrap_or_else(|cause| {
            self.findings.damaged(pack, None, format!("pack {}: {cause}", pack.id));
            Vec::new()
        });
        let mut hash = Hash::default();
        for (range, blobs) in parts(&blobs, pack.size) {
            let part = content.read(pack.id, range.clone())?;
            hash.update(part);
            self.check_blobs(pack, part, range.start, blobs, decoder)?;
            done(range.end - range.start);
        }
        self.compare_hash(pack, hash.finish());
        Ok(())
    }

    fn compare_hash(&self, pack: &ListedFile, actual: Id) {
        if actual != pack.id {
            self.findings.wrong_hash(pack, format!("pack {}: its hash does not match its ID", pack.id));
        }
    }

    fn check_content_of(
        &self,
        pack: &ListedFile,
        content: Result<&[u8]>,
        decoder: &mut Decoder,
        bytes: &Meter,
    ) -> Result<()> {
        if let Some(content) = self.record_damage(pack, content)? {
            self.check_pack(pack, content, decoder)?;
        }
        self.findings.read(pack);
        bytes.add(pack.size);
        Ok(())
    }

    fn check_pack(&self, pack: &ListedFile, content: &[u8], decoder: &mut Decoder) -> Result<()> {
        self.compare_hash(pack, Id::of(content));
        let header = pack::header_size(content, content.len() as u64).and_then(|size| {
            let tail = content.get(content.len() - size..).ok_or("too short")?;
            pack::parse_header(tail, content.len() as u64, &self.repository.key)
        });
        match header {
            Ok(blobs) => self.check_blobs(pack, content, 0, &blobs, decoder)?,
            Err(cause) => self.findings.damaged(pack, None, format!("pack {}: {cause}", pack.id)),
        }
        Ok(())
    }

    /// Checks the blobs of a part of a pack that starts at `start`.
    fn check_blobs(
        &self,
        pack: &ListedFile,
        part: &[u8],
        start: u64,
        blobs: &[PackedBlob],
        decoder: &mut Decoder,
    ) -> Result<()> {
        for blob in blobs {
            self.cancel.check()?;
            let from = usize::try_from(u64::from(blob.offset).saturating_sub(start)).unwrap_or(usize::MAX);
            let encrypted = part.get(from..).and_then(|rest| rest.get(..blob.length as usize)).unwrap_or_default();
            let stored = StoredBlob { encrypted, uncompressed: blob.uncompressed, id: &blob.id };
            if let Err(cause) = decoder.decode(&self.repository.key, &stored) {
                let text = format!("pack {}: blob {}: {cause}", pack.id, blob.id);
                self.findings.damaged(pack, Some(blob), text);
            }
            self.findings.decoded(pack, blob);
        }
        Ok(())
    }
}

/// Runs `work` on every reader thread, and `meanwhile` on this one.
fn on_each_reader(readers: usize, work: impl Fn() + Sync, meanwhile: impl FnOnce()) {
    std::thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(&work);
        }
        meanwhile();
    });
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
