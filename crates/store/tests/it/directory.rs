//! Directories, and the store in memory.

use plimsoll_store::{Location, Store};

use crate::conformance;

#[tokio::test]
async fn a_directory_conforms() {
    let folder = tempfile::tempdir().expect("a directory");
    conformance::run(&Store::directory(folder.path(), "").expect("opens")).await;
}

#[tokio::test]
async fn a_prefix_changes_only_the_keys() {
    let folder = tempfile::tempdir().expect("a directory");
    let location = Location::directory(folder.path().to_str().expect("text"), "some/prefix/");
    let store = Store::open(&location).expect("opens");
    conformance::run(&store).await;
    assert!(folder.path().join("some/prefix/a/one").is_file());
}

#[tokio::test]
async fn memory_conforms() {
    conformance::run(&Store::memory()).await;
}

#[tokio::test]
async fn a_dropped_upload_leaves_no_files() {
    let folder = tempfile::tempdir().expect("a directory");
    let store = Store::directory(folder.path(), "").expect("opens");
    let mut upload = store.upload("x").await.expect("started");
    upload.write(vec![1; 9 << 20].into()).await.expect("writes");
    drop(upload);
    while std::fs::read_dir(folder.path()).expect("lists").next().is_some() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_directory_without_an_absolute_path_is_rejected() {
    for (bucket, path) in [("relative", None), ("", None), ("x", Some("relative"))] {
        let mut location = Location::directory(bucket, "");
        location.config.extend(path.map(|path| ("path".to_owned(), path.to_owned())));
        assert_eq!(Store::open(&location).expect_err("rejected").reason(), "InvalidStorageLocation");
    }
}
