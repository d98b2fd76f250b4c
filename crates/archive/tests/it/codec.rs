use plimsoll_archive::codec::{
    gunzip, gzip, gzip_json, parse_object, pretty_json, read_gzip_json, read_gzip_list, visit_gzip_list,
};
use plimsoll_archive::item_operations::{BackupItemOperation, ResourceIdentifier};
use plimsoll_archive::resource_list::{ResourceList, RestoreResult};
use plimsoll_archive::results::Results;
use plimsoll_archive::volume_info::{
    BackupVolumeInfo, CsiSnapshotInfo, NativeSnapshotInfo, PodVolumeInfo, RestoreVolumeInfo, SnapshotInfo, VolumeNames,
    VolumeSnapshot,
};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

#[test]
fn null_reads_as_an_empty_list() {
    for list in [json!(null), json!([])] {
        let packed = gzip_json(&list).unwrap();
        assert_eq!(read_gzip_list::<VolumeSnapshot>(packed.as_slice()).unwrap(), []);
        assert_eq!(read_gzip_list::<Value>(packed.as_slice()).unwrap(), Vec::<Value>::new());
    }
}

#[test]
fn results_omit_empty_fields_and_count_messages() {
    assert_eq!(serde_json::to_value(Results::default()).unwrap(), json!({"errors": {}, "warnings": {}}));
    let mut results = Results::default();
    results.errors.add(Some("demo"), "no");
    results.errors.add(None, "nope");
    results.warnings.add_velero("hm");
    let value = json!({
        "errors": {"cluster": ["nope"], "namespaces": {"demo": ["no"]}},
        "warnings": {"velero": ["hm"]},
    });
    assert_eq!(serde_json::to_value(&results).unwrap(), value);
    assert_eq!((results.errors.count(), results.warnings.count()), (2, 1));
    let read: Results = read_gzip_json(gzip_json(&value).unwrap().as_slice(), 1000).unwrap();
    assert_eq!(read, results);
    let sparse: Results = serde_json::from_value(json!({"errors": null, "warnings": {"namespaces": null}})).unwrap();
    assert_eq!(sparse, Results::default());
}

#[test]
fn a_resource_list_is_sorted_and_has_the_result_of_each_item() {
    let mut list = ResourceList::default();
    list.add("v1/Pod", Some("b"), "x");
    list.add("v1/Pod", Some("a"), "y");
    list.add("apps/v1/Deployment", Some("a"), "d");
    list.add("v1/Namespace", None, "a");
    assert_eq!(
        serde_json::to_string(&list).unwrap(),
        r#"{"apps/v1/Deployment":["a/d"],"v1/Namespace":["a"],"v1/Pod":["a/y","b/x"]}"#
    );
    let mut list = ResourceList::default();
    for (name, result) in [
        ("d", RestoreResult::Skipped),
        ("a", RestoreResult::Created),
        ("b", RestoreResult::Updated),
        ("c", RestoreResult::Failed),
    ] {
        list.add_restored("v1/Pod", Some("ns"), name, result);
    }
    assert_eq!(
        serde_json::to_value(&list).unwrap(),
        json!({"v1/Pod": ["ns/a(created)", "ns/b(updated)", "ns/c(failed)", "ns/d(skipped)"]})
    );
    assert_eq!(list.count(), 4);
}

#[test]
fn item_operations_have_capitalized_identifiers() {
    let value = json!({
        "spec": {
            "backupName": "b", "backupUID": "u", "backupItemAction": "velero.io/csi-pvc-backupper",
            "resourceIdentifier": {"Group": "", "Resource": "persistentvolumeclaims", "Namespace": "demo", "Name": "data"},
            "operationID": "du-1.2",
            "postOperationItems": [{"Group": "velero.io", "Resource": "datauploads", "Namespace": "velero", "Name": "x"}],
        },
        "status": {"phase": "InProgress", "nCompleted": 5, "nTotal": 10, "operationUnits": "Bytes",
            "created": "2026-01-01T00:00:00Z"},
    });
    let operation: BackupItemOperation = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(operation.spec.resource_identifier.resource, "persistentvolumeclaims");
    assert_eq!(serde_json::to_value(&operation).unwrap(), value);
    let none: BackupItemOperation = serde_json::from_value(json!({"spec": {"postOperationItems": null}})).unwrap();
    assert_eq!(none.spec.post_operation_items, Vec::<ResourceIdentifier>::new());
}

#[test]
fn volume_infos_have_capitalized_fields_where_velero_has() {
    let info = BackupVolumeInfo {
        volume: VolumeNames { pv_name: "pv".into(), ..VolumeNames::default() },
        snapshot: SnapshotInfo {
            csi_snapshot_info: Some(CsiSnapshotInfo { ready_to_use: Some(true), ..CsiSnapshotInfo::default() }),
            native_snapshot_info: Some(NativeSnapshotInfo {
                phase: "Completed".into(),
                ..NativeSnapshotInfo::default()
            }),
            ..SnapshotInfo::default()
        },
        pvb_info: Some(PodVolumeInfo { phase: "Completed".into(), ..PodVolumeInfo::default() }),
        ..BackupVolumeInfo::default()
    };
    let value = serde_json::to_value(&info).unwrap();
    assert_eq!(value["csiSnapshotInfo"]["ReadyToUse"], json!(true));
    assert_eq!(value["nativeSnapshotInfo"]["Phase"], json!("Completed"));
    assert_eq!(value["nativeSnapshotInfo"]["volumeAZ"], json!(""));
    assert_eq!(value["pvbInfo"]["Phase"], json!("Completed"));
    assert_eq!(value.get("pvcName"), None);
    assert_eq!((value["skipped"].clone(), value["snapshotDataMoved"].clone()), (json!(false), json!(false)));
    assert_eq!(serde_json::from_value::<BackupVolumeInfo>(value).unwrap(), info);
}

#[test]
fn volume_infos_have_the_fields_in_the_order_of_velero() {
    let volume = VolumeNames { pvc_name: "c".into(), pvc_namespace: "n".into(), pv_name: "v".into() };
    let snapshot =
        SnapshotInfo { native_snapshot_info: Some(NativeSnapshotInfo::default()), ..SnapshotInfo::default() };
    let native = r#""nativeSnapshotInfo":{"snapshotHandle":"","volumeType":"","volumeAZ":"","iops":"","Phase":""}"#;
    let backup = BackupVolumeInfo {
        volume: volume.clone(),
        backup_method: "NativeSnapshot".into(),
        result: "succeeded".into(),
        snapshot: snapshot.clone(),
        pvb_info: Some(PodVolumeInfo::default()),
        ..BackupVolumeInfo::default()
    };
    let text = serde_json::to_string(&backup).unwrap();
    let expected = format!(
        r#"{{"pvcName":"c","pvcNamespace":"n","pvName":"v","backupMethod":"NativeSnapshot","snapshotDataMoved":false,"preserveLocalSnapshot":false,"skipped":false,"result":"succeeded",{native},"pvbInfo":{{"uploaderType":"","volumeName":"","podName":"","podNamespace":"","Phase":""}}}}"#
    );
    assert_eq!(text, expected);
    assert_eq!(serde_json::from_str::<BackupVolumeInfo>(&text).unwrap(), backup);
    let restore =
        RestoreVolumeInfo { volume, restore_method: "NativeSnapshot".into(), snapshot, ..RestoreVolumeInfo::default() };
    let text = serde_json::to_string(&restore).unwrap();
    let expected = format!(
        r#"{{"pvcName":"c","pvcNamespace":"n","pvName":"v","restoreMethod":"NativeSnapshot","snapshotDataMoved":false,{native}}}"#
    );
    assert_eq!(text, expected);
    assert_eq!(serde_json::from_str::<RestoreVolumeInfo>(&text).unwrap(), restore);
}

#[test]
fn the_metadata_is_indented_by_two_and_ends_with_a_newline() {
    let text = String::from_utf8(pretty_json(&json!({"kind": "Backup", "spec": {}})).unwrap()).unwrap();
    assert_eq!(text, "{\n  \"kind\": \"Backup\",\n  \"spec\": {}\n}\n");
}

#[test]
fn untrusted_gzip_is_decompressed_up_to_a_limit() {
    let packed = gzip(&vec![b'a'; 5000]).unwrap();
    assert_eq!(gunzip(packed.as_slice(), 5000).unwrap().len(), 5000);
    assert_eq!(gunzip(packed.as_slice(), 4999).unwrap_err().reason(), "ArchiveTooLarge");
    assert_eq!(gunzip(&packed[..packed.len() - 4], 5000).unwrap_err().reason(), "ArchiveTruncated");
    assert_eq!(gunzip(b"this is not gzip".as_slice(), 5000).unwrap_err().reason(), "ArchiveNotGzip");
    let bad = read_gzip_json::<Value>(gzip(b"{").unwrap().as_slice(), 1000).unwrap_err();
    assert_eq!(bad.reason(), "ArchiveInvalidMetadata");
}

#[test]
fn a_list_that_is_small_when_packed_does_not_become_large_in_memory() {
    let read = |list: &[u8]| read_gzip_list::<VolumeSnapshot>(gzip(list).unwrap().as_slice()).unwrap_err();
    let text = |list: &str| read(list.as_bytes()).to_string();
    assert!(text("[0, 0]").contains("invalid type"));
    let large = format!("[{{}}, {{\"spec\": {{\"location\": \"{}\"}}}}]", random_text((4 << 20) + (64 << 10)));
    assert_eq!(text(&large), "archive exceeds the limit of 4194304 bytes in an item of a list");
    let many = format!("[{}{{}}]", "{},".repeat(100_001));
    assert_eq!(text(&many), "archive exceeds the limit of 100000 items in a list");
    assert_eq!(read(b"[] x").reason(), "ArchiveInvalidMetadata");
}

#[test]
fn a_list_of_many_small_values_does_not_become_large_in_memory() {
    // 42 MB of text, and ten times that as maps.
    let labels = (0..200_000).map(|key| format!("\"{key}\":\"\"")).collect::<Vec<_>>().join(",");
    let list = format!("[{}{{}}]", format!("{{\"labels\":{{{labels}}}}},").repeat(20));
    let packed = gzip(list.as_bytes()).unwrap();
    let error = read_gzip_list::<IgnoredAny>(packed.as_slice()).unwrap_err();
    assert_eq!(error.to_string(), "archive exceeds the limit of 536870912 bytes of memory");
    let mut count = 0;
    visit_gzip_list(packed.as_slice(), |_: IgnoredAny, _| {
        count += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(count, 21, "one at a time is not too much");
}

#[test]
fn an_object_of_many_small_values_does_not_become_large_in_memory() {
    let values = |count| format!("{{\"kind\":[{}0]}}", "0,".repeat(count));
    assert!(parse_object::<Value>(values(100_000).as_bytes()).is_ok());
    let error = parse_object::<Value>(values(2_000_000).as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "archive exceeds the limit of 67108864 bytes of memory");
}

/// Text that does not compress well.
fn random_text(length: usize) -> String {
    let mut state = 1_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'a' + u8::try_from(state >> 60).unwrap())
    };
    std::iter::repeat_with(next).take(length).collect()
}
