//! The init container that puts our `kando` into the pods of a phase, and what happens where it cannot run.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde_json::{Value, json};

use super::call::ToolsImage;

/// The container and its volume.
pub(super) const NAME: &str = "plimsoll-tools";
/// The directory of the volume in the init container.
const DIRECTORY: &str = "/plimsoll-tools";
/// The path of `kando` in Kanister's images.
pub(super) const KANDO_PATH: &str = "/usr/local/bin/kando";
/// The user of the init container where root is forbidden: our image has no user of its own.
const NON_ROOT_USER: i64 = 65532;
/// Reasons of a waiting container that waiting does not cure.
const HOPELESS: [&str; 6] = [
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

/// Adds the init container to a spec, and mounts its `kando` over that of the images of these containers. It gets the security
/// context and the resources of the first container: what the namespace demands of one, it demands of the other.
pub(super) fn inject(spec: &mut Value, tools_image: &ToolsImage, containers: &[String]) {
    push(&mut spec["volumes"], json!({ "name": NAME, "emptyDir": {} }));
    let mut init = json!({
        "name": NAME, "image": tools_image.image, "imagePullPolicy": "IfNotPresent",
        "command": [tools_image.program, "kando-install", DIRECTORY],
        "volumeMounts": [{ "name": NAME, "mountPath": DIRECTORY }],
    });
    for field in ["securityContext", "resources"] {
        let copied = &spec["containers"][0][field];
        if !copied.is_null() {
            init[field] = copied.clone();
        }
    }
    if forbids_root(spec) {
        init["securityContext"]["runAsUser"] = json!(NON_ROOT_USER);
    }
    for list in ["containers", "initContainers"] {
        let all = spec[list].as_array_mut().into_iter().flatten();
        for container in all.filter(|one| containers.iter().any(|name| one["name"] == name.as_str())) {
            let kando = json!({ "name": NAME, "mountPath": KANDO_PATH, "subPath": "kando", "readOnly": true });
            push(&mut container["volumeMounts"], kando);
            // kando finds kopia there.
            push(&mut container["volumeMounts"], json!({ "name": NAME, "mountPath": DIRECTORY, "readOnly": true }));
        }
    }
    let mut inits = vec![init];
    inits.extend(spec["initContainers"].as_array().cloned().unwrap_or_default());
    spec["initContainers"] = json!(inits);
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    }
}

/// Whether root is forbidden and no other user is named.
fn forbids_root(spec: &Value) -> bool {
    let contexts = [&spec["containers"][0]["securityContext"], &spec["securityContext"]];
    let first = |field: &str| contexts.iter().find_map(|context| context.get(field).filter(|value| !value.is_null()));
    first("runAsNonRoot") == Some(&json!(true)) && first("runAsUser").is_none()
}

/// Why the init container of a pod will never succeed.
pub(super) fn failure(pod: &Pod) -> Option<String> {
    let statuses = pod.status.as_ref()?.init_container_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == NAME).and_then(failure_of)
}

fn failure_of(status: &ContainerStatus) -> Option<String> {
    let state = status.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.as_deref().filter(|reason| HOPELESS.contains(reason))?;
        let message = waiting.message.as_deref().map(|message| format!(": {message}")).unwrap_or_default();
        return Some(format!("{reason}{message}"));
    }
    let terminated = state.terminated.as_ref().filter(|terminated| terminated.exit_code != 0)?;
    Some(format!("it exited with code {}", terminated.exit_code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn injected(mut spec: Value, containers: &[&str]) -> Value {
        let tools_image = ToolsImage { image: "ours".into(), program: "/plimsoll".into() };
        let containers: Vec<_> = containers.iter().map(|name| (*name).to_owned()).collect();
        inject(&mut spec, &tools_image, &containers);
        spec
    }

    #[test]
    fn the_init_container_has_what_the_namespace_demands_of_the_first_container() {
        let restricted = json!({ "allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 1000,
            "capabilities": { "drop": ["ALL"] }, "seccompProfile": { "type": "RuntimeDefault" } });
        let resources = json!({ "limits": { "cpu": "1", "memory": "1Gi" } });
        let spec = json!({ "containers": [{ "name": "container", "securityContext": restricted, "resources": resources }],
            "imagePullSecrets": [{ "name": "ours" }] });
        let spec = injected(spec, &["container"]);
        let init = &spec["initContainers"][0];
        assert_eq!((&init["securityContext"], &init["resources"]), (&restricted, &resources));
        assert_eq!(spec["imagePullSecrets"], json!([{ "name": "ours" }]), "they are those of all containers of a pod");
        let plain = injected(json!({ "containers": [{ "name": "container" }] }), &["container"]);
        let init = plain["initContainers"][0].as_object().unwrap();
        assert!(!init.contains_key("securityContext") && !init.contains_key("resources"));
    }

    #[test]
    fn the_init_container_has_a_user_where_root_is_forbidden_and_no_user_is_named() {
        let user = |spec: Value| injected(spec, &[])["initContainers"][0]["securityContext"]["runAsUser"].clone();
        let of_pod = json!({ "securityContext": { "runAsNonRoot": true }, "containers": [{ "name": "c" }] });
        assert_eq!(user(of_pod), json!(NON_ROOT_USER));
        let of_container = json!({ "containers": [{ "name": "c", "securityContext": { "runAsNonRoot": true } }] });
        assert_eq!(user(of_container), json!(NON_ROOT_USER));
        let with_user =
            json!({ "securityContext": { "runAsNonRoot": true, "runAsUser": 7 }, "containers": [{ "name": "c" }] });
        assert_eq!(user(with_user), Value::Null, "that of the pod is inherited");
        let overridden = json!({ "securityContext": { "runAsNonRoot": true },
            "containers": [{ "name": "c", "securityContext": { "runAsNonRoot": false } }] });
        assert_eq!(user(overridden), Value::Null);
    }

    #[test]
    fn kando_is_mounted_into_the_containers_of_the_blueprint_only() {
        let spec = json!({ "containers": [{ "name": "output" }, { "name": "sidecar" }], "initContainers": [{ "name": "init" }] });
        let spec = injected(spec, &["output", "init"]);
        let mounted = |container: &Value| container["volumeMounts"][0]["mountPath"] == KANDO_PATH;
        assert!(mounted(&spec["containers"][0]) && !mounted(&spec["containers"][1]));
        assert_eq!(spec["initContainers"][0]["name"], NAME, "it runs before the others");
        assert!(mounted(&spec["initContainers"][1]));
    }

    #[test]
    fn a_failure_that_waiting_does_not_cure_is_found() {
        let pod = |state: Value| -> Pod {
            serde_json::from_value(json!({ "status": { "initContainerStatuses": [
                { "name": NAME, "state": state, "image": "", "imageID": "", "ready": false, "restartCount": 0 }] } }))
            .unwrap()
        };
        let waiting = |reason: &str| failure(&pod(json!({ "waiting": { "reason": reason, "message": "why" } })));
        assert_eq!(waiting("ImagePullBackOff").as_deref(), Some("ImagePullBackOff: why"));
        assert_eq!(waiting("CreateContainerConfigError").as_deref(), Some("CreateContainerConfigError: why"));
        assert_eq!(waiting("PodInitializing"), None);
        assert_eq!(waiting("ErrImagePull"), None, "the kubelet tries again");
        assert_eq!(failure(&pod(json!({ "terminated": { "exitCode": 3 } }))).as_deref(), Some("it exited with code 3"));
        assert_eq!(failure(&pod(json!({ "terminated": { "exitCode": 0 } }))), None);
        assert_eq!(failure(&Pod::default()), None);
    }
}
