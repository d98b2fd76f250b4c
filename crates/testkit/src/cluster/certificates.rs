//! The keys of a test cluster: a certificate authority, the API server's certificate, the key that signs account tokens.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose, SanType};

use crate::enclosure::Addresses;

/// Writes `ca.crt`, `server.crt`, `server.key`, `accounts.key` and `accounts.pub`.
pub fn write(addresses: Addresses, folder: &Path) -> Result<()> {
    let authority = authority()?;
    let key = KeyPair::generate()?;
    let certificate = server_params(addresses)?.signed_by(&key, &authority)?;
    fs::write(folder.join("ca.crt"), authority.pem())?;
    fs::write(folder.join("server.crt"), certificate.pem())?;
    fs::write(folder.join("server.key"), key.serialize_pem())?;
    let accounts = KeyPair::generate()?;
    fs::write(folder.join("accounts.key"), accounts.serialize_pem())?;
    fs::write(folder.join("accounts.pub"), accounts.public_key_pem())?;
    Ok(())
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "plimsoll test authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

fn server_params(addresses: Addresses) -> Result<CertificateParams> {
    let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(String::from);
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    for address in ["127.0.0.1".to_owned(), addresses.node(), addresses.kubernetes_service()] {
        params.subject_alt_names.push(SanType::IpAddress(address.parse::<IpAddr>()?));
    }
    Ok(params)
}
