//! The `patchStrategy` and `patchMergeKey` of the Kubernetes API types.
//!
//! Only fields that differ from the default are listed (maps merge, lists are replaced).

/// The type that a patch is applied to: a kind, or a part of one.
#[derive(Clone, Copy, Debug)]
pub struct PatchSchema(pub(super) &'static PatchMeta);

impl PatchSchema {
    /// The schema of a built-in kind; `None` for a custom resource, for which the API server does not support strategic
    /// merge patches.
    pub fn kind(group: &str, kind: &str) -> Option<Self> {
        let known = KINDS.iter().find(|(g, k, _)| *g == group && *k == kind).map(|(_, _, ty)| Self(ty));
        known.or_else(|| BUILT_IN_GROUPS.contains(&group).then_some(Self(&PLAIN_OBJECT)))
    }

    /// As [`PatchSchema::kind`], from the `apiVersion` and `kind` of an object.
    pub fn of(object: &serde_json::Value) -> Option<Self> {
        let api_version = object.get("apiVersion")?.as_str()?;
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self::kind(group, object.get("kind")?.as_str()?)
    }

    /// The `spec` of a pod, for `podOverride`.
    pub const POD_SPEC: Self = Self(&POD_SPEC);

    /// No strategies: maps merge, every list is replaced.
    pub const UNTYPED: Self = Self(&UNTYPED);
}

/// The fields of a type with a patch strategy.
#[derive(Debug)]
pub(super) struct PatchMeta {
    pub(super) fields: &'static [(&'static str, PatchStrategy)],
}

/// How a field is patched.
#[derive(Clone, Copy, Debug)]
pub(super) enum PatchStrategy {
    /// A map that merges, of a known type.
    Map(&'static PatchMeta),
    /// A map that is replaced.
    ReplacedMap,
    /// A list of maps, one for each value of the key.
    Keyed(&'static str, &'static PatchMeta),
    /// A list of unique scalars that merge.
    Set,
    /// A list that is replaced, whose elements have a known type.
    Replaced,
}

impl PatchMeta {
    pub(super) fn field(&self, name: &str) -> Option<PatchStrategy> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, strategy)| *strategy)
    }

    /// The type of a map field; unlisted fields have no strategies.
    pub(super) fn child(&self, name: &str) -> &'static Self {
        match self.field(name) {
            Some(Map(ty) | Keyed(_, ty)) => ty,
            _ => &UNTYPED,
        }
    }
}

use PatchStrategy::{Keyed, Map, Replaced, ReplacedMap, Set};

const METADATA: (&str, PatchStrategy) = ("metadata", Map(&OBJECT_META));
const CONDITIONS: (&str, PatchStrategy) = ("conditions", Keyed("type", &UNTYPED));

macro_rules! types {
    ($($name:ident = [$($field:expr),* $(,)?];)*) => {
        $(static $name: PatchMeta = PatchMeta { fields: &[$($field),*] };)*
    };
}

types! {
    UNTYPED = [];
    PLAIN_OBJECT = [METADATA];
    OBJECT_META = [("ownerReferences", Keyed("uid", &UNTYPED)), ("finalizers", Set), ("managedFields", Replaced)];
    WITH_CONDITIONS = [METADATA, ("status", Map(&CONDITIONS_ONLY))];
    CONDITIONS_ONLY = [CONDITIONS];

    CONTAINER = [
        ("ports", Keyed("containerPort", &UNTYPED)),
        ("env", Keyed("name", &UNTYPED)),
        ("volumeMounts", Keyed("mountPath", &UNTYPED)),
        ("volumeDevices", Keyed("devicePath", &UNTYPED)),
    ];
    POD_SPEC = [
        ("volumes", Keyed("name", &VOLUME)),
        ("initContainers", Keyed("name", &CONTAINER)),
        ("containers", Keyed("name", &CONTAINER)),
        ("ephemeralContainers", Keyed("name", &CONTAINER)),
        ("imagePullSecrets", Keyed("name", &UNTYPED)),
        ("hostAliases", Keyed("ip", &UNTYPED)),
        ("topologySpreadConstraints", Keyed("topologyKey", &UNTYPED)),
        ("schedulingGates", Keyed("name", &UNTYPED)),
        ("resourceClaims", Keyed("name", &UNTYPED)),
        ("tolerations", Replaced),
    ];
    VOLUME = [("ephemeral", Map(&EPHEMERAL_VOLUME))];
    EPHEMERAL_VOLUME = [("volumeClaimTemplate", Map(&PLAIN_OBJECT))];
    POD_STATUS = [
        CONDITIONS,
        ("hostIPs", Keyed("ip", &UNTYPED)),
        ("podIPs", Keyed("ip", &UNTYPED)),
        ("resourceClaimStatuses", Keyed("name", &UNTYPED)),
    ];
    POD = [METADATA, ("spec", Map(&POD_SPEC)), ("status", Map(&POD_STATUS))];
    POD_TEMPLATE_SPEC = [METADATA, ("spec", Map(&POD_SPEC))];
    POD_TEMPLATE = [METADATA, ("template", Map(&POD_TEMPLATE_SPEC))];

    TEMPLATED_SPEC = [("template", Map(&POD_TEMPLATE_SPEC))];
    TEMPLATED = [METADATA, ("spec", Map(&TEMPLATED_SPEC)), ("status", Map(&CONDITIONS_ONLY))];
    CRON_JOB_SPEC = [("jobTemplate", Map(&JOB_TEMPLATE_SPEC))];
    JOB_TEMPLATE_SPEC = [METADATA, ("spec", Map(&TEMPLATED_SPEC))];
    CRON_JOB = [METADATA, ("spec", Map(&CRON_JOB_SPEC))];

    SERVICE_SPEC = [("ports", Keyed("port", &UNTYPED))];
    SERVICE = [METADATA, ("spec", Map(&SERVICE_SPEC)), ("status", Map(&CONDITIONS_ONLY))];
    // Pull secrets of a service account have no patch strategy, unlike those of a pod: they are replaced.
    SERVICE_ACCOUNT = [METADATA, ("secrets", Keyed("name", &UNTYPED)), ("imagePullSecrets", Replaced)];
    NODE_SPEC = [("podCIDRs", Set)];
    NODE_STATUS = [CONDITIONS, ("addresses", Keyed("type", &UNTYPED))];
    NODE = [METADATA, ("spec", Map(&NODE_SPEC)), ("status", Map(&NODE_STATUS))];
    COMPONENT_STATUS = [METADATA, CONDITIONS];

    DISRUPTION_BUDGET_SPEC = [("selector", ReplacedMap)];
    DISRUPTION_BUDGET = [METADATA, ("spec", Map(&DISRUPTION_BUDGET_SPEC)), ("status", Map(&CONDITIONS_ONLY))];
    WEBHOOK = [("matchConditions", Keyed("name", &UNTYPED))];
    WEBHOOK_CONFIGURATION = [METADATA, ("webhooks", Keyed("name", &WEBHOOK))];
    ADMISSION_POLICY_SPEC = [("matchConditions", Keyed("name", &UNTYPED)), ("variables", Keyed("name", &UNTYPED))];
    ADMISSION_POLICY = [METADATA, ("spec", Map(&ADMISSION_POLICY_SPEC))];
    CSI_NODE_SPEC = [("drivers", Keyed("name", &UNTYPED))];
    CSI_NODE = [METADATA, ("spec", Map(&CSI_NODE_SPEC))];
    RESOURCE_CLAIM_STATUS = [("reservedFor", Keyed("uid", &UNTYPED))];
    RESOURCE_CLAIM = [METADATA, ("status", Map(&RESOURCE_CLAIM_STATUS))];
}

static KINDS: &[(&str, &str, &PatchMeta)] = &[
    ("", "ComponentStatus", &COMPONENT_STATUS),
    ("", "Namespace", &WITH_CONDITIONS),
    ("", "Node", &NODE),
    ("", "PersistentVolumeClaim", &WITH_CONDITIONS),
    ("", "Pod", &POD),
    ("", "PodTemplate", &POD_TEMPLATE),
    ("", "ReplicationController", &TEMPLATED),
    ("", "Service", &SERVICE),
    ("", "ServiceAccount", &SERVICE_ACCOUNT),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", &WEBHOOK_CONFIGURATION),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", &ADMISSION_POLICY),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", &WEBHOOK_CONFIGURATION),
    ("apiregistration.k8s.io", "APIService", &WITH_CONDITIONS),
    ("apps", "DaemonSet", &TEMPLATED),
    ("apps", "Deployment", &TEMPLATED),
    ("apps", "ReplicaSet", &TEMPLATED),
    ("apps", "StatefulSet", &TEMPLATED),
    ("autoscaling", "HorizontalPodAutoscaler", &WITH_CONDITIONS),
    ("batch", "CronJob", &CRON_JOB),
    ("batch", "Job", &TEMPLATED),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema", &WITH_CONDITIONS),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", &WITH_CONDITIONS),
    ("networking.k8s.io", "ServiceCIDR", &WITH_CONDITIONS),
    ("policy", "PodDisruptionBudget", &DISRUPTION_BUDGET),
    ("resource.k8s.io", "ResourceClaim", &RESOURCE_CLAIM),
    ("storage.k8s.io", "CSINode", &CSI_NODE),
];

static BUILT_IN_GROUPS: &[&str] = &[
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "extensions",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];
