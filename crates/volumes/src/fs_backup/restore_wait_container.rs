//! The container that waits in a restored pod: its image, its share of the node, and as whom it runs.
//!
//! It must get wherever the application gets, and see what the application sees. So it runs as the container does that mounts
//! the volume: what admits that one admits this one, and a volume that belongs to that one's user opens to this one.
//!
//! | a ConfigMap says | the pod's own container | the pod | it runs |
//! |---|---|---|---|
//! | so | | | as the ConfigMap says |
//! | nothing | has a securityContext | | with the same one |
//! | nothing | has none | | as the pod's own: its user, or root with the runtime's capabilities |
//! | | names no user | must not be root, names none | as user 1000 |

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::SecurityContext;
use plimsoll_select::quantity::Quantity;
use serde_json::{Map, Value, json};

use super::restore_wait_action::RestoreHelper;
use crate::transfer::RESTORE_WAIT;

/// The user where none is named and root is not allowed: the same as Velero.
const DEFAULT_USER: i64 = 1000;
/// Requests and limits, as Velero sets them: by the resource, its two keys and what they are by default.
const SHARES: [(&str, [&str; 2], &str); 2] =
    [("cpu", ["cpuRequest", "cpuLimit"], "100m"), ("memory", ["memRequest", "memLimit"], "128Mi")];
const USER: &str = "secCtxRunAsUser";
const GROUP: &str = "secCtxRunAsGroup";
const ESCALATION: &str = "secCtxAllowPrivilegeEscalation";
const SECURITY: &str = "secCtx";
/// Keys of Velero's that no share and no securityContext is read from.
const IMAGE: &str = "image";
const COMMAND: &str = "command";

/// What does not depend on the pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WaitContainer {
    image: String,
    command: Vec<String>,
    resources: Value,
    security: Option<Value>,
}

impl WaitContainer {
    /// From the settings of the server and a ConfigMap. Invalid values are warnings.
    pub fn read(helper: &RestoreHelper, data: &BTreeMap<String, String>) -> (Self, Vec<String>) {
        let mut warnings = Vec::new();
        let data: BTreeMap<&str, &str> = data
            .iter()
            .map(|(key, value)| (key.as_str(), value.trim()))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        warnings.extend(unknown(&data));
        let image =
            value_or_warning(image(helper, &data), &mut warnings).flatten().unwrap_or_else(|| helper.image.clone());
        let resources = resources(&data, &mut warnings);
        let security = value_or_warning(security(&data), &mut warnings).flatten();
        (Self { image, command: helper.command.clone(), resources, security }, warnings)
    }

    /// The container that waits for the data of these volumes of a pod.
    pub fn container(&self, pod: &Value, volumes: &[String], restore_uid: &str) -> Value {
        let mounts = volumes.iter().map(|name| json!({ "name": name, "mountPath": format!("/restores/{name}") }));
        json!({
            "name": RESTORE_WAIT,
            "image": self.image,
            "command": self.command,
            "args": [restore_uid],
            "volumeMounts": mounts.collect::<Vec<_>>(),
            "resources": self.resources,
            "securityContext": self.run_as(pod, volumes),
            // Why it gave up is then in the pod's status, where the restore finds it.
            "terminationMessagePolicy": "FallbackToLogsOnError",
        })
    }

    /// The table above.
    fn run_as(&self, pod: &Value, volumes: &[String]) -> Value {
        let own =
            self.security.clone().or_else(|| application_container(pod, volumes)?.get("securityContext").cloned());
        let own = own.filter(|own| !own.is_null());
        let shared = pod.pointer("/spec/securityContext");
        let field_value = |field: &str| {
            let own = own.as_ref().and_then(|own| own.get(field)).filter(|value| !value.is_null());
            own.or_else(|| shared?.get(field)).filter(|value| !value.is_null()).cloned()
        };
        let unnamed = field_value("runAsNonRoot") == Some(json!(true)) && field_value("runAsUser").is_none();
        match own {
            Some(mut own) => {
                if unnamed {
                    own["runAsUser"] = json!(DEFAULT_USER);
                }
                own
            }
            None if unnamed => {
                json!({ "runAsUser": DEFAULT_USER, "runAsNonRoot": true, "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"] }, "seccompProfile": { "type": "RuntimeDefault" } })
            }
            // Only where nothing is enforced does a pod's container have none.
            None => json!({ "allowPrivilegeEscalation": false }),
        }
    }
}

/// The container of the pod that will work on the volumes: what others put in front of it may have another user.
fn application_container<'a>(pod: &'a Value, volumes: &[String]) -> Option<&'a Value> {
    let containers = pod.pointer("/spec/containers")?.as_array()?;
    let mounts = |container: &&Value| {
        let mounts = container.get("volumeMounts").and_then(Value::as_array).into_iter().flatten();
        let mut names = mounts.filter_map(|mount| mount.get("name")?.as_str());
        names.any(|name| volumes.iter().any(|volume| volume == name))
    };
    containers.iter().find(mounts).or_else(|| containers.first())
}

fn value_or_warning<T>(read: Result<T, String>, warnings: &mut Vec<String>) -> Option<T> {
    read.map_err(|error| warnings.push(error)).ok()
}

fn unknown(data: &BTreeMap<&str, &str>) -> Vec<String> {
    let shares = SHARES.iter().flat_map(|(_, keys, _)| keys);
    let known: Vec<&str> =
        [IMAGE, COMMAND, USER, GROUP, ESCALATION, SECURITY].into_iter().chain(shares.copied()).collect();
    let mut warnings: Vec<String> = data
        .keys()
        .filter(|key| !known.contains(*key))
        .map(|key| format!("the ConfigMap has an unknown key {key:?}"))
        .collect();
    if let Some(command) = data.get(COMMAND) {
        warnings.push(format!("command {command:?} of the ConfigMap is ignored: it is not a command of plimsoll"));
    }
    warnings
}

/// Another image of the same name, such as a mirror's. Any other is Velero's, and has not our program.
fn image(helper: &RestoreHelper, data: &BTreeMap<&str, &str>) -> Result<Option<String>, String> {
    let Some(image) = data.get(IMAGE) else { return Ok(None) };
    let (name, tag) = name_and_tag(image);
    let (own, own_tag) = name_and_tag(&helper.image);
    if name != own {
        return Err(format!(
            "image {image:?} of the ConfigMap is ignored: container {RESTORE_WAIT} needs {own:?}, as in {}",
            helper.image
        ));
    }
    Ok(Some(if tag.is_empty() { format!("{image}{own_tag}") } else { (*image).to_owned() }))
}

/// `plimsoll` and `:1` of `registry:5000/tools/plimsoll:1`.
fn name_and_tag(image: &str) -> (&str, &str) {
    let last = image.rsplit('/').next().unwrap_or_default();
    last.split_at(last.find([':', '@']).unwrap_or(last.len()))
}

/// Requests and limits; none where `0` is given.
fn resources(data: &BTreeMap<&str, &str>, warnings: &mut Vec<String>) -> Value {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    for (resource, keys, default) in SHARES {
        let mut texts = keys.map(|key| data.get(key).copied().unwrap_or(default));
        if let Err(error) = check_quantities(keys, texts) {
            warnings.push(error);
            texts = [default; 2];
        }
        for (text, into) in texts.into_iter().zip([&mut requests, &mut limits]) {
            if Quantity::parse(text).is_some_and(Quantity::is_positive) {
                into.insert(resource.to_owned(), json!(text));
            }
        }
    }
    json!({ "requests": requests, "limits": limits })
}

/// Checks that these are quantities, and that the request is not more than the limit.
fn check_quantities(keys: [&str; 2], texts: [&str; 2]) -> Result<(), String> {
    let read = |at: usize| {
        let quantity = Quantity::parse(texts[at]).filter(|quantity| quantity.is_zero() || quantity.is_positive());
        quantity.ok_or_else(|| {
            format!("{} {:?} of the ConfigMap: invalid quantity; using the default", keys[at], texts[at])
        })
    };
    let (request, limit) = (read(0)?, read(1)?);
    if limit.is_positive() && request > limit {
        let [request, limit] = [0, 1].map(|at| format!("{} {:?}", keys[at], texts[at]));
        return Err(format!("{request} of the ConfigMap is more than {limit}; using the defaults"));
    }
    Ok(())
}

/// The securityContext, if a key sets it. One invalid key invalidates all, as in Velero.
fn security(data: &BTreeMap<&str, &str>) -> Result<Option<Value>, String> {
    let invalid = |key: &str, error: &str| format!("{key} {:?} of the ConfigMap is ignored: {error}", data[key]);
    let mut context = Map::new();
    for (key, field) in [(USER, "runAsUser"), (GROUP, "runAsGroup")] {
        if let Some(text) = data.get(key) {
            let number = text.parse::<i64>().ok().filter(|number| *number >= 0);
            context.insert(field.to_owned(), json!(number.ok_or_else(|| invalid(key, "not a number"))?));
        }
    }
    if let Some(text) = data.get(ESCALATION) {
        let value = match *text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            _ => return Err(invalid(ESCALATION, "must be true or false")),
        };
        context.insert("allowPrivilegeEscalation".into(), json!(value));
    }
    if let Some(text) = data.get(SECURITY) {
        context.extend(strict(text).map_err(|error| invalid(SECURITY, &error))?);
    }
    Ok((!context.is_empty()).then_some(Value::Object(context)))
}

/// Parses a securityContext in YAML. Unknown fields are errors.
fn strict(text: &str) -> Result<Map<String, Value>, String> {
    let value: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let read: SecurityContext = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
    let read = serde_json::to_value(read).map_err(|error| error.to_string())?;
    match (lost(&value, &read), value) {
        (Some(field), _) => Err(format!("unknown field {field}")),
        (None, Value::Object(fields)) => Ok(fields),
        (None, _) => Err("not a securityContext".into()),
    }
}

/// The first field that the parser dropped.
fn lost(value: &Value, read: &Value) -> Option<String> {
    let fields = value.as_object()?.iter().filter(|(_, value)| !value.is_null());
    fields.into_iter().find_map(|(field, value)| match read.get(field) {
        None => Some(field.clone()),
        Some(read) => lost(value, read).map(|below| format!("{field}.{below}")),
    })
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "what json! makes is given away")]
mod tests {
    use super::*;

    fn helper() -> RestoreHelper {
        RestoreHelper {
            image: "registry:5000/plimsoll:1".into(),
            command: vec!["/plimsoll".into(), "restore-wait".into()],
        }
    }

    fn read(data: Value) -> (WaitContainer, Vec<String>) {
        WaitContainer::read(&helper(), &serde_json::from_value(data).unwrap())
    }

    fn container(data: Value, pod: Value) -> Value {
        read(data).0.container(&json!({ "spec": pod }), &["data".into()], "uid")
    }

    #[test]
    fn it_runs_as_the_container_that_mounts_the_volume_and_never_as_what_the_pod_forbids() {
        let app = |security: Value| json!([{ "name": "app", "securityContext": security }]);
        let restricted = json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
            "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } });
        let with = |mut security: Value, field: &str, value: Value| {
            security[field] = value;
            security
        };
        let free = json!({ "allowPrivilegeEscalation": false });
        let mounts = json!([{ "name": "data", "mountPath": "/data" }]);
        let behind_proxy = json!([{ "name": "proxy", "securityContext": { "runAsUser": 1337 } },
            { "name": "app", "securityContext": { "runAsUser": 999 }, "volumeMounts": mounts }]);
        let cases = [
            (
                "postgres as its image has it: root, which sees everything",
                json!({}),
                json!({ "containers": app(json!(null)) }),
                free.clone(),
            ),
            (
                "the pod's user is the application's",
                json!({}),
                json!({ "securityContext": { "runAsUser": 999, "runAsNonRoot": true }, "containers": app(json!(null)) }),
                free.clone(),
            ),
            (
                "our image is root's, which the kubelet would refuse",
                json!({}),
                json!({ "securityContext": { "runAsNonRoot": true }, "containers": app(json!(null)) }),
                with(restricted.clone(), "runAsUser", json!(1000)),
            ),
            (
                "a namespace that is restricted",
                json!({}),
                json!({ "containers": app(with(restricted.clone(), "runAsUser", json!(999))) }),
                with(restricted.clone(), "runAsUser", json!(999)),
            ),
            (
                "restricted, and only the application's image knows the user",
                json!({}),
                json!({ "containers": app(restricted.clone()) }),
                with(restricted.clone(), "runAsUser", json!(1000)),
            ),
            (
                "restricted, and the pod knows the user",
                json!({}),
                json!({ "securityContext": { "runAsUser": 999 }, "containers": app(restricted.clone()) }),
                restricted.clone(),
            ),
            (
                "the container may be root though its pod may not",
                json!({}),
                json!({ "securityContext": { "runAsNonRoot": true }, "containers": app(json!({ "runAsNonRoot": false })) }),
                json!({ "runAsNonRoot": false }),
            ),
            (
                "what was put in front of the application",
                json!({}),
                json!({ "containers": behind_proxy }),
                json!({ "runAsUser": 999 }),
            ),
            (
                "a ConfigMap goes before the pod",
                json!({ "secCtxRunAsUser": "26" }),
                json!({ "containers": app(json!({ "runAsUser": 999 })) }),
                json!({ "runAsUser": 26 }),
            ),
            ("a pod without containers", json!({}), json!({}), free),
        ];
        for (case, data, pod, expected) in cases {
            assert_eq!(container(data, pod)["securityContext"], expected, "{case}");
        }
    }

    #[test]
    fn it_has_requests_and_limits_so_that_a_quota_admits_it() {
        let both = |cpu: &str, memory: &str| json!({ "cpu": cpu, "memory": memory });
        let cases = [
            (json!({}), both("100m", "128Mi"), both("100m", "128Mi")),
            (json!({ "cpuRequest": "10m", "memLimit": "1Gi" }), both("10m", "128Mi"), both("100m", "1Gi")),
            (json!({ "cpuLimit": "0", "memRequest": "0", "memLimit": "0" }), json!({ "cpu": "100m" }), json!({})),
        ];
        for (data, requests, limits) in cases {
            let (waiter, warnings) = read(data.clone());
            assert_eq!(waiter.resources, json!({ "requests": requests, "limits": limits }), "{data}");
            assert_eq!(warnings, [""; 0], "{data}");
        }
    }

    #[test]
    fn invalid_settings_of_the_config_map_are_warnings() {
        let cases = [
            (json!({ "cpuReqest": "1" }), "the ConfigMap has an unknown key \"cpuReqest\""),
            (json!({ "memLimit": "much" }), "memLimit \"much\" of the ConfigMap: invalid quantity; using the default"),
            (json!({ "cpuRequest": "-1" }), "cpuRequest \"-1\" of the ConfigMap: invalid quantity; using the default"),
            (
                json!({ "cpuRequest": "200m" }),
                "cpuRequest \"200m\" of the ConfigMap is more than cpuLimit \"100m\"; using the defaults",
            ),
            (
                json!({ "secCtxRunAsUser": "postgres" }),
                "secCtxRunAsUser \"postgres\" of the ConfigMap is ignored: not a number",
            ),
            (
                json!({ "secCtxRunAsUser": "1", "secCtxAllowPrivilegeEscalation": "no" }),
                "secCtxAllowPrivilegeEscalation \"no\" of the ConfigMap is ignored: must be true or false",
            ),
            (
                json!({ "secCtx": "runAsUsr: 7" }),
                "secCtx \"runAsUsr: 7\" of the ConfigMap is ignored: unknown field runAsUsr",
            ),
            (
                json!({ "secCtx": "capabilities: {dorp: [ALL]}" }),
                "secCtx \"capabilities: {dorp: [ALL]}\" of the ConfigMap is ignored: unknown field capabilities.dorp",
            ),
            (
                json!({ "command": "/velero-restore-helper" }),
                "command \"/velero-restore-helper\" of the ConfigMap is ignored: it is not a command of plimsoll",
            ),
            (
                json!({ "image": "velero/velero-restore-helper:v1.17.0" }),
                "image \"velero/velero-restore-helper:v1.17.0\" of the ConfigMap is ignored: container restore-wait needs \
                    \"plimsoll\", as in registry:5000/plimsoll:1",
            ),
        ];
        let untouched = read(json!({})).0;
        for (data, expected) in cases {
            assert_eq!(read(data), (untouched.clone(), vec![expected.to_owned()]));
        }
        let security = "runAsUser: 7\ncapabilities:\n  drop: [ALL]\n  add: []\n";
        let (waiter, warnings) =
            read(json!({ "secCtxRunAsUser": "1", "secCtxRunAsGroup": "2", "secCtx": security, "cpuLimit": "x" }));
        assert_eq!(
            waiter.security.unwrap(),
            json!({ "runAsUser": 7, "runAsGroup": 2, "capabilities": { "drop": ["ALL"], "add": [] } })
        );
        assert_eq!(warnings, ["cpuLimit \"x\" of the ConfigMap: invalid quantity; using the default"]);
    }

    #[test]
    fn only_an_image_with_the_same_name_is_used() {
        let cases = [
            ("mirror/tools/plimsoll:2", "mirror/tools/plimsoll:2"),
            ("mirror:80/plimsoll", "mirror:80/plimsoll:1"),
            ("mirror/plimsoll@sha256:abcd", "mirror/plimsoll@sha256:abcd"),
            ("mirror/plimsoll/velero:v1", "registry:5000/plimsoll:1"),
        ];
        for (image, expected) in cases {
            assert_eq!(read(json!({ "image": image })).0.image, expected);
        }
    }
}
