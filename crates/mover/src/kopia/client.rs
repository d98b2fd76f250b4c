//! kopia and one repository: its configuration, with everything secret, in files that only we can read.

use std::path::PathBuf;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use plimsoll_repository::password_in_file;
use plimsoll_store::{AzureIdentity, Location};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::errors;
use super::progress::besides_progress;
use crate::mover::Session;
use crate::probe::Probe;
use crate::tool::{Exit, Program};
use crate::version::Version;
use crate::{MoverError, Result};

/// The oldest version that was tried; Velero 1.18 is built on a fork of 0.22.
const LEAST: Version = Version(0, 22, 0);

/// Velero's user and host in every repository.
pub(super) const IDENTITY: &str = "default";

/// kopia, ready to work on one repository.
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
        let program = Program::find("kopia", "--version", LEAST, besides_progress, session)?;
        let place = &session.repository.place;
        let name = place.name();
        let storage = storage(&place.location(), &name)?;
        let config = write_config(session, &storage)?;
        let probe = Probe::open(place)?;
        Ok(Self { session, program, probe, name, storage, config })
    }

    /// A kopia command on this repository. Maintenance is the leader's business, not a transfer's.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let interval = format!("--progress-update-interval={}ms", self.session.interval.as_millis());
        let mut command = self.program.command(self.session, ["--config-file"]);
        command.arg(&self.config).args(["--disable-file-logging", "--no-use-keyring", "--no-auto-maintenance"]);
        command.args(["--progress", &interval]).args(arguments);
        command.env("KOPIA_CHECK_FOR_UPDATES", "false").env("XDG_CACHE_HOME", self.session.scratch.path());
        command
    }

    /// The standard output of a command that ended well.
    pub(super) fn ask(&self, arguments: &[&str]) -> Result<String> {
        let (said, exit) = self.program.capture(self.command(arguments), self.session)?;
        if exit.status.success() { Ok(said) } else { Err(self.error(&exit)) }
    }

    /// Makes the repository. Where it is and what opens it go over standard input.
    pub(super) fn create(&self) -> Result<()> {
        // Told by a token, kopia makes no directories.
        if let Some(path) = self.storage["config"]["path"].as_str() {
            std::fs::create_dir_all(path).map_err(|error| MoverError::local(format!("make {path}"), &error))?;
        }
        let password = String::from_utf8_lossy(password(self.session)).into_owned();
        let token = json!({ "version": "1", "storage": self.storage, "password": password });
        let token = URL_SAFE_NO_PAD.encode(token.to_string());
        let command = self.command(&["repository", "create", "from-config", "--token-stdin", "--create-only"]);
        let (_, exit) = self.program.capture_fed(command, self.session, token.as_bytes())?;
        if exit.status.success() { Ok(()) } else { Err(self.error(&exit)) }
    }

    pub(super) fn error(&self, exit: &Exit) -> MoverError {
        errors::classify(&exit.last_words, &self.name, None).unwrap_or_else(|| self.program.failed(exit))
    }

    /// The file that makes a place a repository: directories get endings.
    pub(super) fn format_key(&self) -> &'static str {
        if self.storage["type"] == "filesystem" { "kopia.repository.f" } else { "kopia.repository" }
    }

    pub(super) fn require_repository(&self) -> Result<()> {
        if !self.probe.exists(self.format_key())? {
            return Err(MoverError::NoRepository { repository: self.name.clone() });
        }
        Ok(())
    }
}

/// kopia's description of a place.
fn storage(location: &Location, name: &str) -> Result<Value> {
    let unusable = |error: plimsoll_store::StoreError| MoverError::of_store(&error, name);
    let prefix = location.prefix.trim_matches('/');
    match location.kind() {
        "directory" | "local" => {
            let path = format!("{}/{prefix}", location.path().unwrap_or_default().trim_end_matches('/'));
            Ok(json!({ "type": "filesystem", "config": { "path": path, "fileMode": 0o600, "dirMode": 0o700 } }))
        }
        "aws" => {
            let url = location.setting("s3Url").unwrap_or("https://s3.amazonaws.com");
            let (plain, endpoint) = match url.split_once("://") {
                Some((scheme, rest)) => (scheme == "http", rest),
                None => (false, url),
            };
            let keys = location.aws_keys().map_err(unusable)?;
            let insecure = location.flag("insecureSkipTLSVerify").map_err(unusable)?.unwrap_or(false);
            let secret = keys.as_ref().map(|keys| keys.secret.expose_secret());
            let token = keys.as_ref().and_then(|keys| keys.token.as_ref()).map(ExposeSecret::expose_secret);
            Ok(json!({ "type": "s3", "config": {
                "bucket": location.bucket,
                "prefix": folder(prefix),
                "endpoint": endpoint.trim_end_matches('/'),
                "doNotUseTLS": plain,
                "doNotVerifyTLS": insecure,
                "rootCA": location.ca_cert.as_ref().map(|pem| STANDARD.encode(pem)),
                "region": location.setting("region").unwrap_or_default(),
                "accessKeyID": keys.as_ref().map(|keys| keys.id.as_str()).unwrap_or_default(),
                "secretAccessKey": secret.unwrap_or_default(),
                "sessionToken": token.unwrap_or_default(),
            } }))
        }
        "gcp" => {
            if location.setting("storeEndpoint").is_some() {
                let cause = "kopia knows Google's own storage only, and no config storeEndpoint".into();
                return Err(MoverError::InvalidLocation { cause });
            }
            let key = location.google_key().map_err(unusable)?;
            let key = key.map(|key| serde_json::from_str::<Value>(key.expose_secret()).unwrap_or_default());
            let mut config = json!({ "bucket": location.bucket, "prefix": folder(prefix) });
            if let Some(key) = key {
                config["credentials"] = key;
            }
            Ok(json!({ "type": "gcs", "config": config }))
        }
        "azure" => {
            let account = location.azure_account().map_err(unusable)?;
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
                    let cause = "kopia needs the account's key or a service principal for Azure".into();
                    return Err(MoverError::InvalidLocation { cause });
                }
            }
            Ok(json!({ "type": "azureBlob", "config": config }))
        }
        other => Err(MoverError::InvalidLocation {
            cause: format!(
                "the kopia mover knows directories, S3, Google Cloud Storage and Azure, not provider {other:?}"
            ),
        }),
    }
}

/// A prefix as kopia puts it in front of its names.
fn folder(prefix: &str) -> String {
    if prefix.is_empty() { String::new() } else { format!("{prefix}/") }
}

/// What `kopia repository connect` would write: the configuration, and the password beside it. Writing it ourselves saves
/// a process for each transfer.
fn write_config(session: &Session, storage: &Value) -> Result<PathBuf> {
    let cache = session.cache.clone().unwrap_or_else(|| session.scratch.path().to_owned()).join("kopia");
    let config = json!({
        "storage": storage,
        "caching": {
            "cacheDirectory": cache,
            "maxCacheSize": CACHE,
            "maxMetadataCacheSize": CACHE,
            "maxListCacheDuration": 30,
        },
        "hostname": IDENTITY,
        "username": IDENTITY,
        "enableActions": false,
        // Never out of the cache: a repository that was removed and made anew has another key, and nothing would open again that
        // was sealed with the old one.
        "formatBlobCacheDuration": -1,
    });
    session.private.write("repository.config.kopia-password", STANDARD.encode(password(session)).as_bytes())?;
    session.private.write("repository.config", config.to_string().as_bytes())
}

/// Without the white space around it, which Velero leaves out too.
fn password(session: &Session) -> &[u8] {
    password_in_file(session.repository.password.expose())
}

/// As much as a restore of a large volume keeps without fetching it twice.
const CACHE: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_described_in_kopias_words() {
        let mut s3 = Location {
            provider: "aws".into(),
            bucket: "b".into(),
            prefix: "/kopia/shop/".into(),
            ..Location::default()
        };
        s3.config.insert("s3Url".into(), "http://10.0.0.1:9000/".into());
        s3.credentials = Some(b"[default]\naws_access_key_id=A\naws_secret_access_key=S".to_vec().into());
        let config = &storage(&s3, "x").expect("knows")["config"];
        assert_eq!(config["endpoint"], "10.0.0.1:9000");
        assert_eq!((&config["prefix"], &config["doNotUseTLS"]), (&json!("kopia/shop/"), &json!(true)));
        assert_eq!((&config["accessKeyID"], &config["secretAccessKey"]), (&json!("A"), &json!("S")));
        s3.config.clear();
        assert_eq!(storage(&s3, "x").expect("knows")["config"]["doNotUseTLS"], false);
        s3.provider = "tape".into();
        assert_eq!(storage(&s3, "x").expect_err("does not").reason(), "InvalidStorageLocation");
    }

    #[test]
    fn googles_and_azures_storage_are_described_in_kopias_words() {
        let place = |provider: &str, credentials: &str| Location {
            provider: provider.into(),
            bucket: "b".into(),
            prefix: "kopia/shop".into(),
            credentials: Some(credentials.as_bytes().to_vec().into()),
            ..Location::default()
        };
        let key = json!({ "type": "service_account", "private_key": "k" });
        let google = storage(&place("gcp", &key.to_string()), "x").expect("knows");
        let config = json!({ "bucket": "b", "prefix": "kopia/shop/", "credentials": key });
        assert_eq!(google, json!({ "type": "gcs", "config": config }));

        let mut azure = place("velero.io/azure", "AZURE_STORAGE_ACCOUNT_ACCESS_KEY=key");
        azure.config.insert("storageAccount".into(), "shop".into());
        let config = storage(&azure, "x").expect("knows");
        assert_eq!((&config["type"], &config["config"]["container"]), (&json!("azureBlob"), &json!("b")));
        assert_eq!(
            (&config["config"]["storageAccount"], &config["config"]["storageKey"]),
            (&json!("shop"), &json!("key"))
        );
        azure.config.insert("storageAccountURI".into(), "https://shop.blob.core.chinacloudapi.cn/".into());
        assert_eq!(storage(&azure, "x").expect("knows")["config"]["storageDomain"], "blob.core.chinacloudapi.cn");
        azure.config.insert("storageAccountURI".into(), "http://127.0.0.1:10000/shop".into());
        assert!(storage(&azure, "x").expect_err("kopia cannot").to_string().contains("https://shop.DOMAIN"));
        azure.config.remove("storageAccountURI");
        azure.credentials = None;
        assert_eq!(storage(&azure, "x").expect_err("needs a key").reason(), "InvalidStorageLocation");
    }
}
