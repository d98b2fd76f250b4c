//! Restore hooks in the annotations of a pod.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use plimsoll_api::go::GoDuration;
use serde_json::{Value, json};

use super::{DEFAULT_EXEC_TIMEOUT, ExecHook};

fn annotation<'a>(pod: &'a Value, key: &str) -> Option<&'a str> {
    let value = pod.pointer("/metadata/annotations").and_then(|all| all.get(key)).and_then(Value::as_str);
    value.filter(|value| !value.is_empty())
}

/// The init container of the annotations.
pub(super) fn annotated_container(pod: &Value) -> Option<Value> {
    let key = |name: &str| annotation(pod, &format!("init.hook.restore.velero.io/{name}"));
    let image = key("container-image")?;
    let name = key("container-name").map_or_else(|| generated_name(pod), str::to_owned);
    let mut container = json!({ "name": name, "image": image });
    if let Some(command) = key("command") {
        container["command"] = json!(parse_command(command));
    }
    Some(container)
}

/// Stable across attempts: a second create of the pod must not differ.
fn generated_name(pod: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    for field in ["/metadata/namespace", "/metadata/name", "/metadata/annotations"] {
        pod.pointer(field).map(Value::to_string).hash(&mut hasher);
    }
    format!("velero-restore-init-{:08x}", hasher.finish() & 0xffff_ffff)
}

/// The command of the annotations.
pub(super) fn annotated_command(pod: &Value, first: &str) -> Option<ExecHook> {
    let key = |name: &str| annotation(pod, &format!("post.hook.restore.velero.io/{name}"));
    let time = |name: &str| -> Option<Duration> {
        let time = key(name)?.parse::<GoDuration>().ok()?.as_std()?;
        (!time.is_zero()).then_some(time)
    };
    Some(ExecHook {
        name: "<from-annotation>".into(),
        command: parse_command(key("command")?),
        container: key("container").unwrap_or(first).to_owned(),
        fails: key("on-error") == Some("Fail"),
        exec_timeout: time("exec-timeout").unwrap_or(DEFAULT_EXEC_TIMEOUT),
        wait_timeout: time("wait-timeout"),
        wait_for_ready: key("wait-for-ready")
            .is_some_and(|value| ["1", "t", "T", "true", "TRUE", "True"].contains(&value)),
    })
}

/// A JSON array of strings, or a single word.
fn parse_command(text: &str) -> Vec<String> {
    serde_json::from_str(text).unwrap_or_else(|_| vec![text.to_owned()])
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "literals read better without a reference")]
mod tests {
    use super::*;

    fn pod(annotations: Value) -> Value {
        json!({"metadata": {"name": "p", "namespace": "ns", "annotations": annotations}})
    }

    #[test]
    fn an_init_container_is_read_from_annotations() {
        let init = |name: &str| format!("init.hook.restore.velero.io/{name}");
        let whole =
            pod(json!({init("container-image"): "i", init("container-name"): "n", init("command"): "[\"a\",\"b\"]"}));
        assert_eq!(annotated_container(&whole), Some(json!({"name": "n", "image": "i", "command": ["a", "b"]})));
        let bare = pod(json!({init("container-image"): "i"}));
        let generated = annotated_container(&bare).unwrap();
        assert!(generated["name"].as_str().unwrap().starts_with("velero-restore-init-"));
        assert_eq!(annotated_container(&bare).unwrap(), generated, "the same at every attempt");
        assert_eq!(annotated_container(&pod(json!({init("command"): "x"}))), None);
    }

    #[test]
    fn a_command_is_read_from_annotations() {
        let post = |name: &str| format!("post.hook.restore.velero.io/{name}");
        let hook = annotated_command(
            &pod(json!({post("command"): "warm", post("on-error"): "Fail", post("wait-timeout"): "5m",
                post("exec-timeout"): "nonsense", post("wait-for-ready"): "true"})),
            "main",
        )
        .unwrap();
        assert_eq!(
            hook,
            ExecHook {
                name: "<from-annotation>".into(),
                container: "main".into(),
                command: vec!["warm".into()],
                fails: true,
                exec_timeout: DEFAULT_EXEC_TIMEOUT,
                wait_timeout: Some(Duration::from_mins(5)),
                wait_for_ready: true,
            }
        );
        assert_eq!(annotated_command(&pod(json!({})), "main"), None);
    }
}
