//! The certificate of a server.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::error::CertificateError;

/// A certificate chain and its key.
#[derive(Clone)]
pub struct ServerCertificate(pub(crate) TlsAcceptor);

impl ServerCertificate {
    /// Reads PEM files.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let unreadable = |source| CertificateError::Certificate { path: certificate.to_owned(), source };
        let chain = CertificateDer::pem_file_iter(certificate).map_err(unreadable)?;
        let chain = chain.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
        let key = PrivateKeyDer::from_pem_file(key)
            .map_err(|source| CertificateError::Key { path: key.to_owned(), source })?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|source| CertificateError::Pair { path: certificate.to_owned(), source })?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}
