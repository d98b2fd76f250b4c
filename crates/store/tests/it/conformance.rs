//! The conformance suite of all providers.

use bytes::Bytes;
use futures::TryStreamExt;
use plimsoll_store::{Store, StoreError};

/// Runs the suite. `store` must be empty.
pub async fn run(store: &Store) {
    an_object_is_read_back(store).await;
    a_missing_object_is_not_found(store).await;
    listing_ends_at_folders(store).await;
    deleting_twice_succeeds(store).await;
    invalid_keys_are_rejected(store).await;
    nothing_is_visible_before_an_upload_is_finished(store).await;
    an_upload_of_many_parts_arrives_whole(store).await;
    put_if_absent_matches_the_probe(store).await;
    a_folder_is_deleted_with_everything_below(store).await;
}

async fn keys(store: &Store, prefix: &str) -> Vec<String> {
    let listed: Vec<_> = store.list(prefix).try_collect().await.expect("lists");
    let mut keys: Vec<_> = listed.into_iter().map(|info| info.key).collect();
    keys.sort();
    keys
}

async fn an_object_is_read_back(store: &Store) {
    store.put("a/one", "first").await.expect("puts");
    store.put("a/one", "content").await.expect("replaces");
    assert_eq!(store.get("a/one").await.expect("gets"), "content");
    assert_eq!(store.get_range("a/one", 3..7).await.expect("gets a range"), "tent");
    assert_eq!(store.get_range("a/one", 3..3).await.expect("gets nothing"), "");
    let info = store.head("a/one").await.expect("exists");
    assert_eq!((info.key.as_str(), info.size), ("a/one", 7));
    let reader = store.reader("a/one").await.expect("opens");
    assert_eq!(reader.info().size, 7);
    let chunks: Vec<Bytes> = reader.try_collect().await.expect("reads");
    assert_eq!(chunks.concat(), b"content");
    store.put("empty", Bytes::new()).await.expect("puts nothing");
    assert_eq!(store.get("empty").await.expect("gets nothing"), "");
}

async fn a_missing_object_is_not_found(store: &Store) {
    for error in [
        store.get("a/none").await.expect_err("missing"),
        store.get_range("a/none", 0..1).await.expect_err("missing"),
        store.head("a/none").await.expect_err("missing"),
        store.reader("a/none").await.expect_err("missing"),
    ] {
        assert_eq!((error.reason(), error.is_retryable()), ("ObjectNotFound", false));
        assert!(error.to_string().contains("a/none"), "{error}");
    }
    assert!(!store.exists("a/none").await.expect("a response"));
    assert!(store.exists("a/one").await.expect("a response"));
    assert!(store.get_range("a/one", 5..100).await.is_err(), "a range past the end is an error");
}

async fn listing_ends_at_folders(store: &Store) {
    for key in ["b/x/1", "b/x/2", "b/xy/3", "b/4"] {
        store.put(key, "x").await.expect("puts");
    }
    assert_eq!(keys(store, "b/x").await, ["b/x/1", "b/x/2"]);
    assert_eq!(keys(store, "b/").await, ["b/4", "b/x/1", "b/x/2", "b/xy/3"]);
    assert_eq!(keys(store, "none").await, Vec::<String>::new());
    assert_eq!(store.list_directories("b").await.expect("lists"), ["x", "xy"]);
    assert_eq!(store.list_directories("none").await.expect("lists"), Vec::<String>::new());
    let nested = store.with_prefix("b").expect("a folder");
    assert_eq!(keys(&nested, "x").await, ["x/1", "x/2"]);
    assert_eq!(nested.get("4").await.expect("gets"), "x");
}

async fn deleting_twice_succeeds(store: &Store) {
    store.put("deleted", "x").await.expect("puts");
    store.delete("deleted").await.expect("deletes");
    store.delete("deleted").await.expect("deletes again");
    assert!(!store.exists("deleted").await.expect("a response"));
}

async fn invalid_keys_are_rejected(store: &Store) {
    for key in ["", "/", "a//b", "../x", "a/../b", "a/", "/a"] {
        let error = store.put(key, "x").await.expect_err(key);
        assert!(matches!(error, StoreError::InvalidKey { .. }), "{key:?}: {error}");
    }
}

async fn nothing_is_visible_before_an_upload_is_finished(store: &Store) {
    let mut upload = store.upload("c/parts").await.expect("started");
    upload.write(vec![1; 9 << 20].into()).await.expect("writes");
    assert!(!store.exists("c/parts").await.expect("a response"));
    assert_eq!(keys(store, "c").await, Vec::<String>::new());
    upload.abort().await.expect("aborts");
    assert!(!store.exists("c/parts").await.expect("a response"));
}

async fn an_upload_of_many_parts_arrives_whole(store: &Store) {
    let content: Vec<u8> = (0..(20 << 20) + 123_u32).map(|i| (i % 251) as u8).collect();
    let mut upload = store.upload("c/large").await.expect("started");
    for chunk in content.chunks(777_777) {
        upload.write(Bytes::copy_from_slice(chunk)).await.expect("writes");
    }
    assert_eq!(upload.written(), content.len() as u64);
    upload.finish().await.expect("finishes");
    assert!(store.get("c/large").await.expect("gets") == content, "the same bytes");
    let small = store.upload("c/small").await.expect("started");
    small.finish().await.expect("finishes");
    assert_eq!(store.head("c/small").await.expect("exists").size, 0);
}

async fn put_if_absent_matches_the_probe(store: &Store) {
    let is_supported = store.supports_put_if_absent().await.expect("probes");
    assert!(store.put_if_absent("once", "one").await.expect("puts"));
    let second = store.put_if_absent("once", "two").await.expect("a response");
    assert_eq!(second, !is_supported);
    assert_eq!(store.get("once").await.expect("gets"), if is_supported { "one" } else { "two" });
}

async fn a_folder_is_deleted_with_everything_below(store: &Store) {
    assert_eq!(store.delete_prefix("b/x").await.expect("deletes"), 2);
    assert_eq!(keys(store, "b").await, ["b/4", "b/xy/3"]);
    assert_eq!(store.delete_prefix("none").await.expect("deletes nothing"), 0);
}
