//! Peak memory, measured in a separate process.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use plimsoll_repository::backup::{BackupOptions, Target};
use plimsoll_repository::format::blob::{BlobKind, PackedBlob};
use plimsoll_repository::format::crypto::Key;
use plimsoll_repository::format::index::{self, IndexedPack};
use plimsoll_repository::format::key::KeyFile;
use plimsoll_repository::format::tree::{Attribute, Node, NodeKind, Tree};
use plimsoll_repository::format::{pack, unpacked};
use plimsoll_repository::restore::RestoreOptions;
use plimsoll_repository::{Cancel, Id, MemoryLimit, OpenOptions, ReadData, Repository};
use plimsoll_store::Store;

use crate::s3;
use crate::testbed::{PASSWORD, Testbed, random_bytes, task};

const FOLDER: &str = "PLIMSOLL_TEST_MEASURED_FOLDER";
const WORK: &str = "PLIMSOLL_TEST_MEASURED_WORK";
/// The port of the S3 server, if the repository is on one.
const PORT: &str = "PLIMSOLL_TEST_MEASURED_PORT";
/// The configured memory limit, if there is one.
const LIMIT: &str = "PLIMSOLL_TEST_MEASURED_LIMIT";

/// The default limit on two processors: 200 MB and 60 bytes for each blob of the repository.
const MAX_MEMORY: u64 = 200_000_000;
const BYTES_PER_BLOB: u64 = 60;
/// The additional memory for an entry of a large directory.
const BYTES_PER_ENTRY: u64 = 1000;

#[test]
#[ignore = "only run by the tests below, as the process that is measured"]
fn measured_process() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let work = std::env::var(WORK).expect("what to do");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let store = match std::env::var(PORT) {
        Ok(port) => s3::store(port.parse().expect("a port")),
        Err(_) => Store::directory(folder.join("repository"), "").expect("a store"),
    };
    let bytes = std::env::var(LIMIT).ok().map(|limit| limit.parse().expect("a number"));
    // The control group of the tests may have a limit of its own.
    let memory = MemoryLimit { bytes: Some(bytes.unwrap_or(MAX_MEMORY)), operations: 1 };
    let options = OpenOptions { memory, ..OpenOptions::default() };
    let opened = Repository::open(store, runtime.handle().clone(), PASSWORD.as_bytes(), options);
    let (repository, task, cancel) = (Arc::new(opened.expect("opens")), task("measured"), Cancel::default());
    match work.as_str() {
        "backup" => {
            // As many threads as on a large machine.
            let options = BackupOptions {
                workers: 16,
                readers: 32,
                ..BackupOptions::new(Target::Content(folder.join("source")))
            };
            drop(repository.backup(&options, &task, &cancel).expect("backs up"));
        }
        "restore" => {
            let (snapshot, _) = repository.find_snapshot("latest").expect("is there");
            let options = RestoreOptions { workers: 32, ..RestoreOptions::new(snapshot, folder.join("restored")) };
            drop(repository.restore(&options, &task, &cancel).expect("restores"));
        }
        "list" => {
            let (_, snapshot) = repository.find_snapshot("latest").expect("is there");
            let (browser, mut seen) = (repository.browse(&task, &cancel).expect("browses"), 0);
            browser.list(&snapshot, Path::new("/"), &mut |_, _| seen += 1).expect("lists");
            assert!(seen > 0);
        }
        _ => {
            let found = repository.check(ReadData::Everything, &task, &cancel).expect("checks");
            assert_eq!(found.errors, Vec::<String>::new());
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("reads");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    std::fs::write(folder.join(work), peak.trim_end_matches("kB").trim()).expect("writes");
}

/// The peak memory of a process with this work on a directory, in bytes.
fn peak_of(testbed: &Testbed, work: &str) -> u64 {
    peak_on(testbed, work, None, None)
}

/// The peak memory on an S3 server, if there is one, with this configured limit.
fn peak_on(testbed: &Testbed, work: &str, server: Option<&s3::Server>, limit: Option<u64>) -> u64 {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", "memory::measured_process", "--ignored"])
        .env(FOLDER, testbed.path("."))
        .env(WORK, work)
        .stdin(Stdio::null());
    if let Some(server) = server {
        command.env(PORT, server.port.to_string());
    }
    if let Some(limit) = limit {
        command.env(LIMIT, limit.to_string());
    }
    let output = command.output().expect("runs");
    assert!(output.status.success(), "{work}: {}", String::from_utf8_lossy(&output.stdout));
    let kibibytes: u64 = std::fs::read_to_string(testbed.path(work)).expect("reads").parse().expect("a number");
    kibibytes * 1024
}

/// Chunks of the greatest length, some that compress and some that do not, and many small files.
fn fill(testbed: &Testbed) {
    let large = random_bytes(1, 24 << 20);
    for number in 0..4_u8 {
        let mut file = std::fs::File::create(testbed.source().join(format!("large {number}"))).expect("a file");
        for piece in large.chunks(1 << 20) {
            file.write_all(piece).expect("writes");
            file.write_all(&[number + 1; 64]).expect("writes");
        }
        // A repeated byte has no chunk boundary: chunks of 8 MiB.
        file.write_all(&vec![number + 1; 40 << 20]).expect("writes");
    }
    for number in 0..3000_u64 {
        testbed.write(&format!("small/{}/{number}", number % 30), random_bytes(number, 3000));
    }
}

fn master_key(testbed: &Testbed) -> Key {
    let key_file =
        std::fs::read_dir(testbed.path("repository/keys")).expect("lists").next().expect("one").expect("one");
    let key = KeyFile::parse(&std::fs::read(key_file.path()).expect("reads")).expect("a key");
    key.unlock(PASSWORD.as_bytes()).expect("opens")
}

/// A file that has its hash as its name.
fn put(folder: &Path, content: &[u8]) -> Id {
    let id = Id::of(content);
    std::fs::create_dir_all(folder).expect("a folder");
    std::fs::write(folder.join(id.to_string()), content).expect("writes");
    id
}

fn put_encrypted(testbed: &Testbed, folder: &str, json: &[u8], key: &Key) {
    put(&testbed.path("repository").join(folder), &unpacked::encode(json, 2, key).expect("seals"));
}

/// Adds index files with this many blobs in packs that do not exist.
fn add_foreign_blobs(testbed: &Testbed, blobs: u32, in_a_pack: u32) {
    let key = master_key(testbed);
    for file in 0..blobs / 50_000 {
        let blob = |number: u32| PackedBlob {
            id: Id::of(&(file * 50_000 + number).to_le_bytes()),
            kind: BlobKind::Data,
            offset: number % in_a_pack * 100,
            length: 100,
            uncompressed: 0,
        };
        let numbers: Vec<_> = (0..50_000).collect();
        let packs: Vec<_> = numbers.chunks(in_a_pack as usize).map(|some| pack_of(file, some, blob)).collect();
        for pack in &packs {
            put_pack(testbed, &pack.id);
        }
        put_encrypted(testbed, "index", &index::encode(&packs).expect("encodes"), &key);
    }
}

fn pack_of(file: u32, numbers: &[u32], blob: impl Fn(u32) -> PackedBlob) -> IndexedPack {
    let id = Id::of(&[&b"pack"[..], &file.to_le_bytes(), &numbers[0].to_le_bytes()].concat());
    IndexedPack { id, blobs: numbers.iter().map(|number| blob(*number)).collect() }
}

/// Creates an empty pack, which is listed but not read.
fn put_pack(testbed: &Testbed, id: &Id) {
    let name = id.to_string();
    let folder = testbed.path("repository/data").join(&name[..2]);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::File::create(folder.join(name)).expect("a file");
}

/// A tree of 4 MiB: a file with an incompressible attribute.
fn large_tree(seed: u64) -> Tree {
    let attribute = Attribute { name: b"user.random_bytes".to_vec(), value: random_bytes(seed, 3 << 20) };
    let (kind, content) = (NodeKind::File, Some(Vec::new()));
    Tree { nodes: vec![Node { name: b"file".to_vec(), kind, content, attributes: vec![attribute], ..Node::default() }] }
}

/// Writes trees into a pack of their own.
fn put_trees(testbed: &Testbed, trees: impl Iterator<Item = Tree>, key: &Key) -> IndexedPack {
    let (mut content, mut blobs) = (Vec::new(), Vec::new());
    for tree in trees {
        let (json, mut encrypted) = (tree.encode(), Vec::new());
        key.encrypt(&json, &mut encrypted);
        let (offset, length) = (content.len(), encrypted.len());
        let (offset, length) = (u32::try_from(offset).expect("small"), u32::try_from(length).expect("small"));
        blobs.push(PackedBlob { id: Id::of(&json), kind: BlobKind::Tree, offset, length, uncompressed: 0 });
        content.extend_from_slice(&encrypted);
    }
    content.extend_from_slice(&pack::encode_header(&blobs, key));
    let folder = testbed.path("repository/data").join(&Id::of(&content).to_string()[..2]);
    IndexedPack { id: put(&folder, &content), blobs }
}

/// A snapshot of a directory whose trees are spread over two packs of 128 MiB, as restic writes them if it is asked to.
fn add_large_packs(testbed: &Testbed) {
    let key = master_key(testbed);
    let mut packs: Vec<_> =
        (0..2).map(|odd| put_trees(testbed, (0..32).map(|n| large_tree(2 * n + odd)), &key)).collect();
    let mut root = Tree::default();
    for (number, blob) in packs[0].blobs.iter().zip(&packs[1].blobs).flat_map(|(one, other)| [one, other]).enumerate() {
        let (name, kind) = (format!("{number:02}").into_bytes(), NodeKind::Directory);
        root.nodes.push(Node { name, kind, subtree: Some(blob.id), ..Node::default() });
    }
    packs.push(put_trees(testbed, [root].into_iter(), &key));
    put_encrypted(testbed, "index", &index::encode(&packs).expect("encodes"), &key);
    let snapshot = format!(r#"{{"time":"2026-01-02T03:04:05Z","tree":"{}","paths":["/"]}}"#, packs[2].blobs[0].id);
    put_encrypted(testbed, "snapshots", snapshot.as_bytes(), &key);
}

#[test]
fn very_large_packs_are_listed_and_checked_within_the_memory_limit() {
    let testbed = Testbed::new();
    drop(testbed.init());
    add_large_packs(&testbed);
    for work in ["list", "check"] {
        let peak = peak_of(&testbed, work);
        assert!(peak < MAX_MEMORY, "{work} took {} MB", peak / 1_000_000);
    }
}

#[test]
fn backup_restore_and_check_stay_within_the_memory_limit() {
    let testbed = Testbed::new();
    fill(&testbed);
    drop(testbed.init());
    // Threads as on a large machine, in less and in more memory than usual.
    for (limit, work) in [(120, "backup"), (500, "backup"), (120, "restore"), (500, "restore"), (500, "check")] {
        let peak = peak_on(&testbed, work, None, Some(limit * 1_000_000));
        assert!(peak < limit * 1_000_000, "{work} took {} of {limit} MB", peak / 1_000_000);
    }
}

#[test]
fn the_memory_limit_holds_on_an_s3_server() {
    let testbed = Testbed::new();
    let Some(server) = s3::start(&testbed, &[]) else { return };
    fill(&testbed);
    let handle = testbed.runtime.handle().clone();
    drop(Repository::init(s3::store(server.port), handle, PASSWORD.as_bytes()).expect("initializes"));
    for work in ["backup", "restore", "check"] {
        let peak = peak_on(&testbed, work, Some(&server), None);
        assert!(peak < MAX_MEMORY, "{work} took {} MB", peak / 1_000_000);
    }
}

#[test]
fn a_large_index_takes_60_bytes_per_blob() {
    for in_a_pack in [50_000, 11] {
        let testbed = Testbed::new();
        for number in 0..4 {
            testbed.write(&format!("file {number}"), random_bytes(number, 8 << 20));
        }
        drop(testbed.init());
        let small = peak_of(&testbed, "backup");
        let blobs = 1_000_000;
        add_foreign_blobs(&testbed, blobs, in_a_pack);
        testbed.write("one more", random_bytes(9, 30 << 20));
        let large = peak_of(&testbed, "backup");
        assert!(
            large < MAX_MEMORY + BYTES_PER_BLOB * u64::from(blobs),
            "{in_a_pack} in a pack: {} MB, {} MB without",
            large / 1_000_000,
            small / 1_000_000
        );
    }
}

#[test]
fn a_very_large_directory_takes_the_documented_memory() {
    let testbed = Testbed::new();
    let entries = 200_000;
    for number in 0..entries {
        std::fs::File::create(testbed.source().join(format!("message {number:07}"))).expect("a file");
    }
    drop(testbed.init());
    for work in ["backup", "backup", "restore", "check"] {
        let peak = peak_of(&testbed, work);
        assert!(peak < MAX_MEMORY + BYTES_PER_ENTRY * entries, "{work} took {} MB", peak / 1_000_000);
    }
}
