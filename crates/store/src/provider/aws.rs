//! S3 and compatible servers, with the settings of Velero's AWS plugin.

use std::sync::Arc;

use base64::Engine as _;
use object_store::TagSet;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::signer::Signer;
use secrecy::{ExposeSecret, SecretString};

use super::{Client, client, credentials_text};
use crate::location::AwsKeys;
use crate::store::Inner;
use crate::{Location, Result, Store};

const KNOWN_SETTINGS: &[&str] = &[
    "region",
    "s3ForcePathStyle",
    "s3Url",
    "publicUrl",
    "serverSideEncryption",
    "kmsKeyId",
    "customerKeyEncryptionFile",
    "customerKeyEncryptionSecret",
    "signatureVersion",
    "profile",
    "credentialsFile",
    "insecureSkipTLSVerify",
    "enableSharedConfig",
    "tagging",
    "checksumAlgorithm",
];

pub(super) fn open(location: &Location) -> Result<Store> {
    location.require_bucket()?;
    location.reject_unknown_settings(KNOWN_SETTINGS)?;
    reject_unsupported_settings(location)?;
    let client = client(location, location.flag("insecureSkipTLSVerify")?.unwrap_or(false))?;
    let observers = client.observers.clone();
    let endpoint = location.setting("s3Url");
    let public = location.setting("publicUrl").or(endpoint);
    let signer: Arc<dyn Signer> = Arc::new(build_s3(location, public, None)?);
    let objects = build_s3(location, endpoint, Some(client))?;
    let mut inner = Inner::new(Arc::new(objects), location.display_name());
    inner.signer = Some(signer);
    inner.tags = tags(location)?;
    inner.observers = observers;
    inner.tuning = location.tuning.clone();
    Store::assemble(inner, &location.prefix)
}

fn reject_unsupported_settings(location: &Location) -> Result<()> {
    if location.setting("customerKeyEncryptionSecret").is_some() {
        return Err(location.invalid(
            "config customerKeyEncryptionSecret is not supported: mount the key and name it in customerKeyEncryptionFile",
        ));
    }
    if !matches!(location.setting("signatureVersion"), None | Some("4")) {
        return Err(location.invalid("config signatureVersion must be 4"));
    }
    if location.flag("enableSharedConfig")? == Some(true) && location.credentials.is_none() {
        return Err(location.invalid("config enableSharedConfig is not supported without credentials"));
    }
    Ok(())
}

/// Without a client the result can only sign.
fn build_s3(location: &Location, endpoint: Option<&str>, client: Option<Client>) -> Result<AmazonS3> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(&location.bucket).with_allow_http(true);
    if let Some(region) = location.setting("region") {
        builder = builder.with_region(region);
    }
    builder = set_address(location, builder, endpoint)?;
    builder = set_encryption(location, builder)?;
    builder = set_checksum(location, builder)?;
    builder = set_signature(location, builder)?;
    builder = set_keys(location, builder)?;
    if let Some(client) = client {
        builder = builder.with_client_options(client.options).with_retry(client.retry);
        builder = builder.with_http_connector(client.connector);
    }
    builder.build().map_err(|error| location.invalid(error.to_string()))
}

fn set_address(location: &Location, builder: AmazonS3Builder, endpoint: Option<&str>) -> Result<AmazonS3Builder> {
    let path_style = location.flag("s3ForcePathStyle")?.unwrap_or(false);
    let Some(endpoint) = endpoint else { return Ok(builder.with_virtual_hosted_style_request(!path_style)) };
    let mut url = url::Url::parse(endpoint).map_err(|_| location.invalid("config s3Url or publicUrl is not a URL"))?;
    if path_style {
        return Ok(builder.with_endpoint(endpoint.trim_end_matches('/')).with_virtual_hosted_style_request(false));
    }
    let host = format!("{}.{}", location.bucket, url.host_str().unwrap_or_default());
    url.set_host(Some(&host)).map_err(|_| location.invalid("the bucket name is not valid in a host name"))?;
    Ok(builder.with_endpoint(url.as_str().trim_end_matches('/')).with_virtual_hosted_style_request(true))
}

fn set_encryption(location: &Location, builder: AmazonS3Builder) -> Result<AmazonS3Builder> {
    if let Some(file) = location.setting("customerKeyEncryptionFile") {
        let key = std::fs::read(file).map_err(|error| location.invalid(format!("{file}: {error}")))?;
        if key.len() != 32 {
            return Err(location.invalid(format!("{file} must hold a key of exactly 32 bytes")));
        }
        return Ok(builder.with_ssec_encryption(base64::engine::general_purpose::STANDARD.encode(key)));
    }
    if let Some(key) = location.setting("kmsKeyId") {
        return Ok(builder.with_sse_kms_encryption(key));
    }
    let Some(kind) = location.setting("serverSideEncryption") else { return Ok(builder) };
    let key: AmazonS3ConfigKey = "aws_server_side_encryption"
        .parse()
        .map_err(|error: object_store::Error| location.invalid(error.to_string()))?;
    Ok(builder.with_config(key, kind))
}

/// Algorithms that the client does not support are accepted without effect: the signature then covers the SHA-256 of every
/// request body.
fn set_checksum(location: &Location, builder: AmazonS3Builder) -> Result<AmazonS3Builder> {
    match location.setting("checksumAlgorithm") {
        None | Some("CRC32" | "CRC32C" | "SHA1") => Ok(builder),
        Some("SHA256") => Ok(builder.with_checksum_algorithm(Checksum::SHA256)),
        Some("CRC64NVME") => Ok(builder.with_checksum_algorithm(Checksum::CRC64NVME)),
        Some(other) => Err(location.invalid(format!("unknown config checksumAlgorithm {other:?}"))),
    }
}

/// Hashing every body once more for its signature takes about a tenth of a backup's processor time.
fn set_signature(location: &Location, builder: AmazonS3Builder) -> Result<AmazonS3Builder> {
    let is_verified = !location.flag("insecureSkipTLSVerify")?.unwrap_or(false);
    // From the builder, because the environment may set it too.
    let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
    let endpoint = endpoint.iter().find_map(|key| builder.get_config_value(key));
    if signs_bodies(endpoint.as_deref(), is_verified, location.setting("checksumAlgorithm")) {
        return Ok(builder);
    }
    Ok(builder.with_unsigned_payload(true))
}

/// Whether the signature of a request covers its body. TLS protects the bytes in transit if the certificate is verified; a
/// configured checksum is computed in any case. Without an endpoint it is AWS, over TLS.
fn signs_bodies(endpoint: Option<&str>, is_verified: bool, checksum: Option<&str>) -> bool {
    let is_tls = endpoint.is_none_or(|endpoint| url::Url::parse(endpoint).is_ok_and(|url| url.scheme() == "https"));
    let is_covered_otherwise = matches!(checksum, None | Some("CRC64NVME"));
    !(is_tls && is_verified && is_covered_otherwise)
}

fn set_keys(location: &Location, builder: AmazonS3Builder) -> Result<AmazonS3Builder> {
    let Some(keys) = keys_of(location)? else { return Ok(builder) };
    let builder = builder.with_access_key_id(keys.id).with_secret_access_key(keys.secret.expose_secret());
    Ok(match keys.token {
        Some(token) => builder.with_token(token.expose_secret()),
        None => builder,
    })
}

/// The keys of the location's profile; `None` to use the instance identity.
pub(crate) fn keys_of(location: &Location) -> Result<Option<AwsKeys>> {
    let profile = location.setting("profile").unwrap_or("default");
    let Some(text) = file_or_secret(location)? else { return Ok(None) };
    let section = Section { text: text.expose_secret(), name: profile };
    let (Some(id), Some(secret)) = (section.get("aws_access_key_id"), section.get("aws_secret_access_key")) else {
        return Err(location.invalid(format!(
            "no aws_access_key_id and aws_secret_access_key in profile {profile:?} of the credentials"
        )));
    };
    let token = section.get("aws_session_token").map(SecretString::from);
    Ok(Some(AwsKeys { id: id.to_owned(), secret: secret.into(), token }))
}

fn file_or_secret(location: &Location) -> Result<Option<SecretString>> {
    let text = credentials_text(location)?;
    match (text, location.setting("credentialsFile")) {
        (None, Some(file)) => std::fs::read_to_string(file)
            .map(|text| Some(SecretString::from(text)))
            .map_err(|error| location.invalid(format!("{file}: {error}"))),
        (text, _) => Ok(text),
    }
}

fn tags(location: &Location) -> Result<TagSet> {
    let mut tags = TagSet::default();
    for (key, value) in url::form_urlencoded::parse(location.setting("tagging").unwrap_or_default().as_bytes()) {
        if key.is_empty() {
            return Err(location.invalid("config tagging must look like key=value&other=value"));
        }
        tags.push(&key, &value);
    }
    Ok(tags)
}

/// One profile of a shared credentials file.
struct Section<'a> {
    text: &'a str,
    name: &'a str,
}

impl<'a> Section<'a> {
    fn get(&self, key: &str) -> Option<&'a str> {
        let mut inside = false;
        for line in self.text.lines().map(str::trim) {
            if let Some(title) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                inside = title.trim().trim_start_matches("profile ").trim() == self.name;
            } else if let (true, Some((name, value))) = (inside, line.split_once('='))
                && name.trim() == key
            {
                return Some(value.trim());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[default]\naws_access_key_id = A\n# x\n[profile other]\naws_access_key_id=B\n";

    #[test]
    fn a_profile_is_read_from_its_own_section_only() {
        assert_eq!(Section { text: FILE, name: "default" }.get("aws_access_key_id"), Some("A"));
        assert_eq!(Section { text: FILE, name: "other" }.get("aws_access_key_id"), Some("B"));
        assert_eq!(Section { text: FILE, name: "third" }.get("aws_access_key_id"), None);
    }

    fn location(config: &[(&str, &str)]) -> Location {
        Location {
            provider: "velero.io/aws".into(),
            bucket: "b".into(),
            config: config.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect(),
            credentials: Some(b"[default]\naws_access_key_id=AKIA\naws_secret_access_key=hush".to_vec().into()),
            ..Location::default()
        }
    }

    #[test]
    fn an_unsupported_setting_is_rejected_by_name() {
        for (config, named) in [
            (("customerKeyEncryptionSecret", "x/y"), "customerKeyEncryptionSecret"),
            (("signatureVersion", "1"), "signatureVersion"),
            (("s3ForcePathSytle", "true"), "s3ForcePathSytle"),
            (("s3ForcePathStyle", "yes"), "s3ForcePathStyle"),
            (("checksumAlgorithm", "MD4"), "checksumAlgorithm"),
            (("profile", "absent"), "absent"),
        ] {
            let error = open(&location(&[config])).expect_err("rejected");
            assert_eq!(error.reason(), "InvalidStorageLocation");
            assert!(error.to_string().contains(named), "{error}");
            assert!(!error.to_string().contains("hush"), "{error}");
        }
    }

    #[test]
    fn bodies_are_signed_unless_tls_protects_them_and_no_checksum_is_set() {
        let (https, http) = (Some("https://minio.example.com:9000"), Some("http://minio:9000"));
        let table = [
            (None, true, None, false, "AWS itself"),
            (https, true, None, false, "another server"),
            (Some("HTTPS://minio"), true, None, false, "the scheme in upper case"),
            (https, true, Some("CRC64NVME"), false, "the checksum covers the body"),
            (https, true, Some("SHA256"), true, "the hash is computed anyway"),
            (https, true, Some("CRC32"), true, "accepted without effect"),
            (https, true, Some("CRC32C"), true, "accepted without effect"),
            (None, true, Some("SHA1"), true, "accepted without effect"),
            (https, false, None, true, "the server is not verified"),
            (http, true, None, true, "the connection is not protected"),
            (http, true, Some("CRC64NVME"), true, "the checksum can be changed in transit"),
            (Some("minio:9000"), true, None, true, "unknown scheme"),
        ];
        for (endpoint, is_verified, checksum, expected, case) in table {
            let signs = signs_bodies(endpoint, is_verified, checksum);
            assert_eq!(signs, expected, "{endpoint:?} {is_verified} {checksum:?}: {case}");
        }
    }

    #[tokio::test]
    async fn a_presigned_url_uses_the_public_address_and_the_prefix() {
        let mut location = location(&[
            ("s3Url", "http://minio.inside:9000"),
            ("publicUrl", "https://minio.example.com"),
            ("s3ForcePathStyle", "true"),
            ("region", "eu-west-1"),
        ]);
        location.prefix = "cluster/one".into();
        let store = open(&location).expect("a valid location");
        let url = store.presign("backups/a/a.tar.gz", std::time::Duration::from_mins(10)).await;
        let url = url.expect("signs").expect("can sign");
        assert_eq!(url.host_str(), Some("minio.example.com"));
        assert_eq!(url.path(), "/b/cluster/one/backups/a/a.tar.gz");
        assert!(url.query().is_some_and(|query| query.contains("X-Amz-Expires=600") && !query.contains("hush")));
    }
}
