//! Writing large objects of a directory past the page cache.
//!
//! Nobody reads soon what a backup wrote, and it is flushed before it is visible anyway. Past the cache it costs no copy, and
//! does not push out what the programs of the node still need.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_setfl};

/// Content has to begin at a multiple of this in memory to be written without a copy.
pub const ALIGNMENT: usize = 4096;

/// For less than this it is not worth it.
pub(crate) const FROM: usize = 4 * 1024 * 1024;

/// Writes a file that is complete and on the disk once it is visible. Says no where this system or this content is not made
/// for it: then nothing has changed.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<bool> {
    if !content.as_ptr().addr().is_multiple_of(ALIGNMENT) {
        return Ok(false);
    }
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
    }
    let Some((file, staged)) = stage(path)? else { return Ok(false) };
    match fill(file, content).and_then(|()| publish(&staged, path)) {
        Ok(()) => Ok(true),
        Err(error) => {
            let _ = std::fs::remove_file(&staged);
            if is_refusal(&error) { Ok(false) } else { Err(error) }
        }
    }
}

/// Makes it and those above it that are missing, each named on the disk before anything is in it.
fn make_folder(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let Some(above) = folder.parent() else { return Ok(()) };
    make_folder(above)?;
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        // Somebody else may have made it and not named it on the disk yet.
        _ => sync_folder(above),
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
            Err(error) if is_refusal(&error) => {
                // Some systems make the file before they refuse.
                let _ = std::fs::remove_file(&staged);
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn fill(mut file: File, content: &[u8]) -> Result<()> {
    let (whole, rest) = content.split_at(content.len() - content.len() % ALIGNMENT);
    file.write_all(whole)?;
    // The last part of a page can only be written through the cache.
    fcntl_setfl(&file, OFlags::empty())?;
    file.write_all(rest)?;
    file.sync_all()
}

fn publish(staged: &Path, path: &Path) -> Result<()> {
    std::fs::rename(staged, path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Content and where it begins: a multiple of the alignment, and as much off as asked for.
    fn content(length: usize, off: usize) -> (Vec<u8>, usize) {
        let mut bytes: Vec<u8> = Vec::with_capacity(length + 2 * ALIGNMENT);
        let start = bytes.as_ptr().align_offset(ALIGNMENT) + off;
        bytes.resize(start, 0);
        bytes.extend((0..length).map(|place| place.to_le_bytes()[0] ^ place.to_le_bytes()[1]));
        (bytes, start)
    }

    #[test]
    fn what_is_written_is_there_whatever_its_length_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        for length in [ALIGNMENT, FROM, FROM + 1, FROM + ALIGNMENT - 1] {
            let (bytes, start) = content(length, 0);
            let path = folder.path().join(length.to_string());
            std::fs::write(&path, "what was there before").expect("written");
            // Left over by somebody who was killed.
            std::fs::write(folder.path().join(format!("{length}#1")), "half").expect("written");
            // A file system that does not know the way may say no, and then nothing has changed.
            let is_written = write(&path, &bytes[start..]).expect("no error");
            let expected = if is_written { &bytes[start..] } else { b"what was there before" };
            assert!(std::fs::read(&path).expect("readable") == expected, "{length} bytes");
            assert!(!folder.path().join(format!("{length}#2")).exists());
        }
    }

    #[test]
    fn content_that_lies_elsewhere_is_left_to_the_usual_way_and_missing_folders_are_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let (bytes, start) = content(FROM, 1);
        assert!(!write(&folder.path().join("file"), &bytes[start..]).expect("no error"));
        assert_eq!(folder.path().read_dir().expect("listed").count(), 0);
        let (bytes, start) = content(FROM, 0);
        let path = folder.path().join("not/there/file");
        if write(&path, &bytes[start..]).expect("no error") {
            assert!(std::fs::read(&path).expect("readable") == bytes[start..]);
        }
        let file_in_the_way = folder.path().join("file");
        std::fs::write(&file_in_the_way, "").expect("written");
        let link_to_nowhere = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("nowhere"), &link_to_nowhere).expect("linked");
        for in_the_way in [file_in_the_way, link_to_nowhere] {
            assert!(write(&in_the_way.join("below/deeper"), &bytes[start..]).is_err(), "{}", in_the_way.display());
        }
    }
}
