//! Real S3 servers, where they are installed.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use plimsoll_store::{Location, Store};

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
    let program = program(name)?;
    let folder = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(folder.path().join("bucket")).expect("a bucket");
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let mut command = Command::new(program);
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
