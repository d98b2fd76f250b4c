//! The movers report bytes while they run, with a real restic and an S3 server that is slow enough to watch it.

use plimsoll_blueprint::functions::function_spec::{FUNCTIONS, ProgressKind};
use plimsoll_blueprint::params::{self, Params};
use plimsoll_testkit::peers::s3::{ACCESS_KEY, S3Server, SECRET_KEY};
use plimsoll_testkit::{Proxy, cache, require};
use serde_json::{Value, json};

use crate::bed::{Bed, NAMESPACE, application, path_with};

const SIZE: u64 = 24_000_000;
/// So that the work takes several seconds.
const SPEED: u64 = 6_000_000;

async fn params(bed: &Bed, endpoint: &str) -> Params {
    bed.create(
        "v1",
        "Secret",
        "secrets",
        json!({ "metadata": { "name": "keys" }, "stringData": { "id": ACCESS_KEY, "key": SECRET_KEY } }),
    )
    .await;
    let profile = json!({ "metadata": { "name": "s3", "namespace": NAMESPACE },
        "location": { "type": "s3Compliant", "bucket": "data", "endpoint": endpoint, "region": "us-east-1" },
        "credential": { "type": "keyPair", "keyPair": { "idField": "id", "secretField": "key", "secret": { "name": "keys" } } } });
    let profile = params::open_profile(&bed.client, &serde_json::from_value(profile).unwrap()).await.unwrap();
    let spec = serde_json::from_value(json!({ "name": "backup" })).unwrap();
    params::assemble(params::ParamParts {
        spec: &spec,
        kind: "namespace",
        target: Value::Null,
        workload: None,
        profile: Some(profile),
        repository_server: None,
        secrets: serde_json::Map::new(),
        config_maps: serde_json::Map::new(),
        time: "2026-11-16T03:00:00Z",
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_copy_and_restore_are_between_0_and_100_percent_with_bytes() {
    let restic = require!(cache::program("restic"));
    require!(cache::program("versitygw"));
    let server = S3Server::start("127.0.0.1").unwrap();
    server.create_bucket("data").unwrap();
    let proxy = Proxy::for_server("127.0.0.1:0", server.endpoint()).await.unwrap();
    let bed = Bed::with_pods(&path_with(&restic)).await;
    application(&bed, &format!("head -c {SIZE} /dev/urandom >/data/large")).await;
    let params = params(&bed, &proxy.url()).await;
    proxy.slow_down(Some(SPEED));
    let uploaded = async |function: &str, arguments: Value| {
        let call = bed.call(function, arguments, params.clone());
        let (outputs, seen) = call.run_and_watch("estimatedUploadSizeB").await;
        assert!(seen["estimatedUploadSizeB"].as_u64() >= Some(SIZE), "{function}: {seen}");
        let sent = call.progress()["sizeUploadedB"].as_u64();
        assert!(sent >= Some(SIZE), "{function}: {sent:?}");
        outputs
    };
    let arguments = json!({ "namespace": NAMESPACE, "pod": "db-0", "container": "db", "includePath": "/data", "backupArtifactPrefix": "one" });
    let outputs = uploaded("BackupData", arguments).await;
    let copy = json!({ "namespace": NAMESPACE, "volume": "data", "dataArtifactPrefix": "two", "image": "any" });
    uploaded("CopyVolumeData", copy).await;
    let restore = json!({ "namespace": NAMESPACE, "image": "any", "backupArtifactPrefix": "one", "volumes": { "data": "/data" },
        "restorePath": "/data/restored", "backupIdentifier": outputs["backupID"] });
    let call = bed.call("RestoreData", restore, params.clone());
    // The total is known from the start: only the output of restic moves the percentage.
    let (_, seen) = call.run_and_watch("estimatedDownloadSizeB").await;
    assert_eq!(seen["estimatedDownloadSizeB"], SIZE, "{seen}");
    let received = seen["sizeDownloadedB"].as_u64().unwrap();
    assert!(received > 0 && received < SIZE, "{seen}");
    bed.shut_down().await;
}

#[test]
fn every_function_that_moves_data_is_measured_by_bytes() {
    for function in FUNCTIONS.iter().filter(|function| function.outputs.contains(&"phySize")) {
        assert_eq!(function.progress, ProgressKind::Bytes, "{}", function.name);
    }
}
