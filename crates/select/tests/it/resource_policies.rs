use std::collections::BTreeMap;

use plimsoll_select::resource_policies::{ResourcePolicies, VolumeActionType, VolumeProperties};
use serde_json::{Value, json};

fn action(conditions: &str, volume: &VolumeProperties) -> bool {
    let text = format!("version: v1\nvolumePolicies:\n- conditions: {conditions}\n  action: {{type: skip}}\n");
    ResourcePolicies::parse(&text).unwrap().action(volume).is_some()
}

fn volume(spec: Value) -> VolumeProperties {
    VolumeProperties::of_persistent_volume(&json!({"spec": spec}), None)
}

#[test]
fn conditions_of_volumes_match_as_documented() {
    let disk = |size: &str| json!({"capacity": {"storage": size}, "storageClassName": "gp2", "csi": {"driver": "ebs", "volumeAttributes": {"k": "v"}}});
    let nfs = json!({"capacity": {"storage": "5Gi"}, "nfs": {"server": "10.0.0.1", "path": "/mnt"}});
    for (conditions, spec, expected) in [
        ("{}", disk("10Gi"), true),
        ("{capacity: '1Gi,20Gi'}", disk("10Gi"), true),
        ("{capacity: '10Gi,10Gi'}", disk("10Gi"), true),
        ("{capacity: '1Gi,5Gi'}", disk("10Gi"), false),
        ("{capacity: ',5Gi'}", disk("10Gi"), false),
        ("{capacity: ',20Gi'}", disk("10Gi"), true),
        ("{capacity: '10Gi,'}", disk("10Gi"), true),
        ("{capacity: '11Gi,'}", disk("10Gi"), false),
        ("{capacity: '0,10G'}", disk("10Gi"), false),
        ("{capacity: '0,10737418240'}", disk("10Gi"), true),
        ("{capacity: '0,1.5Ti'}", disk("1500Gi"), true),
        ("{storageClass: [gp2, gp3]}", disk("10Gi"), true),
        ("{storageClass: [gp3]}", disk("10Gi"), false),
        ("{storageClass: [gp3]}", nfs.clone(), false),
        ("{csi: {}}", disk("10Gi"), true),
        ("{csi: {}}", nfs.clone(), false),
        ("{csi: {driver: ebs}}", disk("10Gi"), true),
        ("{csi: {driver: efs}}", disk("10Gi"), false),
        ("{csi: {driver: ebs, volumeAttributes: {k: v}}}", disk("10Gi"), true),
        ("{csi: {driver: ebs, volumeAttributes: {k: w}}}", disk("10Gi"), false),
        ("{nfs: {}}", nfs.clone(), true),
        ("{nfs: {}}", disk("10Gi"), false),
        ("{nfs: {server: 10.0.0.1}}", nfs.clone(), true),
        ("{nfs: {server: 10.0.0.2}}", nfs.clone(), false),
        ("{nfs: {server: 10.0.0.1, path: /mnt}}", nfs.clone(), true),
        ("{nfs: {path: /other}}", nfs.clone(), false),
        ("{volumeTypes: [nfs, local]}", nfs.clone(), true),
        ("{volumeTypes: [csi]}", nfs.clone(), false),
        ("{storageClass: [gp2], capacity: '20Gi,'}", disk("10Gi"), false),
    ] {
        assert_eq!(action(conditions, &volume(spec.clone())), expected, "{conditions} {spec}");
    }
}

#[test]
fn conditions_of_claims_match_as_documented() {
    let claim = json!({
        "metadata": {"labels": {"env": "prod", "app": "db"}},
        "spec": {"volumeMode": "Filesystem", "accessModes": ["ReadWriteOnce", "ReadOnlyMany"]},
        "status": {"phase": "Bound"},
    });
    for (conditions, expected) in [
        ("{pvcLabels: {env: prod}}", true),
        ("{pvcLabels: {env: prod, app: web}}", false),
        ("{pvcPhase: [Pending, Bound]}", true),
        ("{pvcPhase: [Pending]}", false),
        ("{pvcVolumeMode: Filesystem}", true),
        ("{pvcVolumeMode: Block}", false),
        ("{pvcAccessModes: [ReadOnlyMany, ReadWriteOnce]}", true),
        ("{pvcAccessModes: [ReadWriteOnce]}", false),
    ] {
        assert_eq!(action(conditions, &VolumeProperties::of_unbound_claim(&claim)), expected, "{conditions}");
        let bound = VolumeProperties::of_persistent_volume(&json!({"spec": {}}), Some(&claim));
        assert_eq!(action(conditions, &bound), expected, "{conditions}");
        assert!(!action(conditions, &volume(json!({}))), "{conditions} without a claim");
    }
}

#[test]
fn pod_volumes_match_by_their_source() {
    for (source, name) in [
        (json!({"name": "v", "emptyDir": {}}), "emptyDir"),
        (json!({"name": "v", "configMap": {"name": "c"}}), "configMap"),
        (json!({"name": "v", "secret": {}}), "secret"),
        (json!({"name": "v", "storageos": {}}), "storageOS"),
    ] {
        assert!(
            action(&format!("{{volumeTypes: [{name}]}}"), &VolumeProperties::of_pod_volume(&source, None)),
            "{name}"
        );
    }
    let claim = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
    assert!(!action("{volumeTypes: [csi]}", &VolumeProperties::of_pod_volume(&claim, None)));
}

#[test]
fn the_first_match_wins_and_a_backup_takes_precedence_over_the_server() {
    let backup = ResourcePolicies::parse(
        "version: v1\nvolumePolicies:\n- conditions: {storageClass: [a]}\n  action: {type: fs-backup}\n",
    )
    .unwrap();
    let global = ResourcePolicies::parse(
        "version: v1\nvolumePolicies:\n- conditions: {storageClass: [a, b]}\n  action: {type: snapshot, parameters: {x: 1}}\n- conditions: {}\n  action: {type: custom}\n",
    )
    .unwrap();
    let policies = backup.with_fallback(&global);
    let kind = |class: &str| policies.action(&volume(json!({"storageClassName": class}))).map(|action| action.kind);
    assert_eq!(kind("a"), Some(VolumeActionType::FsBackup));
    assert_eq!(kind("b"), Some(VolumeActionType::Snapshot));
    assert_eq!(kind("c"), Some(VolumeActionType::Custom));
}

#[test]
fn misspelt_and_invalid_policies_are_errors() {
    for text in [
        "version: v2",
        "volumePolicies: []",
        "version: v1\nvolumePolicy: []",
        "version: v1\nvolumePolicies:\n- conditions: {storageclass: [a]}\n  action: {type: skip}",
        "version: v1\nvolumePolicies:\n- conditions: {}\n  action: {type: explode}",
        "version: v1\nvolumePolicies:\n- conditions: {}",
        "version: v1\nvolumePolicies:\n- conditions: {capacity: '10Gi'}\n  action: {type: skip}",
        "version: v1\nvolumePolicies:\n- conditions: {capacity: '10Gi,5Gi'}\n  action: {type: skip}",
        "version: v1\nvolumePolicies:\n- conditions: {capacity: 'ten,5Gi'}\n  action: {type: skip}",
        "version: v1\nvolumePolicies:\n- conditions: {capacity: '1,2,3'}\n  action: {type: skip}",
        "version: v1\nvolumePolicies:\n- conditions: {csi: {volumeAttributes: {a: b}}}\n  action: {type: skip}",
        "version: v1\nvolumePolicies:\n- conditions: {pvcLabels: [a]}\n  action: {type: skip}",
        "version: v1\nincludeExcludePolicy: {includedClusterScopedResources: ['*']}",
        "version: v1\nincludeExcludePolicy: {includedClusterScopedResources: [a], excludedClusterScopedResources: [a]}",
        "version: v1\nclusterScopedFilterPolicy: {resourceFilters: []}",
        "version: v1\nclusterScopedFilterPolicy: {resourceFilters: [{kinds: ['*']}]}",
        "version: v1\nclusterScopedFilterPolicy: {resourceFilters: [{kinds: [a]}, {kinds: [a]}]}",
        "version: v1\nnamespacedFilterPolicies: [{namespaces: [], resourceFilters: [{kinds: [a]}]}]",
        "version: v1\nnamespacedFilterPolicies: [{namespaces: [a], resourceFilters: []}]",
        "version: v1\nnamespacedFilterPolicies: [{namespaces: ['a**'], resourceFilters: [{kinds: [a]}]}]",
        "version: v1\nnamespacedFilterPolicies: [{namespaces: [a, a], resourceFilters: [{kinds: [a]}]}]",
        "version: v1\nnamespacedFilterPolicies: [{namespaces: [a], resourceFilters: [{kinds: []}, {kinds: ['*']}]}]",
        "version: v1\nnamespacedFilterPolicies: [{namespaces: [a], resourceFilters: [{kinds: [], names: [x]}]}]",
        "version: v1\nnamespacedFilterPolicies: [{namespaces: [a], resourceFilters: [{kinds: [p], names: ['[x']}]}]",
        "version: v1\nnamespacedFilterPolicies: [{namespaces: [a], resourceFilters: [{kinds: [p], labelSelector: {matchLabels: {a: b}}, orLabelSelectors: [{}]}]}]",
    ] {
        assert_eq!(ResourcePolicies::parse(text).unwrap_err().reason(), "InvalidResourcePolicies", "{text}");
    }
    assert!(ResourcePolicies::from_config_map(&BTreeMap::new()).is_err());
}

#[test]
fn a_policy_names_the_class_of_its_snapshots() {
    let policies = |action: &str| {
        ResourcePolicies::parse(&format!("version: v1\nvolumePolicies:\n- conditions: {{}}\n  action: {action}\n"))
    };
    let class = |action: &str| {
        let policies = policies(action).unwrap();
        policies.action(&VolumeProperties::default()).unwrap().snapshot_class().map(str::to_owned)
    };
    assert_eq!(class("{type: snapshot, parameters: {snapshotClass: array-1}}").as_deref(), Some("array-1"));
    assert_eq!(class("{type: snapshot, parameters: {dataMover: velero}}"), None);
    assert_eq!(class("{type: snapshot}"), None);
    for (action, expected) in [
        ("{type: skip, parameters: {snapshotClass: a}}", "snapshotClass is a parameter of the action snapshot only"),
        ("{type: snapshot, parameters: {snapshotClass: ''}}", "snapshotClass must be a string that is not empty"),
        ("{type: snapshot, parameters: {snapshotClass: 7}}", "snapshotClass must be a string that is not empty"),
        ("{type: snapshot, parameters: {dataMover: velero-block}}", "dataMover velero-block is not supported"),
    ] {
        let error = policies(action).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(policies("{type: custom, parameters: {snapshotClass: 7}}").is_ok(), "those are for a plugin");
}

#[test]
fn a_restore_accepts_filter_policies_but_no_volume_policies() {
    let volumes =
        ResourcePolicies::parse("version: v1\nvolumePolicies: [{conditions: {}, action: {type: skip}}]").unwrap();
    assert!(volumes.validate_for_restore().is_err());
    assert!(ResourcePolicies::parse("version: v1\nincludeExcludePolicy: {}").unwrap().validate_for_restore().is_err());
    let filters = "version: v1\nclusterScopedFilterPolicy: {resourceFilters: [{kinds: [a]}]}";
    assert!(ResourcePolicies::parse(filters).unwrap().validate_for_restore().is_ok());
}
