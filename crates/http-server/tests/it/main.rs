//! The limits of a server, and TLS.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use plimsoll_http_server::{CertificateError, HEADER_READ_TIMEOUT, HttpServer, RunningServer, ServerCertificate};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

fn router() -> Router {
    Router::new().route("/", get(async || "served"))
}

async fn server() -> RunningServer {
    HttpServer::bind(LOOPBACK.into()).await.unwrap().serve(router())
}

/// Sends bytes and reads until the server closes the connection.
async fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn a_request_is_served_until_the_server_is_dropped() {
    let server = server().await;
    let address = server.address;
    let response = exchange(address, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("served"), "{response}");
    drop(server);
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let server = server().await;
    let error = HttpServer::bind(server.address).await.err().expect("the address is in use").to_string();
    assert!(error.starts_with(&format!("failed to listen on {}: ", server.address)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_finish_its_headers_is_disconnected() {
    let server = server().await;
    let started = Instant::now();
    assert_eq!(exchange(server.address, "GET / HTTP/1.1\r\n").await, "");
    assert!(started.elapsed() >= HEADER_READ_TIMEOUT, "{:?}", started.elapsed());
}

#[tokio::test]
async fn connections_above_the_limit_are_closed() {
    let server = HttpServer::bind(LOOPBACK.into()).await.unwrap().with_max_connections(2).serve(router());
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        assert_ne!(stream.read(&mut [0; 1024]).await.unwrap(), 0, "it is served, and stays open");
        open.push(stream);
    }
    let mut refused = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(refused.read(&mut [0]).await.unwrap_or(0), 0, "it is closed");
}

#[tokio::test]
async fn a_certificate_makes_it_https() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&certificate, pair.cert.pem()).unwrap();
    std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    let pem = reqwest::Certificate::from_pem(pair.cert.pem().as_bytes()).unwrap();

    let read = ServerCertificate::read(&certificate, &key).unwrap();
    let server = HttpServer::bind(LOOPBACK.into()).await.unwrap().with_certificate(read).serve(router());
    let client = reqwest::Client::builder().tls_certs_only([pem]).resolve("localhost", server.address).build().unwrap();
    let response = client.get(format!("https://localhost:{}/", server.address.port())).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "served");
}

#[tokio::test]
async fn an_invalid_certificate_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
    let error = ServerCertificate::read(&certificate, &key).err().unwrap();
    assert!(matches!(&error, CertificateError::Certificate { .. }) && error.to_string().contains("tls.crt"), "{error}");
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&certificate, pair.cert.pem()).unwrap();
    std::fs::write(&key, "no key").unwrap();
    let error = ServerCertificate::read(&certificate, &key).err().unwrap();
    assert!(matches!(&error, CertificateError::Key { .. }) && error.to_string().contains("tls.key"), "{error}");
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&key, other.signing_key.serialize_pem()).unwrap();
    let error = ServerCertificate::read(&certificate, &key).err().unwrap();
    assert!(matches!(error, CertificateError::Pair { .. }), "{error}");
}
