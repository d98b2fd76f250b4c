//! The test fixture: a repository, a source directory, and the comparison of directories.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_progress::{Clock, Operation, Task};
use plimsoll_repository::backup::{BackupOptions, BackupOutcome, Target};
use plimsoll_repository::restore::{RestoreOptions, RestoreOutcome};
use plimsoll_repository::{Cancel, CheckOutcome, Id, OpenOptions, ReadData, Repository};
use plimsoll_store::Store;
use plimsoll_testkit::extended_attributes;
use tokio::runtime::Runtime;

pub const PASSWORD: &str = "correct horse";

/// A temporary directory and a runtime.
pub struct Testbed {
    pub runtime: Runtime,
    folder: tempfile::TempDir,
}

impl Testbed {
    pub fn new() -> Self {
        let testbed =
            Self { runtime: Runtime::new().expect("a runtime"), folder: tempfile::tempdir().expect("a directory") };
        fs::create_dir(testbed.source()).expect("a source");
        testbed
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn source(&self) -> PathBuf {
        self.path("source")
    }

    pub fn store(&self) -> Store {
        Store::directory(self.path("repository"), "").expect("a store")
    }

    pub fn init(&self) -> Arc<Repository> {
        let made = Repository::init(self.store(), self.runtime.handle().clone(), PASSWORD.as_bytes());
        Arc::new(made.expect("initializes"))
    }

    pub fn open(&self) -> Arc<Repository> {
        self.open_on(self.store())
    }

    pub fn open_on(&self, store: Store) -> Arc<Repository> {
        let opened =
            Repository::open(store, self.runtime.handle().clone(), PASSWORD.as_bytes(), OpenOptions::default());
        Arc::new(opened.expect("opens"))
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.source().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(&path, content).expect("writes");
        path
    }

    /// The content of the source in the root of the snapshot.
    pub fn options(&self) -> BackupOptions {
        BackupOptions::new(Target::Content(self.source()))
    }

    pub fn backup(&self, repository: &Arc<Repository>) -> BackupOutcome {
        repository.backup(&self.options(), &task("backup"), &Cancel::default()).expect("backs up")
    }

    pub fn restore(&self, repository: &Arc<Repository>, snapshot: Id) -> RestoreOutcome {
        let options = RestoreOptions::new(snapshot, self.path("restored"));
        repository.restore(&options, &task("restore"), &Cancel::default()).expect("restores")
    }
}

pub fn task(name: &str) -> Task {
    Operation::new(name, Clock::system()).root()
}

pub fn check(repository: &Arc<Repository>) -> CheckOutcome {
    repository.check(ReadData::Everything, &task("check"), &Cancel::default()).expect("can be checked")
}

/// Incompressible bytes, the same for each seed.
pub fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()[5]
    };
    (0..length).map(|_| next()).collect()
}

/// All properties of a directory's entries that a restore preserves.
pub fn fingerprint(root: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut found = BTreeMap::new();
    add(root, root, &mut found);
    found
}

fn add(root: &Path, folder: &Path, found: &mut BTreeMap<Vec<u8>, String>) {
    for entry in fs::read_dir(folder).expect("lists") {
        let path = entry.expect("an entry").path();
        let name = path.strip_prefix(root).expect("below").as_os_str().as_bytes().to_vec();
        found.insert(name, describe(&path));
        if path.symlink_metadata().expect("is there").is_dir() {
            add(root, &path, found);
        }
    }
}

fn describe(path: &Path) -> String {
    let metadata = path.symlink_metadata().expect("is there");
    let kind = metadata.file_type();
    let content = if kind.is_file() {
        Id::of(&fs::read(path).expect("reads")).to_string()
    } else if kind.is_symlink() {
        fs::read_link(path).expect("a link").display().to_string()
    } else {
        format!("{} {} {}", kind.is_dir(), kind.is_fifo(), kind.is_char_device())
    };
    let links = if kind.is_dir() { 0 } else { metadata.nlink() };
    let attributes = extended_attributes(path);
    format!(
        "{:o} {}:{} {}.{:09} {links} {} {attributes:?} {content}",
        metadata.mode(),
        metadata.uid(),
        metadata.gid(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.rdev(),
    )
}
