//! Looking into snapshots.

use std::path::Path;

use plimsoll_repository::Cancel;

use crate::world::{World, noise, task};

#[test]
fn snapshots_are_listed_searched_read_and_added_up() {
    let world = World::new();
    world.write("logs/a.log", "one line");
    world.write("logs/b.txt", noise(1, 2_000_000));
    std::fs::hard_link(world.source().join("logs/a.log"), world.source().join("again.log")).expect("a link");
    let repository = world.init();
    let outcome = world.backup(&repository);
    let (_, snapshot) = repository.find_snapshot(&outcome.snapshot.short()).expect("by its first digits");
    let browser = repository.browse(&task("browse"), &Cancel::default()).expect("browses");

    let mut paths = Vec::new();
    browser.list(&snapshot, Path::new(""), &mut |path, _| paths.push(path.display().to_string())).expect("lists");
    assert_eq!(paths, ["/again.log", "/logs", "/logs/a.log", "/logs/b.txt"]);
    let found = browser.find(&snapshot, "*.log").expect("finds");
    assert_eq!(
        found.iter().map(|(path, _)| path.to_str()).collect::<Vec<_>>(),
        [Some("/again.log"), Some("/logs/a.log")]
    );

    let mut content = Vec::new();
    assert_eq!(browser.dump(&snapshot, Path::new("/logs/b.txt"), &mut content).expect("reads"), 2_000_000);
    assert!(content == noise(1, 2_000_000));
    let error = browser.dump(&snapshot, Path::new("logs"), &mut content).expect_err("no file");
    assert_eq!(error.reason(), "PathNotFound");

    let stats = browser.stats(&[snapshot.clone(), snapshot]).expect("adds up");
    assert_eq!((stats.files, stats.restore_size), (6, 2 * 2_000_008));
    assert_eq!(stats.blobs, outcome.summary.data_blobs + outcome.summary.tree_blobs);
    assert_eq!(stats.stored_size, outcome.summary.data_added_packed);
    assert_eq!(repository.find_snapshot("f00d").expect_err("none").reason(), "SnapshotNotFound");
}
