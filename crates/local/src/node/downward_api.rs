//! The downward API: fields of the pod and resources of its containers.

use super::{NODE_ADDRESS, pod::items, unavailable::Unavailable};
use crate::object::text;
use plimsoll_select::quantity::Quantity;
use serde_json::Value;

/// The service account of pods that name none.
pub(super) const DEFAULT_SERVICE_ACCOUNT: &str = "default";

pub(super) fn service_account(pod: &Value) -> &str {
    Some(text(pod, "/spec/serviceAccountName")).filter(|name| !name.is_empty()).unwrap_or(DEFAULT_SERVICE_ACCOUNT)
}

/// A field of a pod for a variable.
pub(super) fn field_for_variable(pod: &Value, path: &str) -> Result<String, Unavailable> {
    let value = match path {
        "spec.nodeName" => Some(text(pod, "/spec/nodeName").to_owned()),
        "spec.serviceAccountName" => Some(service_account(pod).to_owned()),
        "status.hostIP" | "status.hostIPs" | "status.podIP" | "status.podIPs" => Some(NODE_ADDRESS.to_owned()),
        _ => metadata_field(pod, path),
    };
    value.ok_or_else(|| Unavailable::Unsupported(format!("fieldPath \"{path}\" is not supported")))
}

/// A field of a pod for a file. Kubernetes supports other fields there than for variables.
pub(super) fn field_for_file(pod: &Value, path: &str) -> Result<String, Unavailable> {
    let value = match path {
        "metadata.labels" => Some(format_map(&pod["metadata"]["labels"])),
        "metadata.annotations" => Some(format_map(&pod["metadata"]["annotations"])),
        _ => metadata_field(pod, path),
    };
    value.ok_or_else(|| Unavailable::Unsupported(format!("fieldPath \"{path}\" is not supported in volumes")))
}

/// The fields that files and variables support. An absent label or annotation is empty.
fn metadata_field(pod: &Value, path: &str) -> Option<String> {
    let metadata = &pod["metadata"];
    let value = match path {
        "metadata.name" => &metadata["name"],
        "metadata.namespace" => &metadata["namespace"],
        "metadata.uid" => &metadata["uid"],
        _ => {
            let (map, key) = path.strip_prefix("metadata.")?.strip_suffix("']")?.split_once("['")?;
            &metadata[["labels", "annotations"].into_iter().find(|known| *known == map)?][key]
        }
    };
    Some(value.as_str().unwrap_or_default().to_owned())
}

/// Labels or annotations as lines of `key="value"`, sorted.
fn format_map(map: &Value) -> String {
    let entries = map.as_object().into_iter().flatten();
    let mut lines: Vec<(&String, String)> =
        entries.map(|(key, value)| (key, format!("{key}={}", quote(value.as_str().unwrap_or_default())))).collect();
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>().join("\n")
}

/// A quoted text, escaped as by Go's `%q`.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            ' ' => quoted.push(' '),
            _ if !character.is_control() && !character.is_whitespace() => quoted.push(character),
            _ if character.is_ascii() => quoted.push_str(&format!("\\x{:02x}", u32::from(character))),
            _ => quoted.push_str(&format!("\\u{:04x}", u32::from(character))),
        }
    }
    quoted + "\""
}

/// A limit or a request of a container, in units of the divisor, rounded up.
pub(super) fn resource(pod: &Value, own: Option<&Value>, reference: &Value) -> Result<String, Unavailable> {
    let unsupported = |message: String| Err(Unavailable::Unsupported(message));
    let (name, which) = (text(reference, "/containerName"), text(reference, "/resource"));
    let mut all = items(pod, "/spec/containers").chain(items(pod, "/spec/initContainers"));
    let named = if name.is_empty() { own } else { all.find(|container| text(container, "/name") == name) };
    let Some(container) = named else { return unsupported(format!("container \"{name}\" not found")) };
    let Some(quantity) = quantity(container, which) else {
        return unsupported(format!("resource \"{which}\" is not supported, or not known on this node"));
    };
    let divisor = Some(as_text(&reference["divisor"])).filter(|divisor| !["", "0"].contains(&divisor.as_str()));
    let divisor = divisor.unwrap_or_else(|| "1".to_owned());
    let parsed = Quantity::parse(&quantity).zip(Quantity::parse(&divisor));
    match parsed.and_then(|(quantity, divisor)| quantity.in_units_of(divisor)) {
        Some(units) => Ok(units.to_string()),
        None => unsupported(format!("{which} of \"{quantity}\" in units of \"{divisor}\" is not a number")),
    }
}

/// The limit or request of a container. The limit defaults to the node's resources, the request to the limit or zero.
fn quantity(container: &Value, which: &str) -> Option<String> {
    let (list, resource) = which.split_once('.')?;
    let is_huge = resource.starts_with("hugepages-");
    if !is_huge && !["cpu", "memory", "ephemeral-storage"].contains(&resource) {
        return None;
    }
    let quantity_in =
        |list: &str| Some(as_text(&container["resources"][list][resource])).filter(|text| !text.is_empty());
    let zero = || Some("0".to_owned());
    match list {
        "limits" => quantity_in("limits").or_else(|| if is_huge { zero() } else { allocatable(resource) }),
        "requests" => quantity_in("requests").or_else(|| quantity_in("limits")).or_else(zero),
        _ => None,
    }
}

/// Quantities may be written as numbers.
fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

/// How much of a resource this machine has.
pub(super) fn allocatable(resource: &str) -> Option<String> {
    match resource {
        "cpu" => Some(std::thread::available_parallelism().ok()?.to_string()),
        "memory" => {
            let known = std::fs::read_to_string("/proc/meminfo").ok()?;
            let total = known.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
            Some(format!("{}Ki", total.trim().strip_suffix("kB")?.trim()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Value {
        json!({
            "metadata": {"name": "web-0", "namespace": "shop", "uid": "u", "labels": {"b": "2", "a": "1", "x.io/a.b": "é\u{1}"}},
            "spec": {"nodeName": "local", "containers": [
                {"name": "main", "resources": {"limits": {"cpu": 2, "memory": "1Gi"}, "requests": {"cpu": "100m"}}},
                {"name": "free"},
            ]},
        })
    }

    #[test]
    fn variables_and_files_support_the_fields_that_kubernetes_supports() {
        let (pod, yes) = (pod(), |text: &str| Some(text.to_owned()));
        let cases = [
            ("metadata.name", yes("web-0"), yes("web-0")),
            ("metadata.namespace", yes("shop"), yes("shop")),
            ("metadata.uid", yes("u"), yes("u")),
            ("metadata.labels['x.io/a.b']", yes("é\u{1}"), yes("é\u{1}")),
            ("metadata.labels['none']", yes(""), yes("")),
            ("metadata.annotations['none']", yes(""), yes("")),
            ("metadata.labels", None, yes("a=\"1\"\nb=\"2\"\nx.io/a.b=\"é\\x01\"")),
            ("metadata.annotations", None, yes("")),
            ("spec.nodeName", yes("local"), None),
            ("spec.serviceAccountName", yes("default"), None),
            ("status.podIP", yes("127.0.0.1"), None),
            ("status.podIPs", yes("127.0.0.1"), None),
            ("status.hostIP", yes("127.0.0.1"), None),
            ("metadata.generateName", None, None),
            ("metadata.finalizers['x']", None, None),
            ("spec.restartPolicy", None, None),
            ("", None, None),
        ];
        for (path, variable, file) in cases {
            assert_eq!(field_for_variable(&pod, path).ok(), variable, "{path} as a variable");
            assert_eq!(field_for_file(&pod, path).ok(), file, "{path} as a file");
        }
    }

    #[test]
    fn resources_round_up_to_the_divisor_and_fall_back_as_in_the_kubelet() {
        let pod = pod();
        let machine = |name: &str| {
            let free = json!({"containerName": "free", "resource": format!("limits.{name}"), "divisor": "1"});
            resource(&pod, None, &free).ok()
        };
        assert!(machine("cpu").is_some_and(|cpus| cpus.parse::<u64>().unwrap() >= 1));
        assert!(machine("memory").is_some_and(|bytes| bytes.parse::<u64>().unwrap() > 1 << 20));
        assert_eq!(machine("ephemeral-storage"), None);
        assert_eq!(machine("hugepages-2Mi").as_deref(), Some("0"));
        let cases = [
            ("main", "limits.cpu", "", Some("2")),
            ("main", "limits.cpu", "0", Some("2")),
            ("main", "limits.cpu", "1m", Some("2000")),
            ("main", "requests.cpu", "1", Some("1")),
            ("main", "requests.memory", "1Mi", Some("1024")),
            ("main", "limits.memory", "1G", Some("2")),
            ("free", "requests.cpu", "1m", Some("0")),
            ("free", "requests.ephemeral-storage", "1", Some("0")),
            ("main", "limits.gpu", "1", None),
            ("main", "uses.cpu", "1", None),
            ("main", "limits.cpu", "many", None),
            ("none", "limits.cpu", "1", None),
            ("", "limits.cpu", "1", None),
        ];
        for (container, which, divisor, expected) in cases {
            let reference = json!({"containerName": container, "resource": which, "divisor": divisor});
            let found = resource(&pod, None, &reference).ok();
            assert_eq!(found.as_deref(), expected, "{container} {which} {divisor}");
        }
    }
}
