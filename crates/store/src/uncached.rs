//! Writes of large objects to a directory with direct I/O, past the page cache.
//!
//! A backup's packs are not read soon, and they are flushed before they are visible anyway. Direct I/O saves a copy and does not
//! evict cached pages that workloads on the node need.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_setfl};

/// The alignment in memory that content needs to be written without a copy.
pub const ALIGNMENT: usize = 4096;

/// Direct I/O does not pay off for smaller objects.
pub(crate) const MIN_SIZE: usize = 4 * 1024 * 1024;

/// Writes a file that is complete and on the disk once it is visible. Returns `false` and changes nothing if the file system
/// does not support direct I/O or the content is not aligned.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<bool> {
    if !content.as_ptr().addr().is_multiple_of(ALIGNMENT) {
        return Ok(false);
    }
    if let Some(folder) = path.parent() {
        create_folder(folder)?;
    }
    let Some((file, staged)) = stage(path)? else { return Ok(false) };
    match fill(file, content).and_then(|()| publish(&staged, path)) {
        Ok(()) => Ok(true),
        Err(error) => {
            let _ = std::fs::remove_file(&staged);
            if is_unsupported(&error) { Ok(false) } else { Err(error) }
        }
    }
}

/// Creates a folder and its missing parents. Each is flushed to its parent before it is filled.
fn create_folder(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let Some(parent) = folder.parent() else { return Ok(()) };
    create_folder(parent)?;
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        // Another process may have created it without flushing the parent.
        _ => sync_folder(parent),
    }
}

fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)?.sync_all()
}

/// A file beside `path`, under a name that is not listed as an object.
fn stage(path: &Path) -> Result<Option<(File, PathBuf)>> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    for number in 1.. {
        let mut staged = path.as_os_str().to_owned();
        staged.push(format!("#{number}"));
        match OpenOptions::new().write(true).create_new(true).custom_flags(flags).open(&staged) {
            Ok(file) => return Ok(Some((file, staged.into()))),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) if is_unsupported(&error) => {
                // Some systems create the file before they reject the flag.
                let _ = std::fs::remove_file(&staged);
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn fill(mut file: File, content: &[u8]) -> Result<()> {
    let (aligned, rest) = content.split_at(content.len() - content.len() % ALIGNMENT);
    file.write_all(aligned)?;
    // The last part of a page can only be written through the cache.
    fcntl_setfl(&file, OFlags::empty())?;
    file.write_all(rest)?;
    file.sync_all()
}

fn publish(staged: &Path, path: &Path) -> Result<()> {
    std::fs::rename(staged, path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

fn is_unsupported(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Content and its start: a multiple of the alignment plus `offset`.
    fn content(length: usize, offset: usize) -> (Vec<u8>, usize) {
        let mut bytes: Vec<u8> = Vec::with_capacity(length + 2 * ALIGNMENT);
        let start = bytes.as_ptr().align_offset(ALIGNMENT) + offset;
        bytes.resize(start, 0);
        bytes.extend((0..length).map(|index| index.to_le_bytes()[0] ^ index.to_le_bytes()[1]));
        (bytes, start)
    }

    #[test]
    fn content_of_any_length_is_written_and_leaves_no_staged_file() {
        let folder = tempfile::tempdir().expect("a folder");
        for length in [ALIGNMENT, MIN_SIZE, MIN_SIZE + 1, MIN_SIZE + ALIGNMENT - 1] {
            let (bytes, start) = content(length, 0);
            let path = folder.path().join(length.to_string());
            std::fs::write(&path, "previous content").expect("written");
            // Left over by a killed process.
            std::fs::write(folder.path().join(format!("{length}#1")), "half").expect("written");
            // A file system without direct I/O reports `false` and changes nothing.
            let is_written = write(&path, &bytes[start..]).expect("no error");
            let expected = if is_written { &bytes[start..] } else { b"previous content" };
            assert!(std::fs::read(&path).expect("readable") == expected, "{length} bytes");
            assert!(!folder.path().join(format!("{length}#2")).exists());
        }
    }

    #[test]
    fn unaligned_content_is_rejected_and_missing_folders_are_created() {
        let folder = tempfile::tempdir().expect("a folder");
        let (bytes, start) = content(MIN_SIZE, 1);
        assert!(!write(&folder.path().join("file"), &bytes[start..]).expect("no error"));
        assert_eq!(folder.path().read_dir().expect("listed").count(), 0);
        let (bytes, start) = content(MIN_SIZE, 0);
        let path = folder.path().join("missing/folder/file");
        if write(&path, &bytes[start..]).expect("no error") {
            assert!(std::fs::read(&path).expect("readable") == bytes[start..]);
        }
        let blocking_file = folder.path().join("file");
        std::fs::write(&blocking_file, "").expect("written");
        let dangling_link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("absent"), &dangling_link).expect("linked");
        for blocking in [blocking_file, dangling_link] {
            assert!(write(&blocking.join("below/deeper"), &bytes[start..]).is_err(), "{}", blocking.display());
        }
    }
}
