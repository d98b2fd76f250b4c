//! The workers: decode and write the blobs of a range. The last blob of a file completes it.

use std::fs::File;
use std::sync::atomic::Ordering;

use super::direct_io::DirectWriter;
use super::holes;
use super::plan::{BlobTarget, PackRange, PlannedFile, RestoreBatch};
use super::run::Run;
use crate::blob_read::{PairDecoder, StoredBlob};
use crate::format::blob::BlobKind;
use crate::format::chunker::MAX_CHUNK_SIZE;
use crate::pack_file::PackFiles;
use crate::read_ahead::ReadAhead;
use crate::{RepositoryError, Result};

pub(super) struct Writer<'r, 'a> {
    run: &'r Run<'a>,
    batch: &'r RestoreBatch,
    /// Taken while blobs are decoded.
    decoders: Option<Box<PairDecoder>>,
    /// The file written to last: the next blob is often for the same file.
    current: Option<(u32, File)>,
    direct: DirectWriter,
}

impl<'r, 'a> Writer<'r, 'a> {
    pub(super) fn new(run: &'r Run<'a>, batch: &'r RestoreBatch) -> Self {
        Self { run, batch, decoders: None, current: None, direct: DirectWriter::default() }
    }

    /// Writes ranges until all are done, reading local packs.
    pub(super) fn write_local<'p>(mut self, next: impl Fn() -> Option<&'p PackRange>) {
        let mut files = PackFiles::default();
        while let Some(range) = next() {
            if self.run.stop.is_stopped() {
                return;
            }
            let content = files.read(self.run.repository, self.run.index.pack(range.pack), range.bytes.clone());
            let done = content.map_or(Ok(()), |content| self.write_range(range, content));
            if let Err(error) = done {
                return self.run.stop.fail(error);
            }
        }
    }

    /// Writes fetched ranges until all are done.
    pub(super) fn write_fetched(mut self, read_ahead: &ReadAhead<PackRange>) {
        loop {
            let fetched = match read_ahead.next(self.run.cancel) {
                Ok(Some(fetched)) => fetched,
                Ok(None) => return,
                Err(error) => return self.run.stop.fail(error),
            };
            let done = match fetched.content {
                Ok(content) => self.write_range(&fetched.context, Ok(&content)),
                Err(error) => self.write_range(&fetched.context, Err(error)),
            };
            if let Err(error) = done {
                self.run.stop.fail(error);
            }
        }
    }

    fn write_range(&mut self, range: &PackRange, content: Result<&[u8]>) -> Result<()> {
        if self.run.stop.is_stopped() {
            return Ok(());
        }
        match content {
            Ok(content) => self.write_blobs(range, content),
            Err(error @ RepositoryError::Corrupt { .. }) => self.rescue_all(range, &error.to_string()),
            Err(error) => Err(error),
        }
    }

    fn write_blobs(&mut self, range: &PackRange, content: &[u8]) -> Result<()> {
        let batch = self.batch;
        let mut blobs = batch.blobs(range).peekable();
        while let Some(first) = blobs.next() {
            self.run.stop.check()?;
            let second = blobs.next_if(|second| are_small(first, second));
            let mut decoders = self.decoders.take().unwrap_or_else(|| Box::new(PairDecoder::new()));
            let done = self.write_decoded(&mut decoders, first, second, range, content);
            self.decoders = Some(decoders);
            done?;
        }
        Ok(())
    }

    fn write_decoded(
        &mut self,
        decoders: &mut PairDecoder,
        first: &[BlobTarget],
        second: Option<&[BlobTarget]>,
        range: &PackRange,
        content: &[u8],
    ) -> Result<()> {
        let key = &self.run.repository.key;
        let Some(second) = second else {
            let decoded = decoders.decode_one(key, &stored(first, range, content));
            return self.write_or_rescue(first, decoded);
        };
        let [one, other] = decoders.decode(key, [&stored(first, range, content), &stored(second, range, content)]);
        self.write_or_rescue(first, one)?;
        self.write_or_rescue(second, other)
    }

    fn write_or_rescue(&mut self, targets: &[BlobTarget], decoded: Result<&[u8], String>) -> Result<()> {
        match decoded {
            Ok(plain) => self.write_to_all(targets, plain),
            Err(cause) => self.rescue(targets, &cause),
        }
    }

    /// Reads the blobs of an unreadable range from other copies.
    fn rescue_all(&mut self, range: &PackRange, cause: &str) -> Result<()> {
        let batch = self.batch;
        batch.blobs(range).try_for_each(|targets| self.rescue(targets, cause))
    }

    /// Reads a blob again, from any copy. If none is intact, its files are problems.
    fn rescue(&mut self, targets: &[BlobTarget], cause: &str) -> Result<()> {
        let expected = targets[0].location.plain_length();
        let blob = self.run.reader.blob(BlobKind::Data, &targets[0].id).and_then(|plain| {
            if plain.len() as u64 == expected { Ok(plain) } else { Err(length_mismatch(targets, plain.len())) }
        });
        match blob {
            Ok(plain) => self.write_to_all(targets, &plain),
            Err(error @ RepositoryError::Corrupt { .. }) => {
                tracing::warn!(%error, cause, "blob cannot be restored");
                for target in targets {
                    let file = &self.batch.files[target.file as usize];
                    if !file.damaged.swap(true, Ordering::AcqRel) {
                        self.run.problem(&file.path, &error);
                    }
                    self.run.meters.bytes.fail(target.location.plain_length());
                    self.complete(target.file);
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn write_to_all(&mut self, targets: &[BlobTarget], plain: &[u8]) -> Result<()> {
        for target in targets {
            // A long run of zeros is one blob with very many targets.
            self.run.stop.check()?;
            self.write(target, plain)?;
        }
        Ok(())
    }

    fn write(&mut self, target: &BlobTarget, plain: &[u8]) -> Result<()> {
        let file = &self.batch.files[target.file as usize];
        if !file.damaged.load(Ordering::Acquire)
            && let Err(error) = self.write_at(target, plain)
        {
            // A full disk ends the restore; other errors are problems of the file.
            if matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) {
                return Err(RepositoryError::local(&file.path, &error));
            }
            file.damaged.store(true, Ordering::Release);
            self.run.problem(&file.path, &error);
        }
        let (bytes, length) = (&self.run.meters.bytes, plain.len() as u64);
        if file.damaged.load(Ordering::Acquire) {
            bytes.fail(length);
        } else {
            bytes.add(length);
        }
        self.complete(target.file);
        Ok(())
    }

    fn write_at(&mut self, target: &BlobTarget, plain: &[u8]) -> std::io::Result<()> {
        if !self.run.options.sparse {
            return self.write_part(target.file, plain, target.offset);
        }
        let mut end = 0;
        for part in holes::data_ranges(plain, target.offset) {
            end = part.end;
            self.write_part(target.file, &plain[part.clone()], target.offset + part.start as u64)?;
        }
        if end < plain.len() {
            // The end of the blob is a hole, and may be the end of the file.
            self.file(target.file)?;
            self.batch.files[target.file as usize].has_holes.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn write_part(&mut self, number: u32, part: &[u8], offset: u64) -> std::io::Result<()> {
        let (mut direct, size) = (std::mem::take(&mut self.direct), self.batch.files[number as usize].size);
        let state = &self.run.direct_io_state;
        let written = self.file(number).and_then(|file| direct.write(file, part, offset, size, state));
        self.direct = direct;
        written
    }

    fn file(&mut self, number: u32) -> std::io::Result<&File> {
        let file = match self.current.take() {
            Some((current, file)) if current == number => file,
            _ => self.batch.files[number as usize].open(self.run)?,
        };
        Ok(&self.current.insert((number, file)).1)
    }

    /// Completes one blob of a file. After the last one the file gets its size and metadata.
    fn complete(&mut self, number: u32) {
        let planned = &self.batch.files[number as usize];
        if planned.open.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let is_finished = !planned.damaged.load(Ordering::Acquire)
            && match self.finish(number, planned) {
                Ok(()) => true,
                Err(error) => {
                    self.run.problem(&planned.path, &error);
                    false
                }
            };
        self.current = None;
        self.run.count_file(is_finished, planned.size);
    }

    fn finish(&mut self, number: u32, planned: &PlannedFile) -> std::io::Result<()> {
        let run = self.run;
        let file = self.file(number)?;
        if planned.has_holes.load(Ordering::Acquire) {
            file.set_len(planned.size)?;
        }
        planned.complete(file, &run.new_file_defaults)
    }
}

/// An intact copy has another length than the index records for the damaged one: the offsets of the following blobs would be wrong.
fn length_mismatch(targets: &[BlobTarget], length: usize) -> RepositoryError {
    let cause =
        format!("it has {length} bytes instead of the {} bytes in the index", targets[0].location.plain_length());
    RepositoryError::corrupt(format!("data blob {}", targets[0].id), cause)
}

fn stored<'s>(targets: &'s [BlobTarget], range: &PackRange, content: &'s [u8]) -> StoredBlob<'s> {
    let BlobTarget { location, id, .. } = &targets[0];
    let start = usize::try_from(location.range().start - range.bytes.start).unwrap_or(usize::MAX);
    let encrypted = content.get(start..start.saturating_add(location.length as usize)).unwrap_or_default();
    StoredBlob { encrypted, uncompressed: location.uncompressed, id }
}

/// Whether two blobs may be decoded at the same time.
fn are_small(one: &[BlobTarget], other: &[BlobTarget]) -> bool {
    [one, other].iter().all(|blob| blob[0].location.plain_length() <= (MAX_CHUNK_SIZE / 2) as u64)
}
