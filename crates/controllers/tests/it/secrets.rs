//! An audit: no secret of a server stands in an object or a file that others can read.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, ListParams, ObjectMeta, PostParams};
use kube::discovery::{Discovery, verbs};
use kube::{Api, ResourceExt};
use plimsoll_archive::codec::gunzip;
use plimsoll_local::fixtures::create_namespace;
use serde_json::json;

use crate::bed::{Bed, NAMESPACE};

const STORE_KEY: &str = "the-secret-key-of-the-store";

/// A location whose store does not answer, with credentials.
async fn broken_location(bed: &Bed) {
    let keys = format!("[default]\naws_access_key_id = key\naws_secret_access_key = {STORE_KEY}\n");
    let secret = Secret {
        metadata: ObjectMeta { name: Some("keys".into()), ..ObjectMeta::default() },
        data: Some([("cloud".to_owned(), ByteString(keys.into_bytes()))].into()),
        ..Secret::default()
    };
    let secrets: Api<Secret> = Api::namespaced(bed.client.clone(), NAMESPACE);
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let config = json!({ "region": "us-east-1", "s3ForcePathStyle": "true", "s3Url": "http://127.0.0.1:1" });
    bed.create(
        json!({ "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation", "metadata": { "name": "broken" },
        "spec": { "provider": "aws", "objectStorage": { "bucket": "b" }, "config": config,
            "credential": { "name": "keys", "key": "cloud" } } }),
    )
    .await;
}

/// The secrets of the server, with a name for each: as text, in base64 and in hexadecimal digits.
async fn secrets(bed: &Bed) -> Vec<(String, String)> {
    let all: Api<Secret> = Api::namespaced(bed.client.clone(), NAMESPACE);
    let mut found = vec![("the key of the store".to_owned(), STORE_KEY.to_owned())];
    for secret in all.list(&ListParams::default()).await.unwrap() {
        let name = secret.name_any();
        for (key, value) in secret.data.clone().unwrap_or_default() {
            let hex = hex::encode(&value.0);
            let base64 = json!(value).as_str().unwrap().to_owned();
            let forms = [String::from_utf8(value.0).unwrap_or_default(), base64, hex];
            let long = forms.into_iter().filter(|form| form.len() > 8);
            found.extend(long.map(|form| (format!("{name}/{key}"), form)));
        }
    }
    found
}

/// All objects of the cluster but Secrets: specs, statuses, Events and journals.
async fn objects(bed: &Bed) -> Vec<(String, String)> {
    let discovery = Discovery::new(bed.client.clone()).run().await.unwrap();
    let mut found = Vec::new();
    for (resource, capabilities) in discovery.groups().flat_map(kube::discovery::ApiGroup::recommended_resources) {
        if resource.kind == "Secret" || !capabilities.supports_operation(verbs::LIST) {
            continue;
        }
        let all: Api<DynamicObject> = Api::all_with(bed.client.clone(), &resource);
        for object in all.list(&ListParams::default()).await.unwrap() {
            let place = format!("{} {}", resource.kind, object.name_any());
            found.push((place, serde_json::to_string(&object).unwrap()));
        }
    }
    found
}

/// The files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_object_and_no_file_in_a_location_has_a_secret_of_the_server() {
    let bed = Bed::start().await;
    create_namespace(&bed.client, "shop").await.unwrap();
    broken_location(&bed).await;
    let _server = bed.server();
    bed.back_up("b", json!({ "includedNamespaces": ["shop"] })).await;
    bed.create(json!({ "apiVersion": "velero.io/v1", "kind": "Restore", "metadata": { "name": "r" }, "spec": { "backupName": "b" } })).await;
    bed.wait_for_phase("Restore", "r", "Completed").await;
    bed.wait_for_phase("BackupStorageLocation", "broken", "Unavailable").await;

    let secrets = secrets(&bed).await;
    assert!(secrets.iter().any(|(name, _)| name == "plimsoll-backup-proof/key"), "{secrets:?}");
    let search = |place: &str, text: &str| {
        let found = secrets.iter().find(|(_, secret)| text.contains(secret.as_str()));
        assert!(found.is_none(), "{place} has the secret {}", found.unwrap().0);
    };
    let objects = objects(&bed).await;
    for kind in ["Backup b", "Restore r", "BackupStorageLocation broken", "Event", "Operation"] {
        assert!(objects.iter().any(|(place, _)| place.starts_with(kind)), "{kind} is searched");
    }
    for (place, text) in objects {
        search(&place, &text);
    }
    for path in files(&bed.bucket("default")) {
        let content = fs::read(&path).unwrap();
        let text = gunzip(content.as_slice(), 1 << 30).unwrap_or(content);
        search(&path.display().to_string(), &String::from_utf8_lossy(&text));
    }
}
