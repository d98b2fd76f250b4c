//! kopia with one repository: its configuration, with secrets, in private files.

use std::path::PathBuf;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use plimsoll_progress::kopia_output::strip_progress;
use plimsoll_repository::password_in_file;
use plimsoll_store::{AzureIdentity, Location};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::errors;
use crate::mover::Session;
use crate::probe::Probe;
use crate::program::{Exit, Program};
use crate::version::Version;
use crate::{MoverError, Result};

/// The oldest tested version; Velero 1.18 is built on a fork of 0.22.
const MIN_VERSION: Version = Version(0, 22, 0);

/// Velero's user and host name in every repository.
pub(super) const IDENTITY: &str = "default";

/// kopia with one repository.
#[derive(Debug)]
pub(super) struct Client<'a> {
    pub session: &'a Session,
    pub program: Program,
    pub probe: Probe,
    pub name: String,
    storage: Value,
    config: PathBuf,
}

impl<'a> Client<'a> {
    pub(super) fn open(session: &'a Session) -> Result<Self> {
        let program = Program::find("kopia", "--version", MIN_VERSION, strip_progress, session)?;
        let location = &session.repository.location;
        let name = location.name();
        let storage = storage(&location.location(), &name)?;
        let config = write_config(session, &storage)?;
        let probe = Probe::open(location)?;
        Ok(Self { session, program, probe, name, storage, config })
    }

    /// As [`Self::open`], for a repository that must exist.
    pub(super) fn open_repository(session: &'a Session) -> Result<Self> {
        let client = Self::open(session)?;
        client.require_repository()?;
        Ok(client)
    }

    /// A kopia command on this repository. Maintenance is done by the leader, not by transfers.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let interval = format!("--progress-update-interval={}ms", self.session.interval.as_millis());
        let mut command = self.program.command(self.session, ["--config-file"]);
        command.arg(&self.config).args(["--disable-file-logging", "--no-use-keyring", "--no-auto-maintenance"]);
        command.args(["--progress", &interval]).args(arguments);
        command.env("KOPIA_CHECK_FOR_UPDATES", "false").env("XDG_CACHE_HOME", self.session.scratch.path());
        command
    }

    /// Runs a command and returns its standard output.
    pub(super) fn execute(&self, arguments: &[&str]) -> Result<String> {
        let (output, exit) = self.program.capture(self.command(arguments), self.session)?;
        if exit.status.success() { Ok(output) } else { Err(self.error(&exit)) }
    }

    /// Initializes the repository. Location and password are passed over standard input.
    pub(super) fn create(&self) -> Result<()> {
        // With a token, kopia creates no directories.
        if let Some(path) = self.storage["config"]["path"].as_str() {
            std::fs::create_dir_all(path)
                .map_err(|error| MoverError::local(format!("create directory {path}"), &error))?;
        }
        let password = String::from_utf8_lossy(password(self.session)).into_owned();
        let token = json!({ "version": "1", "storage": self.storage, "password": password });
        let token = URL_SAFE_NO_PAD.encode(token.to_string());
        let command = self.command(&["repository", "create", "from-config", "--token-stdin", "--create-only"]);
        let (_, exit) = self.program.capture_with_input(command, self.session, token.as_bytes())?;
        if exit.status.success() { Ok(()) } else { Err(self.error(&exit)) }
    }

    pub(super) fn error(&self, exit: &Exit) -> MoverError {
        errors::classify(&exit.stderr_tail, &self.name, None).unwrap_or_else(|| self.program.error(exit))
    }

    /// The key of the format file: in directories it has a suffix.
    pub(super) fn format_key(&self) -> &'static str {
        if self.storage["type"] == "filesystem" { "kopia.repository.f" } else { "kopia.repository" }
    }

    pub(super) fn require_repository(&self) -> Result<()> {
        if !self.probe.exists(self.format_key())? {
            return Err(MoverError::RepositoryNotFound { repository: self.name.clone() });
        }
        Ok(())
    }
}

/// kopia's storage configuration of a location.
fn storage(location: &Location, name: &str) -> Result<Value> {
    let invalid = |error: plimsoll_store::StoreError| MoverError::from_store(&error, name);
    let prefix = location.prefix.trim_matches('/');
    match location.kind() {
        "directory" | "local" => {
            let path = format!("{}/{prefix}", location.path().unwrap_or_default().trim_end_matches('/'));
            Ok(json!({ "type": "filesystem", "config": { "path": path, "fileMode": 0o600, "dirMode": 0o700 } }))
        }
        "aws" => {
            let url = location.setting("s3Url").unwrap_or("https://s3.amazonaws.com");
            let (is_plain_http, endpoint) = match url.split_once("://") {
                Some((scheme, rest)) => (scheme == "http", rest),
                None => (false, url),
            };
            let keys = location.aws_keys().map_err(invalid)?;
            let skip_tls_verify = location.flag("insecureSkipTLSVerify").map_err(invalid)?.unwrap_or(false);
            let secret = keys.as_ref().map(|keys| keys.secret.expose_secret());
            let token = keys.as_ref().and_then(|keys| keys.token.as_ref()).map(ExposeSecret::expose_secret);
            Ok(json!({ "type": "s3", "config": {
                "bucket": location.bucket,
                "prefix": folder(prefix),
                "endpoint": endpoint.trim_end_matches('/'),
                "doNotUseTLS": is_plain_http,
                "doNotVerifyTLS": skip_tls_verify,
                "rootCA": location.ca_cert.as_ref().map(|pem| STANDARD.encode(pem)),
                "region": location.setting("region").unwrap_or_default(),
                "accessKeyID": keys.as_ref().map(|keys| keys.id.as_str()).unwrap_or_default(),
                "secretAccessKey": secret.unwrap_or_default(),
                "sessionToken": token.unwrap_or_default(),
            } }))
        }
        "gcp" => {
            if location.setting("storeEndpoint").is_some() {
                let cause = "kopia does not support config storeEndpoint".into();
                return Err(MoverError::InvalidLocation { cause });
            }
            let key = location.google_key().map_err(invalid)?;
            let key = key.map(|key| serde_json::from_str::<Value>(key.expose_secret()).unwrap_or_default());
            let mut config = json!({ "bucket": location.bucket, "prefix": folder(prefix) });
            if let Some(key) = key {
                config["credentials"] = key;
            }
            Ok(json!({ "type": "gcs", "config": config }))
        }
        "azure" => {
            let account = location.azure_account().map_err(invalid)?;
            let mut config = json!({
                "container": location.bucket, "prefix": folder(prefix), "storageAccount": account.name,
                "storageKey": "", "sasToken": "",
            });
            if let Some(domain) = account.domain {
                config["storageDomain"] = json!(domain);
            }
            match account.identity {
                AzureIdentity::Key(key) => config["storageKey"] = json!(key.expose_secret()),
                AzureIdentity::Principal { tenant, client, secret } => {
                    config["tenantID"] = json!(tenant);
                    config["clientID"] = json!(client);
                    config["clientSecret"] = json!(secret.expose_secret());
                }
                AzureIdentity::Machine => {
                    let cause = "kopia requires an account key or a service principal for Azure".into();
                    return Err(MoverError::InvalidLocation { cause });
                }
            }
            Ok(json!({ "type": "azureBlob", "config": config }))
        }
        other => Err(MoverError::InvalidLocation {
            cause: format!(
                "the kopia mover does not support provider {other:?}; use a directory, S3, Google Cloud Storage or Azure"
            ),
        }),
    }
}

/// A prefix with a trailing slash, as kopia expects it.
fn folder(prefix: &str) -> String {
    if prefix.is_empty() { String::new() } else { format!("{prefix}/") }
}

/// Writes the configuration and password files of `kopia repository connect`. That saves a process for each transfer.
fn write_config(session: &Session, storage: &Value) -> Result<PathBuf> {
    let cache = session.cache.clone().unwrap_or_else(|| session.scratch.path().to_owned()).join("kopia");
    let config = json!({
        "storage": storage,
        "caching": {
            "cacheDirectory": cache,
            "maxCacheSize": MAX_CACHE_SIZE,
            "maxMetadataCacheSize": MAX_CACHE_SIZE,
            "maxListCacheDuration": 30,
        },
        "hostname": IDENTITY,
        "username": IDENTITY,
        "enableActions": false,
        // Never cached: a repository that was removed and initialized again has another key.
        "formatBlobCacheDuration": -1,
    });
    session.private.write("repository.config.kopia-password", STANDARD.encode(password(session)).as_bytes())?;
    session.private.write("repository.config", config.to_string().as_bytes())
}

/// The password without surrounding white space, as in Velero.
fn password(session: &Session) -> &[u8] {
    password_in_file(session.repository.password.expose())
}

/// Enough to restore a large volume without fetching a pack twice.
const MAX_CACHE_SIZE: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_becomes_kopias_s3_configuration() {
        let mut s3 = Location {
            provider: "aws".into(),
            bucket: "b".into(),
            prefix: "/kopia/shop/".into(),
            ..Location::default()
        };
        s3.config.insert("s3Url".into(), "http://10.0.0.1:9000/".into());
        s3.credentials = Some(b"[default]\naws_access_key_id=A\naws_secret_access_key=S".to_vec().into());
        let config = &storage(&s3, "x").expect("supported")["config"];
        assert_eq!(config["endpoint"], "10.0.0.1:9000");
        assert_eq!((&config["prefix"], &config["doNotUseTLS"]), (&json!("kopia/shop/"), &json!(true)));
        assert_eq!((&config["accessKeyID"], &config["secretAccessKey"]), (&json!("A"), &json!("S")));
        s3.config.clear();
        assert_eq!(storage(&s3, "x").expect("supported")["config"]["doNotUseTLS"], false);
        s3.provider = "tape".into();
        assert_eq!(storage(&s3, "x").expect_err("not supported").reason(), "InvalidStorageLocation");
    }

    #[test]
    fn google_and_azure_storage_become_kopias_configuration() {
        let location = |provider: &str, credentials: &str| Location {
            provider: provider.into(),
            bucket: "b".into(),
            prefix: "kopia/shop".into(),
            credentials: Some(credentials.as_bytes().to_vec().into()),
            ..Location::default()
        };
        let key = json!({ "type": "service_account", "private_key": "k" });
        let google = storage(&location("gcp", &key.to_string()), "x").expect("supported");
        let config = json!({ "bucket": "b", "prefix": "kopia/shop/", "credentials": key });
        assert_eq!(google, json!({ "type": "gcs", "config": config }));

        let mut azure = location("velero.io/azure", "AZURE_STORAGE_ACCOUNT_ACCESS_KEY=key");
        azure.config.insert("storageAccount".into(), "shop".into());
        let config = storage(&azure, "x").expect("supported");
        assert_eq!((&config["type"], &config["config"]["container"]), (&json!("azureBlob"), &json!("b")));
        assert_eq!(
            (&config["config"]["storageAccount"], &config["config"]["storageKey"]),
            (&json!("shop"), &json!("key"))
        );
        azure.config.insert("storageAccountURI".into(), "https://shop.blob.core.chinacloudapi.cn/".into());
        assert_eq!(storage(&azure, "x").expect("supported")["config"]["storageDomain"], "blob.core.chinacloudapi.cn");
        azure.config.insert("storageAccountURI".into(), "http://127.0.0.1:10000/shop".into());
        assert!(storage(&azure, "x").expect_err("not supported").to_string().contains("https://shop.DOMAIN"));
        azure.config.remove("storageAccountURI");
        azure.credentials = None;
        assert_eq!(storage(&azure, "x").expect_err("needs a key").reason(), "InvalidStorageLocation");
    }
}
