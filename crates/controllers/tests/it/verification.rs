//! Verification of backups on request.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::PostParams;
use plimsoll_archive::layout;
use plimsoll_controllers::verification::{REQUEST, RESULT, Verification, VerificationRequest};
use plimsoll_local::fixtures::eventually;
use serde_json::json;

use crate::bed::Bed;

/// Creates the backup `b` of a namespace with a ConfigMap.
async fn back_up(bed: &Bed) {
    let namespaces = Api::<Namespace>::all(bed.client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": "shop" } })).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let config_maps = Api::<ConfigMap>::namespaced(bed.client.clone(), "shop");
    for name in ["prices", "stock"] {
        let object = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        config_maps.create(&PostParams::default(), &object).await.unwrap();
    }
    bed.back_up("b", json!({ "includedNamespaces": ["shop"] })).await;
}

async fn verify(bed: &Bed, id: &str) -> Verification {
    let request = serde_json::to_string(&VerificationRequest { id: id.into(), read_percent: 5 }).unwrap();
    bed.patch("Backup", "b", json!({ "metadata": { "annotations": { REQUEST: request } } })).await;
    eventually(&format!("the result of request {id}"), async || {
        let backup = bed.get("Backup", "b").await?;
        let result = backup["metadata"]["annotations"][RESULT].as_str()?;
        let result: Verification = serde_json::from_str(result).unwrap();
        (result.id == id).then_some(result)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intact_backup_is_verified_and_the_result_stays() {
    let bed = Bed::start().await;
    let _server = bed.server();
    back_up(&bed).await;
    let result = verify(&bed, "1").await;
    assert!(result.is_good() && result.read_percent == 5 && result.snapshots == 0, "{result:?}");
    assert!(result.items >= 3, "a namespace and two ConfigMaps: {result:?}");
    bed.wait_for_message("Backup", "b", "intact: ").await;
    let backup = bed.get("Backup", "b").await.unwrap();
    assert!(backup["metadata"]["annotations"][REQUEST].is_null(), "it is answered");
    let operation = bed.get("Operation", "verify-b").await.unwrap();
    assert_eq!((&operation["status"]["state"], &operation["spec"]["verb"]), (&json!("Succeeded"), &json!("verify")));
    assert_eq!(verify(&bed, "2").await.problem_count, 0, "it can be asked again");
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_and_missing_files_of_a_backup_are_named() {
    let bed = Bed::start().await;
    let _server = bed.server();
    back_up(&bed).await;
    let path = |key: String| bed.bucket("default").join(key);
    let (tarball, list) = (path(layout::backup_contents("b")), path(layout::backup_results("b")));
    let (intact, intact_list) = (std::fs::read(&tarball).unwrap(), std::fs::read(&list).unwrap());
    let mut flipped = intact.clone();
    flipped[intact.len() / 2] ^= 1;
    for (id, damaged) in [("truncated", &intact[..intact.len() - 9]), ("flipped", &flipped[..])] {
        std::fs::write(&tarball, damaged).unwrap();
        let result = verify(&bed, id).await;
        assert!(result.problem_count > 0 && result.error.is_none(), "{id}: {result:?}");
        assert!(result.problems[0].text.contains("b.tar.gz"), "{id}: {result:?}");
    }
    bed.wait_for_message("Backup", "b", "damaged: ").await;
    std::fs::remove_file(&tarball).unwrap();
    let result = verify(&bed, "missing").await;
    assert_eq!(result.problems[0].text, "backups/b/b.tar.gz is missing");
    std::fs::write(&tarball, &intact).unwrap();
    std::fs::write(&list, &intact_list[..intact_list.len() / 2]).unwrap();
    let result = verify(&bed, "list").await;
    assert_eq!(result.problem_count, 1, "{result:?}");
    assert!(result.problems[0].text.starts_with("backups/b/b-results.gz: "), "{result:?}");
    std::fs::write(&list, &intact_list).unwrap();
    std::fs::write(path(layout::backup_metadata("b")), b"{}").unwrap();
    let result = verify(&bed, "metadata").await;
    assert!(result.problems[0].text.contains("velero-backup.json"), "{result:?}");
}
