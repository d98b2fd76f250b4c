//! A Kopia repository server: its address, certificate and user, and the arguments of `kopia` for it.
//!
//! Passwords are in no argument: `kopia` reads them from the variable [`PASSWORD_VARIABLE`], and stores none.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The variable with the password of the user.
pub const PASSWORD_VARIABLE: &str = "KOPIA_PASSWORD";
/// Variables of kopia that are the same for every command.
pub const VARIABLES: [(&str, &str); 1] = [("KOPIA_CHECK_FOR_UPDATES", "false")];
/// Kanister's defaults for the sizes of the caches, in MB, and the names of its options for them.
const CONTENT_CACHE: (&str, i64) = ("dataStoreGeneralContentCacheSize", 0);
const METADATA_CACHE: (&str, i64) = ("dataStoreGeneralMetadataCacheSize", 500);

/// A repository server and one of its users.
#[derive(Clone)]
pub struct KopiaServer {
    /// Its address, such as `https://kopia.backup.svc:51515`.
    pub url: String,
    /// SHA-256 of its certificate, in hexadecimal.
    pub fingerprint: String,
    /// The user is `username@hostname`.
    pub username: String,
    /// See `username`.
    pub hostname: String,
    /// The password of the user.
    pub password: SecretString,
    /// Size of the cache of contents in MB.
    pub content_cache_mb: i64,
    /// Size of the cache of metadata in MB.
    pub metadata_cache_mb: i64,
}

impl fmt::Debug for KopiaServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KopiaServer").field("url", &self.url).field("username", &self.username).finish_non_exhaustive()
    }
}

impl KopiaServer {
    /// The sizes of the caches in the options of a connection.
    pub fn cache_sizes(options: &BTreeMap<String, i64>) -> (i64, i64) {
        let size = |(name, default): (&str, i64)| options.get(name).copied().unwrap_or(default);
        (size(CONTENT_CACHE), size(METADATA_CACHE))
    }

    /// The password, for the environment of `kopia`.
    pub fn password(&self) -> &str {
        self.password.expose_secret()
    }

    /// The arguments of `kopia` that connect to the server. The configuration is below `directory`.
    pub fn connect(&self, directory: &str) -> Vec<String> {
        let mut arguments = global_arguments(directory);
        arguments.extend(
            ["repository", "connect", "server", "--no-check-for-updates", "--no-persist-credentials"]
                .map(str::to_owned),
        );
        arguments.extend([
            format!("--url={}", self.url),
            format!("--server-cert-fingerprint={}", self.fingerprint),
            format!("--override-username={}", self.username),
            format!("--override-hostname={}", self.hostname),
            format!("--cache-directory={directory}/cache"),
            format!("--content-cache-size-limit-mb={}", self.content_cache_mb),
            format!("--metadata-cache-size-limit-mb={}", self.metadata_cache_mb),
        ]);
        arguments
    }
}

/// The arguments of every command on the repository that is connected in `directory`.
pub fn global_arguments(directory: &str) -> Vec<String> {
    let fixed = ["--disable-file-logging", "--no-use-keyring", "--no-auto-maintenance"];
    let mut arguments = vec![format!("--config-file={directory}/repository.config")];
    arguments.extend(fixed.map(str::to_owned));
    arguments
}

/// The arguments of a command that reports its progress this often.
pub fn with_progress(directory: &str, interval: std::time::Duration) -> Vec<String> {
    let mut arguments = global_arguments(directory);
    // Since 0.23 kopia reports none by itself, unless it writes to a terminal.
    arguments.extend(["--progress".to_owned(), format!("--progress-update-interval={}ms", interval.as_millis())]);
    arguments
}

/// The fingerprint of the first certificate in a text of PEM.
pub fn fingerprint(pem: &str) -> Option<String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    let (_, rest) = pem.split_once(BEGIN)?;
    let (body, _) = rest.split_once("-----END CERTIFICATE-----")?;
    let body: String = body.split_whitespace().collect();
    Some(hex::encode(Sha256::digest(BASE64_STANDARD.decode(body).ok()?)))
}

/// A snapshot, as `kopia … --json` prints it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Manifest {
    /// The id.
    pub id: String,
    /// Why it is incomplete; empty if it is complete.
    pub incomplete: String,
    root_entry: Option<RootEntry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RootEntry {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "obj")]
    object: String,
    size: u64,
    #[serde(rename = "summ")]
    summary: Option<Summary>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Summary {
    size: u64,
    files: u64,
    #[serde(rename = "numFailed")]
    failed: u64,
}

impl Manifest {
    /// Parses the output of a command: other lines may come before the object.
    pub fn parse(output: &str) -> Option<Self> {
        let start = output.find('{')?;
        let mut objects = serde_json::Deserializer::from_str(&output[start..]).into_iter::<Value>();
        let manifest: Self = serde_json::from_value(objects.next()?.ok()?).ok()?;
        Some(manifest)
    }

    /// Bytes of its files.
    pub fn size(&self) -> u64 {
        self.root_entry.as_ref().map_or(0, |root| root.summary.as_ref().map_or(root.size, |summary| summary.size))
    }

    /// Number of its files.
    pub fn files(&self) -> u64 {
        self.root_entry.as_ref().and_then(|root| root.summary.as_ref()).map_or(1, |summary| summary.files)
    }

    /// Number of files that could not be read.
    pub fn failed(&self) -> u64 {
        self.root_entry.as_ref().and_then(|root| root.summary.as_ref()).map_or(0, |summary| summary.failed)
    }

    /// The object of a file in the snapshot, for `kopia show`: the snapshot is that of a file, or of a directory with it.
    pub fn object_of(&self, file: &str) -> Option<String> {
        let root = self.root_entry.as_ref().filter(|root| !root.object.is_empty())?;
        Some(if root.kind == "f" { root.object.clone() } else { format!("{}/{file}", root.object) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_is_that_of_the_first_certificate() {
        let body = BASE64_STANDARD.encode(b"certificate");
        let (first, second) = body.split_at(4);
        let pem = format!("-----BEGIN CERTIFICATE-----\n{first}\n{second}\n-----END CERTIFICATE-----\n");
        assert_eq!(fingerprint(&pem), Some(hex::encode(Sha256::digest(b"certificate"))));
        assert_eq!(fingerprint("-----BEGIN CERTIFICATE-----\nx"), None);
        assert_eq!(fingerprint(""), None);
    }

    #[test]
    fn a_manifest_has_the_object_of_its_file() {
        let directory =
            r#"{"id":"1f","rootEntry":{"type":"d","obj":"kabc","summ":{"size":7,"files":2,"numFailed":1}}}"#;
        let manifest = Manifest::parse(&format!("// id: 1f\n{directory}\n")).unwrap();
        assert_eq!((manifest.id.as_str(), manifest.size(), manifest.files(), manifest.failed()), ("1f", 7, 2, 1));
        assert_eq!(manifest.object_of("dump.sql").as_deref(), Some("kabc/dump.sql"));
        let file = Manifest::parse(r#"{"id":"2","rootEntry":{"type":"f","obj":"Ix1","size":9}}"#).unwrap();
        assert_eq!((file.object_of("dump.sql").as_deref(), file.size()), (Some("Ix1"), 9));
        assert!(Manifest::parse("").is_none() && Manifest::parse("{").is_none());
    }

    #[test]
    fn no_argument_and_no_debug_text_has_the_password() {
        let server = KopiaServer {
            url: "https://kopia:51515".into(),
            fingerprint: "ab".into(),
            username: "u".into(),
            hostname: "h".into(),
            password: "hidden".to_owned().into(),
            content_cache_mb: 0,
            metadata_cache_mb: 500,
        };
        assert!(!server.connect("/d").join(" ").contains("hidden") && !format!("{server:?}").contains("hidden"));
        assert!(server.connect("/d").contains(&"--override-hostname=h".to_owned()));
    }
}
