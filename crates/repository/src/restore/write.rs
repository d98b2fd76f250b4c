//! The workers: blobs of a range are decoded and written; the last blob of a file completes it.

use std::fs::File;
use std::sync::atomic::Ordering;

use super::holes;
use super::plan::{PackRange, PlannedFile, Portion, Wanted};
use super::run::Run;
use super::uncached::Uncached;
use crate::blob_read::{StoredBlob, TwoDecoders};
use crate::format::blob::BlobKind;
use crate::format::chunker::LONGEST;
use crate::pack_file::PackFiles;
use crate::read_ahead::ReadAhead;
use crate::{RepositoryError, Result};

pub(super) struct Writer<'r, 'a> {
    run: &'r Run<'a>,
    portion: &'r Portion,
    /// Lent to whoever decodes; there are none meanwhile.
    decoders: Option<Box<TwoDecoders>>,
    /// The file written to last: the next blob is often for the same one.
    current: Option<(u32, File)>,
    uncached: Uncached,
}

impl<'r, 'a> Writer<'r, 'a> {
    pub(super) fn new(run: &'r Run<'a>, portion: &'r Portion) -> Self {
        Self { run, portion, decoders: None, current: None, uncached: Uncached::default() }
    }

    /// Works until all ranges are done, reading them from this machine's disk.
    pub(super) fn work_on_files<'p>(mut self, next: impl Fn() -> Option<&'p PackRange>) {
        let mut files = PackFiles::default();
        while let Some(range) = next() {
            if self.run.is_stopped() {
                return;
            }
            let content = files.read(self.run.repository, self.run.index.pack(range.pack), range.bytes.clone());
            let done = content.map_or(Ok(()), |content| self.write_range(range, content));
            if let Err(error) = done {
                return self.run.fail(error);
            }
        }
    }

    /// Works until all ranges are done, as they arrive.
    pub(super) fn work(mut self, arriving: &ReadAhead<PackRange>) {
        loop {
            let fetched = match arriving.next(self.run.cancel) {
                Ok(Some(fetched)) => fetched,
                Ok(None) => return,
                Err(error) => return self.run.fail(error),
            };
            let done = match fetched.content {
                Ok(content) => self.write_range(&fetched.what, Ok(&content)),
                Err(error) => self.write_range(&fetched.what, Err(error)),
            };
            if let Err(error) = done {
                self.run.fail(error);
            }
        }
    }

    fn write_range(&mut self, range: &PackRange, content: Result<&[u8]>) -> Result<()> {
        if self.run.is_stopped() {
            return Ok(());
        }
        match content {
            Ok(content) => self.write_blobs(range, content),
            Err(error @ RepositoryError::Corrupt { .. }) => self.rescue_all(range, &error.to_string()),
            Err(error) => Err(error),
        }
    }

    fn write_blobs(&mut self, range: &PackRange, content: &[u8]) -> Result<()> {
        let portion = self.portion;
        let mut blobs = portion.blobs(range).peekable();
        while let Some(first) = blobs.next() {
            self.run.check()?;
            let second = blobs.next_if(|second| are_small(first, second));
            let mut decoders = self.decoders.take().unwrap_or_else(|| Box::new(TwoDecoders::new()));
            let done = self.write_decoded(&mut decoders, first, second, range, content);
            self.decoders = Some(decoders);
            done?;
        }
        Ok(())
    }

    fn write_decoded(
        &mut self,
        decoders: &mut TwoDecoders,
        first: &[Wanted],
        second: Option<&[Wanted]>,
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

    fn write_or_rescue(&mut self, same: &[Wanted], decoded: Result<&[u8], String>) -> Result<()> {
        match decoded {
            Ok(plain) => self.write_everywhere(same, plain),
            Err(cause) => self.rescue(same, &cause),
        }
    }

    /// The whole range could not be read: each of its blobs may still be found elsewhere.
    fn rescue_all(&mut self, range: &PackRange, cause: &str) -> Result<()> {
        let portion = self.portion;
        portion.blobs(range).try_for_each(|same| self.rescue(same, cause))
    }

    /// Reads a blob again, from any copy; if none is good, the files that need it are named.
    fn rescue(&mut self, same: &[Wanted], cause: &str) -> Result<()> {
        let expected = same[0].place.plain_length();
        let found = self.run.reader.blob(BlobKind::Data, &same[0].id).and_then(|plain| {
            if plain.len() as u64 == expected { Ok(plain) } else { Err(misplaced(same, plain.len())) }
        });
        match found {
            Ok(plain) => self.write_everywhere(same, &plain),
            Err(error @ RepositoryError::Corrupt { .. }) => {
                tracing::warn!(%error, cause, "a blob is lost");
                for wanted in same {
                    let file = &self.portion.files[wanted.file as usize];
                    if !file.damaged.swap(true, Ordering::AcqRel) {
                        self.run.problem(&file.path, &error);
                    }
                    self.run.meters.bytes.fail(wanted.place.plain_length());
                    self.complete(wanted.file);
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn write_everywhere(&mut self, same: &[Wanted], plain: &[u8]) -> Result<()> {
        for wanted in same {
            // A long run of zeros is one blob in very many places.
            self.run.check()?;
            self.write(wanted, plain)?;
        }
        Ok(())
    }

    fn write(&mut self, wanted: &Wanted, plain: &[u8]) -> Result<()> {
        let file = &self.portion.files[wanted.file as usize];
        if !file.damaged.load(Ordering::Acquire)
            && let Err(error) = self.write_at(wanted, plain)
        {
            // A full disk ends it; anything else is this file's own problem.
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
        self.complete(wanted.file);
        Ok(())
    }

    fn write_at(&mut self, wanted: &Wanted, plain: &[u8]) -> std::io::Result<()> {
        if !self.run.options.sparse {
            return self.write_part(wanted.file, plain, wanted.offset);
        }
        let mut end = 0;
        for part in holes::between(plain, wanted.offset) {
            end = part.end;
            self.write_part(wanted.file, &plain[part.clone()], wanted.offset + part.start as u64)?;
        }
        if end < plain.len() {
            // Its last part is not written, and may be the file's.
            self.file(wanted.file)?;
            self.portion.files[wanted.file as usize].has_holes.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn write_part(&mut self, number: u32, part: &[u8], offset: u64) -> std::io::Result<()> {
        let (mut uncached, size) = (std::mem::take(&mut self.uncached), self.portion.files[number as usize].size);
        let refused = &self.run.uncached_refused;
        let written = self.file(number).and_then(|file| uncached.write(file, part, offset, size, refused));
        self.uncached = uncached;
        written
    }

    fn file(&mut self, number: u32) -> std::io::Result<&File> {
        let file = match self.current.take() {
            Some((current, file)) if current == number => file,
            _ => self.portion.files[number as usize].open(self.run)?,
        };
        Ok(&self.current.insert((number, file)).1)
    }

    /// One blob of a file is settled; after the last one the file gets its size and metadata.
    fn complete(&mut self, number: u32) {
        let planned = &self.portion.files[number as usize];
        if planned.open.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let finished = !planned.damaged.load(Ordering::Acquire)
            && match self.finish(number, planned) {
                Ok(()) => true,
                Err(error) => {
                    self.run.problem(&planned.path, &error);
                    false
                }
            };
        self.current = None;
        self.run.count_file(finished, planned.size);
    }

    fn finish(&mut self, number: u32, planned: &PlannedFile) -> std::io::Result<()> {
        let run = self.run;
        let file = self.file(number)?;
        if planned.has_holes.load(Ordering::Acquire) {
            file.set_len(planned.size)?;
        }
        planned.complete(file, &run.newborn)
    }
}

/// A good copy of another length than the index has for the bad one: what follows it in its files was planned by that, and would
/// lie at the wrong places.
fn misplaced(same: &[Wanted], length: usize) -> RepositoryError {
    let cause = format!("an index file says that it has {} bytes, and it has {length}", same[0].place.plain_length());
    RepositoryError::corrupt(format!("data blob {}", same[0].id), cause)
}

fn stored<'s>(same: &'s [Wanted], range: &PackRange, content: &'s [u8]) -> StoredBlob<'s> {
    let Wanted { place, id, .. } = &same[0];
    let start = usize::try_from(place.range().start - range.bytes.start).unwrap_or(usize::MAX);
    let sealed = content.get(start..start.saturating_add(place.length as usize)).unwrap_or_default();
    StoredBlob { sealed, uncompressed: place.uncompressed, id }
}

/// Whether two blobs may be held at the same time.
fn are_small(one: &[Wanted], other: &[Wanted]) -> bool {
    [one, other].iter().all(|same| same[0].place.plain_length() <= (LONGEST / 2) as u64)
}
