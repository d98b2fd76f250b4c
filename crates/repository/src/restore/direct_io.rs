//! Writing large files past the page cache.
//!
//! What is restored has to reach the disk before anybody is told that it is there. Past the cache that costs neither a copy by the
//! system nor a flush at the end, and a large volume does not push out what the programs of the node still need.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{OFlags, fcntl_setfl};

/// File systems take places in files, lengths and addresses in memory that are multiples of this; a few want more and refuse.
const ALIGNMENT: usize = 4096;
/// Smaller files go through the cache: waiting for the disk would take longer than the copy.
const FROM: u64 = 4 * 1024 * 1024;
/// What is written at once.
const STEP: usize = 1024 * 1024;

/// Whether files of this restore can be written past the cache. One refusal is enough: they are on one file system.
#[derive(Default)]
pub(super) struct Refused(AtomicBool);

/// One worker's way past the cache: memory that begins where the disk wants it.
#[derive(Default)]
pub(super) struct Uncached {
    memory: Vec<u8>,
    start: usize,
}

impl Uncached {
    /// Writes a part of a file of `size` bytes. The pieces of pages at its ends go through the cache, because the neighbouring
    /// parts, which others may be writing now, share these pages.
    pub(super) fn write(&mut self, file: &File, part: &[u8], offset: u64, size: u64, refused: &Refused) -> Result<()> {
        let head = (ALIGNMENT - usize::try_from(offset % ALIGNMENT as u64).unwrap_or(0)) % ALIGNMENT;
        let middle = part.len().saturating_sub(head) / ALIGNMENT * ALIGNMENT;
        if size < FROM || middle == 0 || refused.0.load(Ordering::Relaxed) {
            return file.write_all_at(part, offset);
        }
        let end = head + middle;
        file.write_all_at(&part[..head], offset)?;
        file.write_all_at(&part[end..], offset + end as u64)?;
        let written = self.write_pages(file, &part[head..end], offset + head as u64, refused)?;
        file.write_all_at(&part[head + written..end], offset + (head + written) as u64)
    }

    /// Writes whole pages; says how many bytes, which is less than all only where it was refused.
    fn write_pages(&mut self, file: &File, pages: &[u8], offset: u64, refused: &Refused) -> Result<usize> {
        if fcntl_setfl(file, OFlags::DIRECT).is_err() {
            refused.0.store(true, Ordering::Relaxed);
            return Ok(0);
        }
        let (written, ended) = self.write_directly(file, pages, offset);
        fcntl_setfl(file, OFlags::empty())?;
        match ended {
            Err(error) if is_refusal(&error) => refused.0.store(true, Ordering::Relaxed),
            ended => ended?,
        }
        Ok(written)
    }

    fn write_directly(&mut self, file: &File, pages: &[u8], offset: u64) -> (usize, Result<()>) {
        let mut written = 0;
        while written < pages.len() {
            let step = self.aligned(&pages[written..pages.len().min(written + STEP)]);
            match file.write_at(step, offset + written as u64) {
                // Going on in the middle of a page is for the usual way.
                Ok(count) if count < ALIGNMENT => return (written, Err(ErrorKind::InvalidInput.into())),
                Ok(count) => written += count / ALIGNMENT * ALIGNMENT,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return (written, Err(error)),
            }
        }
        (written, Ok(()))
    }

    /// The same bytes at an address that the disk takes.
    fn aligned(&mut self, bytes: &[u8]) -> &[u8] {
        if self.memory.is_empty() {
            self.memory = vec![0; STEP + ALIGNMENT];
            self.start = self.memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        }
        let place = &mut self.memory[self.start..self.start + bytes.len()];
        place.copy_from_slice(bytes);
        place
    }
}

fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|place| (place ^ (place >> 8) ^ (place >> 16)).to_le_bytes()[0]).collect()
    }

    /// Writes all of it in parts of these lengths, by as many threads as there are turns.
    fn written_in_parts(folder: &std::path::Path, plain: &[u8], lengths: &[usize], threads: usize) -> Vec<u8> {
        let path = folder.join("file");
        let _ = std::fs::remove_file(&path);
        let mut parts = Vec::new();
        let mut at = 0;
        for length in lengths.iter().cycle() {
            let end = plain.len().min(at + length);
            parts.push((at, &plain[at..end]));
            at = end;
            if at == plain.len() {
                break;
            }
        }
        let (refused, parts) = (Refused::default(), &parts);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (path, refused) = (&path, &refused);
                scope.spawn(move || {
                    let file = File::options().write(true).create(true).truncate(false).open(path).expect("opened");
                    let mut uncached = Uncached::default();
                    for (offset, part) in parts.iter().skip(thread).step_by(threads) {
                        uncached.write(&file, part, *offset as u64, plain.len() as u64, refused).expect("written");
                    }
                });
            }
        });
        std::fs::read(path).expect("readable")
    }

    #[test]
    fn parts_of_any_length_written_side_by_side_make_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let plain = content(usize::try_from(FROM).unwrap() + 12_345);
        for lengths in [&[1 << 20][..], &[700_001, 1_300_003, 17], &[4095, 4097, 8193, 100_000], &[3_000_000]] {
            for threads in [1, 4] {
                let found = written_in_parts(folder.path(), &plain, lengths, threads);
                assert!(found == plain, "parts of {lengths:?} by {threads}");
            }
        }
    }

    #[test]
    fn where_it_is_refused_and_for_small_files_the_usual_way_is_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = File::create(folder.path().join("file")).expect("made");
        let (mut uncached, refused) = (Uncached::default(), Refused(AtomicBool::new(true)));
        let plain = content(3 * ALIGNMENT);
        uncached.write(&file, &plain, 0, FROM, &refused).expect("written");
        assert!(uncached.memory.is_empty(), "no way past the cache was tried");
        uncached.write(&file, &plain, 5, FROM - 1, &Refused::default()).expect("written");
        assert!(uncached.memory.is_empty());
        assert_eq!(std::fs::read(folder.path().join("file")).expect("readable")[5..], plain);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "").expect("made");
        let file = File::open(&path).expect("opened for reading only");
        assert!(Uncached::default().write(&file, &content(3 * ALIGNMENT), 1, FROM, &Refused::default()).is_err());
    }
}
