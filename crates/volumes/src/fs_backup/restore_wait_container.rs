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

use serde_json::{Value, json};

use super::restore_wait_action::RestoreHelper;
use super::restore_wait_config::{image, resources, security, unknown};
use crate::transfer::RESTORE_WAIT;

/// The user where none is named and root is not allowed: the same as Velero.
const DEFAULT_USER: i64 = 1000;

/// The parts of the container that do not depend on the pod.
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
            // The restore reads the reason of a failure in the pod's status.
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

/// The container of the pod that uses the volumes. Other containers may have another user.
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
