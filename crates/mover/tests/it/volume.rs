//! Volumes with every kind of file system entry, and their comparison.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use plimsoll_mover::Fidelity;
use plimsoll_testkit::extended_attributes;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

/// A name that is not UTF-8.
pub const NON_UTF8_NAME: &[u8] = b"strange-\xff\xfe";

/// Fills a directory with every kind of entry.
pub fn fill(root: &Path) {
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::create_dir(root.join("empty-directory")).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    for number in 0..40 {
        fs::write(root.join(format!("a/b/small-{number}")), format!("{number} ").repeat(number * 37)).unwrap();
    }
    fs::write(root.join("a/large"), random_bytes(7, 3 << 20)).unwrap();
    sparse(&root.join("sparse"));
    fs::hard_link(root.join("a/large"), root.join("a/b/c/another-name")).unwrap();
    std::os::unix::fs::symlink("a/large", root.join("link")).unwrap();
    std::os::unix::fs::symlink("/nowhere/at/all", root.join("dangling")).unwrap();
    rustix::fs::mknodat(CWD, root.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    drop(std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap());
    rustix::fs::setxattr(root.join("a/b/small-3"), "user.colour", b"blue", XattrFlags::empty()).unwrap();
    fs::write(root.join(OsStr::from_bytes(NON_UTF8_NAME)), "strange").unwrap();
    fs::write(root.join("tabs\tand \"quotes\" and ünïcödé"), "x").unwrap();
    fs::create_dir(root.join("cache")).unwrap();
    fs::write(root.join("cache/CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55\n").unwrap();
    fs::write(root.join("cache/kept"), "the content of a cache directory").unwrap();
    // Ignore rules of a tenant must not apply to backups.
    fs::write(root.join(".kopiaignore"), "*\n").unwrap();
    fs::set_permissions(root.join("a/b/small-1"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(root.join("a/b"), fs::Permissions::from_mode(0o2770)).unwrap();
    std::os::unix::fs::lchown(root.join("a/b/small-2"), Some(4321), Some(1234)).unwrap();
    std::os::unix::fs::lchown(root.join("a/b/c"), Some(4321), Some(1234)).unwrap();
    age(&root.join("a/b/small-4"));
    age(&root.join("a/b/c"));
    // Owned by an application that does not run as root.
    std::os::unix::fs::lchown(root, Some(4321), Some(1234)).unwrap();
    fs::set_permissions(root, fs::Permissions::from_mode(0o2775)).unwrap();
}

fn sparse(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    file.write_all(b"before").unwrap();
    file.seek(SeekFrom::Start(12 << 20)).unwrap();
    file.write_all(b"after").unwrap();
}

fn age(path: &Path) {
    let then = Timespec { tv_sec: 1_234_567_890, tv_nsec: 123_456_789 };
    let times = Timestamps { last_access: then, last_modification: then };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Enough data to interrupt a transfer.
pub fn fill_large(root: &Path) {
    fill(root);
    for number in 0..6 {
        fs::write(root.join(format!("large-{number}")), random_bytes(100 + number, 12 << 20)).unwrap();
    }
}

/// Incompressible bytes, the same for each seed.
pub fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

pub type Fingerprint = BTreeMap<PathBuf, String>;

/// All properties of a directory and its entries that this mover preserves.
pub fn fingerprint(root: &Path, fidelity: Fidelity) -> Fingerprint {
    let own = root.metadata().unwrap();
    // Owner and mode of the root.
    let mut fingerprint =
        Fingerprint::from([(PathBuf::from("."), format!("{:o} {}:{}", own.mode(), own.uid(), own.gid()))]);
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                folders.push(path.clone());
            }
            if let Some(text) = describe(&path, fidelity) {
                fingerprint.insert(path.strip_prefix(root).unwrap().to_owned(), text);
            }
        }
    }
    fingerprint
}

fn describe(path: &Path, fidelity: Fidelity) -> Option<String> {
    let metadata = path.symlink_metadata().unwrap();
    let kind = metadata.file_type();
    // No mover restores sockets.
    if kind.is_socket() {
        return None;
    }
    let is_regular = kind.is_file() || kind.is_dir() || kind.is_symlink();
    let text = std::str::from_utf8(path.file_name().unwrap().as_bytes());
    if (!is_regular && !fidelity.special_files) || (text.is_err() && !fidelity.any_name) || is_replaced(text.ok()) {
        return None;
    }
    let content = if kind.is_file() {
        checksum(&fs::read(path).unwrap())
    } else if kind.is_symlink() {
        fs::read_link(path).unwrap().display().to_string()
    } else {
        format!("directory {} pipe {}", kind.is_dir(), kind.is_fifo())
    };
    let links = if fidelity.hard_links && kind.is_file() { metadata.nlink() } else { 0 };
    // Mode and time of a symbolic link have no meaning.
    let mode = if kind.is_symlink() { 0 } else { metadata.mode() };
    let ignores_time = kind.is_symlink() || (kind.is_dir() && !fidelity.directory_times);
    let time = if ignores_time { (0, 0) } else { (metadata.mtime(), metadata.mtime_nsec()) };
    let attributes = if fidelity.attributes { extended_attributes(path) } else { Vec::new() };
    Some(format!("{mode:o} {}:{} {time:?} {links} {attributes:?} {content}", metadata.uid(), metadata.gid()))
}

/// Whether a non-UTF-8 name was replaced by a mover that supports UTF-8 names only.
fn is_replaced(name: Option<&str>) -> bool {
    name.is_some_and(|name| name.contains('\u{fffd}'))
}

fn checksum(bytes: &[u8]) -> String {
    plimsoll_repository::Id::of(bytes).to_string()
}

/// Asserts that a directory has the expected content.
pub fn assert_same(expected: &Fingerprint, root: &Path, fidelity: Fidelity) {
    let actual = fingerprint(root, fidelity);
    for (path, text) in expected {
        assert_eq!(actual.get(path), Some(text), "{}", path.display());
    }
    assert_eq!(actual.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
}
