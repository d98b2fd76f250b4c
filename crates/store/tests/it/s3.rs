//! A real S3 server, where one is installed.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use plimsoll_store::{Location, Store};

use crate::conformance;

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

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
/// The server's program. Where `CI` is `true` it must be there.
fn program() -> Option<PathBuf> {
    let home = std::env::var_os("HOME")?;
    let found = Some(PathBuf::from(home).join(".cache/plimsoll/bin/s3s-fs")).filter(|program| program.is_file());
    if found.is_none() {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "s3s-fs is not installed");
        eprintln!("SKIPPED: s3s-fs is not installed");
    }
    found
}

fn start() -> Option<Server> {
    let folder = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(folder.path().join("bucket")).expect("a bucket");
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let process = Command::new(program()?)
        .args(["--host", "127.0.0.1", "--port", &port.to_string()])
        .args(["--access-key", "test-access-key", "--secret-key", "test-secret-key"])
        .arg(folder.path())
        .env("RUST_LOG", "info")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let mut server = Server { process, port, _folder: folder };
    let output = server.process.stdout.take().expect("its output");
    let ready = BufReader::new(output).lines().map_while(Result::ok).any(|line| line.contains("running"));
    assert!(ready, "the server says that it runs");
    Some(server)
}

fn location(server: &Server, secret: &str) -> Location {
    let config = [("region", "us-east-1"), ("s3ForcePathStyle", "true")];
    let mut location = Location { provider: "aws".into(), bucket: "bucket".into(), ..Location::default() };
    location.config.extend(config.map(|(key, value)| (key.to_owned(), value.to_owned())));
    location.config.insert("s3Url".into(), format!("http://127.0.0.1:{}", server.port));
    let keys = format!("[default]\naws_access_key_id=test-access-key\naws_secret_access_key={secret}\n");
    location.credentials = Some(keys.into_bytes().into());
    location
}

#[tokio::test]
async fn a_real_s3_server_does_what_every_store_must_do() {
    let Some(server) = start() else { return };
    conformance::run(&Store::open(&location(&server, "test-secret-key")).expect("opens")).await;
    let mut deeper = location(&server, "test-secret-key");
    deeper.prefix = "deeper".into();
    conformance::run(&Store::open(&deeper).expect("opens")).await;
}

#[tokio::test]
async fn wrong_credentials_are_named_without_being_told() {
    let Some(server) = start() else { return };
    let store = Store::open(&location(&server, "not-the-secret")).expect("opens");
    let error = store.get("x").await.expect_err("refused");
    assert!(!error.to_string().contains("not-the-secret"), "{error}");
    assert!(!error.is_retryable(), "{error}");
}
