//! Certificate authority, token and kubeconfig of the HTTPS server. They are created once, so that a kubeconfig stays
//! valid.

use crate::Error;
use base64::{Engine, prelude::BASE64_STANDARD};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::json;
use std::{
    io::Write,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

const CA_CERTIFICATE_FILE: &str = "ca.crt";
const CA_KEY_FILE: &str = "ca.key";
const TOKEN_FILE: &str = "token";
const KUBECONFIG_FILE: &str = "kubeconfig";

/// The credentials of the HTTPS server.
pub(crate) struct Credentials {
    pub token: String,
    /// Certificate and key of the server, PEM.
    pub certificate: String,
    pub key: String,
    /// The certificate of the CA, PEM.
    pub ca_certificate: String,
    directory: PathBuf,
}

impl Credentials {
    /// Reads or creates the CA and the token. The certificate of the server is new each time.
    pub fn prepare(directory: &Path) -> Result<Self, Error> {
        std::fs::create_dir_all(directory).map_err(|source| Error::file(directory, source))?;
        let (ca_certificate, issuer) = load_or_create_ca(directory)?;
        let key = KeyPair::generate().map_err(|error| certificate_error(&error))?;
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        let mut parameters = CertificateParams::new(names).map_err(|error| certificate_error(&error))?;
        parameters.distinguished_name.push(DnType::CommonName, "plimsoll-local");
        let certificate = parameters.signed_by(&key, &issuer).map_err(|error| certificate_error(&error))?;
        Ok(Self {
            token: token(directory)?,
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            ca_certificate,
            directory: directory.to_owned(),
        })
    }

    /// Writes a kubeconfig for an address and returns its path.
    pub fn write_kubeconfig(&self, address: SocketAddr) -> Result<PathBuf, Error> {
        let path = self.directory.join(KUBECONFIG_FILE);
        let ca_certificate = BASE64_STANDARD.encode(&self.ca_certificate);
        // JSON is valid YAML and needs no quoting rules.
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "plimsoll",
            "clusters": [{"name": "plimsoll", "cluster": {
                "server": format!("https://{address}"), "certificate-authority-data": ca_certificate,
            }}],
            "users": [{"name": "plimsoll", "user": {"token": self.token}}],
            "contexts": [{"name": "plimsoll", "context": {
                "cluster": "plimsoll", "user": "plimsoll", "namespace": "default",
            }}],
        });
        write_private(&path, &format!("{config:#}\n"))?;
        Ok(path)
    }
}

fn certificate_error(error: &rcgen::Error) -> Error {
    Error::Certificate(error.to_string())
}

fn load_or_create_ca(directory: &Path) -> Result<(String, Issuer<'static, KeyPair>), Error> {
    let (certificate_path, key_path) = (directory.join(CA_CERTIFICATE_FILE), directory.join(CA_KEY_FILE));
    if let (Ok(certificate), Ok(key)) = (std::fs::read_to_string(&certificate_path), std::fs::read_to_string(&key_path))
    {
        let key = KeyPair::from_pem(&key).map_err(|error| certificate_error(&error))?;
        return Ok((certificate, Issuer::new(ca_parameters()?, key)));
    }
    let key = KeyPair::generate().map_err(|error| certificate_error(&error))?;
    let parameters = ca_parameters()?;
    let certificate = parameters.self_signed(&key).map_err(|error| certificate_error(&error))?.pem();
    write_private(&key_path, &key.serialize_pem())?;
    write_private(&certificate_path, &certificate)?;
    Ok((certificate, Issuer::new(parameters, key)))
}

fn ca_parameters() -> Result<CertificateParams, Error> {
    let mut parameters = CertificateParams::new(Vec::new()).map_err(|error| certificate_error(&error))?;
    parameters.distinguished_name.push(DnType::CommonName, "plimsoll-local-ca");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(parameters)
}

fn token(directory: &Path) -> Result<String, Error> {
    let path = directory.join(TOKEN_FILE);
    if let Ok(token) = std::fs::read_to_string(&path) {
        let token = token.trim().to_owned();
        if !token.is_empty() {
            return Ok(token);
        }
    }
    let token = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    write_private(&path, &token)?;
    Ok(token)
}

/// Writes a file atomically; only its owner can read it.
fn write_private(path: &Path, content: &str) -> Result<(), Error> {
    let failed = |source| Error::file(path, source);
    let draft = path.with_extension("tmp");
    let _ = std::fs::remove_file(&draft);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).map_err(failed)?;
    file.write_all(content.as_bytes()).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    std::fs::rename(&draft, path).map_err(failed)
}
