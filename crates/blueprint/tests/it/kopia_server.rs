//! The functions and `kando` with a real Kopia repository server.

use std::collections::BTreeMap;

use plimsoll_api::kanister::v1alpha1::ActionSpec;
use plimsoll_blueprint::kando::{KandoError, KopiaKando, SnapshotInfo};
use plimsoll_blueprint::params::{self, Params};
use plimsoll_blueprint::profile::ResolvedProfile;
use plimsoll_testkit::peers::KopiaServer;
use plimsoll_testkit::peers::kopia::{HOSTNAME, PASSWORD, USERNAME};
use plimsoll_testkit::{cache, require};
use serde_json::{Value, json};

use crate::bed::{Bed, NAMESPACE, application, path_with};

/// Bytes that cannot be compressed.
fn content(length: usize) -> Vec<u8> {
    (0_u64..)
        .flat_map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).to_le_bytes())
        .take(length)
        .collect()
}

/// A cluster with a RepositoryServer for `kopia`, as Kanister's controller leaves it, and a pod with a claim.
async fn bed(kopia: &KopiaServer) -> Bed {
    let bed = Bed::with_pods(&path_with(&cache::program("kopia").unwrap())).await;
    for object in kopia.repository_server(NAMESPACE) {
        let text = |field: &str| object[field].as_str().unwrap().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        bed.create(&version, &kind, &format!("{}s", kind.to_lowercase()), object).await;
    }
    bed
}

async fn params(bed: &Bed) -> Params {
    let spec: ActionSpec = serde_json::from_value(json!({
        "name": "backup", "object": { "kind": "Namespace", "name": NAMESPACE },
        "repositoryServer": { "name": "backups", "namespace": NAMESPACE },
    }))
    .unwrap();
    params::fetch(&bed.client, &spec, None, "2026-11-16T03:00:00Z", NAMESPACE).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn data_goes_to_a_repository_server_and_back_with_kopias_own_progress() {
    require!(cache::program("kopia"));
    // Slow enough for kopia to estimate the total, which takes it a second, before all is done.
    let kopia = KopiaServer::start(Some(2_000_000)).unwrap();
    let bed = bed(&kopia).await;
    application(&bed, "head -c 24000000 /dev/urandom >/data/large; mkdir /data/more; echo small >/data/more/small")
        .await;
    let params = params(&bed).await;
    let arguments = json!({ "namespace": NAMESPACE, "pod": "db-0", "container": "db", "includePath": "/data", "snapshotTags": "app:shop,day:1" });
    let call = bed.call("BackupDataUsingKopiaServer", arguments, params.clone());
    let (outputs, seen) = call.run_and_watch("estimatedUploadSizeB").await;
    assert!(seen["sizeUploadedB"].as_u64() < seen["estimatedUploadSizeB"].as_u64(), "{seen}");
    let id = outputs["backupID"].as_str().unwrap().to_owned();
    assert_eq!(outputs["size"], "24 MB");
    assert_eq!(kopia.snapshots().unwrap(), std::slice::from_ref(&id));
    assert!(!call.host.log_text().contains(PASSWORD));

    let restore = json!({ "namespace": NAMESPACE, "image": "any", "backupIdentifier": id, "restorePath": "/data/restored",
        "volumes": { "data": "/data" } });
    let call = bed.call("RestoreDataUsingKopiaServer", restore.clone(), params.clone());
    call.run().await.unwrap_or_else(|error| panic!("{error}\n{}", call.host.log_text()));
    let progress = call.progress();
    assert_eq!(
        (&progress["sizeDownloadedB"], &progress["estimatedDownloadSizeB"]),
        (&json!(24_000_006), &json!(24_000_006))
    );
    let compare = json!({ "namespace": NAMESPACE, "pod": "db-0", "container": "db", "command": ["sh", "-c",
        "cmp /data/large /data/restored/large && cmp /data/more/small /data/restored/more/small"] });
    bed.call("KubeExec", compare, params.clone()).run().await.unwrap();
    let left =
        json!({ "namespace": NAMESPACE, "pod": "db-0", "command": ["sh", "-c", "! ls -d /tmp/plimsoll-kopia-*"] });
    bed.call("KubeExec", left, params.clone()).run().await.unwrap();

    let delete = json!({ "namespace": NAMESPACE, "image": "any", "backupID": id });
    let call = bed.call("DeleteDataUsingKopiaServer", delete.clone(), params.clone());
    call.run().await.unwrap();
    assert!(kopia.snapshots().unwrap().is_empty());
    let error = bed.call("DeleteDataUsingKopiaServer", delete, params.clone()).run().await.unwrap_err().to_string();
    assert!(error.starts_with("kopia snapshot delete in container container of pod shop/"), "{error}");
    let error = bed.call("RestoreDataUsingKopiaServer", restore, params).run().await.unwrap_err().to_string();
    assert!(error.contains(&id) || error.contains("not found"), "{error}");
    bed.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_repository_server_or_its_arguments_is_named() {
    require!(cache::program("kopia"));
    let kopia = KopiaServer::start(None).unwrap();
    let bed = bed(&kopia).await;
    application(&bed, "true").await;
    let params = params(&bed).await;
    let arguments = |more: Value| {
        let mut arguments = json!({ "namespace": NAMESPACE, "pod": "db-0", "container": "db", "includePath": "/data" });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    let backup = async |more: Value, params: &Params| {
        bed.call("BackupDataUsingKopiaServer", arguments(more), params.clone()).run().await.unwrap_err().to_string()
    };
    assert_eq!(backup(json!({}), &Params::default()).await, "the action has no repositoryServer");
    let error = backup(json!({ "repositoryServerUserHostname": "other" }), &params).await;
    assert_eq!(error, "invalid argument repositoryServerUserHostname: secret users has no host other");
    let error = backup(json!({ "snapshotTags": "app" }), &params).await;
    assert_eq!(error, "invalid argument snapshotTags: expected key:value, found \"app\"");
    let error = backup(json!({ "pod": "db-9" }), &params).await;
    assert_eq!(error, "pod shop/db-9 does not exist");
    let error = backup(json!({ "includePath": "/none" }), &params).await;
    assert!(error.starts_with("kopia snapshot create in container db of pod shop/db-0 failed: exit code 1"), "{error}");
    bed.shut_down().await;
}

fn profile(kopia: &KopiaServer, password: &str) -> ResolvedProfile {
    ResolvedProfile::from_value(json!({
        "Location": { "type": "kopia", "endpoint": format!("https://127.0.0.1:{}", kopia.port()) },
        "Credential": { "Type": "kopia", "KopiaServerSecret": { "Username": USERNAME, "Hostname": HOSTNAME,
            "Password": password, "Cert": kopia.certificate(), "ConnectOptions": BTreeMap::<String, i64>::new() } },
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn kando_pushes_pulls_and_deletes_with_a_profile_of_a_kopia_server() {
    let program = require!(cache::program("kopia"));
    let kopia = KopiaServer::start(None).unwrap();
    let profile = profile(&kopia, PASSWORD);
    let connect = || KopiaKando::connect_with(program.clone(), profile.kopia_server().unwrap());
    let data = content(5_000_003);
    let mut frames = Vec::new();
    let kando = connect().await.unwrap();
    let saved = kando.push("dumps/one/dump.sql", &data[..], None, |frame| frames.push(frame.clone())).await.unwrap();
    assert_eq!((saved.logical_size, saved.physical_size), (5_000_003, 0));
    assert_eq!(&*frames[0].operation, "push dumps/one/dump.sql");
    assert_eq!(frames.last().unwrap().nodes[0].meters[0].done, 5_000_003);
    assert_eq!(kopia.snapshots().unwrap(), std::slice::from_ref(&saved.id));
    let mut back = Vec::new();
    let pulled = connect().await.unwrap().pull("dumps/one/dump.sql", &saved, &mut back, |_| {}).await.unwrap();
    assert_eq!(pulled.bytes, 5_000_003);
    assert!(back == data, "another content");

    let missing = SnapshotInfo { id: "0123456789abcdef0123456789abcdef".into(), logical_size: 0, physical_size: 0 };
    let error = kando.pull("x", &missing, tokio::io::sink(), |_| {}).await.unwrap_err();
    assert!(matches!(&error, KandoError::Kopia { cause } if cause.contains("not found")), "{error}");
    let broken = tokio_util::io::StreamReader::new(futures::stream::iter([
        Ok(bytes::Bytes::from_static(b"part")),
        Err(std::io::Error::other("the pipe broke")),
    ]));
    let error = kando.push("part", broken, None, |_| {}).await.unwrap_err();
    assert!(matches!(error, KandoError::Local { .. }), "{error}");
    assert_eq!(kopia.snapshots().unwrap(), std::slice::from_ref(&saved.id), "a part is never stored as a whole");

    kando.delete("dumps/one/dump.sql", &saved, |_| {}).await.unwrap();
    assert!(kopia.snapshots().unwrap().is_empty());
    let error = KopiaKando::connect_with(program.clone(), self::profile(&kopia, "wrong").kopia_server().unwrap()).await;
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("kopia failed: ") && !error.contains("wrong"), "{error}");
    let none = KopiaKando::connect_with("/none/kopia".into(), profile.kopia_server().unwrap()).await.unwrap_err();
    assert!(matches!(none, KandoError::KopiaMissing), "{none}");
}
