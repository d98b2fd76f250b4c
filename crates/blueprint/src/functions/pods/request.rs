//! A pod that a phase asks for.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::CONTAINER;

/// A pod to create.
#[derive(Clone, Debug)]
pub struct PodRequest {
    /// Prefix of the name.
    pub prefix: &'static str,
    /// The namespace.
    pub namespace: String,
    /// The spec.
    pub spec: Value,
    /// Distinguishes several pods of one phase.
    pub part: String,
    /// Whether it runs a command of the blueprint, which may use `kando`.
    pub runs_a_command: bool,
}

impl PodRequest {
    /// A pod with one container.
    pub fn task(prefix: &'static str, namespace: String, image: &str, command: &[String]) -> Self {
        let spec = json!({
            "restartPolicy": "Never",
            "containers": [{
                "name": CONTAINER, "image": image, "imagePullPolicy": "IfNotPresent", "command": command,
            }],
        });
        Self { prefix, namespace, spec, part: String::new(), runs_a_command: true }
    }

    /// An idle pod with mounted claims.
    pub fn idle(prefix: &'static str, namespace: String, image: &str, claims: &BTreeMap<String, String>) -> Self {
        let command = ["sh", "-c", "tail -f /dev/null"].map(str::to_owned);
        let mut request = Self { runs_a_command: false, ..Self::task(prefix, namespace, image, &command) };
        request.mount(claims);
        request
    }

    /// The same pod with the `kando` of its image, under another name.
    pub(super) fn without_tools(mut self) -> Self {
        self.part = if self.part.is_empty() { "own".into() } else { format!("{}-own", self.part) };
        self.runs_a_command = false;
        self
    }

    /// Mounts claims in all containers.
    pub fn mount(&mut self, claims: &BTreeMap<String, String>) {
        let name = |index: usize| format!("vol-{index}");
        let volumes: Vec<_> = claims
            .keys()
            .enumerate()
            .map(|(index, claim)| json!({ "name": name(index), "persistentVolumeClaim": { "claimName": claim } }))
            .collect();
        let mounts: Vec<_> = claims
            .values()
            .enumerate()
            .map(|(index, path)| json!({ "name": name(index), "mountPath": path }))
            .collect();
        self.spec["volumes"] = json!(volumes);
        for container in self.spec["containers"].as_array_mut().into_iter().flatten() {
            container["volumeMounts"] = json!(mounts);
        }
    }
}
