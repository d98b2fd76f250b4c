//! The kinds that are always there: those that backups meet.

use crate::{
    kind::{Kind, NameRule, View},
    table::Column,
};

/// `kind plural` and then words: `ns` namespaced, `status`, `scale`, `gen` counts generations, `all` in the category
/// all, `label`/`service`/`path` name rules, `short=`, `fields=`. Columns follow after `|`, see `table`.
const KINDS: &[(&str, &str, &[&str])] = &[
    (
        "",
        "v1",
        &[
            "Namespace namespaces status label short=ns fields=status.phase | Status:.status.phase",
            "Pod pods ns status gen all short=po fields=spec.nodeName,spec.restartPolicy,spec.schedulerName,spec.serviceAccountName,spec.hostNetwork,status.phase,status.podIP,status.nominatedNodeName | Ready:#ready Status:#podStatus Restarts:#restarts Age:age IP*:.status.podIP Node*:.spec.nodeName",
            "ConfigMap configmaps ns short=cm | Data:#data",
            "Secret secrets ns fields=type | Type:.type Data:#data",
            "Service services ns status all service short=svc fields=spec.clusterIP,spec.type | Type:.spec.type Cluster-IP:.spec.clusterIP External-IP:.status.loadBalancer.ingress[0].ip Port(s):#ports Age:age Selector*:#selector",
            "ServiceAccount serviceaccounts ns short=sa | Secrets:#secrets",
            "PersistentVolume persistentvolumes status short=pv | Capacity:.spec.capacity.storage Access_Modes:#modes Reclaim_Policy:.spec.persistentVolumeReclaimPolicy Status:.status.phase Claim:#claim StorageClass:.spec.storageClassName Reason:.status.reason",
            "PersistentVolumeClaim persistentvolumeclaims ns status short=pvc | Status:.status.phase Volume:.spec.volumeName Capacity:.status.capacity.storage Access_Modes:#modes StorageClass:.spec.storageClassName",
            "Endpoints endpoints ns short=ep",
            "Event events ns path short=ev fields=involvedObject.kind,involvedObject.namespace,involvedObject.name,involvedObject.uid,involvedObject.apiVersion,involvedObject.resourceVersion,involvedObject.fieldPath,reason,reportingComponent,source,type | -Name Last_Seen:#lastSeen Type:.type Reason:.reason Object:#involved Message:.message Name*:.metadata.name",
            "LimitRange limitranges ns short=limits",
            "ResourceQuota resourcequotas ns status short=quota",
            "Node nodes status short=no fields=spec.unschedulable | Status:#nodeReady Version:.status.nodeInfo.kubeletVersion",
            "ReplicationController replicationcontrollers ns status scale gen all short=rc fields=status.replicas | Desired:.spec.replicas Current:.status.replicas Ready:.status.readyReplicas",
            "PodTemplate podtemplates ns gen",
        ],
    ),
    (
        "apps",
        "v1",
        &[
            "Deployment deployments ns status scale gen all short=deploy | Ready:#replicasReady Up-to-date:.status.updatedReplicas Available:.status.availableReplicas",
            "ReplicaSet replicasets ns status scale gen all short=rs fields=status.replicas | Desired:.spec.replicas Current:.status.replicas Ready:.status.readyReplicas",
            "StatefulSet statefulsets ns status scale gen all short=sts | Ready:#replicasReady",
            "DaemonSet daemonsets ns status gen all short=ds | Desired:.status.desiredNumberScheduled Current:.status.currentNumberScheduled Ready:.status.numberReady Up-to-date:.status.updatedNumberScheduled Available:.status.numberAvailable",
            "ControllerRevision controllerrevisions ns | Controller:.metadata.ownerReferences[0].name Revision:.revision",
        ],
    ),
    (
        "batch",
        "v1",
        &[
            "Job jobs ns status gen all fields=status.successful | Status:#jobStatus Completions:.status.succeeded",
            "CronJob cronjobs ns status gen all short=cj | Schedule:.spec.schedule Timezone:.spec.timeZone Suspend:.spec.suspend Active:.status.active Last_Schedule:.status.lastScheduleTime",
        ],
    ),
    (
        "autoscaling",
        "v2",
        &[
            "HorizontalPodAutoscaler horizontalpodautoscalers ns status all short=hpa | Reference:.spec.scaleTargetRef.name MinPods:.spec.minReplicas MaxPods:.spec.maxReplicas Replicas:.status.currentReplicas",
        ],
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        &[
            "Role roles ns path | Created_At:.metadata.creationTimestamp",
            "RoleBinding rolebindings ns path | Role:.roleRef.name",
            "ClusterRole clusterroles path | Created_At:.metadata.creationTimestamp",
            "ClusterRoleBinding clusterrolebindings path | Role:.roleRef.name",
        ],
    ),
    (
        "networking.k8s.io",
        "v1",
        &[
            "Ingress ingresses ns status gen short=ing | Class:.spec.ingressClassName Hosts:.spec.rules[0].host",
            "IngressClass ingressclasses gen | Controller:.spec.controller",
            "NetworkPolicy networkpolicies ns gen short=netpol",
        ],
    ),
    (
        "policy",
        "v1",
        &[
            "PodDisruptionBudget poddisruptionbudgets ns status gen short=pdb | Min_Available:.spec.minAvailable Max_Unavailable:.spec.maxUnavailable",
        ],
    ),
    (
        "storage.k8s.io",
        "v1",
        &[
            "StorageClass storageclasses short=sc | Provisioner:.provisioner ReclaimPolicy:.reclaimPolicy VolumeBindingMode:.volumeBindingMode AllowVolumeExpansion:.allowVolumeExpansion",
            "VolumeAttachment volumeattachments status | Attacher:.spec.attacher PV:.spec.source.persistentVolumeName Node:.spec.nodeName Attached:.status.attached",
            "CSIDriver csidrivers",
            "CSINode csinodes",
            "CSIStorageCapacity csistoragecapacities ns",
        ],
    ),
    (
        "scheduling.k8s.io",
        "v1",
        &["PriorityClass priorityclasses gen short=pc | Value:.value Global-Default:.globalDefault"],
    ),
    ("node.k8s.io", "v1", &["RuntimeClass runtimeclasses | Handler:.handler"]),
    ("coordination.k8s.io", "v1", &["Lease leases ns | Holder:.spec.holderIdentity"]),
    (
        "apiextensions.k8s.io",
        "v1",
        &[
            "CustomResourceDefinition customresourcedefinitions status gen short=crd,crds | Created_At:.metadata.creationTimestamp",
        ],
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        &[
            "MutatingWebhookConfiguration mutatingwebhookconfigurations gen",
            "ValidatingWebhookConfiguration validatingwebhookconfigurations gen",
            "ValidatingAdmissionPolicy validatingadmissionpolicies status gen",
            "ValidatingAdmissionPolicyBinding validatingadmissionpolicybindings gen",
        ],
    ),
    ("apiregistration.k8s.io", "v1", &["APIService apiservices status | Service:.spec.service.name"]),
    ("discovery.k8s.io", "v1", &["EndpointSlice endpointslices ns gen | AddressType:.addressType"]),
    (
        "certificates.k8s.io",
        "v1",
        &[
            "CertificateSigningRequest certificatesigningrequests status path short=csr fields=spec.signerName | SignerName:.spec.signerName Requestor:.spec.username",
        ],
    ),
];

/// All of them.
pub(crate) fn kinds() -> Vec<Kind> {
    let rows = KINDS.iter().flat_map(|(group, version, rows)| rows.iter().map(move |row| parse(group, version, row)));
    rows.chain(std::iter::once(new_event())).collect()
}

fn parse(group: &str, version: &str, row: &str) -> Kind {
    let (words, columns) = row.split_once('|').unwrap_or((row, ""));
    let mut words = words.split_whitespace();
    let (kind, plural) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut parsed = Kind {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        storage_version: version.to_owned(),
        columns: Column::parse_all(columns),
        ..Kind::default()
    };
    for word in words {
        apply(&mut parsed, word);
    }
    parsed
}

fn apply(kind: &mut Kind, word: &str) {
    let list = |values: &str| values.split(',').map(str::to_owned).collect();
    match word {
        "ns" => kind.namespaced = true,
        "status" => kind.status = true,
        "scale" => kind.scale = true,
        "gen" => kind.generation = true,
        "all" => kind.categories = vec!["all".to_owned()],
        "label" => kind.name_rule = NameRule::Label,
        "service" => kind.name_rule = NameRule::Service,
        "path" => kind.name_rule = NameRule::PathSegment,
        _ => match word.split_once('=') {
            Some(("short", names)) => kind.short_names = list(names),
            Some(("fields", fields)) => kind.selectable = list(fields),
            _ => {}
        },
    }
}

/// `events.k8s.io/v1`: the same objects as the core events.
fn new_event() -> Kind {
    Kind {
        storage: Some("events".into()),
        storage_version: "v1".to_owned(),
        view: View::NewEvent,
        selectable: vec!["reason".to_owned(), "type".to_owned()],
        ..parse(
            "events.k8s.io",
            "v1",
            "Event events ns path short=ev | -Name Last_Seen:#lastSeen Type:.type Reason:.reason Object:#regarding Message:.note Name*:.metadata.name",
        )
    }
}
