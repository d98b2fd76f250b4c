//! Untrusted input: decoders never panic, and accepted input survives a round trip.

use plimsoll_repository::format::blob::{BlobKind, PackedBlob};
use plimsoll_repository::format::config::Config;
use plimsoll_repository::format::crypto::Key;
use plimsoll_repository::format::key::KeyFile;
use plimsoll_repository::format::snapshot::Snapshot;
use plimsoll_repository::format::tree::Tree;
use plimsoll_repository::format::tree::{Node, NodeKind};
use plimsoll_repository::format::{index, pack, unpacked};
use plimsoll_repository::{Cancel, Id, ReadData};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::testbed::{PASSWORD, Testbed, task};

const TREE: &str = include_str!("../data/tree.json");

fn key() -> Key {
    Key::new([1; 32], [2; 16], [3; 16]).expect("not zero")
}

/// The known tree with a few bytes replaced.
fn damaged_tree() -> impl Strategy<Value = Vec<u8>> {
    vec((0..TREE.len(), any::<u8>()), 1..6).prop_map(|changes| {
        let mut json = TREE.as_bytes().to_vec();
        for (at, byte) in changes {
            json[at] = byte;
        }
        json
    })
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in vec(any::<u8>(), 0..300), size in any::<u64>()) {
        let _ = Tree::parse(&bytes);
        let _ = Snapshot::parse(&bytes);
        let _ = Config::parse(&bytes);
        let _ = index::parse(&bytes);
        let _ = KeyFile::parse(&bytes);
        let _ = pack::header_size(&bytes, size);
        let _ = pack::parse_header(&bytes, size, &key());
        let _ = unpacked::decode(&bytes, &key());
    }

    #[test]
    fn no_encrypted_bytes_make_a_decoder_panic(plain in vec(any::<u8>(), 0..300), size in any::<u64>()) {
        let mut encrypted = Vec::new();
        key().encrypt(&plain, &mut encrypted);
        let _ = unpacked::decode(&encrypted, &key());
        let length = u32::try_from(encrypted.len()).expect("small");
        encrypted.extend_from_slice(&length.to_le_bytes());
        let _ = pack::parse_header(&encrypted, size, &key());
    }

    #[test]
    fn a_damaged_tree_is_rejected_or_survives_a_round_trip(json in damaged_tree()) {
        if let Ok(tree) = Tree::parse(&json) {
            prop_assert_eq!(Tree::parse(&tree.encode()), Ok(tree));
        }
    }
}

/// Reproducible mutations of bytes.
struct Mutator(u64);

impl Mutator {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit.max(1)
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len());
        let until = (at + 1 + self.below(40)).min(bytes.len());
        match self.below(7) {
            0 => bytes[at] ^= 1 << self.below(8),
            1 => bytes.truncate(at),
            2 => drop(bytes.drain(at..until)),
            3 => {
                let copy = bytes[at..until].to_vec();
                bytes.splice(at..at, copy);
            }
            4 => drop(bytes.splice(at..until, *b"18446744073709551615")),
            5 => drop(bytes.splice(at..at, *b"-1e999,null,[[{")),
            _ => bytes[at] = b"\0\xff\"{}[]:,0-"[self.below(11)],
        }
    }

    /// The bytes with one to four changes.
    fn mutated(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut changed = bytes.to_vec();
        for _ in 0..=self.below(4) {
            if !changed.is_empty() {
                self.change(&mut changed);
            }
        }
        changed
    }
}

/// A repository with its key, and the opened content of its files.
struct DecryptedRepository {
    testbed: Testbed,
    key: Key,
}

impl DecryptedRepository {
    fn new() -> Self {
        let testbed = Testbed::new();
        crate::round_trip::fill(&testbed);
        testbed.backup(&testbed.init());
        let file = Self::file(&testbed, "keys").1;
        let key = KeyFile::parse(&file).and_then(|file| file.unlock(PASSWORD.as_bytes())).expect("opens");
        Self { testbed, key }
    }

    fn file(testbed: &Testbed, folder: &str) -> (std::path::PathBuf, Vec<u8>) {
        let mut path = testbed.path("repository").join(folder);
        while path.is_dir() {
            path = std::fs::read_dir(&path).expect("lists").next().expect("an entry").expect("an entry").path();
        }
        let content = std::fs::read(&path).expect("reads");
        (path, content)
    }

    fn json(&self, folder: &str) -> Vec<u8> {
        unpacked::decode(&Self::file(&self.testbed, folder).1, &self.key).expect("opens")
    }

    /// Stores JSON with the right ID and key, as an attacker with the password could.
    fn plant(&self, folder: &str, json: &[u8]) -> std::path::PathBuf {
        let encrypted = unpacked::encode(json, 2, &self.key).expect("seals");
        let path = self.testbed.path("repository").join(folder).join(Id::of(&encrypted).to_string());
        std::fs::write(&path, encrypted).expect("writes");
        path
    }
}

#[test]
fn mutated_files_never_cause_a_panic() {
    let opened = DecryptedRepository::new();
    let mut mutator = Mutator(11);
    let (index_json, snapshot, key_file) =
        (opened.json("index"), opened.json("snapshots"), DecryptedRepository::file(&opened.testbed, "keys").1);
    let (_, pack_file) = DecryptedRepository::file(&opened.testbed, "data");
    let header = pack::header_size(&pack_file, pack_file.len() as u64).expect("a header");
    let mut entries = Vec::new();
    opened.key.decrypt(&pack_file[pack_file.len() - header..pack_file.len() - 4], &mut entries).expect("opens");
    for _ in 0..4000 {
        let _ = Tree::parse(&mutator.mutated(TREE.as_bytes())).map(|tree| tree.encode());
        let _ = index::parse(&mutator.mutated(&index_json)).and_then(|packs| index::encode(&packs));
        let _ = Snapshot::parse(&mutator.mutated(&snapshot)).and_then(|snapshot| snapshot.encode());
        let _ = unpacked::decode(&mutator.mutated(&pack_file[..pack_file.len().min(400)]), &opened.key);
        if let Ok(file) = KeyFile::parse(&mutator.mutated(&key_file))
            && file.cost_in_bytes().is_none_or(|cost| cost < 1 << 17)
        {
            let _ = file.unlock(b"password");
        }
        let mut tail = Vec::new();
        opened.key.encrypt(&mutator.mutated(&entries), &mut tail);
        let length = u32::try_from(tail.len()).expect("small");
        tail.extend_from_slice(&length.to_le_bytes());
        let _ = pack::parse_header(&tail, pack_file.len() as u64, &opened.key);
    }
}

#[test]
fn an_attacker_with_the_password_cannot_cause_a_panic_or_writes_outside_the_target() {
    let opened = DecryptedRepository::new();
    let repository = opened.testbed.open();
    let mut mutator = Mutator(12);
    for round in 0..24 {
        let folder = ["index", "snapshots"][round % 2];
        let planted = opened.plant(folder, &mutator.mutated(&opened.json(folder)));
        let _ = repository.check(ReadData::Nothing, &task("check"), &Cancel::default());
        let (readable, _) = repository.readable_snapshots().expect("lists");
        let browser = repository.browse(&task("browse"), &Cancel::default()).expect("browses");
        for (id, snapshot) in &readable {
            let _ = browser.list(snapshot, std::path::Path::new(""), &mut |_, _| {});
            let _ = browser.stats(std::slice::from_ref(snapshot));
            if round % 6 < 2 {
                opened.testbed.restore(&repository, *id);
            }
        }
        std::fs::remove_file(planted).expect("removes");
    }
}

/// Completes a pack of these blobs and stores it.
fn plant_pack(opened: &DecryptedRepository, mut content: Vec<u8>, blobs: Vec<PackedBlob>) -> index::IndexedPack {
    content.extend_from_slice(&pack::encode_header(&blobs, &opened.key));
    let id = Id::of(&content);
    let path = opened.testbed.path("repository/data").join(&id.to_string()[..2]);
    std::fs::create_dir_all(&path).expect("a folder");
    std::fs::write(path.join(id.to_string()), content).expect("writes");
    index::IndexedPack { id, blobs }
}

/// A pack of these trees, its index and a snapshot of the last of them.
fn plant_trees(opened: &DecryptedRepository, trees: &[Vec<u8>]) {
    let (mut content, mut blobs) = (Vec::new(), Vec::new());
    for json in trees {
        let offset = u32::try_from(content.len()).expect("small");
        opened.key.encrypt(json, &mut content);
        let length = u32::try_from(content.len()).expect("small") - offset;
        blobs.push(PackedBlob { id: Id::of(json), kind: BlobKind::Tree, offset, length, uncompressed: 0 });
    }
    let pack = plant_pack(opened, content, blobs);
    opened.plant("index", &index::encode(&[pack]).expect("encodes"));
    let mut snapshot = Snapshot::parse(&opened.json("snapshots")).expect("parses");
    snapshot.tree = Id::of(trees.last().expect("a tree"));
    snapshot.time.seconds += 3600;
    opened.plant("snapshots", &snapshot.encode().expect("encodes"));
}

#[test]
fn very_deep_directories_do_not_overflow_the_stack() {
    let opened = DecryptedRepository::new();
    let mut trees = vec![Tree::default().encode()];
    for _ in 0..20_000 {
        let subtree = Some(Id::of(trees.last().expect("one")));
        let node = Node { name: b"deeper".to_vec(), kind: NodeKind::Directory, subtree, ..Node::default() };
        trees.push(Tree { nodes: vec![node] }.encode());
    }
    plant_trees(&opened, &trees);
    let repository = opened.testbed.open();
    let (snapshot, found) = repository.find_snapshot("latest").expect("is there");
    let browser = repository.browse(&task("browse"), &Cancel::default()).expect("browses");
    let mut depth = 0;
    browser.list(&found, std::path::Path::new(""), &mut |_, _| depth += 1).expect("lists");
    assert_eq!(depth, 20_000);
    let outcome = opened.testbed.restore(&repository, snapshot);
    assert_eq!(outcome.problem_count, 1, "as deep as a path can be, and then it says so: {:?}", outcome.problems);
    // Too deep for the removal of temporary directories.
    std::process::Command::new("rm").arg("-rf").arg(opened.testbed.path("restored")).status().expect("removes");
}

#[test]
fn names_that_lead_out_of_the_target_are_rejected() {
    let opened = DecryptedRepository::new();
    let name = |name: &str| Node { name: name.into(), content: Some(Vec::new()), ..Node::default() };
    let nodes = ["..", "../escaped", "/tmp/escaped", "good"].map(name).to_vec();
    plant_trees(&opened, &[Tree { nodes }.encode()]);
    let repository = opened.testbed.open();
    let (snapshot, _) = repository.find_snapshot("latest").expect("is there");
    let outcome = opened.testbed.restore(&repository, snapshot);
    assert_eq!((outcome.files, outcome.problem_count), (1, 3), "{:?}", outcome.problems);
    assert!(!opened.testbed.path("escaped").exists() && opened.testbed.path("restored/good").exists());
}

#[test]
fn a_repeated_name_is_rejected_and_leads_to_no_removal_outside_the_target() {
    let opened = DecryptedRepository::new();
    let packs = index::parse(&opened.json("index")).expect("parses");
    let data = packs.iter().flat_map(|pack| &pack.blobs).find(|blob| blob.kind == BlobKind::Data).expect("data");
    let file = Node { name: b"file".to_vec(), content: Some(vec![data.id]), ..Node::default() };
    let inside = Tree { nodes: vec![file] }.encode();
    let outside = opened.testbed.path("outside");
    std::fs::create_dir(&outside).expect("a directory");
    std::fs::set_permissions(&outside, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("a mode");
    let kind = NodeKind::Directory;
    let directory = Node { name: b"x".to_vec(), kind, mode: 0o777, subtree: Some(Id::of(&inside)), ..Node::default() };
    let link_target = outside.to_str().expect("text").into();
    let link = Node { name: b"x".to_vec(), kind: NodeKind::Symlink, link_target, ..Node::default() };
    plant_trees(&opened, &[inside, Tree { nodes: vec![directory, link] }.encode()]);
    // Existing entries are checked and removed if they conflict.
    std::fs::create_dir_all(opened.testbed.path("restored/lost+found")).expect("a directory");
    let repository = opened.testbed.open();
    let (snapshot, _) = repository.find_snapshot("latest").expect("is there");
    let outcome = opened.testbed.restore(&repository, snapshot);
    assert_eq!((outcome.files, outcome.problem_count), (1, 1), "{:?}", outcome.problems);
    assert!(outcome.problems[0].cause.contains("\"x\" not restored"), "{:?}", outcome.problems);
    assert!(
        opened.testbed.path("restored/x/file").is_file() && std::fs::read_dir(&outside).expect("lists").count() == 0
    );
    let mode = std::os::unix::fs::PermissionsExt::mode(&outside.metadata().expect("is there").permissions());
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn sizes_that_overflow_do_not_cause_a_panic() {
    let opened = DecryptedRepository::new();
    let file = |name: &str| Node { name: name.into(), size: u64::MAX, content: Some(Vec::new()), ..Node::default() };
    plant_trees(&opened, &[Tree { nodes: vec![file("a"), file("b")] }.encode()]);
    let repository = opened.testbed.open();
    let (_, snapshot) = repository.find_snapshot("latest").expect("is there");
    let browser = repository.browse(&task("browse"), &Cancel::default()).expect("browses");
    assert_eq!(browser.stats(&[snapshot]).expect("counts").restore_size, u64::MAX);
}

/// A pack with one uncompressed data blob.
fn plant_copy(opened: &DecryptedRepository, plain: &[u8]) -> index::IndexedPack {
    let mut content = Vec::new();
    opened.key.encrypt(plain, &mut content);
    let length = u32::try_from(content.len()).expect("small");
    let blobs = vec![PackedBlob { id: Id::of(plain), kind: BlobKind::Data, offset: 0, length, uncompressed: 0 }];
    plant_pack(opened, content, blobs)
}

#[test]
fn a_wrong_length_in_the_index_is_a_problem_even_with_an_intact_copy() {
    let opened = DecryptedRepository::new();
    let plain = "the same words again ".repeat(20_000).into_bytes();
    let (index_file, _) = DecryptedRepository::file(&opened.testbed, "index");
    let mut packs = index::parse(&opened.json("index")).expect("parses");
    let blob = packs.iter_mut().flat_map(|pack| &mut pack.blobs).find(|blob| blob.id == Id::of(&plain)).expect("one");
    assert_ne!(blob.uncompressed, 0, "it is compressed");
    blob.uncompressed += 1;
    packs.push(plant_copy(&opened, &plain));
    std::fs::remove_file(index_file).expect("removes");
    opened.plant("index", &index::encode(&packs).expect("encodes"));
    let repository = opened.testbed.open();
    let (snapshot, _) = repository.find_snapshot("latest").expect("is there");
    let outcome = opened.testbed.restore(&repository, snapshot);
    assert_eq!(outcome.problem_count, 1, "{:?}", outcome.problems);
    assert!(outcome.problems[0].path.ends_with("text/words"), "{:?}", outcome.problems);
    assert!(outcome.problems[0].cause.contains("instead of the 420001 bytes in the index"), "{:?}", outcome.problems);
}
