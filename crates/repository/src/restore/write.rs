//! The workers: blobs of a range are decoded and written; the last blob of a file completes it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::fetch::{Fetched, Fetcher};
use super::plan::{PackRange, PlannedFile, Portion, Wanted};
use super::run::Run;
use crate::blob_read::Decoder;
use crate::format::blob::BlobKind;
use crate::pack_file::PackFiles;
use crate::{RepositoryError, Result};

pub(super) struct Writer<'r, 'a> {
    run: &'r Run<'a>,
    portion: &'r Portion,
    decoder: Decoder,
    /// The file written to last: the next blob is often for the same one.
    current: Option<(u32, File)>,
}

impl<'r, 'a> Writer<'r, 'a> {
    pub(super) fn new(run: &'r Run<'a>, portion: &'r Portion) -> Self {
        Self { run, portion, decoder: Decoder::new(), current: None }
    }

    /// Works until all ranges are done, reading them from this machine's disk.
    pub(super) fn work_on_files(mut self, ranges: &[PackRange], next: &AtomicUsize) {
        let mut files = PackFiles::default();
        while let Some(range) = ranges.get(next.fetch_add(1, Ordering::Relaxed)) {
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
    pub(super) fn work(mut self, fetcher: &Fetcher) {
        loop {
            match fetcher.next(self.run.cancel) {
                Ok(Some(fetched)) => {
                    let Fetched { range, content } = fetched;
                    let done = match content {
                        Ok(content) => self.write_range(&range, Ok(&content)),
                        Err(error) => self.write_range(&range, Err(error)),
                    };
                    if let Err(error) = done {
                        self.run.fail(error);
                    }
                    fetcher.release(range.size());
                }
                Ok(None) => return,
                Err(error) => return self.run.fail(error),
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
        let wanted = &self.portion.wanted[range.wanted.clone()];
        for same in wanted.chunk_by(|one, other| one.id == other.id && one.place == other.place) {
            self.run.check()?;
            let place = same[0].place;
            let start = usize::try_from(place.range().start - range.bytes.start).unwrap_or(usize::MAX);
            let sealed = content.get(start..start.saturating_add(place.length as usize)).unwrap_or_default();
            let mut decoder = std::mem::replace(&mut self.decoder, Decoder::new_empty());
            let decoded = decoder.decode(&self.run.repository.key, sealed, place.uncompressed, &same[0].id);
            let done = match decoded {
                Ok(plain) => self.write_everywhere(same, plain),
                Err(cause) => self.rescue(same, &cause),
            };
            self.decoder = decoder;
            done?;
        }
        Ok(())
    }

    /// The whole range could not be read: each of its blobs may still be found elsewhere.
    fn rescue_all(&mut self, range: &PackRange, cause: &str) -> Result<()> {
        let wanted = &self.portion.wanted[range.wanted.clone()];
        for same in wanted.chunk_by(|one, other| one.id == other.id && one.place == other.place) {
            self.rescue(same, cause)?;
        }
        Ok(())
    }

    /// Reads a blob again, from any copy; if none is good, the files that need it are named.
    fn rescue(&mut self, same: &[Wanted], cause: &str) -> Result<()> {
        match self.run.reader.blob(BlobKind::Data, &same[0].id) {
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
        self.run.meters.bytes.add(plain.len() as u64);
        self.complete(wanted.file);
        Ok(())
    }

    fn write_at(&mut self, wanted: &Wanted, plain: &[u8]) -> std::io::Result<()> {
        let sparse = self.run.options.sparse;
        let file = self.file(wanted.file)?;
        // Zeros are already there: the file is new, and grows to its size at the end.
        if sparse && plain.len() >= 4096 && is_zero(plain) {
            self.portion.files[wanted.file as usize].has_holes.store(true, Ordering::Release);
            return Ok(());
        }
        file.write_all_at(plain, wanted.offset)
    }

    fn file(&mut self, number: u32) -> std::io::Result<&File> {
        let file = match self.current.take() {
            Some((current, file)) if current == number => file,
            _ => self.portion.files[number as usize].create(&self.run.newborn)?,
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

fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(4096).all(|chunk| chunk.iter().fold(0, |sum, byte| sum | byte) == 0)
}
