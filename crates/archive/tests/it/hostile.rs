//! Broken and hostile archives: a named error each, and never a panic.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use plimsoll_archive::Error;
use plimsoll_archive::tarball::{Limits, Writer};
use proptest::prelude::*;

use super::round_trip::{object, read_all};

/// A tarball with entries whose names and types nobody checked.
struct Forger(Vec<u8>);

impl Forger {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn entry(mut self, name: &[u8], kind: tar::EntryType, content: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_entry_type(kind);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn file(self, name: &str, content: &[u8]) -> Self {
        self.entry(name.as_bytes(), tar::EntryType::Regular, content)
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&self.0).unwrap();
        gzip.finish().unwrap()
    }
}

fn reason(bytes: &[u8]) -> &'static str {
    read_all(bytes, Limits::default()).unwrap_err().reason()
}

const PATH: &str = "resources/pods/namespaces/shop/web.json";

#[test]
fn names_that_lead_out_are_refused() {
    let pod = object("Pod", Some("shop"), "web", 1);
    for name in ["/etc/cron.d/x", "../x", "resources/pods/namespaces/../../../x.json", "resources//x"] {
        assert_eq!(reason(&Forger::new().file(name, &pod).finish()), "ArchiveUnsafeName", "{name}");
    }
    let bytes = Forger::new().entry(b"resources/\xff.json", tar::EntryType::Regular, &pod).finish();
    assert_eq!(reason(&bytes), "ArchiveUnsafeName");
}

#[test]
fn links_and_devices_are_refused() {
    use tar::EntryType::{Block, Char, Fifo, Link, Symlink};
    for kind in [Symlink, Link, Char, Block, Fifo] {
        assert_eq!(reason(&Forger::new().entry(PATH.as_bytes(), kind, b"").finish()), "ArchiveNotAFile", "{kind:?}");
    }
}

#[test]
fn an_object_that_is_there_twice_is_refused() {
    let pod = object("Pod", Some("shop"), "web", 1);
    assert_eq!(reason(&Forger::new().file(PATH, &pod).file(PATH, &pod).finish()), "ArchiveDuplicateEntry");
}

#[test]
fn content_that_does_not_fit_its_path_is_refused() {
    for (namespace, name) in [(Some("shop"), "other"), (Some("other"), "web"), (None, "web")] {
        let bytes = Forger::new().file(PATH, &object("Pod", namespace, name, 1)).finish();
        assert_eq!(reason(&bytes), "ArchiveMismatch", "{namespace:?} {name}");
    }
}

#[test]
fn what_is_not_json_is_refused() {
    for content in [&b"{"[..], b"", b"[]", b"\xff\xfe", br#"{"kind":"Pod"}"#] {
        assert_eq!(reason(&Forger::new().file(PATH, content).finish()), "ArchiveInvalidJson", "{content:?}");
    }
}

#[test]
fn an_unknown_format_is_refused() {
    assert_eq!(reason(&Forger::new().file("metadata/version", b"2.0.0\n").finish()), "ArchiveUnknownVersion");
}

#[test]
fn bombs_are_refused_before_they_unpack() {
    let small = Limits { object: 1000, unpacked: 10_000, entries: 5 };
    let large = Forger::new().file(PATH, &object("Pod", Some("shop"), "web", 2000)).finish();
    assert_eq!(read_all(&large, small).unwrap_err().reason(), "ArchiveTooLarge");
    let many = (0..6).fold(Forger::new(), |forger, n| forger.file(&format!("other/{n}"), b"")).finish();
    assert_eq!(read_all(&many, small).unwrap_err().reason(), "ArchiveTooLarge");
    let total = (0..4).fold(Forger::new(), |forger, n| forger.file(&format!("other/{n}"), &[0; 4000])).finish();
    assert_eq!(read_all(&total, small).unwrap_err().reason(), "ArchiveTooLarge");
    let mut tail = GzEncoder::new(Vec::new(), Compression::best());
    tail.write_all(&vec![0; 1 << 20]).unwrap();
    assert_eq!(read_all(&tail.finish().unwrap(), small).unwrap_err().reason(), "ArchiveTooLarge");
}

fn sound() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    for n in 0..20 {
        let name = format!("p{n}");
        writer.item("pods", "v1", Some("shop"), &name, &object("Pod", Some("shop"), &name, n * 37)).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn a_truncated_archive_is_never_taken_for_a_whole_one() {
    let whole = sound();
    for length in 0..whole.len() {
        let error = read_all(&whole[..length], Limits::default());
        assert!(matches!(error, Err(Error::Damaged(_))), "cut at {length}: {error:?}");
    }
}

proptest! {
    #[test]
    fn any_flipped_byte_is_found_or_harmless(at in any::<proptest::sample::Index>(), bit in 0..8u8) {
        let mut bytes = sound();
        let whole = read_all(&bytes, Limits::default()).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(entries) = read_all(&bytes, Limits::default()) {
            prop_assert_eq!(entries, whole, "only the header of gzip may change without notice");
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = read_all(&bytes, Limits::default());
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&bytes).unwrap();
        let _ = read_all(&gzip.finish().unwrap(), Limits::default());
    }
}
