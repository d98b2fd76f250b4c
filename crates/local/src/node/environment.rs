//! The environment of a container: variables of the node, of services and of the pod, in increasing precedence.

use super::{
    config_source::ConfigSource,
    downward_api,
    pod::items,
    unavailable::{Unavailable, unsupported},
};
use crate::{Core, object::text, status_error::StatusError};
use serde_json::{Value, json};
use std::net::IpAddr;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Names and values; the last value of a name wins.
pub(super) type Variables = Vec<(String, String)>;

pub(super) fn environment(core: &Core, pod: &Value, container: &Value) -> Result<Variables, StatusError> {
    let own = [("PATH", PATH), ("HOME", "/tmp"), ("HOSTNAME", text(pod, "/metadata/name"))];
    let mut found: Variables = own.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    found.extend(service_variables(core, pod)?);
    found.extend(core.node.get().into_iter().flat_map(|node| node.environment.iter().cloned()));
    for source in items(container, "/envFrom") {
        found.extend(variables_from_object(core, pod, source)?);
    }
    for variable in items(container, "/env") {
        let name = text(variable, "/name");
        let value = match variable.get("valueFrom").filter(|source| !source.is_null()) {
            None => Some(expand(text(variable, "/value"), &found)),
            Some(source) => variable_value(core, pod, container, source).map_err(|why| why.for_variable(name))?,
        };
        found.extend(value.map(|value| (name.to_owned(), value)));
    }
    Ok(found)
}

/// Replaces `$(NAME)` by the variable of that name. `$$` stands for `$`; a variable that is not known is left as it is.
pub(super) fn expand(word: &str, known: &Variables) -> String {
    let (mut expanded, mut rest) = (String::new(), word);
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let reference = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        rest = match (after.strip_prefix('$'), reference) {
            (Some(rest_of_word), _) => {
                expanded.push('$');
                rest_of_word
            }
            (None, Some((name, rest_of_word))) => {
                match known.iter().rfind(|(known, _)| known == name) {
                    Some((_, value)) => expanded.push_str(value),
                    None => expanded.push_str(&format!("$({name})")),
                }
                rest_of_word
            }
            (None, None) => {
                expanded.push('$');
                after
            }
        };
    }
    expanded + rest
}

fn as_text(value: Vec<u8>) -> String {
    String::from_utf8(value).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// All keys of an object that `envFrom` names.
fn variables_from_object(core: &Core, pod: &Value, source: &Value) -> Result<Variables, StatusError> {
    let known = [("configMapRef", ConfigSource::ConfigMap), ("secretRef", ConfigSource::Secret)];
    let Some((reference, referent)) = known.into_iter().find_map(|(field, referent)| {
        source.get(field).filter(|reference| !reference.is_null()).map(|reference| (reference, referent))
    }) else {
        return Err(unsupported(format!("envFrom {source} is not supported")));
    };
    let name = text(reference, "/name");
    let contents =
        referent.read(core, pod, name, reference["optional"] == true).map_err(|why| why.for_variable(name))?;
    let prefix = text(source, "/prefix");
    Ok(contents.into_iter().flatten().map(|(key, value)| (format!("{prefix}{key}"), as_text(value))).collect())
}

/// The value of a `valueFrom`; `None` if it is optional and absent.
fn variable_value(core: &Core, pod: &Value, container: &Value, source: &Value) -> Result<Option<String>, Unavailable> {
    let kind = source.as_object().into_iter().flatten().find(|(_, value)| !value.is_null());
    let Some((kind, reference)) = kind else { return Ok(Some(String::new())) };
    match kind.as_str() {
        "configMapKeyRef" => key_value(core, pod, ConfigSource::ConfigMap, reference),
        "secretKeyRef" => key_value(core, pod, ConfigSource::Secret, reference),
        "fieldRef" => downward_api::field_for_variable(pod, text(reference, "/fieldPath")).map(Some),
        "resourceFieldRef" => downward_api::resource(pod, Some(container), reference).map(Some),
        other => Err(Unavailable::Unsupported(format!("the embedded node does not support {other}"))),
    }
}

fn key_value(
    core: &Core,
    pod: &Value,
    referent: ConfigSource,
    reference: &Value,
) -> Result<Option<String>, Unavailable> {
    let (name, key, is_optional) = (text(reference, "/name"), text(reference, "/key"), reference["optional"] == true);
    let contents = referent.read(core, pod, name, is_optional)?;
    match contents.and_then(|mut contents| contents.remove(key)) {
        Some(value) => Ok(Some(as_text(value))),
        None if is_optional => Ok(None),
        None => {
            let namespace = text(pod, "/metadata/namespace");
            Err(Unavailable::Missing(format!("couldn't find key {key} in {} {namespace}/{name}", referent.kind())))
        }
    }
}

/// Variables of the API and, with `enableServiceLinks`, of the services in the namespace that have an address.
fn service_variables(core: &Core, pod: &Value) -> Result<Variables, StatusError> {
    let address = core.endpoint.borrow().as_ref().map(|endpoint| endpoint.address);
    let api = address.map(|address| {
        let port = json!({"name": "https", "port": address.port(), "protocol": "TCP"});
        json!({"metadata": {"name": "kubernetes"}, "spec": {"clusterIP": address.ip(), "ports": [port]}})
    });
    let linked = if pod["spec"]["enableServiceLinks"] == false {
        Vec::new()
    } else {
        core.list_in("services", text(pod, "/metadata/namespace"))?
    };
    Ok(linked.iter().chain(&api).flat_map(variables_for_service).collect())
}

/// The variables that the kubelet sets for a service.
fn variables_for_service(service: &Value) -> Variables {
    let address = text(service, "/spec/clusterIP");
    let ports: Vec<(&Value, u64)> =
        items(service, "/spec/ports").filter_map(|port| Some((port, port["port"].as_u64()?))).collect();
    let Some((_, first)) = ports.first().filter(|_| !["", "None"].contains(&address)) else { return Vec::new() };
    let upper = |name: &str| name.to_uppercase().replace('-', "_");
    let service = upper(text(service, "/metadata/name"));
    let host = match address.parse() {
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        _ => address.to_owned(),
    };
    let mut variables = vec![
        (format!("{service}_SERVICE_HOST"), address.to_owned()),
        (format!("{service}_SERVICE_PORT"), first.to_string()),
    ];
    for (index, (port, number)) in ports.iter().enumerate() {
        let name = text(port, "/name");
        if !name.is_empty() {
            variables.push((format!("{service}_SERVICE_PORT_{}", upper(name)), number.to_string()));
        }
        let protocol = Some(text(port, "/protocol")).filter(|given| !given.is_empty()).unwrap_or("TCP");
        let url = format!("{}://{host}:{number}", protocol.to_lowercase());
        if index == 0 {
            variables.push((format!("{service}_PORT"), url.clone()));
        }
        let prefix = format!("{service}_PORT_{number}_{}", protocol.to_uppercase());
        let parts = [("_PROTO", protocol.to_lowercase()), ("_PORT", number.to_string()), ("_ADDR", address.to_owned())];
        variables.extend(parts.map(|(part, value)| (format!("{prefix}{part}"), value)));
        variables.push((prefix, url));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_references_are_expanded_once_as_in_kubernetes() {
        let known = [("A", "first"), ("B", "$(A)"), ("A", "last")];
        let known: Variables = known.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let cases = [
            ("plain", "plain"),
            ("$(A)-$(A)", "last-last"),
            ("$(B)", "$(A)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$last"),
            ("$(C)", "$(C)"),
            ("$(A", "$(A"),
            ("$A $", "$A $"),
            ("$()", "$()"),
        ];
        for (word, expected) in cases {
            assert_eq!(expand(word, &known), expected, "{word}");
        }
    }

    #[test]
    fn service_variables_are_those_of_the_kubelet() {
        let service = json!({"metadata": {"name": "data-base"}, "spec": {"clusterIP": "fd00::7",
            "ports": [{"port": 5432}, {"name": "more-dns", "port": 53, "protocol": "UDP"}]}});
        let mut variables: Vec<String> =
            variables_for_service(&service).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        variables.sort();
        let expected = [
            "DATA_BASE_PORT=tcp://[fd00::7]:5432",
            "DATA_BASE_PORT_53_UDP=udp://[fd00::7]:53",
            "DATA_BASE_PORT_53_UDP_ADDR=fd00::7",
            "DATA_BASE_PORT_53_UDP_PORT=53",
            "DATA_BASE_PORT_53_UDP_PROTO=udp",
            "DATA_BASE_PORT_5432_TCP=tcp://[fd00::7]:5432",
            "DATA_BASE_PORT_5432_TCP_ADDR=fd00::7",
            "DATA_BASE_PORT_5432_TCP_PORT=5432",
            "DATA_BASE_PORT_5432_TCP_PROTO=tcp",
            "DATA_BASE_SERVICE_HOST=fd00::7",
            "DATA_BASE_SERVICE_PORT=5432",
            "DATA_BASE_SERVICE_PORT_MORE_DNS=53",
        ];
        assert_eq!(variables, expected);
        for address in ["", "None"] {
            let service = json!({"metadata": {"name": "a"}, "spec": {"clusterIP": address, "ports": [{"port": 1}]}});
            assert_eq!(variables_for_service(&service), [], "{address:?}");
        }
    }
}
