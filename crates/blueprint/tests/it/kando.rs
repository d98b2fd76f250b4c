//! Data to and from a real S3 server, as Kanister lays it out.

use std::path::PathBuf;

use http::Method;
use plimsoll_blueprint::kando::protocol::{Output, progress_line};
use plimsoll_blueprint::kando::{Kando, KandoError, TransferSummary};
use plimsoll_blueprint::profile::ResolvedProfile;
use plimsoll_progress::{Frame, State};
use plimsoll_testkit::peers::s3::{ACCESS_KEY, S3Server, SECRET_KEY};
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{Proxy, cache, require};
use serde_json::{Value, json};

fn profile(endpoint: &str, secret: &str) -> Value {
    json!({
        "Location": {"type": "s3Compliant", "bucket": "data", "endpoint": endpoint, "prefix": "/team//a/", "region": ""},
        "Credential": {"Type": "keyPair", "KeyPair": {"ID": ACCESS_KEY, "Secret": secret}, "Secret": null},
        "SkipSSLVerify": false,
    })
}

struct Bed {
    server: S3Server,
    bucket: PathBuf,
}

impl Bed {
    fn start() -> Self {
        let server = S3Server::start("127.0.0.1").unwrap();
        let bucket = server.create_bucket("data").unwrap();
        Self { server, bucket }
    }

    fn kando(&self) -> Kando {
        open(self.server.endpoint(), SECRET_KEY)
    }

    fn file(&self, path: &str) -> Option<Vec<u8>> {
        std::fs::read(self.bucket.join(path)).ok()
    }
}

fn open(endpoint: &str, secret: &str) -> Kando {
    Kando::open(&ResolvedProfile::from_value(profile(endpoint, secret)).unwrap()).unwrap()
}

/// Bytes that do not repeat, so that a piece in the wrong place shows.
fn content(length: usize) -> Vec<u8> {
    (0u64..).flat_map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).take(length).collect()
}

fn bytes_of(frame: &Frame) -> (u64, Option<u64>) {
    let counts = &frame.nodes[0].meters[0];
    (counts.done, counts.total.value())
}

#[tokio::test(flavor = "multi_thread")]
async fn pushed_data_has_kanisters_key_and_is_pulled_unchanged() {
    require!(cache::program("versitygw"));
    let bed = Bed::start();
    // Several parts and a rest.
    let data = content(20_000_003);
    let mut frames = Vec::new();
    let moved = bed.kando().push("/dumps//one/dump.gz", &data[..], None, |frame| frames.push(frame.clone())).await;
    assert_eq!(moved.unwrap(), TransferSummary { bytes: 20_000_003, objects: 1 });
    assert!(bed.file("team/a/dumps/one/dump.gz").unwrap() == data, "another content");
    let (first, last) = (&frames[0], &frames[frames.len() - 1]);
    assert!(frames.len() >= 2 && frames.iter().all(|frame| frame.full));
    assert_eq!(&*first.operation, "push dumps/one/dump.gz");
    assert_eq!(bytes_of(first), (0, None), "a pipe has no total");
    assert_eq!(bytes_of(last), (20_000_003, Some(20_000_003)), "until it has ended");
    assert_eq!(last.nodes[0].state, State::Done);

    let (mut back, mut frames) = (Vec::new(), Vec::new());
    let pulled = bed.kando().pull("dumps/one/dump.gz", &mut back, |frame| frames.push(frame.clone())).await;
    assert_eq!(pulled.unwrap().bytes, 20_000_003);
    assert!(back == data, "another content");
    assert_eq!(bytes_of(&frames[frames.len() - 1]), (20_000_003, Some(20_000_003)), "an object has a size");

    let mut frames = Vec::new();
    let file = bed.kando().push("small", &b"known"[..], Some(5), |frame| frames.push(frame.clone())).await;
    assert_eq!(file.unwrap().bytes, 5);
    assert_eq!(bytes_of(&frames[0]), (0, Some(5)), "a file has a total from the start");
    let empty = bed.kando().push("empty", &b""[..], None, |_| {}).await;
    assert_eq!(empty.unwrap().bytes, 0);
    assert_eq!(bed.file("team/a/empty").unwrap(), b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_removes_an_object_and_its_prefix_but_no_sibling() {
    require!(cache::program("versitygw"));
    let bed = Bed::start();
    let kando = bed.kando();
    for path in ["set/one", "set/two/three", "settled", "alone"] {
        kando.push(path, path.as_bytes(), None, |_| {}).await.unwrap();
    }
    assert_eq!(kando.delete("/set", |_| {}).await.unwrap().objects, 2);
    assert_eq!(kando.delete("alone", |_| {}).await.unwrap().objects, 1);
    assert_eq!(kando.delete("never/there", |_| {}).await.unwrap().objects, 0);
    for deleted in ["set/one", "set/two/three", "alone"] {
        assert_eq!(bed.file(&format!("team/a/{deleted}")), None, "{deleted}");
    }
    assert_eq!(bed.file("team/a/settled").unwrap(), b"settled");
    for path in ["", "/", "a/../../b"] {
        assert_eq!(kando.delete(path, |_| {}).await.unwrap_err().reason(), "InvalidPath", "{path:?}");
    }
    let missing = kando.pull("alone", &mut Vec::new(), |_| {}).await.unwrap_err();
    assert!(missing.to_string().contains("alone"), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_connection_is_retried_without_data_loss() {
    require!(cache::program("versitygw"));
    let bed = Bed::start();
    let proxy = Proxy::for_server("127.0.0.1:0", bed.server.endpoint()).await.unwrap();
    let kando = open(&proxy.url(), SECRET_KEY);
    let data = content(9_000_001);
    let cut = proxy.inject(Requests::with_method(Method::PUT).first(1), Fault::TruncateRequest(100_000));
    kando.push("cut", &data[..], None, |_| {}).await.unwrap();
    assert_eq!(cut.hits(), 1);
    drop(cut);
    assert!(bed.file("team/a/cut").unwrap() == data, "another content");
    let cut = proxy
        .inject(Requests::with_method(Method::GET).containing("/cut").first(1), Fault::TruncateResponse(1_000_000));
    let mut back = Vec::new();
    kando.pull("cut", &mut back, |_| {}).await.unwrap();
    assert_eq!(cut.hits(), 1);
    assert!(back == data, "another content");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_of_a_wrong_key_does_not_contain_the_key() {
    require!(cache::program("versitygw"));
    let bed = Bed::start();
    let kando = open(bed.server.endpoint(), "a-wrong-secret");
    let mut lines = Vec::new();
    let error = kando.push("x", &b"data"[..], None, |frame| lines.push(progress_line(frame))).await.unwrap_err();
    assert!(!error.is_retryable(), "{error}");
    let text = format!("{error} {error:?} {}", lines.join("\n"));
    assert!(!text.contains("a-wrong-secret"), "{text}");
    assert!(lines.last().unwrap().contains("ailed"), "the last frame reports the failure: {lines:?}");
    assert_eq!(bed.file("team/a/x"), None);
}

#[test]
fn profiles_are_parsed_as_in_go_and_unsupported_ones_are_errors() {
    let with = |path: &[&str], value: Value| {
        let mut profile = profile("http://minio:9000", "hush");
        let place = path.iter().fold(&mut profile, |place, key| &mut place[*key]);
        *place = value;
        ResolvedProfile::from_value(profile)
    };
    let lower = json!({
        "location": {"Type": "s3Compliant", "Bucket": "b", "Endpoint": "minio:9000"},
        "credential": {"type": "keyPair", "keyPair": {"id": "i", "secret": "hush"}},
    });
    let location = ResolvedProfile::from_json(&lower.to_string()).unwrap().location();
    assert_eq!(
        (location.setting("s3Url"), location.setting("region")),
        (Some("https://minio:9000"), Some("us-east-1"))
    );
    let aws = json!({"type": "secrets.kanister.io/aws", "data": {"aws_access_key_id": "aWQ=", "aws_secret_access_key": "aHVzaA=="}});
    let secret = json!({"Type": "secret", "Secret": aws});
    let keys = with(&["Credential"], secret).unwrap().location().aws_keys().unwrap().unwrap();
    assert_eq!(keys.id, "id");
    let azure = json!({"type": "azure", "bucket": "c"});
    assert_eq!(with(&["Location"], azure).unwrap().location().setting("storageAccount"), Some(ACCESS_KEY));
    let gcs = json!({"type": "gcs", "bucket": "c", "prefix": "p"});
    assert_eq!(with(&["Location"], gcs).unwrap().location().display_name(), "gs://c/p");
    let cases = [
        (with(&["Location", "type"], json!("kopia")), "InvalidProfile"),
        (with(&["Location", "type"], json!("ftp")), "InvalidProfile"),
        (with(&["Location", "bucket"], json!("")), "InvalidProfile"),
        (with(&["Credential", "Type"], json!("kopia")), "InvalidProfile"),
        (with(&["Credential", "KeyPair"], Value::Null), "InvalidProfile"),
        (ResolvedProfile::from_json("{\"Location\": hush"), "InvalidProfile"),
        (ResolvedProfile::from_json("[]"), "InvalidProfile"),
    ];
    for (result, reason) in cases {
        let error = result.map(|_| ()).unwrap_err();
        assert_eq!(error.reason(), reason, "{error}");
        assert!(!error.to_string().contains("hush"), "{error}");
    }
}

#[test]
fn an_output_is_one_line_of_kanisters_protocol() {
    let line = Output::new("s3path", "/a \"b\"\nc").unwrap().to_line();
    assert_eq!(line, r#"###Phase-output###: {"key":"s3path","value":"/a \"b\"\nc"}"#);
    for key in ["", "a-b", "a b", "é"] {
        assert!(matches!(Output::new(key, "v"), Err(KandoError::InvalidKey { .. })), "{key:?}");
    }
}
