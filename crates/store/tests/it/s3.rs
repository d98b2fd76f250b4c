//! S3 servers, if they are installed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use plimsoll_store::{Location, Store, Tuning};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};

use crate::conformance;
use crate::store_server::StoreServer;

const ACCESS: &str = "test-access-key";
const SECRET: &str = "test-secret-key";
/// A host name that only the proxy resolves.
const PROXIED_HOST: &str = "s3.proxied.test";

fn start() -> Option<StoreServer> {
    start_with(&[])
}

fn start_with(options: &[&std::ffi::OsStr]) -> Option<StoreServer> {
    StoreServer::start("versitygw", |command, port, folder| {
        std::fs::create_dir(folder.join("bucket")).expect("a bucket");
        command.args(options).args(["--access", ACCESS, "--secret", SECRET]);
        command.args(["--port", &format!("127.0.0.1:{port}"), "posix"]).arg(folder);
    })
}

fn location(server: &StoreServer, secret: &str) -> Location {
    location_at(server.port, secret)
}

fn location_at(port: u16, secret: &str) -> Location {
    let config = [("region", "us-east-1"), ("s3ForcePathStyle", "true")];
    let mut location = Location { provider: "aws".into(), bucket: "bucket".into(), ..Location::default() };
    location.config.extend(config.map(|(key, value)| (key.to_owned(), value.to_owned())));
    location.config.insert("s3Url".into(), format!("http://127.0.0.1:{port}"));
    let keys = format!("[default]\naws_access_key_id={ACCESS}\naws_secret_access_key={secret}\n");
    location.credentials = Some(keys.into_bytes().into());
    location
}

#[tokio::test]
async fn versitygw_conforms() {
    let Some(server) = start() else { return };
    conformance::run(&Store::open(&location(&server, SECRET)).expect("opens")).await;
    let mut deeper = location(&server, SECRET);
    deeper.prefix = "deeper".into();
    conformance::run(&Store::open(&deeper).expect("opens")).await;
}

#[tokio::test]
async fn an_error_for_wrong_credentials_does_not_contain_them() {
    let Some(server) = start() else { return };
    let store = Store::open(&location(&server, "not-the-secret")).expect("opens");
    let error = store.get("x").await.expect_err("rejected");
    assert!(!error.to_string().contains("not-the-secret"), "{error}");
    assert!(!error.is_retryable(), "{error}");
}

/// A server with one response to every request.
fn serve_response(response: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(client.try_clone().expect("a second handle"));
            let (mut header, mut length) = (String::new(), 0);
            while lines.read_line(&mut header).is_ok_and(|read| read > 2) {
                let name = header.to_ascii_lowercase();
                length = name
                    .strip_prefix("content-length:")
                    .map_or(length, |value| value.trim().parse().expect("a length"));
                header.clear();
            }
            let _ = lines.read_exact(&mut vec![0; length]);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", response.len());
            let _ = client.write_all(head.as_bytes()).and_then(|()| client.write_all(response.as_bytes()));
        }
    });
    port
}

/// Every delete is sent as a bulk delete: the request succeeds and its response contains the error of the key.
#[tokio::test]
async fn a_denied_delete_in_a_bulk_response_is_access_denied() {
    let port = serve_response(
        "<DeleteResult><Error><Key>locks/1</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>\
         </DeleteResult>",
    );
    let store = Store::open(&location_at(port, SECRET)).expect("opens");
    let error = store.delete("locks/1").await.expect_err("rejected");
    assert_eq!((error.reason(), error.is_retryable()), ("StoreAccessDenied", false), "{error}");
}

/// A certificate for this machine by an unknown authority: the authority's PEM, and files with the server's certificate and key.
fn certificate(folder: &std::path::Path) -> (String, PathBuf, PathBuf) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "test authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let mut params = CertificateParams::new(["localhost".to_owned(), PROXIED_HOST.to_owned()]).expect("a name");
    params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
    let key = KeyPair::generate().expect("a key");
    let (at, key_at) = (folder.join("server.crt"), folder.join("server.key"));
    std::fs::write(&at, params.signed_by(&key, &authority).expect("signed").pem()).expect("writes");
    std::fs::write(&key_at, key.serialize_pem()).expect("writes");
    (authority.pem(), at, key_at)
}

#[tokio::test]
async fn a_server_with_an_unknown_authority_is_rejected_and_trusted_with_its_certificate() {
    let folder = tempfile::tempdir().expect("a directory");
    let (authority, certificate, key) = certificate(folder.path());
    let options = ["--cert".as_ref(), certificate.as_os_str(), "--key".as_ref(), key.as_os_str()];
    let Some(server) = start_with(&options) else { return };
    let mut location = location(&server, SECRET);
    location.config.insert("s3Url".into(), format!("https://127.0.0.1:{}", server.port));
    let no_retries = Tuning { max_retries: 0, ..Tuning::default() };
    location.tuning = no_retries;

    let error = Store::open(&location).expect("opens").put("x", "1").await.expect_err("an unknown authority");
    assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");

    let trusting = Location { ca_cert: Some(authority.into_bytes()), ..location.clone() };
    Store::open(&trusting).expect("opens").put("x", "1").await.expect("a known authority");

    location.config.insert("insecureSkipTLSVerify".into(), "true".into());
    Store::open(&location).expect("opens").put("x", "2").await.expect("no verification");

    let broken = Location { ca_cert: Some(b"no certificate".to_vec()), ..location };
    let error = Store::open(&broken).expect_err("invalid PEM");
    assert!(error.to_string().contains("CA certificate is not valid PEM"), "{error}");
}

/// Bodies are not signed over TLS, so the whole suite runs again.
#[tokio::test]
async fn versitygw_conforms_over_tls() {
    let folder = tempfile::tempdir().expect("a directory");
    let (authority, certificate, key) = certificate(folder.path());
    let options = ["--cert".as_ref(), certificate.as_os_str(), "--key".as_ref(), key.as_os_str()];
    let Some(server) = start_with(&options) else { return };
    for (prefix, checksum) in [("unsigned", None), ("crc", Some("CRC64NVME")), ("signed", Some("SHA256"))] {
        let mut location = Location { ca_cert: Some(authority.clone().into_bytes()), ..location(&server, SECRET) };
        location.prefix = prefix.into();
        location.config.insert("s3Url".into(), format!("https://127.0.0.1:{}", server.port));
        location.config.extend(checksum.map(|name| ("checksumAlgorithm".to_owned(), name.to_owned())));
        conformance::run(&Store::open(&location).expect("opens")).await;
    }
}

/// A proxy that connects every tunnel to this local port and reports the CONNECT requests.
fn proxy(port: u16) -> (u16, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address").port();
    let (sender, requests) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let sender = sender.clone();
            std::thread::spawn(move || tunnel(client, port, &sender));
        }
    });
    (at, requests)
}

fn tunnel(mut client: TcpStream, port: u16, sender: &std::sync::mpsc::Sender<String>) {
    let mut lines = BufReader::new(client.try_clone().expect("a second handle"));
    let mut request = String::new();
    lines.read_line(&mut request).expect("a request");
    let mut header = String::new();
    while lines.read_line(&mut header).expect("a header") > 2 {
        header.clear();
    }
    let _ = sender.send(request.trim_end().to_owned());
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("sent");
    let mut server = TcpStream::connect(("127.0.0.1", port)).expect("the server");
    let (mut back, mut to_client) = (server.try_clone().expect("a second handle"), client);
    std::thread::spawn(move || std::io::copy(&mut back, &mut to_client));
    let _ = std::io::copy(&mut lines, &mut server);
}

#[test]
fn a_store_behind_a_proxy_is_reached_through_it() {
    let folder = tempfile::tempdir().expect("a directory");
    let (authority, certificate, key) = certificate(folder.path());
    let options = ["--cert".as_ref(), certificate.as_os_str(), "--key".as_ref(), key.as_os_str()];
    let Some(server) = start_with(&options) else { return };
    let authority_at = folder.path().join("authority.crt");
    std::fs::write(&authority_at, authority).expect("writes");
    let (at, requests) = proxy(server.port);

    // Proxies are a matter of a process's environment, so this takes a process of its own.
    let status = Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", "s3::the_process_behind_a_proxy"])
        .env("HTTPS_PROXY", format!("http://127.0.0.1:{at}"))
        .env("TEST_AUTHORITY", &authority_at)
        .status()
        .expect("starts");
    assert!(status.success());
    assert_eq!(requests.try_recv().as_deref(), Ok(format!("CONNECT {PROXIED_HOST}:443 HTTP/1.1").as_str()));
}

#[tokio::test]
#[ignore = "only run by the test above, as the process behind a proxy"]
async fn the_process_behind_a_proxy() {
    let Some(authority) = std::env::var_os("TEST_AUTHORITY") else { return };
    let keys = format!("[default]\naws_access_key_id={ACCESS}\naws_secret_access_key={SECRET}\n");
    let location = Location {
        provider: "aws".into(),
        bucket: "bucket".into(),
        ca_cert: Some(std::fs::read(authority).expect("reads")),
        config: [("region", "us-east-1"), ("s3ForcePathStyle", "true"), ("s3Url", &format!("https://{PROXIED_HOST}"))]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        credentials: Some(keys.into_bytes().into()),
        ..Location::default()
    };
    let store = Store::open(&location).expect("opens");
    store.put("x", "through a proxy").await.expect("writes");
    assert_eq!(store.get("x").await.expect("reads").as_ref(), b"through a proxy");
}
