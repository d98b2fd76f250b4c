//! Writes large files with direct I/O, past the page cache.
//!
//! Restored data must be on the disk before the restore is reported. Direct I/O saves a copy and the final flush, and a large volume
//! does not evict cached pages that workloads on the node need.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{OFlags, fcntl_setfl};

/// The alignment of offsets, lengths and addresses. A few file systems require more and reject direct I/O.
const ALIGNMENT: usize = 4096;
/// Smaller files are written through the cache, which is faster.
const MIN_FILE_SIZE: u64 = 4 * 1024 * 1024;
const MAX_WRITE_SIZE: usize = 1024 * 1024;

/// Whether direct I/O is unsupported. One failure is enough, because all files are on one file system.
#[derive(Default)]
pub(super) struct DirectIoState(AtomicBool);

/// The direct I/O of one worker, with an aligned buffer.
#[derive(Default)]
pub(super) struct DirectWriter {
    memory: Vec<u8>,
    start: usize,
}

impl DirectWriter {
    /// Writes a part of a file of `size` bytes. Partial pages at its ends are written through the cache, because other workers may
    /// write the rest of these pages.
    pub(super) fn write(
        &mut self,
        file: &File,
        part: &[u8],
        offset: u64,
        size: u64,
        state: &DirectIoState,
    ) -> Result<()> {
        let head = (ALIGNMENT - usize::try_from(offset % ALIGNMENT as u64).unwrap_or(0)) % ALIGNMENT;
        let middle = part.len().saturating_sub(head) / ALIGNMENT * ALIGNMENT;
        if size < MIN_FILE_SIZE || middle == 0 || state.0.load(Ordering::Relaxed) {
            return file.write_all_at(part, offset);
        }
        let end = head + middle;
        file.write_all_at(&part[..head], offset)?;
        file.write_all_at(&part[end..], offset + end as u64)?;
        let written = self.write_pages(file, &part[head..end], offset + head as u64, state)?;
        file.write_all_at(&part[head + written..end], offset + (head + written) as u64)
    }

    /// Writes whole pages. Returns the number of bytes, which is less than all only if direct I/O is unsupported.
    fn write_pages(&mut self, file: &File, pages: &[u8], offset: u64, state: &DirectIoState) -> Result<usize> {
        if fcntl_setfl(file, OFlags::DIRECT).is_err() {
            state.0.store(true, Ordering::Relaxed);
            return Ok(0);
        }
        let (written, result) = self.write_directly(file, pages, offset);
        fcntl_setfl(file, OFlags::empty())?;
        match result {
            Err(error) if is_unsupported(&error) => state.0.store(true, Ordering::Relaxed),
            result => result?,
        }
        Ok(written)
    }

    fn write_directly(&mut self, file: &File, pages: &[u8], offset: u64) -> (usize, Result<()>) {
        let mut written = 0;
        while written < pages.len() {
            let step = self.aligned(&pages[written..pages.len().min(written + MAX_WRITE_SIZE)]);
            match file.write_at(step, offset + written as u64) {
                // A partial page is written through the cache.
                Ok(count) if count < ALIGNMENT => return (written, Err(ErrorKind::InvalidInput.into())),
                Ok(count) => written += count / ALIGNMENT * ALIGNMENT,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return (written, Err(error)),
            }
        }
        (written, Ok(()))
    }

    /// Copies bytes to the aligned buffer.
    fn aligned(&mut self, bytes: &[u8]) -> &[u8] {
        if self.memory.is_empty() {
            self.memory = vec![0; MAX_WRITE_SIZE + ALIGNMENT];
            self.start = self.memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        }
        let aligned = &mut self.memory[self.start..self.start + bytes.len()];
        aligned.copy_from_slice(bytes);
        aligned
    }
}

fn is_unsupported(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|index| (index ^ (index >> 8) ^ (index >> 16)).to_le_bytes()[0]).collect()
    }

    /// Writes the content in parts of these lengths, with this many threads.
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
        let (state, parts) = (DirectIoState::default(), &parts);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (path, state) = (&path, &state);
                scope.spawn(move || {
                    let file = File::options().write(true).create(true).truncate(false).open(path).expect("opened");
                    let mut direct_writer = DirectWriter::default();
                    for (offset, part) in parts.iter().skip(thread).step_by(threads) {
                        direct_writer.write(&file, part, *offset as u64, plain.len() as u64, state).expect("written");
                    }
                });
            }
        });
        std::fs::read(path).expect("readable")
    }

    #[test]
    fn parts_of_any_length_can_be_written_concurrently() {
        let folder = tempfile::tempdir().expect("a folder");
        let plain = content(usize::try_from(MIN_FILE_SIZE).unwrap() + 12_345);
        for lengths in [&[1 << 20][..], &[700_001, 1_300_003, 17], &[4095, 4097, 8193, 100_000], &[3_000_000]] {
            for threads in [1, 4] {
                let written = written_in_parts(folder.path(), &plain, lengths, threads);
                assert!(written == plain, "parts of {lengths:?} by {threads}");
            }
        }
    }

    #[test]
    fn small_files_and_unsupported_systems_use_the_cache() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = File::create(folder.path().join("file")).expect("created");
        let (mut direct_writer, state) = (DirectWriter::default(), DirectIoState(AtomicBool::new(true)));
        let plain = content(3 * ALIGNMENT);
        direct_writer.write(&file, &plain, 0, MIN_FILE_SIZE, &state).expect("written");
        assert!(direct_writer.memory.is_empty(), "direct I/O was not tried");
        direct_writer.write(&file, &plain, 5, MIN_FILE_SIZE - 1, &DirectIoState::default()).expect("written");
        assert!(direct_writer.memory.is_empty());
        assert_eq!(std::fs::read(folder.path().join("file")).expect("readable")[5..], plain);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "").expect("created");
        let file = File::open(&path).expect("opened for reading only");
        assert!(
            DirectWriter::default()
                .write(&file, &content(3 * ALIGNMENT), 1, MIN_FILE_SIZE, &DirectIoState::default())
                .is_err()
        );
    }
}
