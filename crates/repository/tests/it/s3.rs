//! A repository on an S3 server, if one is installed, also read by restic.

use std::ffi::OsStr;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use plimsoll_progress::{Clock, Operation};
use plimsoll_repository::backup::BackupOutcome;
use plimsoll_repository::{Cancel, OpenOptions, Repository};
use plimsoll_store::{Location, Store};

use crate::interop::installed;
use crate::round_trip;
use crate::testbed::{PASSWORD, Testbed, check, fingerprint};

const ACCESS: &str = "test-access-key";
const SECRET: &str = "test-secret-key";

/// A server that ends with the test.
pub struct Server {
    process: Child,
    pub port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// With `CI=true` the server must be installed.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn start(testbed: &Testbed, options: &[&OsStr]) -> Option<Server> {
    let Some(program) = installed("versitygw") else {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "versitygw is not installed");
        eprintln!("SKIPPED: versitygw is not installed");
        return None;
    };
    std::fs::create_dir_all(testbed.path("s3/bucket")).expect("a bucket");
    let port = plimsoll_testkit::peers::free_port("127.0.0.1").expect("a port");
    let process = Command::new(program)
        .args(options)
        .args(["--access", ACCESS, "--secret", SECRET, "--port", &format!("127.0.0.1:{port}"), "posix"])
        .arg(testbed.path("s3"))
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

pub fn store(port: u16) -> Store {
    store_of(port, ACCESS, SECRET)
}

fn store_of(port: u16, access: &str, secret: &str) -> Store {
    let mut location = Location { provider: "aws".into(), bucket: "bucket".into(), ..Location::default() };
    location.prefix = "some/repository".into();
    location.config.insert("s3Url".into(), format!("http://127.0.0.1:{port}"));
    location.config.insert("s3ForcePathStyle".into(), "true".into());
    let keys = format!("[default]\naws_access_key_id={access}\naws_secret_access_key={secret}\n");
    location.credentials = Some(keys.into_bytes().into());
    Store::open(&location).expect("opens")
}

#[test]
fn restic_reads_a_repository_on_s3() {
    let testbed = Testbed::new();
    let Some(server) = start(&testbed, &[]) else { return };
    round_trip::fill(&testbed);
    let made = Repository::init(store(server.port), testbed.runtime.handle().clone(), PASSWORD.as_bytes());
    let repository = Arc::new(made.expect("initializes"));
    let outcome = testbed.backup(&repository);
    assert_eq!(testbed.restore(&repository, outcome.snapshot).problems, []);
    assert_eq!(fingerprint(&testbed.path("restored")), fingerprint(&testbed.source()));
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

/// Sets an attribute of the bucket's directory, where the server stores the bucket's settings.
fn set_on_bucket(testbed: &Testbed, setting: &str, value: &str) {
    let none = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(testbed.path("s3/bucket"), format!("user.{setting}"), value.as_bytes(), none).expect("set");
}

fn lock_files(testbed: &Testbed) -> usize {
    std::fs::read_dir(testbed.path("s3/bucket/some/repository/locks")).map_or(0, Iterator::count)
}

/// Backs up and returns the hint about locks.
fn backup_and_hint(testbed: &Testbed, repository: &Arc<Repository>) -> (BackupOutcome, Option<String>) {
    let operation = Operation::new("backup", Clock::system());
    let outcome = repository.backup(&testbed.options(), &operation.root(), &Cancel::default()).expect("backs up");
    (outcome, operation.snapshot().nodes.iter().find_map(|node| node.hint.as_deref().map(str::to_owned)))
}

fn assert_restorable_and_intact(testbed: &Testbed, repository: &Arc<Repository>, outcome: &BackupOutcome) {
    let restored = testbed.restore(repository, outcome.snapshot);
    assert!(!restored.locked && restored.problems.is_empty(), "{restored:?}");
    assert_eq!(fingerprint(&testbed.path("restored")), fingerprint(&testbed.source()));
    let checked = check(repository);
    assert!(!checked.locked && checked.is_good(), "{:?}", checked.errors);
}

#[test]
fn a_bucket_policy_without_deletes_leads_to_no_lock_files_and_a_hint() {
    let testbed = Testbed::new();
    let (user, secret) = ("appends-only", "another-secret-key");
    let iam = testbed.path("iam");
    std::fs::create_dir(&iam).expect("a directory");
    let account = format!(r#"{{"access":"{user}","secret":"{secret}","role":"user"}}"#);
    std::fs::write(iam.join("users.json"), format!(r#"{{"accessAccounts":{{"{user}":{account}}}}}"#)).expect("writes");
    let Some(server) = start(&testbed, &["--iam-dir".as_ref(), iam.as_os_str()]) else { return };
    let allowed = r#"["s3:ListBucket","s3:GetObject","s3:PutObject"]"#;
    let resources = r#"["arn:aws:s3:::bucket","arn:aws:s3:::bucket/*"]"#;
    let statement =
        format!(r#"{{"Effect":"Allow","Principal":{{"AWS":["{user}"]}},"Action":{allowed},"Resource":{resources}}}"#);
    set_on_bucket(&testbed, "policy", &format!(r#"{{"Version":"2012-10-17","Statement":[{statement}]}}"#));

    round_trip::fill(&testbed);
    let store = store_of(server.port, user, secret);
    let handle = testbed.runtime.handle();
    let made = Repository::init(store.clone(), handle.clone(), PASSWORD.as_bytes());
    let repository = Arc::new(made.expect("initializes"));
    let refused = handle.block_on(store.delete("config")).expect_err("the policy does not allow it");
    assert_eq!(refused.reason(), "StoreAccessDenied", "{refused}");

    let (outcome, hint) = backup_and_hint(&testbed, &repository);
    assert!(!outcome.locked && repository.denies_deletes().expect("asks"));
    assert!(hint.as_ref().is_some_and(|hint| hint.contains("does not allow deletes")), "{hint:?}");
    assert_restorable_and_intact(&testbed, &repository, &outcome);
    assert_eq!(repository.unlock(true).expect("asks"), 0);
    assert_eq!(lock_files(&testbed), 0);
}

#[test]
fn a_bucket_with_retention_keeps_one_lock_file_and_leads_to_a_hint() {
    let testbed = Testbed::new();
    let Some(server) = start(&testbed, &[]) else { return };
    let retention = r#"{"Mode":"COMPLIANCE","Years":100}"#;
    let since = "2026-01-01T00:00:00Z";
    let lock = format!(r#"{{"Enabled":true,"DefaultRetention":{retention},"CreatedAt":"{since}"}}"#);
    set_on_bucket(&testbed, "bucket-lock", &lock);

    round_trip::fill(&testbed);
    let made = Repository::init(store(server.port), testbed.runtime.handle().clone(), PASSWORD.as_bytes());
    drop(made.expect("initializes"));
    let cache: &Path = &testbed.path("cache");
    let open = || {
        let options = OpenOptions { cache: Some(cache.to_owned()), ..OpenOptions::default() };
        let handle = testbed.runtime.handle().clone();
        Arc::new(Repository::open(store(server.port), handle, PASSWORD.as_bytes(), options).expect("opens"))
    };
    let (first, _) = backup_and_hint(&testbed, &open());
    assert!(first.locked, "only a lock that cannot be removed tells");
    assert_eq!(lock_files(&testbed), 1);
    let repository = open();
    let (outcome, hint) = backup_and_hint(&testbed, &repository);
    assert!(!outcome.locked);
    assert!(hint.as_ref().is_some_and(|hint| hint.contains("does not allow deletes")), "{hint:?}");
    assert_restorable_and_intact(&testbed, &repository, &outcome);
    assert_eq!(lock_files(&testbed), 1);
}
