//! Packs of interrupted backups: they are looked for only where there is a sign of an interruption.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use object_store::path::Path;
use plimsoll_repository::backup::{BackupOptions, BackupOutcome};
use plimsoll_repository::{Cancel, OpenOptions};

use crate::faulty_store::Fault;
use crate::locking::open_with_fault;
use crate::testbed::{Testbed, check, random_bytes, task};

/// Counts the listings of packs.
#[derive(Default)]
struct PackListings(AtomicUsize);

impl Fault for PackListings {
    fn before_list(&self, prefix: Option<&Path>) {
        let is_packs = prefix.is_some_and(|prefix| prefix.as_ref().starts_with("data"));
        self.0.fetch_add(usize::from(is_packs), Ordering::SeqCst);
    }
}

/// The outcome of a backup with a cache, and how often it listed the packs.
fn backup(testbed: &Testbed, resumed: bool) -> (BackupOutcome, usize) {
    let listings = Arc::new(PackListings::default());
    let options = OpenOptions { cache: Some(testbed.path("cache")), ..OpenOptions::default() };
    let repository = open_with_fault(testbed, listings.clone(), options);
    let options = BackupOptions { resumed, ..testbed.options() };
    let outcome = repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    assert_eq!(check(&repository).errors, Vec::<String>::new());
    // The check lists them once.
    (outcome, listings.0.load(Ordering::SeqCst) - 1)
}

/// A repository whose packs are in no index file and no snapshot.
fn forget_index(testbed: &Testbed) {
    for folder in ["index", "snapshots"] {
        for file in std::fs::read_dir(testbed.path("repository").join(folder)).expect("lists").flatten() {
            std::fs::remove_file(file.path()).expect("removes");
        }
    }
}

#[test]
fn packs_are_listed_only_after_an_interruption_and_then_used() {
    let testbed = Testbed::new();
    for number in 0..8 {
        testbed.write(&format!("file {number}"), random_bytes(number, 600_000));
    }
    drop(testbed.init());
    let (first, listings) = backup(&testbed, false);
    assert!(first.summary.data_blobs >= 8 && listings == 0, "a first backup: {listings}");
    testbed.write("new", random_bytes(9, 600_000));
    assert_eq!(backup(&testbed, false).1, 0, "a second backup");
    for sign in ["an earlier attempt", "a mark in the cache"] {
        forget_index(&testbed);
        if sign == "a mark in the cache" {
            let folder = testbed.path("cache").join(testbed.open().id().to_string()).join("unfinished");
            std::fs::write(folder.join("0123"), "").expect("writes");
        }
        let (again, listings) = backup(&testbed, sign == "an earlier attempt");
        assert_eq!((again.summary.data_blobs, listings), (0, 1), "{sign}");
        assert_eq!(backup(&testbed, false).1, 0, "everything is indexed again");
    }
}
