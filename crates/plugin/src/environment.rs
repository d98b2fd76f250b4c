//! The environment variables of plugin processes.

use std::collections::BTreeMap;

/// Variables that are passed to plugins.
const ALLOWED_VARIABLES: [&str; 20] = [
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

/// Prefixes of variables that are passed to plugins: cloud settings and credentials, address of the API server.
const ALLOWED_PREFIXES: [&str; 11] = [
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

/// The environment of a plugin: an allow-list of variables of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// The allowed variables of this process. `further` are additional names, or prefixes that end with `*`. `VELERO_NAMESPACE`
    /// is always set.
    pub fn from_process(namespace: &str, further: &[String]) -> Self {
        Self::from(
            std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))),
            further,
        )
        .with("VELERO_NAMESPACE", namespace)
    }

    fn from(all: impl Iterator<Item = (String, String)>, further: &[String]) -> Self {
        Self { variables: all.filter(|(name, _)| is_allowed(name, further)).collect() }
    }

    /// Adds a variable.
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
    let listed = |pattern: &String| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    };
    ALLOWED_VARIABLES.contains(&name)
        || ALLOWED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || further.iter().any(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_variables_are_passed_to_a_plugin() {
        let all = ["AWS_REGION", "KUBERNETES_SERVICE_HOST", "PATH", "PLIMSOLL_TOKEN", "RUST_LOG", "MY_NAS", "MY_KEY"];
        let all = all.map(|name| (name.to_owned(), "x".to_owned()));
        let seen = Environment::from(all.into_iter(), &["MY_N*".to_owned()]).with("VELERO_NAMESPACE", "velero");
        let names: Vec<_> = seen.variables().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["AWS_REGION", "KUBERNETES_SERVICE_HOST", "MY_NAS", "PATH", "VELERO_NAMESPACE"]);
    }
}
