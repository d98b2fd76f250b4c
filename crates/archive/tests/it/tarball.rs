use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use plimsoll_archive::Error;
use plimsoll_archive::tarball::{Reader, ReaderLimits, WriteCounts, Writer, WriterOptions};
use proptest::prelude::*;
use tar::EntryType;

pub(crate) fn object(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> String {
    let namespace = namespace.map(|ns| format!(r#","namespace":"{ns}""#)).unwrap_or_default();
    format!(r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{{"name":"{name}"{namespace}}}}}"#)
}

fn pod(name: &str) -> String {
    object("v1", "Pod", Some("demo"), name)
}

fn fixed_time() -> WriterOptions {
    WriterOptions { level: 1, modified_time: Some(0) }
}

fn write_archive(items: &[(&str, &str, Option<&str>, &str, String)]) -> Vec<u8> {
    let mut writer = Writer::with_options(Vec::new(), fixed_time()).unwrap();
    for (group_resource, version, namespace, name, json) in items {
        writer.append_object(group_resource, version, *namespace, name, json.as_bytes()).unwrap();
    }
    writer.finish().unwrap()
}

/// Builds malicious archives entry by entry.
struct ArchiveBuilder(tar::Builder<GzEncoder<Vec<u8>>>);

impl ArchiveBuilder {
    fn new() -> Self {
        Self(tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best())))
    }

    fn entry(mut self, path: &[u8], kind: EntryType, content: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        // Straight into the bytes: the library would refuse these paths.
        header.as_old_mut().name[..path.len()].copy_from_slice(path);
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    fn file(self, path: &str, content: &str) -> Self {
        self.entry(path.as_bytes(), EntryType::Regular, content.as_bytes())
    }

    fn pack(self) -> Vec<u8> {
        self.0.into_inner().unwrap().finish().unwrap()
    }
}

const POD_PATH: &str = "resources/pods/namespaces/demo/web.json";

fn first_error(archive: &[u8]) -> Error {
    Reader::new(archive).find_map(Result::err).expect("no error while reading the archive")
}

#[test]
fn the_version_comes_first_and_every_object_is_at_both_paths_as_a_regular_file() {
    let json = pod("web");
    let volume = object("v1", "PersistentVolume", None, "pv-1");
    let archive = write_archive(&[
        ("pods", "v1", Some("demo"), "web", json.clone()),
        ("persistentvolumes", "v1", None, "pv-1", volume),
    ]);
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(archive.as_slice()));
    let mut found = Vec::new();
    for entry in tar.entries().unwrap() {
        let mut entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.entry_type(), header.mode().unwrap()), (EntryType::Regular, 0o755));
        let mut content = String::new();
        std::io::Read::read_to_string(&mut entry, &mut content).unwrap();
        found.push((entry.path().unwrap().to_string_lossy().into_owned(), content));
    }
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "metadata/version",
            "resources/pods/namespaces/demo/web.json",
            "resources/pods/v1-preferredversion/namespaces/demo/web.json",
            "resources/persistentvolumes/cluster/pv-1.json",
            "resources/persistentvolumes/v1-preferredversion/cluster/pv-1.json",
        ]
    );
    assert_eq!(found[0].1, "1.1.0\n");
    assert_eq!((&found[1].1, &found[2].1), (&json, &json));
}

#[test]
fn the_reader_returns_each_object_once() {
    let long = "n".repeat(200);
    let archive = write_archive(&[
        ("pods", "v1", Some("demo"), "web", pod("web")),
        ("deployments.apps", "v1", Some("cluster"), &long, object("apps/v1", "Deployment", Some("cluster"), &long)),
        (
            "clusterroles.rbac.authorization.k8s.io",
            "v1",
            None,
            "system:node",
            object("rbac.authorization.k8s.io/v1", "ClusterRole", None, "system:node"),
        ),
    ]);
    let mut reader = Reader::new(archive.as_slice());
    let items: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    let ids: Vec<_> =
        items.iter().map(|i| (i.group_resource.as_str(), i.namespace.as_deref(), i.name.as_str())).collect();
    assert_eq!(
        ids,
        [
            ("pods", Some("demo"), "web"),
            ("deployments.apps", Some("cluster"), long.as_str()),
            ("clusterroles.rbac.authorization.k8s.io", None, "system:node"),
        ]
    );
    assert_eq!(items[0].json, pod("web").as_bytes());
    assert_eq!(items[1].header.kind, "Deployment");
    assert_eq!(
        (reader.counts().items, reader.counts().preferred_version_copies, reader.version()),
        (3, 3, Some("1.1.0"))
    );
    assert_eq!(reader.bytes_read(), archive.len() as u64);
}

#[test]
fn equal_objects_with_a_fixed_time_give_equal_bytes() {
    let items = [("pods", "v1", Some("demo"), "web", pod("web"))];
    assert_eq!(write_archive(&items), write_archive(&items));
}

#[test]
fn the_writer_counts_objects_once_and_rejects_names_that_are_paths() {
    let mut writer = Writer::new(Vec::new()).unwrap();
    writer.append_object("pods", "v1", Some("demo"), "web", b"{}").unwrap();
    for (namespace, name) in [(Some("demo"), ".."), (Some("a/b"), "x"), (Some(""), "x"), (None, "a\0b"), (None, "")] {
        let error = writer.append_object("pods", "v1", namespace, name, b"{}").unwrap_err();
        assert_eq!(error.reason(), "ArchiveInvalidName");
    }
    assert_eq!(writer.counts(), WriteCounts { items: 1, bytes: 2, entries: 3 });
}

#[test]
fn malicious_entries_fail_the_archive() {
    let content = pod("web");
    let content = content.as_bytes();
    for (path, kind, reason) in [
        ("/etc/passwd", EntryType::Regular, "ArchiveUnsafePath"),
        ("resources/../../etc/passwd", EntryType::Regular, "ArchiveUnsafePath"),
        ("resources/pods/namespaces/demo/..", EntryType::Regular, "ArchiveUnsafePath"),
        ("resources//pods/cluster/x.json", EntryType::Regular, "ArchiveUnsafePath"),
        ("resources/./pods/cluster/x.json", EntryType::Regular, "ArchiveUnsafePath"),
        (POD_PATH, EntryType::Symlink, "ArchiveNotAFile"),
        (POD_PATH, EntryType::Link, "ArchiveNotAFile"),
        (POD_PATH, EntryType::Char, "ArchiveNotAFile"),
        (POD_PATH, EntryType::Block, "ArchiveNotAFile"),
        (POD_PATH, EntryType::Fifo, "ArchiveNotAFile"),
        (POD_PATH, EntryType::GNUSparse, "ArchiveNotAFile"),
        (POD_PATH, EntryType::new(b'Z'), "ArchiveNotAFile"),
    ] {
        let archive = ArchiveBuilder::new().entry(path.as_bytes(), kind, content).file(POD_PATH, "{}").pack();
        let mut reader = Reader::new(archive.as_slice());
        let error = reader.next_item().unwrap_err();
        assert_eq!((error.reason(), error.is_entry_error()), (reason, false), "{path} {kind:?}");
        assert!(reader.next_item().unwrap().is_none(), "the reader continued after {path}");
    }
    let archive = ArchiveBuilder::new().entry(b"resources/\xff\xfe", EntryType::Regular, content).pack();
    assert_eq!(first_error(&archive).reason(), "ArchiveUnsafePath");
}

#[test]
fn an_invalid_entry_is_an_error_and_the_next_one_is_read() {
    let elsewhere = object("v1", "Pod", Some("other"), "web");
    let no_namespace = object("v1", "Pod", None, "web");
    for (content, reason, text) in [
        ("{", "ArchiveInvalidJson", None),
        ("[1]", "ArchiveInvalidJson", Some(format!("invalid JSON in entry {POD_PATH:?}: not an object"))),
        ("", "ArchiveInvalidJson", None),
        ("{}", "ArchiveEntryMismatch", None),
        (
            pod("other").as_str(),
            "ArchiveEntryMismatch",
            Some(format!("path of entry {POD_PATH:?} does not match metadata.name \"other\"")),
        ),
        (elsewhere.as_str(), "ArchiveEntryMismatch", None),
        (no_namespace.as_str(), "ArchiveEntryMismatch", None),
        (object("apps/v1", "Pod", Some("demo"), "web").as_str(), "ArchiveEntryMismatch", None),
        (object("v1", "", Some("demo"), "web").as_str(), "ArchiveEntryMismatch", None),
        (format!("{} x", pod("web")).as_str(), "ArchiveInvalidJson", None),
    ] {
        let archive = ArchiveBuilder::new()
            .file(POD_PATH, content)
            .file("resources/pods/namespaces/demo/b.json", &pod("b"))
            .pack();
        let mut reader = Reader::new(archive.as_slice());
        let error = reader.next_item().unwrap_err();
        assert_eq!((error.reason(), error.is_entry_error(), error.path()), (reason, true, Some(POD_PATH)), "{content}");
        if let Some(text) = text {
            assert_eq!(error.to_string(), text);
        }
        assert_eq!(reader.next_item().unwrap().unwrap().name, "b");
        assert!(reader.next_item().unwrap().is_none());
        assert_eq!((reader.counts().items, reader.counts().failed), (1, 1));
    }
}

#[test]
fn a_duplicate_entry_is_an_error_and_the_first_one_is_returned() {
    let archive = ArchiveBuilder::new().file(POD_PATH, &pod("web")).file(&format!("./{POD_PATH}"), &pod("web")).pack();
    let found: Vec<_> = Reader::new(archive.as_slice()).collect();
    assert_eq!(found.len(), 2);
    assert!(found[0].is_ok());
    assert_eq!(found[1].as_ref().unwrap_err().reason(), "ArchiveDuplicateEntry");
}

#[test]
fn an_unknown_format_version_is_an_error_and_older_ones_are_read() {
    for (version, known) in
        [("1", true), ("1.0.0\n", true), ("1.1.0\n", true), ("2.0.0\n", false), ("", false), ("11", false)]
    {
        let archive = ArchiveBuilder::new().file("metadata/version", version).file(POD_PATH, &pod("web")).pack();
        let read = Reader::new(archive.as_slice()).next_item();
        assert_eq!(read.is_ok(), known, "{version:?}");
        if let Err(error) = read {
            assert_eq!(error.reason(), "ArchiveUnknownVersion");
        }
    }
}

#[test]
fn directories_and_unknown_files_are_skipped() {
    let archive = ArchiveBuilder::new()
        .entry(b"./", EntryType::Directory, b"")
        .entry(b"resources/", EntryType::Directory, b"")
        .file("README", "hello")
        .file("resources/pods/namespaces/demo/web.yaml", "x")
        .file("resources/pods/v2/cluster/x.json", "not even json")
        .file(POD_PATH, &pod("web"))
        .pack();
    let mut reader = Reader::new(archive.as_slice());
    assert_eq!(reader.by_ref().map(|item| item.unwrap().name).collect::<Vec<_>>(), ["web"]);
    assert_eq!((reader.counts().other, reader.counts().preferred_version_copies), (2, 1));
}

#[test]
fn a_truncated_archive_is_always_an_error() {
    let items: Vec<_> = (0..5).map(|i| ("pods", "v1", Some("demo"), format!("p{i}"))).collect();
    let items: Vec<_> = items.iter().map(|(g, v, ns, n)| (*g, *v, *ns, n.as_str(), pod(n))).collect();
    let archive = write_archive(&items);
    for end in 0..archive.len() {
        let error = first_error(&archive[..end]);
        assert_eq!(error.reason(), "ArchiveTruncated", "cut at {end}");
        assert!(error.is_retryable());
    }
}

#[test]
fn input_that_is_not_gzip_or_not_tar_is_an_error() {
    assert_eq!(first_error(b"this is not gzip at all, but long enough to tell").reason(), "ArchiveNotGzip");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&[b'x'; 2048]).unwrap();
    assert_eq!(first_error(&encoder.finish().unwrap()).reason(), "ArchiveNotTar");
    let mut flipped = write_archive(&[("pods", "v1", Some("demo"), "web", pod("web"))]);
    let crc = flipped.len() - 8;
    flipped[crc] ^= 1;
    assert_eq!(first_error(&flipped).reason(), "ArchiveNotGzip");
}

#[test]
fn every_limit_stops_a_decompression_bomb() {
    let zeros = "0".repeat(40 << 20);
    let bomb = ArchiveBuilder::new().file("junk", &zeros).pack();
    let generous = ReaderLimits { entry_bytes: 1 << 30, ..ReaderLimits::default() };
    for (limits, reason, text) in [
        (
            ReaderLimits::default(),
            "ArchiveEntryTooLarge",
            "entry \"junk\" of 41943040 bytes exceeds the limit of 16777216 bytes",
        ),
        (generous, "ArchiveTooLarge", "archive exceeds the limit of 150 uncompressed bytes per compressed byte"),
        (
            ReaderLimits { total_bytes: 1 << 20, ..generous },
            "ArchiveTooLarge",
            "archive exceeds the limit of 1048576 bytes",
        ),
        (ReaderLimits { entries: 0, ..generous }, "ArchiveTooLarge", "archive exceeds the limit of 0 entries"),
    ] {
        let limits = ReaderLimits { ratio: 150, ..limits };
        let error = Reader::with_limits(bomb.as_slice(), limits).find_map(Result::err).unwrap();
        assert_eq!((error.reason(), error.to_string().as_str()), (reason, text));
    }
    let long_name = ArchiveBuilder::new().entry(b"x", EntryType::GNULongName, &vec![b'a'; 1 << 20]).pack();
    assert_eq!(first_error(&long_name).reason(), "ArchiveTooLarge");
    let extension = ArchiveBuilder::new().entry(b"x", EntryType::XHeader, &vec![b'a'; 1 << 20]).pack();
    assert_eq!(first_error(&extension).reason(), "ArchiveTooLarge");
}

#[test]
fn a_header_with_a_huge_size_does_not_allocate_it() {
    let mut header = tar::Header::new_gnu();
    header.set_path(POD_PATH).unwrap();
    header.set_entry_type(EntryType::Regular);
    header.set_size(8 << 30);
    header.set_cksum();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(header.as_bytes()).unwrap();
    assert_eq!(first_error(&encoder.finish().unwrap()).reason(), "ArchiveEntryTooLarge");
}

#[test]
fn paths_in_extended_headers_are_validated() {
    let record = |path: &str| {
        let body = format!(" path={path}\n");
        let length = (body.len()..body.len() + 9).find(|n| n.to_string().len() + body.len() == *n).unwrap();
        format!("{length}{body}")
    };
    let good = ArchiveBuilder::new()
        .entry(b"x", EntryType::XHeader, record(POD_PATH).as_bytes())
        .file("short", &pod("web"))
        .pack();
    assert_eq!(Reader::new(good.as_slice()).next_item().unwrap().unwrap().name, "web");
    let bad =
        ArchiveBuilder::new().entry(b"x", EntryType::XHeader, record("../x").as_bytes()).file("short", "{}").pack();
    assert_eq!(first_error(&bad).reason(), "ArchiveUnsafePath");
    for broken in ["99 path=x\n", "path=x", "3 x\n", "0 \n"] {
        let archive =
            ArchiveBuilder::new().entry(b"x", EntryType::XHeader, broken.as_bytes()).file("short", "{}").pack();
        assert_eq!(first_error(&archive).reason(), "ArchiveNotTar", "{broken:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn written_objects_are_read_back(names in prop::collection::btree_set("[a-z0-9:.-]{1,120}", 1..20)) {
        let names: Vec<String> = names.into_iter().filter(|n| n != "." && n != "..").collect();
        let items: Vec<_> = names.iter().map(|n| ("pods", "v1", Some("demo"), n.as_str(), pod(n))).collect();
        let archive = write_archive(&items);
        let read: Vec<String> = Reader::new(archive.as_slice()).map(|item| item.unwrap().name).collect();
        prop_assert_eq!(read, names);
    }

    #[test]
    fn random_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&bytes).unwrap();
        let packed = encoder.finish().unwrap();
        let _ = Reader::new(bytes.as_slice()).count();
        let _ = Reader::new(packed.as_slice()).count();
    }

    /// The same as the fuzz target, for toolchains without a fuzzer: a valid tar with some bytes changed.
    #[test]
    fn a_mutated_archive_never_yields_an_object_with_another_path(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let archive = write_archive(&[
            ("pods", "v1", Some("demo"), "web", pod("web")),
            ("persistentvolumes", "v1", None, "pv-1", object("v1", "PersistentVolume", None, "pv-1")),
        ]);
        let mut tar = plimsoll_archive::codec::gunzip(archive.as_slice(), 1 << 20).unwrap();
        for (index, byte) in changes {
            let index = index.index(tar.len());
            tar[index] = byte;
        }
        let packed = plimsoll_archive::codec::gzip(&tar).unwrap();
        for item in Reader::new(packed.as_slice()).flatten() {
            let header: serde_json::Value = serde_json::from_slice(&item.json).unwrap();
            prop_assert_eq!(header["metadata"]["name"].as_str(), Some(item.name.as_str()));
            prop_assert!(!item.name.contains('/') && item.namespace.as_deref() != Some(".."));
        }
    }
}
