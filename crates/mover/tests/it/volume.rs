//! Volumes with everything a file system can hold, and a way to compare them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use plimsoll_mover::Fidelity;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

/// A name that is no text.
pub const STRANGE: &[u8] = b"strange-\xff\xfe";

/// Fills a directory with one of everything.
pub fn fill(root: &Path) {
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::create_dir(root.join("empty-directory")).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    for number in 0..40 {
        fs::write(root.join(format!("a/b/small-{number}")), format!("{number} ").repeat(number * 37)).unwrap();
    }
    fs::write(root.join("a/large"), noise(7, 3 << 20)).unwrap();
    sparse(&root.join("sparse"));
    fs::hard_link(root.join("a/large"), root.join("a/b/c/another-name")).unwrap();
    std::os::unix::fs::symlink("a/large", root.join("link")).unwrap();
    std::os::unix::fs::symlink("/nowhere/at/all", root.join("dangling")).unwrap();
    rustix::fs::mknodat(CWD, root.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    drop(std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap());
    rustix::fs::setxattr(root.join("a/b/small-3"), "user.colour", b"blue", XattrFlags::empty()).unwrap();
    fs::write(root.join(OsStr::from_bytes(STRANGE)), "strange").unwrap();
    fs::write(root.join("tabs\tand \"quotes\" and ünïcödé"), "x").unwrap();
    fs::create_dir(root.join("cache")).unwrap();
    fs::write(root.join("cache/CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55\n").unwrap();
    fs::write(root.join("cache/kept"), "what calls itself a cache is data like any other").unwrap();
    // What a tenant wants some program to pass over is data all the same.
    fs::write(root.join(".kopiaignore"), "*\n").unwrap();
    fs::set_permissions(root.join("a/b/small-1"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(root.join("a/b"), fs::Permissions::from_mode(0o2770)).unwrap();
    std::os::unix::fs::lchown(root.join("a/b/small-2"), Some(4321), Some(1234)).unwrap();
    std::os::unix::fs::lchown(root.join("a/b/c"), Some(4321), Some(1234)).unwrap();
    age(&root.join("a/b/small-4"));
    age(&root.join("a/b/c"));
    // An application's own, as one has it that does not run as root.
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

/// Enough that something is in the middle when it is stopped there.
pub fn fill_much(root: &Path) {
    fill(root);
    for number in 0..6 {
        fs::write(root.join(format!("much-{number}")), noise(100 + number, 12 << 20)).unwrap();
    }
}

/// Bytes that nothing compresses, the same every time.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
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

/// Everything about a directory and its entries that this mover promises to bring back.
pub fn fingerprint(root: &Path, fidelity: Fidelity) -> Fingerprint {
    let own = root.metadata().unwrap();
    // Of the root itself: whose it is, and who may do what in it.
    let mut found = Fingerprint::from([(PathBuf::from("."), format!("{:o} {}:{}", own.mode(), own.uid(), own.gid()))]);
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                folders.push(path.clone());
            }
            if let Some(text) = describe(&path, fidelity) {
                found.insert(path.strip_prefix(root).unwrap().to_owned(), text);
            }
        }
    }
    found
}

fn describe(path: &Path, fidelity: Fidelity) -> Option<String> {
    let metadata = path.symlink_metadata().unwrap();
    let kind = metadata.file_type();
    // Nobody listens at one that comes back: no mover does that.
    if kind.is_socket() {
        return None;
    }
    let plain = kind.is_file() || kind.is_dir() || kind.is_symlink();
    let text = std::str::from_utf8(path.file_name().unwrap().as_bytes());
    if (!plain && !fidelity.special_files) || (text.is_err() && !fidelity.any_name) || is_replaced(text.ok()) {
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
    // A symbolic link's own mode and time mean nothing to anybody.
    let mode = if kind.is_symlink() { 0 } else { metadata.mode() };
    let timeless = kind.is_symlink() || (kind.is_dir() && !fidelity.directory_times);
    let time = if timeless { (0, 0) } else { (metadata.mtime(), metadata.mtime_nsec()) };
    let attributes = if fidelity.attributes { attributes(path) } else { Vec::new() };
    Some(format!("{mode:o} {}:{} {time:?} {links} {attributes:?} {content}", metadata.uid(), metadata.gid()))
}

/// What a mover that keeps text only makes of a name that is none.
fn is_replaced(name: Option<&str>) -> bool {
    name.is_some_and(|name| name.contains('\u{fffd}'))
}

fn checksum(bytes: &[u8]) -> String {
    plimsoll_repository::Id::of(bytes).to_string()
}

fn attributes(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut list = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, &mut list[..]).unwrap_or(0);
    let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 4096];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        value.truncate(length);
        value
    };
    names.map(|name| (String::from_utf8_lossy(name).into_owned(), value(name))).collect()
}

/// The two directories hold the same, as far as the mover promises.
pub fn assert_same(expected: &Fingerprint, root: &Path, fidelity: Fidelity) {
    let found = fingerprint(root, fidelity);
    for (path, text) in expected {
        assert_eq!(found.get(path), Some(text), "{}", path.display());
    }
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
}
