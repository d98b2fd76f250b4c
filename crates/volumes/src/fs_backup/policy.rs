//! Which volumes of a pod are backed up file by file: pure.

use plimsoll_api::labels;
use plimsoll_api::velero::v1::BackupSpec;
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_select::resource_policies::{ResourcePolicies, VolumeActionType, VolumeProperties};
use serde_json::Value;

/// The policy of a backup for pod volumes.
#[derive(Clone, Debug, Default)]
pub struct FsBackupPolicy {
    /// All volumes but those that say no, or only those that say yes.
    pub by_default: bool,
    /// Its volume policies.
    pub policies: Option<ResourcePolicies>,
    /// Claims are no part of it: then their files are none either, or a restore would write them into whatever claim it finds.
    pub without_claims: bool,
}

/// The claim and PersistentVolume of a pod volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct VolumeBinding<'a> {
    /// Its claim.
    pub claim: Option<&'a Value>,
    /// The claim's volume.
    pub volume: Option<&'a Value>,
}

/// The decision about a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Its files are backed up.
    BackUp,
    /// Nothing, and nothing is expected.
    Leave,
    /// Nothing, because a policy says so.
    Skip(String),
    /// Nothing, because the filters of the backup leave out what it belongs to.
    Exclude(&'static str),
    /// Nothing, because no container mounts it: the kubelet makes no directory for it.
    Unmounted,
    /// Nothing, although it was requested.
    Refuse {
        /// Why.
        why: String,
        /// Whether it was requested by name, and not with all others.
        named: bool,
    },
}

/// Kinds of volume whose files come from elsewhere, or belong to the node.
const UNSUPPORTED_VOLUME_TYPES: [&str; 5] = ["hostPath", "secret", "configMap", "projected", "downwardAPI"];

impl FsBackupPolicy {
    /// The policy of a Backup, by its spec, its policies and filters, and the default of the server.
    pub fn of(
        spec: &BackupSpec,
        policies: Option<ResourcePolicies>,
        item_filter: &ItemFilter,
        servers_default: bool,
    ) -> Self {
        Self {
            by_default: all_by_default(spec, servers_default),
            policies,
            without_claims: !item_filter.includes_claims(),
        }
    }

    /// Whether policies decide about volumes.
    pub fn has_volume_policies(&self) -> bool {
        self.policies.as_ref().is_some_and(ResourcePolicies::has_volume_policies)
    }

    /// Whether any volume of a pod may be backed up. Cheap; `false` is certain.
    pub fn concern(&self, pod: &Value) -> bool {
        let any = volumes(pod).any(|volume| unsupported_type(volume).is_none());
        (any && (self.by_default || self.has_volume_policies())) || !listed(pod, labels::BACKUP_VOLUMES).is_empty()
    }

    /// Decides about one volume of a pod.
    pub fn choose(&self, pod: &Value, volume: &Value, binding: VolumeBinding<'_>) -> Choice {
        let name = volume["name"].as_str().unwrap_or_default();
        let named = listed(pod, labels::BACKUP_VOLUMES).contains(&name);
        if let Some(kind) = unsupported_type(volume) {
            return if named {
                Choice::Refuse { why: format!("{kind} volumes are not backed up"), named }
            } else {
                Choice::Leave
            };
        }
        let policy = self.policy(volume, binding);
        let by_default = self.by_default && !listed(pod, labels::BACKUP_VOLUMES_EXCLUDES).contains(&name);
        // Where all are requested, a name in the annotation adds nothing.
        let by_name = named && !self.by_default;
        let by_policy = policy == Some(VolumeActionType::FsBackup);
        let requested = by_policy || (policy.is_none() && (by_default || by_name));
        // Not those that pods make for themselves: a restore prepares no such claim.
        if self.without_claims && volume.get("persistentVolumeClaim").is_some() {
            let why = "persistentvolumeclaims are not included in the backup";
            return if requested { Choice::Exclude(why) } else { Choice::Leave };
        }
        match policy {
            Some(VolumeActionType::Skip) => return Choice::Skip("skipped due to policy".into()),
            // Snapshots of PersistentVolumes are taken elsewhere. A policy that matches all volumes does not apply to a volume
            // without one, unless it has an unbound claim, or the pod names it.
            Some(VolumeActionType::Snapshot) if binding.volume.is_none() && (named || binding.claim.is_some()) => {
                let why = "a policy wants a snapshot of it, and it is no PersistentVolume".into();
                return Choice::Refuse { why, named: true };
            }
            _ if !requested => return Choice::Leave,
            _ => {}
        }
        match unusable(binding) {
            Some(why) => Choice::Refuse { why, named: named || by_policy },
            None if !is_mounted(pod, name) => Choice::Unmounted,
            None => Choice::BackUp,
        }
    }

    /// Whether the files of a claim are backed up by way of this pod.
    pub fn backs_up_claim(&self, pod: &Value, claim: &Value, persistent: &Value) -> bool {
        let running = pod.pointer("/status/phase").and_then(Value::as_str) == Some("Running");
        let name = claim.pointer("/metadata/name").and_then(Value::as_str);
        let binding = VolumeBinding { claim: Some(claim), volume: Some(persistent) };
        let is_claim = |volume: &&Value| claim_name(pod, volume).as_deref() == name;
        running && volumes(pod).filter(is_claim).any(|volume| self.choose(pod, volume, binding) == Choice::BackUp)
    }

    fn policy(&self, volume: &Value, binding: VolumeBinding<'_>) -> Option<VolumeActionType> {
        let policies = self.policies.as_ref().filter(|policies| policies.has_volume_policies())?;
        let facts = match binding {
            VolumeBinding { volume: Some(persistent), claim } => {
                VolumeProperties::of_persistent_volume(persistent, claim)
            }
            VolumeBinding { volume: None, claim: Some(claim) } => VolumeProperties::of_unbound_claim(claim),
            VolumeBinding { volume: None, claim: None } => VolumeProperties::of_pod_volume(volume, None),
        };
        policies.action(&facts).map(|action| action.kind)
    }
}

/// Whether the files of all volumes are backed up that do not say no. As with Velero the old spelling counts only where it says
/// yes, and then before the new one.
pub fn all_by_default(spec: &BackupSpec, servers_default: bool) -> bool {
    spec.default_volumes_to_restic == Some(true) || spec.default_volumes_to_fs_backup.unwrap_or(servers_default)
}

/// Why the files of a volume cannot be read.
fn unusable(binding: VolumeBinding<'_>) -> Option<String> {
    let text = |value: Option<&Value>, place: &str| {
        value.and_then(|value| value.pointer(place)).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let claim = text(binding.claim, "/metadata/name");
    if text(binding.claim, "/spec/volumeMode") == "Block" {
        return Some(format!("claim {claim} is a block device (volumeMode: Block), which has no files"));
    }
    if binding.claim.is_some() && text(binding.claim, "/spec/volumeName").is_empty() {
        return Some(format!("claim {claim} is not bound"));
    }
    let host = binding.volume.is_some_and(|volume| volume.pointer("/spec/hostPath").is_some());
    host.then(|| format!("volume {} of claim {claim} is a hostPath", text(binding.volume, "/metadata/name")))
}

/// Whether this volume is of a kind that is never backed up, and which.
pub(crate) fn unsupported_type(volume: &Value) -> Option<&'static str> {
    let token = volume["name"].as_str().is_some_and(|name| name.starts_with("default-token"));
    let kind = UNSUPPORTED_VOLUME_TYPES.into_iter().find(|kind| volume.get(kind).is_some_and(|value| !value.is_null()));
    kind.or(token.then_some("token"))
}

/// Whether any container of a pod mounts a volume. Those that have ended by now count too: its directory stays as long as the pod.
fn is_mounted(pod: &Value, volume: &str) -> bool {
    ["containers", "initContainers", "ephemeralContainers"].into_iter().any(|kind| {
        let containers = pod["spec"][kind].as_array().into_iter().flatten();
        containers
            .flat_map(|one| one["volumeMounts"].as_array().into_iter().flatten())
            .any(|mount| mount["name"] == volume)
    })
}

/// The volumes of a pod.
pub fn volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    pod.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten()
}

/// The claim that a volume of a pod is of.
pub fn claim_name(pod: &Value, volume: &Value) -> Option<String> {
    let claim_info = volume.pointer("/persistentVolumeClaim/claimName").and_then(Value::as_str).map(str::to_owned);
    let pod = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let own = || volume.get("ephemeral").map(|_| format!("{pod}-{}", volume["name"].as_str().unwrap_or_default()));
    claim_info.or_else(own)
}

/// The names of all claims that a pod uses.
pub fn claims_of(pod: &Value) -> Vec<String> {
    volumes(pod).filter_map(|volume| claim_name(pod, volume)).collect()
}

/// The names in an annotation of a pod.
pub fn listed<'a>(pod: &'a Value, annotation: &str) -> Vec<&'a str> {
    let text = pod.pointer("/metadata/annotations").and_then(|all| all.get(annotation)).and_then(Value::as_str);
    text.unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "what json! makes is given away")]
mod tests {
    use plimsoll_engine::cluster::Resource;
    use serde_json::json;

    use super::*;

    fn pod(annotations: Value) -> Value {
        json!({"metadata": {"name": "p", "annotations": annotations}, "spec": {
            "containers": [{"volumeMounts": [{"name": "data"}, {"name": "cache"}, {"name": "own"}]}], "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "cache", "emptyDir": {}},
            {"name": "keys", "secret": {}}, {"name": "host", "hostPath": {"path": "/"}}]}})
    }

    fn chosen(policy: &FsBackupPolicy, pod: &Value) -> Vec<String> {
        let claim = json!({"metadata": {"name": "c"}, "spec": {"volumeName": "v"}});
        let binding = |volume: &Value| VolumeBinding { claim: claim_name(pod, volume).map(|_| &claim), volume: None };
        let chosen = volumes(pod).filter(|volume| policy.choose(pod, volume, binding(volume)) == Choice::BackUp);
        chosen.map(|volume| volume["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn volumes_are_opted_in_by_name_or_opted_out_by_name() {
        let (opt_in, opt_out) =
            (FsBackupPolicy::default(), FsBackupPolicy { by_default: true, ..FsBackupPolicy::default() });
        let plain = pod(json!({}));
        assert!(chosen(&opt_in, &plain).is_empty() && !opt_in.concern(&plain));
        assert_eq!(chosen(&opt_out, &plain), ["data", "cache"]);
        assert_eq!(chosen(&opt_in, &pod(json!({labels::BACKUP_VOLUMES: "cache, data"}))), ["data", "cache"]);
        assert_eq!(chosen(&opt_out, &pod(json!({labels::BACKUP_VOLUMES_EXCLUDES: "cache"}))), ["data"]);
    }

    #[test]
    fn a_backup_that_does_not_say_is_the_servers_to_decide_and_the_old_spelling_says_nothing_but_yes() {
        let spec = |new: Option<bool>, old: Option<bool>| BackupSpec {
            default_volumes_to_fs_backup: new,
            default_volumes_to_restic: old,
            ..BackupSpec::default()
        };
        for (new, old, servers, all) in [
            (None, None, false, false),
            (None, None, true, true),
            (Some(false), None, true, false),
            (Some(true), None, false, true),
            (None, Some(true), false, true),
            (None, Some(false), true, true),
            (Some(false), Some(true), false, true),
        ] {
            assert_eq!(all_by_default(&spec(new, old), servers), all, "{new:?} {old:?} {servers}");
        }
    }

    #[test]
    fn where_claims_are_no_part_of_a_backup_their_files_are_none_even_if_they_are_named() {
        let claims = Resource {
            group: String::new(),
            version: "v1".into(),
            plural: "persistentvolumeclaims".into(),
            kind: "PersistentVolumeClaim".into(),
            namespaced: true,
            aliases: vec!["pvc".into()],
        };
        let policy = |spec: Value| {
            let spec: BackupSpec = serde_json::from_value(spec).unwrap();
            let item_filter = ItemFilter::for_backup(&spec, None, std::slice::from_ref(&claims), &[]).unwrap();
            FsBackupPolicy::of(&spec, None, &item_filter, true)
        };
        for spec in [
            json!({ "excludedResources": ["pvc"] }),
            json!({ "includedResources": ["pods"] }),
            json!({ "excludedNamespaceScopedResources": ["persistentvolumeclaims"] }),
        ] {
            let policy = policy(spec.clone());
            let named = pod(json!({ labels::BACKUP_VOLUMES: "data" }));
            assert_eq!((chosen(&policy, &named), policy.concern(&named)), (vec!["cache".to_owned()], true), "{spec}");
        }
        assert_eq!(chosen(&policy(json!({})), &pod(json!({}))), ["data", "cache"]);
        let unasked = pod(json!({ labels::BACKUP_VOLUMES_EXCLUDES: "data" }));
        let left = policy(json!({ "includedResources": ["pods"] })).choose(
            &unasked,
            &unasked["spec"]["volumes"][0],
            VolumeBinding::default(),
        );
        assert_eq!(left, Choice::Leave, "it is not missed");
        let own = json!({ "name": "own", "ephemeral": { "volumeClaimTemplate": {} } });
        let policy = policy(json!({ "excludedResources": ["pvc"] }));
        assert_eq!(policy.choose(&pod(json!({})), &own, VolumeBinding::default()), Choice::BackUp);
    }

    #[test]
    fn what_is_never_backed_up_is_refused_only_where_it_was_requested_by_name() {
        let named = pod(json!({labels::BACKUP_VOLUMES: "keys,host"}));
        let of = |policy: &FsBackupPolicy, pod: &Value, index: usize| {
            policy.choose(pod, &pod["spec"]["volumes"][index], VolumeBinding::default())
        };
        assert_eq!(
            of(&FsBackupPolicy::default(), &named, 3),
            Choice::Refuse { why: "hostPath volumes are not backed up".into(), named: true }
        );
        assert_eq!(
            of(&FsBackupPolicy { by_default: true, ..FsBackupPolicy::default() }, &pod(json!({})), 2),
            Choice::Leave
        );
    }

    #[test]
    fn policies_decide_before_annotations_and_what_they_do_not_match_is_left_to_those() {
        let policies = ResourcePolicies::parse(
            "version: v1\nvolumePolicies:\n- conditions: {volumeTypes: [emptyDir]}\n  action: {type: skip}\n\
             - conditions: {pvcLabels: {keep: files}}\n  action: {type: fs-backup}\n\
             - conditions: {pvcLabels: {keep: snapshot}}\n  action: {type: snapshot}\n",
        )
        .unwrap();
        let policy = FsBackupPolicy { policies: Some(policies), ..FsBackupPolicy::default() };
        let pod = pod(json!({labels::BACKUP_VOLUMES: "cache"}));
        let claim =
            |keep: &str| json!({"metadata": {"name": "c", "labels": {"keep": keep}}, "spec": {"volumeName": "v"}});
        let of = |index: usize, claim: Option<&Value>| {
            policy.choose(&pod, &pod["spec"]["volumes"][index], VolumeBinding { claim, volume: None })
        };
        assert_eq!(of(1, None), Choice::Skip("skipped due to policy".into()));
        assert_eq!(of(0, Some(&claim("files"))), Choice::BackUp);
        assert!(matches!(of(0, Some(&claim("snapshot"))), Choice::Refuse { named: true, .. }));
        assert_eq!(of(0, Some(&claim("nothing"))), Choice::Leave);
    }

    #[test]
    fn a_policy_that_wants_a_snapshot_of_everything_means_no_volume_without_a_claim_unless_the_pod_names_it() {
        for conditions in ["{}", "{capacity: '0,100Gi'}"] {
            let rules =
                format!("version: v1\nvolumePolicies:\n- conditions: {conditions}\n  action: {{type: snapshot}}\n");
            for by_default in [false, true] {
                let policies = Some(ResourcePolicies::parse(&rules).unwrap());
                let policy = FsBackupPolicy { by_default, policies, ..FsBackupPolicy::default() };
                let of = |pod: &Value| policy.choose(pod, &pod["spec"]["volumes"][1], VolumeBinding::default());
                assert_eq!(of(&pod(json!({}))), Choice::Leave, "{conditions} {by_default}");
                let named = of(&pod(json!({ labels::BACKUP_VOLUMES: "cache" })));
                assert!(matches!(named, Choice::Refuse { named: true, .. }), "{conditions} {by_default}: {named:?}");
            }
        }
    }

    #[test]
    fn a_volume_that_no_container_mounts_is_not_backed_up_however_it_is_selected_and_any_container_will_do() {
        let all = FsBackupPolicy { by_default: true, ..FsBackupPolicy::default() };
        let of = |policy: &FsBackupPolicy, pod: &Value| {
            policy.choose(pod, &pod["spec"]["volumes"][1], VolumeBinding::default())
        };
        let mut pod = pod(json!({ labels::BACKUP_VOLUMES: "cache" }));
        pod["spec"]["containers"] = json!([{ "volumeMounts": [{ "name": "data" }] }, {}]);
        assert_eq!((of(&all, &pod), of(&FsBackupPolicy::default(), &pod)), (Choice::Unmounted, Choice::Unmounted));
        for kind in ["containers", "initContainers", "ephemeralContainers"] {
            let mut pod = pod.clone();
            pod["spec"][kind] = json!([{}, { "volumeMounts": [{ "name": "other" }, { "name": "cache" }] }]);
            assert_eq!(of(&all, &pod), Choice::BackUp, "{kind}");
        }
    }

    #[test]
    fn a_block_device_and_a_claim_that_is_not_bound_are_refused_by_name() {
        let policy = FsBackupPolicy { by_default: true, ..FsBackupPolicy::default() };
        let pod = pod(json!({}));
        let refused = |spec: Value| {
            let claim = json!({"metadata": {"name": "c"}, "spec": spec});
            policy.choose(&pod, &pod["spec"]["volumes"][0], VolumeBinding { claim: Some(&claim), volume: None })
        };
        let why = "claim c is a block device (volumeMode: Block), which has no files".to_owned();
        assert_eq!(refused(json!({"volumeMode": "Block", "volumeName": "v"})), Choice::Refuse { why, named: false });
        assert_eq!(refused(json!({})), Choice::Refuse { why: "claim c is not bound".into(), named: false });
    }
}
