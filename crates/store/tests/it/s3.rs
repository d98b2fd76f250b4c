//! Real S3 servers, where they are installed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use plimsoll_store::{Location, Store, Tuning};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};

use crate::conformance;

const ACCESS: &str = "test-access-key";
const SECRET: &str = "test-secret-key";
/// A name that only a proxy knows the way to.
const ELSEWHERE: &str = "s3.elsewhere.test";

/// A server that ends with the test.
struct Server {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A server's program. Where `CI` is `true` it must be there.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn program(name: &str) -> Option<PathBuf> {
    let home = std::env::var_os("HOME")?;
    let found = Some(PathBuf::from(home).join(".cache/plimsoll/bin").join(name)).filter(|program| program.is_file());
    if found.is_none() {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{name} is not installed");
        eprintln!("SKIPPED: {name} is not installed");
    }
    found
}

fn start(name: &str) -> Option<Server> {
    start_with(name, &[])
}

fn start_with(name: &str, options: &[&std::ffi::OsStr]) -> Option<Server> {
    let program = program(name)?;
    let folder = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(folder.path().join("bucket")).expect("a bucket");
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let mut command = Command::new(program);
    command.args(options);
    match name {
        "s3s-fs" => command.args(["--host", "127.0.0.1", "--access-key", ACCESS, "--secret-key", SECRET]),
        _ => command.args(["--access", ACCESS, "--secret", SECRET]),
    };
    match name {
        "s3s-fs" => command.args(["--port", &port.to_string()]).arg(folder.path()),
        _ => command.args(["--port", &format!("127.0.0.1:{port}"), "posix"]).arg(folder.path()),
    };
    let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let mut server = Server { process, port, _folder: folder };
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(server.process.try_wait().expect("asks").is_none(), "{name} ended");
        std::thread::yield_now();
    }
    Some(server)
}

fn location(server: &Server, secret: &str) -> Location {
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

async fn conforms(name: &str) {
    let Some(server) = start(name) else { return };
    conformance::run(&Store::open(&location(&server, SECRET)).expect("opens")).await;
    let mut deeper = location(&server, SECRET);
    deeper.prefix = "deeper".into();
    conformance::run(&Store::open(&deeper).expect("opens")).await;
}

#[tokio::test]
async fn s3s_does_what_every_store_must_do() {
    conforms("s3s-fs").await;
}

#[tokio::test]
async fn versitygw_does_what_every_store_must_do() {
    conforms("versitygw").await;
}

#[tokio::test]
async fn wrong_credentials_are_named_without_being_told() {
    for name in ["s3s-fs", "versitygw"] {
        let Some(server) = start(name) else { continue };
        let store = Store::open(&location(&server, "not-the-secret")).expect("opens");
        let error = store.get("x").await.expect_err("refused");
        assert!(!error.to_string().contains("not-the-secret"), "{error}");
        assert!(!error.is_retryable(), "{name}: {error}");
    }
}

/// A server that has one answer for every request.
fn answering(answer: &'static str) -> u16 {
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
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", answer.len());
            let _ = client.write_all(head.as_bytes()).and_then(|()| client.write_all(answer.as_bytes()));
        }
    });
    port
}

/// Every delete is sent as one of many keys, so that the whole succeeds and the key's own answer is within.
#[tokio::test]
async fn a_delete_that_s3_refuses_for_a_key_is_a_refusal_and_no_outage() {
    let port = answering(
        "<DeleteResult><Error><Key>locks/1</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>\
         </DeleteResult>",
    );
    let store = Store::open(&location_at(port, SECRET)).expect("opens");
    let error = store.delete("locks/1").await.expect_err("refused");
    assert_eq!((error.reason(), error.is_retryable()), ("StoreAccessDenied", false), "{error}");
}

/// A certificate for this machine by an authority that nobody knows: the authority's, and files with the server's.
fn certificate(folder: &std::path::Path) -> (String, PathBuf, PathBuf) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "an authority of this test");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let mut params = CertificateParams::new(["localhost".to_owned(), ELSEWHERE.to_owned()]).expect("a name");
    params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
    let key = KeyPair::generate().expect("a key");
    let (at, key_at) = (folder.join("server.crt"), folder.join("server.key"));
    std::fs::write(&at, params.signed_by(&key, &authority).expect("signed").pem()).expect("writes");
    std::fs::write(&key_at, key.serialize_pem()).expect("writes");
    (authority.pem(), at, key_at)
}

#[tokio::test]
async fn a_server_of_an_unknown_authority_is_refused_by_that_name_and_trusted_with_its_certificate() {
    let folder = tempfile::tempdir().expect("a directory");
    let (authority, certificate, key) = certificate(folder.path());
    let options = ["--cert".as_ref(), certificate.as_os_str(), "--key".as_ref(), key.as_os_str()];
    let Some(server) = start_with("versitygw", &options) else { return };
    let mut location = location(&server, SECRET);
    location.config.insert("s3Url".into(), format!("https://127.0.0.1:{}", server.port));
    let impatient = Tuning { retries: 0, ..Tuning::default() };
    location.tuning = impatient;

    let error = Store::open(&location).expect("opens").put("x", "1").await.expect_err("nobody vouches for it");
    assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");

    let trusting = Location { ca_cert: Some(authority.into_bytes()), ..location.clone() };
    Store::open(&trusting).expect("opens").put("x", "1").await.expect("its authority is known");

    location.config.insert("insecureSkipTLSVerify".into(), "true".into());
    Store::open(&location).expect("opens").put("x", "2").await.expect("nobody asks");

    let broken = Location { ca_cert: Some(b"no certificate".to_vec()), ..location };
    let error = Store::open(&broken).expect_err("it cannot be read");
    assert!(error.to_string().contains("CA certificate is not PEM"), "{error}");
}

/// Bodies are not signed there, so everything that has one is tried.
#[tokio::test]
async fn versitygw_does_what_every_store_must_do_over_tls() {
    let folder = tempfile::tempdir().expect("a directory");
    let (authority, certificate, key) = certificate(folder.path());
    let options = ["--cert".as_ref(), certificate.as_os_str(), "--key".as_ref(), key.as_os_str()];
    let Some(server) = start_with("versitygw", &options) else { return };
    for (prefix, checksum) in [("unsigned", None), ("crc", Some("CRC64NVME")), ("signed", Some("SHA256"))] {
        let mut location = Location { ca_cert: Some(authority.clone().into_bytes()), ..location(&server, SECRET) };
        location.prefix = prefix.into();
        location.config.insert("s3Url".into(), format!("https://127.0.0.1:{}", server.port));
        location.config.extend(checksum.map(|name| ("checksumAlgorithm".to_owned(), name.to_owned())));
        conformance::run(&Store::open(&location).expect("opens")).await;
    }
}

/// A proxy that leads every tunnel to this port of this machine; says what was asked for.
fn proxy(port: u16) -> (u16, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address").port();
    let (asked, asked_for) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let asked = asked.clone();
            std::thread::spawn(move || tunnel(client, port, &asked));
        }
    });
    (at, asked_for)
}

fn tunnel(mut client: TcpStream, port: u16, asked: &std::sync::mpsc::Sender<String>) {
    let mut lines = BufReader::new(client.try_clone().expect("a second handle"));
    let mut request = String::new();
    lines.read_line(&mut request).expect("a request");
    let mut header = String::new();
    while lines.read_line(&mut header).expect("a header") > 2 {
        header.clear();
    }
    let _ = asked.send(request.trim_end().to_owned());
    client.write_all(b"HTTP/1.1 200 go on\r\n\r\n").expect("answers");
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
    let Some(server) = start_with("versitygw", &options) else { return };
    let authority_at = folder.path().join("authority.crt");
    std::fs::write(&authority_at, authority).expect("writes");
    let (at, asked_for) = proxy(server.port);

    // Proxies are a matter of a process's environment, so this takes a process of its own.
    let status = Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", "s3::the_process_behind_a_proxy"])
        .env("HTTPS_PROXY", format!("http://127.0.0.1:{at}"))
        .env("TEST_AUTHORITY", &authority_at)
        .status()
        .expect("starts");
    assert!(status.success());
    assert_eq!(asked_for.try_recv().as_deref(), Ok(format!("CONNECT {ELSEWHERE}:443 HTTP/1.1").as_str()));
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
        config: [("region", "us-east-1"), ("s3ForcePathStyle", "true"), ("s3Url", &format!("https://{ELSEWHERE}"))]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        credentials: Some(keys.into_bytes().into()),
        ..Location::default()
    };
    let store = Store::open(&location).expect("opens");
    store.put("x", "through a proxy").await.expect("writes");
    assert_eq!(store.get("x").await.expect("reads").as_ref(), b"through a proxy");
}
