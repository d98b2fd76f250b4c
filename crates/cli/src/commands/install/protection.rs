//! Objects that limit what the server and the agents can reach, and what a stolen account of an agent can do.

use plimsoll_volumes::transfer::agent_lease::LEASE_PREFIX;
use serde_json::{Value, json};

use super::objects::{AGENT_NAME, DASHBOARD, DOWNLOADS, NAME, PROGRESS_PORT, SERVER_NAME, object};

/// The NetworkPolicies for the ports of the server and of the agents.
pub fn network_policies(namespace: &str, agents: bool) -> Vec<Value> {
    let policy = |name: &str, ingress: Value| {
        let mut policy = object("networking.k8s.io/v1", "NetworkPolicy", name, Some(namespace));
        policy["spec"] = json!({
            "podSelector": { "matchLabels": { NAME: name } }, "policyTypes": ["Ingress"], "ingress": [ingress],
        });
        policy
    };
    let port = |port: u16| json!({ "port": port, "protocol": "TCP" });
    // Signed links and a token protect these: links are opened from anywhere.
    let mut all = vec![policy(SERVER_NAME, json!({ "ports": [port(DOWNLOADS), port(DASHBOARD)] }))];
    if agents {
        let server = json!([{ "podSelector": { "matchLabels": { NAME: SERVER_NAME } } }]);
        all.push(policy(AGENT_NAME, json!({ "ports": [port(PROGRESS_PORT)], "from": server })));
    }
    all
}

/// The node of the pod that a token was issued to; API servers before Kubernetes 1.30 do not tell.
const NODE: &str = "has(request.userInfo.extra) && 'authentication.kubernetes.io/node-name' in request.userInfo.extra ? \
                    request.userInfo.extra['authentication.kubernetes.io/node-name'][0] : ''";

/// Binds each agent to the transfers and the Lease of its own node: a role cannot.
pub fn agent_policy(namespace: &str) -> Vec<Value> {
    let version = "admissionregistration.k8s.io/v1";
    let name = format!("{AGENT_NAME}-{namespace}");
    let user = format!("request.userInfo.username == 'system:serviceaccount:{namespace}:{AGENT_NAME}'");
    let rule = |group: &str, versions: [&str; 2], resources: Value, operations: Value| {
        let versions: Vec<_> = versions.iter().filter(|version| !version.is_empty()).collect();
        json!({ "apiGroups": [group], "apiVersions": versions, "resources": resources, "operations": operations })
    };
    let transfers = json!(["podvolumebackups", "podvolumerestores", "datauploads", "datadownloads"]);
    let mut policy = object(version, "ValidatingAdmissionPolicy", &name, None);
    policy["spec"] = json!({
        "failurePolicy": "Fail",
        "matchConstraints": { "resourceRules": [
            rule("velero.io", ["v1", "v2alpha1"], transfers, json!(["UPDATE"])),
            rule("coordination.k8s.io", ["v1", ""], json!(["leases"]), json!(["CREATE", "UPDATE"])),
        ] },
        "matchConditions": [
            { "name": "agent", "expression": user },
            { "name": "node-is-known", "expression": format!("({NODE}) != ''") },
        ],
        "variables": [
            { "name": "node", "expression": NODE },
            { "name": "before", "expression": node_of("oldObject") },
            { "name": "after", "expression": node_of("object") },
        ],
        "validations": [
            // The name of a Lease has the hash of a longer name.
            { "expression": format!("request.resource.resource != 'leases' || size(variables.node) > 63 || \
                object.metadata.name == '{LEASE_PREFIX}' + variables.node"),
              "message": "an agent may write the Lease of its own node only" },
            { "expression": "request.resource.resource == 'leases' || \
                (variables.before in ['', variables.node] && variables.after in ['', variables.node])",
              "message": "an agent may write the transfers of its own node only" },
        ],
    });
    let mut binding = object(version, "ValidatingAdmissionPolicyBinding", &name, None);
    binding["spec"] = json!({
        "policyName": name, "validationActions": ["Deny"],
        "matchResources": { "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } } },
    });
    vec![policy, binding]
}

/// The node of a transfer: a backup of files names it in its spec, the others in their status once they are accepted.
fn node_of(variable: &str) -> String {
    let field = |part: &str| {
        format!("has({variable}.{part}) && has({variable}.{part}.node) ? string({variable}.{part}.node) : ")
    };
    format!("request.resource.resource == 'leases' ? '' : {}{}''", field("spec"), field("status"))
}
