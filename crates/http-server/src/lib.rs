//! A listener for axum routers: a limit for open connections, time limits for the handshake and for the headers, and TLS on request.
//!
//! ```text
//!  HttpServer::bind(address)? .with_certificate(…) .serve(router) ──▶ RunningServer, until it is dropped
//! ```
//!
//! Not `axum::serve`, which has none of these limits.

mod certificate;
mod error;
mod server;

pub use certificate::ServerCertificate;
pub use error::{CertificateError, ListenError};
pub use server::{HEADER_READ_TIMEOUT, HttpServer, RunningServer};
