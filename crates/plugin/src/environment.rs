//! What a plugin gets to see of this process's environment.

use std::collections::BTreeMap;

/// Variables that plugins are known to need, by name.
const NAMES: [&str; 20] = [
    "PATH",
    "HOME",
    "TMPDIR",
    "TZ",
    "LANG",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "KUBECONFIG",
    "POD_NAME",
    "POD_NAMESPACE",
    "POD_UID",
    "NODE_NAME",
    "HOSTNAME",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "LD_LIBRARY_PATH",
];

/// And by how they begin: the settings and credentials of the clouds, and how pods find the API server.
const PREFIXES: [&str; 11] = [
    "VELERO_",
    "KUBERNETES_",
    "AWS_",
    "GOOGLE_",
    "GCE_",
    "AZURE_",
    "ALIBABA_CLOUD_",
    "DIGITALOCEAN_",
    "OCI_",
    "OS_",
    "IBM_",
];

/// The variables a plugin is started with: an allow-list, not this process's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// What of this process's environment plugins may see. `further` are names, or beginnings that end with `*`, that an
    /// administrator allows beside them. Every plugin learns the namespace its server works in.
    pub fn of_this_process(namespace: &str, further: &[String]) -> Self {
        Self::from(
            std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))),
            further,
        )
        .with("VELERO_NAMESPACE", namespace)
    }

    fn from(all: impl Iterator<Item = (String, String)>, further: &[String]) -> Self {
        Self { variables: all.filter(|(name, _)| is_allowed(name, further)).collect() }
    }

    /// With one more variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = (&String, &String)> {
        self.variables.iter()
    }
}

fn is_allowed(name: &str, further: &[String]) -> bool {
    let asked = |wanted: &String| match wanted.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == wanted,
    };
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || further.iter().any(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_sees_clouds_and_cluster_and_nothing_that_is_ours() {
        let all = ["AWS_REGION", "KUBERNETES_SERVICE_HOST", "PATH", "PLIMSOLL_TOKEN", "RUST_LOG", "MY_NAS", "MY_KEY"];
        let all = all.map(|name| (name.to_owned(), "x".to_owned()));
        let seen = Environment::from(all.into_iter(), &["MY_N*".to_owned()]).with("VELERO_NAMESPACE", "velero");
        let names: Vec<_> = seen.variables().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["AWS_REGION", "KUBERNETES_SERVICE_HOST", "MY_NAS", "PATH", "VELERO_NAMESPACE"]);
    }
}
