//! Real S3 servers, where they are installed.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use plimsoll_store::{Location, Store, Tuning};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};

use crate::conformance;

const ACCESS: &str = "test-access-key";
const SECRET: &str = "test-secret-key";

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
    let config = [("region", "us-east-1"), ("s3ForcePathStyle", "true")];
    let mut location = Location { provider: "aws".into(), bucket: "bucket".into(), ..Location::default() };
    location.config.extend(config.map(|(key, value)| (key.to_owned(), value.to_owned())));
    location.config.insert("s3Url".into(), format!("http://127.0.0.1:{}", server.port));
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

/// A certificate for this machine by an authority that nobody knows: the authority's, and files with the server's.
fn certificate(folder: &std::path::Path) -> (String, PathBuf, PathBuf) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "an authority of this test");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
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
