//! A repository on a real S3 server, where one is installed: restic reads it there too.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use plimsoll_repository::Repository;
use plimsoll_store::{Location, Store};

use crate::faithful;
use crate::interop::installed;
use crate::world::{PASSWORD, World, check, fingerprint};

const ACCESS: &str = "test-access-key";
const SECRET: &str = "test-secret-key";

/// A server that ends with the test.
struct Server {
    process: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Where `CI` is `true` the server must be installed.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn start(world: &World) -> Option<Server> {
    let Some(program) = installed("versitygw") else {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "versitygw is not installed");
        eprintln!("SKIPPED: versitygw is not installed");
        return None;
    };
    std::fs::create_dir_all(world.path("s3/bucket")).expect("a bucket");
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let process = Command::new(program)
        .args(["--access", ACCESS, "--secret", SECRET, "--port", &format!("127.0.0.1:{port}"), "posix"])
        .arg(world.path("s3"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let mut server = Server { process, port };
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(server.process.try_wait().expect("asks").is_none(), "the server ended");
        std::thread::yield_now();
    }
    Some(server)
}

fn store(server: &Server) -> Store {
    let mut location = Location { provider: "aws".into(), bucket: "bucket".into(), ..Location::default() };
    location.prefix = "some/repository".into();
    location.config.insert("s3Url".into(), format!("http://127.0.0.1:{}", server.port));
    location.config.insert("s3ForcePathStyle".into(), "true".into());
    let keys = format!("[default]\naws_access_key_id={ACCESS}\naws_secret_access_key={SECRET}\n");
    location.credentials = Some(keys.into_bytes().into());
    Store::open(&location).expect("opens")
}

#[test]
fn a_repository_on_s3_is_restics_too() {
    let world = World::new();
    let Some(server) = start(&world) else { return };
    faithful::fill(&world);
    let made = Repository::init(store(&server), world.runtime.handle().clone(), PASSWORD.as_bytes());
    let repository = Arc::new(made.expect("initializes"));
    let outcome = world.backup(&repository);
    assert_eq!(world.restore(&repository, outcome.snapshot).problems, []);
    assert_eq!(fingerprint(&world.path("restored")), fingerprint(&world.source()));
    assert_eq!(check(&repository).errors, Vec::<String>::new());
    let restic = Command::new("restic")
        .args(["--no-cache", "--repo", &format!("s3:http://127.0.0.1:{}/bucket/some/repository", server.port)])
        .args(["check", "--read-data"])
        .env("RESTIC_PASSWORD", PASSWORD)
        .env("AWS_ACCESS_KEY_ID", ACCESS)
        .env("AWS_SECRET_ACCESS_KEY", SECRET)
        .output();
    let Ok(restic) = restic else {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "restic is not installed");
        return;
    };
    assert!(restic.status.success(), "{}", String::from_utf8_lossy(&restic.stderr));
}
