//! Azure, tested with its vendor's emulator. (Google has no emulator for the protocol we use.)

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plimsoll_store::{Location, Store};

use crate::conformance;
use crate::s3::program;

/// The default account of Azurite, with the key from its documentation.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

struct Emulator {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start(name: &str, arguments: impl FnOnce(&mut Command, u16, &std::path::Path)) -> Option<Emulator> {
    let folder = tempfile::tempdir().expect("a directory");
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let mut command = Command::new(program(name)?);
    arguments(&mut command, port, folder.path());
    let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let mut emulator = Emulator { process, port, _folder: folder };
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(emulator.process.try_wait().expect("a status").is_none(), "{name} ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(emulator)
}

fn azurite() -> Option<Emulator> {
    start("azurite", |command, port, folder| {
        command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string(), "--silent", "--skipApiVersionCheck"]);
        command.arg("--disableTelemetry").arg("--location").arg(folder);
    })
}

fn azure(emulator: &Emulator, key: &str) -> Location {
    let mut location = Location { provider: "azure".into(), bucket: "bucket".into(), ..Location::default() };
    let endpoint = format!("http://127.0.0.1:{}/{ACCOUNT}", emulator.port);
    location.config.insert("storageAccount".into(), ACCOUNT.into());
    location.config.insert("storageAccountURI".into(), endpoint);
    location.credentials = Some(format!("AZURE_STORAGE_ACCOUNT_ACCESS_KEY={key}\n").into_bytes().into());
    location
}

/// Stores do not create buckets, so the test does, with a signed request.
fn create_container(emulator: &Emulator) {
    let script = format!(
        r#"date=$(TZ=GMT date '+%a, %d %b %Y %H:%M:%S GMT')
        text=$(printf 'PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:%s\nx-ms-version:2021-08-06\n/{ACCOUNT}/{ACCOUNT}/bucket\nrestype:container' "$date")
        key=$(printf '{KEY}' | base64 -d | od -An -v -tx1 | tr -d ' \n')
        signature=$(printf '%s' "$text" | openssl dgst -sha256 -mac HMAC -macopt "hexkey:$key" -binary | base64)
        curl --silent --show-error --fail --request PUT --header "x-ms-date: $date" --header 'x-ms-version: 2021-08-06' \
          --header 'Content-Length: 0' --header "Authorization: SharedKey {ACCOUNT}:$signature" \
          'http://127.0.0.1:{port}/{ACCOUNT}/bucket?restype=container'"#,
        port = emulator.port
    );
    let created = Command::new("sh").arg("-c").arg(script).output().expect("sh runs");
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
}

#[tokio::test]
async fn azure_conforms() {
    let Some(emulator) = azurite() else { return };
    create_container(&emulator);
    let store = Store::open(&azure(&emulator, KEY)).expect("opens");
    conformance::run(&store).await;
    presigned_urls_work(&store).await;
    let with_wrong_key = Store::open(&azure(&emulator, "d3Jvbmc=")).expect("opens");
    let error = with_wrong_key.get("x").await.expect_err("rejected");
    assert!(!error.is_retryable() && !error.to_string().contains("d3Jvbmc="), "{error}");
}

/// A presigned URL can be read without a key.
async fn presigned_urls_work(store: &Store) {
    store.put("signed", "public content").await.expect("puts");
    let url = store.presign("signed", Duration::from_mins(1)).await.expect("signs").expect("can sign");
    let read = Command::new("curl").args(["--silent", "--fail", url.as_str()]).output().expect("curl runs");
    assert_eq!(String::from_utf8_lossy(&read.stdout), "public content", "{url}");
}
