//! Services: removes addresses and node ports that the cluster allocated, and keeps those that were requested.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{ActionEffect, list_at, map_at, text};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

pub(super) fn apply(item: &mut Value, preserve_node_ports: bool) -> Result<ActionEffect, String> {
    if text(item, "/spec/clusterIP") != "None"
        && let Some(spec) = map_at(item, "/spec")
    {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    if !preserve_node_ports {
        drop_node_ports(item)?;
        drop_health_check_port(item)?;
    }
    Ok(ActionEffect::default())
}

/// The last configuration of `kubectl apply`, if there is one.
fn last_applied(item: &Value) -> Result<Option<Value>, String> {
    let annotation =
        item.pointer("/metadata/annotations").and_then(|all| all.get(LAST_APPLIED)).and_then(Value::as_str);
    let parse = |text| serde_json::from_str(text).map_err(|error| format!("annotation {LAST_APPLIED}: {error}"));
    annotation.map(parse).transpose()
}

/// The fields of the spec in `managedFields`.
fn owned_fields(item: &Value) -> impl Iterator<Item = &Value> {
    let entries = item.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries.into_iter().flatten().filter_map(|entry| entry.pointer("/fieldsV1/f:spec"))
}

fn drop_node_ports(item: &mut Value) -> Result<(), String> {
    if text(item, "/spec/type") == "ExternalName" {
        return Ok(());
    }
    let requested = match last_applied(item)? {
        Some(applied) => RequestedNodePorts::from_last_applied(&applied)?,
        None => RequestedNodePorts::from_managed_fields(item),
    };
    for port in list_at(item, "/spec/ports") {
        if !requested.contains(port)
            && let Some(port) = port.as_object_mut()
        {
            port.remove("nodePort");
        }
    }
    Ok(())
}

/// Requested node ports.
enum RequestedNodePorts {
    /// Named ports by name, others by node port.
    Applied { names: HashSet<String>, numbers: HashSet<i64> },
    /// Ports by their key in managed fields.
    Owned(HashSet<String>),
}

impl RequestedNodePorts {
    fn from_last_applied(applied: &Value) -> Result<Self, String> {
        let (mut names, mut numbers) = (HashSet::new(), HashSet::new());
        for port in applied.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten() {
            let number = node_port(port)?;
            match port.get("name").and_then(Value::as_str) {
                _ if number <= 0 => {}
                Some(name) => drop(names.insert(name.to_owned())),
                None => drop(numbers.insert(number)),
            }
        }
        Ok(Self::Applied { names, numbers })
    }

    fn from_managed_fields(item: &Value) -> Self {
        let ports = owned_fields(item).filter_map(|spec| spec.get("f:ports")).filter_map(Value::as_object).flatten();
        Self::Owned(ports.filter(|(_, port)| port.get("f:nodePort").is_some()).map(|(key, _)| key.clone()).collect())
    }

    fn contains(&self, port: &Value) -> bool {
        match (self, text(port, "/name")) {
            (Self::Applied { numbers, .. }, "") => numbers.contains(&port["nodePort"].as_i64().unwrap_or(0)),
            (Self::Applied { names, .. }, name) => names.contains(name),
            (Self::Owned(keys), _) => {
                let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
                keys.contains(&format!("k:{{\"port\":{},\"protocol\":\"{protocol}\"}}", port["port"]))
            }
        }
    }
}

/// A number, or a string in configurations of some tools.
fn node_port(port: &Value) -> Result<i64, String> {
    match port.get("nodePort") {
        Some(Value::String(text)) => text.parse().map_err(|_| format!("node port {text:?} is not a number")),
        Some(number) => Ok(number.as_i64().unwrap_or(0)),
        None => Ok(0),
    }
}

fn drop_health_check_port(item: &mut Value) -> Result<(), String> {
    let local = text(item, "/spec/externalTrafficPolicy") == "Local" && text(item, "/spec/type") == "LoadBalancer";
    if !local || item.pointer("/spec/healthCheckNodePort").is_none() {
        return Ok(());
    }
    let applied = last_applied(item)?;
    let applied = applied.as_ref().and_then(|applied| applied.pointer("/spec/healthCheckNodePort"));
    let requested = applied.is_some_and(|port| *port != json!(0));
    let owned = owned_fields(item).any(|spec| spec.get("f:healthCheckNodePort").is_some());
    if !requested
        && !owned
        && let Some(spec) = map_at(item, "/spec")
    {
        spec.remove("healthCheckNodePort");
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "literals read better without a reference")]
mod tests {
    use super::*;

    fn transformed(mut item: Value, preserve: bool) -> Value {
        apply(&mut item, preserve).unwrap();
        item
    }

    fn service(ports: Value, metadata: Value) -> Value {
        json!({"metadata": metadata, "spec": {"type": "NodePort", "ports": ports}})
    }

    fn applied(spec: Value) -> Value {
        json!({"annotations": {LAST_APPLIED: json!({"spec": spec}).to_string()}})
    }

    fn owned(fields: Value) -> Value {
        json!({"managedFields": [{"manager": "x"}, {"fieldsV1": {"f:spec": fields}}]})
    }

    fn node_ports(item: &Value) -> Vec<Option<i64>> {
        item["spec"]["ports"].as_array().unwrap().iter().map(|port| port["nodePort"].as_i64()).collect()
    }

    #[test]
    fn addresses_are_removed_unless_the_service_is_headless() {
        let cases = [("10.0.0.1", false), ("None", true)];
        for (address, stays) in cases {
            let item = transformed(json!({"spec": {"clusterIP": address, "clusterIPs": [address]}}), false);
            assert_eq!(item["spec"].get("clusterIP").is_some(), stays, "{address}");
            assert_eq!(item["spec"].get("clusterIPs").is_some(), stays, "{address}");
        }
    }

    #[test]
    fn only_requested_node_ports_stay() {
        let plain = json!([{"port": 32000, "nodePort": 32000}, {"port": 32001, "nodePort": 32001}]);
        let named =
            json!([{"name": "http", "port": 80, "nodePort": 8080}, {"name": "admin", "port": 90, "nodePort": 9090}]);
        let tcp = json!([{"port": 443, "nodePort": 30443, "protocol": "TCP"}, {"port": 444, "nodePort": 30444, "protocol": "TCP"}]);
        let key = |port: i64| format!("k:{{\"port\":{port},\"protocol\":\"TCP\"}}");
        let none = vec![None, None];
        let cases = [
            ("none requested", plain.clone(), json!({}), none.clone()),
            ("applied without node ports", plain.clone(), applied(json!({"ports": [{"port": 32000}]})), none.clone()),
            (
                "one unnamed was applied",
                plain.clone(),
                applied(json!({"ports": [{"nodePort": 32000}]})),
                vec![Some(32000), None],
            ),
            (
                "a named one was applied",
                plain.clone(),
                applied(json!({"ports": [{"name": "http", "nodePort": 32000}]})),
                none.clone(),
            ),
            ("as a string", plain, applied(json!({"ports": [{"nodePort": "32001"}]})), vec![None, Some(32001)]),
            ("by name", named, applied(json!({"ports": [{"name": "http", "nodePort": 8080}]})), vec![Some(8080), None]),
            ("not in managed fields", tcp.clone(), owned(json!({"f:ports": {key(443): {"f:port": {}}}})), none),
            ("owned", tcp, owned(json!({"f:ports": {key(443): {"f:nodePort": {}}}})), vec![Some(30443), None]),
        ];
        for (case, ports, metadata, expected) in cases {
            assert_eq!(node_ports(&transformed(service(ports, metadata), false)), expected, "{case}");
        }
    }

    #[test]
    fn node_ports_stay_with_preserve_node_ports() {
        let ports = json!([{"port": 80, "nodePort": 8080}]);
        assert_eq!(node_ports(&transformed(service(ports, applied(json!({}))), true)), [Some(8080)]);
    }

    #[test]
    fn an_invalid_annotation_is_an_error() {
        let mut item = service(json!([]), json!({"annotations": {LAST_APPLIED: "{"}}));
        assert!(apply(&mut item, false).unwrap_err().contains(LAST_APPLIED));
    }

    #[test]
    fn only_a_requested_health_check_port_stays() {
        let local = |metadata: Value, policy: &str| json!({"metadata": metadata, "spec": {"type": "LoadBalancer", "externalTrafficPolicy": policy, "healthCheckNodePort": 8080}});
        let cases = [
            ("not requested", local(json!({}), "Local"), false, false),
            ("the restore keeps node ports", local(json!({}), "Local"), true, true),
            ("another policy", local(json!({}), "Cluster"), false, true),
            ("applied", local(applied(json!({"healthCheckNodePort": 8080})), "Local"), false, true),
            ("applied as zero", local(applied(json!({"healthCheckNodePort": 0})), "Local"), false, false),
            ("owned", local(owned(json!({"f:healthCheckNodePort": {}})), "Local"), false, true),
        ];
        for (case, item, preserve, stays) in cases {
            assert_eq!(transformed(item, preserve)["spec"].get("healthCheckNodePort").is_some(), stays, "{case}");
        }
    }
}
