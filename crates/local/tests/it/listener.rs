//! The HTTPS listener and its credentials.

use crate::embedded::Embedded;
use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
};

const LOOPBACK: &str = "127.0.0.1:0";

fn loopback() -> SocketAddr {
    LOOPBACK.parse().unwrap()
}

#[tokio::test]
async fn credentials_are_private_and_stay_the_same() {
    let embedded = Embedded::open().await;
    let directory = embedded.directory.path().join("credentials");
    let first = embedded.api.serve(loopback(), &directory).await.unwrap();
    let token = std::fs::read_to_string(directory.join("token")).unwrap();
    assert!(token.len() >= 32);
    for name in ["token", "kubeconfig", "ca.key"] {
        let mode = std::fs::metadata(directory.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    assert_eq!(first.kubeconfig_path(), directory.join("kubeconfig"));
    let authority = std::fs::read(directory.join("ca.crt")).unwrap();
    first.shutdown().await;
    let second = embedded.api.serve(loopback(), &directory).await.unwrap();
    assert_eq!(std::fs::read_to_string(directory.join("token")).unwrap(), token);
    assert_eq!(std::fs::read(directory.join("ca.crt")).unwrap(), authority);
    second.shutdown().await;
}

#[tokio::test]
async fn a_shut_down_listener_accepts_nothing() {
    let embedded = Embedded::open().await;
    let served = embedded.api.serve(loopback(), &embedded.directory.path().join("credentials")).await.unwrap();
    let address = served.address();
    // A client that sends garbage must not block other clients or the shutdown.
    let mut silent = TcpStream::connect(address).unwrap();
    silent.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    served.shutdown().await;
    assert!(TcpStream::connect(address).is_err());
}

#[tokio::test]
async fn a_second_process_cannot_open_the_same_data() {
    let embedded = Embedded::open().await;
    let error = plimsoll_local::Api::open(embedded.directory.path()).await.unwrap_err();
    assert_eq!((error.reason(), error.is_retryable()), ("DatabaseUnavailable", true));
}
