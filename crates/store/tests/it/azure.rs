//! Azure, tested with its vendor's emulator. (Google has no emulator for the protocol we use.)

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use plimsoll_store::{Location, Store};
use sha2::Sha256;

use crate::conformance;
use crate::store_server::StoreServer;

/// The default account of Azurite, with the key from its documentation.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
/// The version of the protocol.
const VERSION: &str = "2021-08-06";

fn azurite() -> Option<StoreServer> {
    StoreServer::start("azurite", |command, port, folder| {
        command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string(), "--silent", "--skipApiVersionCheck"]);
        command.arg("--disableTelemetry").arg("--location").arg(folder);
    })
}

fn azure(emulator: &StoreServer, key: &str) -> Location {
    let mut location = Location { provider: "azure".into(), bucket: "bucket".into(), ..Location::default() };
    let endpoint = format!("http://127.0.0.1:{}/{ACCOUNT}", emulator.port);
    location.config.insert("storageAccount".into(), ACCOUNT.into());
    location.config.insert("storageAccountURI".into(), endpoint);
    location.credentials = Some(format!("AZURE_STORAGE_ACCOUNT_ACCESS_KEY={key}\n").into_bytes().into());
    location
}

/// Stores do not make buckets, their owners do. Signed as Azure wants it: there is no other way in.
async fn create_container(emulator: &StoreServer) {
    let date = Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let headers = format!("x-ms-date:{date}\nx-ms-version:{VERSION}");
    let text = format!("PUT{}{headers}\n/{ACCOUNT}/{ACCOUNT}/bucket\nrestype:container", "\n".repeat(12));
    let key = BASE64_STANDARD.decode(KEY).expect("a key");
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key of any length");
    mac.update(text.as_bytes());
    let signature = BASE64_STANDARD.encode(mac.finalize().into_bytes());
    let request = reqwest::Client::new()
        .put(format!("http://127.0.0.1:{}/{ACCOUNT}/bucket?restype=container", emulator.port))
        .header("x-ms-date", date)
        .header("x-ms-version", VERSION)
        .header("Content-Length", 0)
        .header("Authorization", format!("SharedKey {ACCOUNT}:{signature}"));
    let answer = request.send().await.expect("an answer");
    assert!(answer.status().is_success(), "{answer:?}");
}

#[tokio::test]
async fn azure_conforms() {
    let Some(emulator) = azurite() else { return };
    create_container(&emulator).await;
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
    let read = reqwest::get(url.clone()).await.expect("an answer").text().await.expect("a text");
    assert_eq!(read, "public content", "{url}");
}
