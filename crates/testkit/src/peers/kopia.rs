//! A Kopia repository server on a directory.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::{free_port, unique_directory};
use crate::cache;
use crate::child_process::ChildProcess;
use crate::wait::{WAIT_TIMEOUT, until_blocking};

/// The user of every server started here, `plimsoll@shop`.
pub const USERNAME: &str = "plimsoll";
/// The host of that user.
pub const HOSTNAME: &str = "shop";
/// The password of that user.
pub const PASSWORD: &str = "kopia-user-password";
/// The password of the repository, and of the server's administrator.
const REPOSITORY_PASSWORD: &str = "kopia-repository-password";
/// The file with the certificate, in the directory of the server.
const CERTIFICATE: &str = "tls.crt";

/// A running Kopia repository server; dropping this removes it and its repository.
#[derive(Debug)]
pub struct KopiaServer {
    process: ChildProcess,
    port: u16,
    certificate: String,
}

impl KopiaServer {
    /// Starts a server on the loopback address. It stores at most so many bytes a second, if any are given, but those of the
    /// first six seconds at once.
    pub fn start(upload_limit: Option<u64>) -> Result<Self> {
        let program = cache::program("kopia")?;
        let directory = unique_directory("kopia");
        fs::create_dir_all(&directory)?;
        let run = |arguments: &[&str]| -> Result<()> {
            let output = kopia(&program, &directory).args(arguments).output()?;
            ensure!(output.status.success(), "kopia {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            Ok(())
        };
        let repository = directory.join("repository");
        fs::create_dir_all(&repository)?;
        run(&["repository", "create", "filesystem", "--path", &repository.to_string_lossy()])?;
        run(&["server", "users", "add", &format!("{USERNAME}@{HOSTNAME}"), "--user-password", PASSWORD])?;
        if let Some(limit) = upload_limit {
            run(&["repository", "throttle", "set", &format!("--upload-bytes-per-second={limit}")])?;
        }
        let port = free_port("127.0.0.1")?;
        let mut command = kopia(&program, &directory);
        command.args(["server", "start", &format!("--address=127.0.0.1:{port}")]);
        command.args(["--tls-generate-cert", "--tls-cert-file", CERTIFICATE, "--tls-key-file", "tls.key"]);
        command.args(["--server-username=admin", &format!("--server-password={REPOSITORY_PASSWORD}"), "--no-ui"]);
        let mut process = ChildProcess::start(command, directory.clone())?;
        let started = until_blocking("the Kopia server", WAIT_TIMEOUT, || {
            // It listens before it has a certificate.
            (process.log().contains("SERVER ADDRESS") || process.has_ended()).then_some(())
        });
        started.with_context(|| process.log())?;
        ensure!(!process.has_ended(), "the Kopia server ended: {}", process.log());
        let certificate = fs::read_to_string(directory.join(CERTIFICATE))?;
        Ok(Self { process, port, certificate })
    }

    /// Its port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its certificate in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The RepositoryServer `backups` for it, its definition, Secrets and Service, as Kanister's controller leaves them.
    pub fn repository_server(&self, namespace: &str) -> Vec<Value> {
        let secret = |name: &str, key: &str, value: &str| {
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": namespace },
                "data": { key: BASE64_STANDARD.encode(value) } })
        };
        let reference = |name: &str| json!({ "name": name, "namespace": namespace });
        vec![
            repository_server_definition(),
            secret("tls", CERTIFICATE, &self.certificate),
            secret("users", HOSTNAME, PASSWORD),
            json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "kopia", "namespace": namespace },
                "spec": { "type": "ExternalName", "externalName": "127.0.0.1", "ports": [{ "port": self.port }] } }),
            json!({ "apiVersion": "cr.kanister.io/v1alpha1", "kind": "RepositoryServer",
                "metadata": { "name": "backups", "namespace": namespace },
                "spec": { "server": { "tlsSecretRef": reference("tls"),
                    "userAccess": { "username": USERNAME, "userAccessSecretRef": reference("users") } } },
                "status": { "serverInfo": { "serviceName": "kopia" } } }),
        ]
    }

    /// The ids of all snapshots in its repository.
    pub fn snapshots(&self) -> Result<Vec<String>> {
        let output = kopia(&cache::program("kopia")?, self.process.directory())
            .args(["snapshot", "list", "--all", "--json"])
            .output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let list: Vec<Value> = serde_json::from_slice(&output.stdout)?;
        Ok(list.iter().filter_map(|one| one["id"].as_str()).map(str::to_owned).collect())
    }
}

fn repository_server_definition() -> Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "repositoryservers.cr.kanister.io" },
        "spec": { "group": "cr.kanister.io", "scope": "Namespaced",
            "names": { "plural": "repositoryservers", "singular": "repositoryserver", "kind": "RepositoryServer",
                "listKind": "RepositoryServerList" },
            "versions": [{ "name": "v1alpha1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }] } })
}

/// kopia on the server's own repository.
fn kopia(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory);
    command.arg(format!("--config-file={}", directory.join("server.config").display()));
    command.args(["--disable-file-logging", "--no-use-keyring"]);
    command.env("KOPIA_PASSWORD", REPOSITORY_PASSWORD).env("KOPIA_CHECK_FOR_UPDATES", "false");
    command.env("XDG_CACHE_HOME", directory.join("cache")).env("HOME", directory);
    command
}
