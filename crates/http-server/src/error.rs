//! Why a server cannot start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("failed to listen on {address}: {source}; choose another address")]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// The cause.
    pub source: io::Error,
}

/// A certificate or key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The certificate's file cannot be read, or is not PEM.
    #[error("failed to read certificate {}: {source}", .path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rustls::pki_types::pem::Error,
    },
    /// The key's file cannot be read, or is not PEM.
    #[error("failed to read key {}: {source}", .path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rustls::pki_types::pem::Error,
    },
    /// The two do not fit together, or are not supported.
    #[error("invalid certificate {}: {source}", .path.display())]
    Pair {
        /// The certificate's file.
        path: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
}
