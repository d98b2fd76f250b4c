//! Archives that are broken, or meant to do harm: named in the status, and nothing is done that is not counted.

use serde_json::{Value, json};

use crate::bed::{Bed, Home, eventually, on_both_clusters, phase};
use crate::planted::{Planted, assert_restored, config_map, read, restored_file};

on_both_clusters! {
    a_restore_from_an_unsafe_archive_fails_before_it_creates_objects,
    a_damaged_entry_is_counted_as_failed_and_the_others_are_restored,
}

fn good(namespace: &str) -> Planted {
    Planted::new().object("configmaps", &config_map(namespace, "good", "1"))
}

async fn failure(home: &Home<'_>, name: &str) -> (String, Value) {
    home.restore(name, json!({ "backupName": name })).await;
    let restore = home.ended("Restore", name).await;
    (restore["status"]["failureReason"].as_str().unwrap_or_default().to_owned(), restore)
}

async fn a_restore_from_an_unsafe_archive_fails_before_it_creates_objects(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    let shop = bed.ns("shop");
    let whole = good(&shop).packed();
    let link = tar::EntryType::Symlink;
    let zeros = vec![0; 12 << 20];
    let bomb = (0..4).fold(good(&shop), |archive, number| archive.file(&format!("zeros-{number}"), &zeros));
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("truncated", whole[..whole.len() - 20].to_vec(), "truncated"),
        ("not-gzip", b"this is no archive".to_vec(), "not valid gzip"),
        ("absolute", good(&shop).file("/etc/cron.d/x", b"x").packed(), "absolute"),
        ("upwards", good(&shop).file("resources/../../../tmp/x", b"x").packed(), "contains \"..\""),
        ("link", good(&shop).entry("resources/configmaps/link", link, b"").packed(), "symbolic link"),
        ("device", good(&shop).entry("dev", tar::EntryType::Char, b"").packed(), "device"),
        ("bomb", bomb.packed(), "uncompressed bytes per compressed byte"),
        ("version", Planted::default().file("metadata/version", b"9.9.9\n").packed(), "format version \"9.9.9\""),
    ];
    for (name, bytes, expected) in cases {
        Planted::new().plant_bytes(&home, name, &bytes).await;
        let (reason, restore) = failure(&home, name).await;
        assert_eq!(phase(&restore), "Failed", "{name}: {restore:#}");
        assert!(reason.contains(expected) && reason.contains(&format!("{name}.tar.gz")), "{name}: {reason}");
        assert!(restore["status"]["progress"]["itemsRestored"].as_u64().unwrap_or(0) == 0, "{restore:#}");
    }
    assert!(read(bed, "v1", "Namespace", None, &shop).await.is_none(), "nothing was created");
    let scratch = home.bed.directory.path().join(format!("scratch-{}", home.namespace));
    let left = || std::fs::read_dir(&scratch).unwrap().flatten().count();
    eventually("nothing is left in the scratch directory", async || left() == 0).await;
}

async fn a_damaged_entry_is_counted_as_failed_and_the_others_are_restored(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    let shop = bed.ns("shop");
    let at = |name: &str| format!("resources/configmaps/namespaces/{shop}/{name}.json");
    good(&shop)
        .object("configmaps", &config_map(&shop, "good", "twice"))
        .file(&at("garbage"), b"{ not json")
        .file(&at("another"), config_map(&shop, "else", "1").to_string().as_bytes())
        .file(&at("elsewhere"), config_map("kube-system", "elsewhere", "1").to_string().as_bytes())
        .plant(&home, "b")
        .await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let restore = home.ended("Restore", "r").await;
    assert_restored(&home, &restore, ("PartiallyFailed", [5, 1, 0, 4]));
    assert_eq!(restore["status"]["errors"], 4);
    let errors = restored_file(&home, "r", "results.gz")["errors"].to_string();
    for expected in [
        "duplicate entry",
        "invalid JSON in entry",
        "does not match metadata.name",
        "does not match metadata.namespace",
    ] {
        assert!(errors.contains(expected), "{expected}: {errors}");
    }
    let outcome = restored_file(&home, "r", "outcome.json.gz");
    let failed = outcome.as_array().unwrap().iter().filter(|item| item["outcome"] == "failed").count();
    assert_eq!((outcome.as_array().unwrap().len(), failed), (5, 4), "{outcome}");
    assert_eq!(
        read(bed, "v1", "ConfigMap", Some(&shop), "good").await.unwrap()["data"]["k"],
        "1",
        "the first one counts"
    );
    assert!(read(bed, "v1", "ConfigMap", Some("kube-system"), "elsewhere").await.is_none());
}
