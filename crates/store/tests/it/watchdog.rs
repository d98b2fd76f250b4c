//! A server that stops responding: the request is cancelled and retried, and observers are notified.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use plimsoll_store::{Location, Observer, Store, Tuning, Wait};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Responds to every request except the first one.
async fn serve_all_but_the_first(listener: tokio::net::TcpListener, requests: Arc<AtomicUsize>) {
    while let Ok((connection, _)) = listener.accept().await {
        let requests = requests.clone();
        let service = service_fn(move |_: Request<Incoming>| {
            let requests = requests.clone();
            async move {
                if requests.fetch_add(1, Ordering::SeqCst) == 0 {
                    std::future::pending::<()>().await;
                }
                let response = Response::builder()
                    .header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
                    .header("ETag", "\"1\"")
                    .body("content".to_owned());
                Ok::<_, Infallible>(response.expect("a valid response"))
            }
        });
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(connection), service));
    }
}

fn store(address: SocketAddr, idle_timeout: Duration) -> Store {
    let mut location = Location { provider: "aws".into(), bucket: "b".into(), ..Location::default() };
    location.config.insert("s3Url".into(), format!("http://{address}"));
    location.config.insert("s3ForcePathStyle".into(), "true".into());
    location.credentials = Some(b"[default]\naws_access_key_id=a\naws_secret_access_key=b".to_vec().into());
    location.tuning = Tuning { idle_timeout, ..Tuning::default() };
    Store::open(&location).expect("opens")
}

#[tokio::test]
async fn a_request_that_moves_no_bytes_is_retried_and_reported() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let requests = Arc::new(AtomicUsize::new(0));
    let server = tokio::spawn(serve_all_but_the_first(listener, requests.clone()));

    let store = store(address, Duration::from_secs(2));
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let recorded = reasons.clone();
    let guard =
        store.observe(Arc::new(move |wait: &Wait| recorded.lock().expect("not poisoned").push(wait.reason.clone())));
    assert_eq!(store.get("key").await.expect("the second attempt succeeds"), "content");
    drop(guard);
    server.abort();
    assert_eq!(requests.load(Ordering::SeqCst), 2);
    assert_eq!(*reasons.lock().expect("not poisoned"), ["no bytes moved to or from s3://b for 2s; retrying"]);
}

/// More than the buffers of a connection hold.
const BODY_SIZE: usize = 32 << 20;
const STEP_SIZE: usize = 1 << 20;
/// The chunk size of the client.
const CHUNK_SIZE: usize = 128 << 10;

/// Reads the head of a request and returns the length of its body.
async fn read_head(connection: &mut BufReader<TcpStream>) -> usize {
    let (mut line, mut length) = (String::new(), 0);
    while connection.read_line(&mut line).await.expect("reads") > 2 {
        let value = line.to_ascii_lowercase().strip_prefix("content-length:").map(|value| value.trim().to_owned());
        length = value.map_or(length, |value| value.parse().expect("a length"));
        line.clear();
    }
    length
}

/// Receives a body, one step for each permit, and responds that it is stored.
async fn receive_body(mut connection: BufReader<TcpStream>, permits: &Semaphore) {
    let mut remaining = read_head(&mut connection).await;
    assert_eq!(remaining, BODY_SIZE);
    let mut step = vec![0; STEP_SIZE];
    while remaining > 0 {
        permits.acquire().await.expect("open").forget();
        remaining -= connection.read_exact(&mut step).await.expect("more chunks");
    }
    let response = b"HTTP/1.1 200 OK\r\nETag: \"1\"\r\ncontent-length: 0\r\n\r\n";
    connection.write_all(response).await.expect("sent");
    connection.flush().await.expect("sent");
}

#[derive(Default)]
struct RecordingObserver {
    chunks: AtomicUsize,
    waits: Mutex<Vec<String>>,
}

impl Observer for RecordingObserver {
    fn on_wait(&self, wait: &Wait) {
        self.waits.lock().expect("not poisoned").push(wait.reason.clone());
    }

    fn on_bytes(&self, _: u64) {
        self.chunks.fetch_add(1, Ordering::SeqCst);
    }
}

impl RecordingObserver {
    fn chunks(&self) -> usize {
        self.chunks.load(Ordering::SeqCst)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_on_a_slow_connection_reports_every_chunk() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let store = store(listener.local_addr().expect("an address"), Duration::from_mins(1));
    let (observer, permits) = (Arc::new(RecordingObserver::default()), Arc::new(Semaphore::new(0)));
    let _guard = store.observe(observer.clone());
    let allowed = permits.clone();
    let server = tokio::spawn(async move {
        let (connection, _) = listener.accept().await.expect("a connection");
        receive_body(BufReader::new(connection), &allowed).await;
    });
    let put = tokio::spawn(async move { store.put("key", vec![1; BODY_SIZE]).await });
    let mut steps_with_progress = 0;
    let stepping = async {
        let is_sent = || observer.chunks() >= BODY_SIZE / CHUNK_SIZE;
        while !is_sent() {
            let before = observer.chunks();
            permits.add_permits(1);
            // The server may have received the last chunk before it is counted: then it takes no more permits.
            while permits.available_permits() > 0 && !is_sent() {
                tokio::task::yield_now().await;
            }
            steps_with_progress += usize::from(observer.chunks() > before);
        }
    };
    tokio::time::timeout(Duration::from_mins(2), stepping).await.expect("the server receives the whole body");
    permits.add_permits(BODY_SIZE / STEP_SIZE);
    put.await.expect("no panic").expect("stored");
    server.await.expect("no panic");
    assert_eq!((observer.chunks(), observer.waits.lock().expect("not poisoned").len()), (BODY_SIZE / CHUNK_SIZE, 0));
    // Not every step does: the system wakes the sender when a good part of its buffer is free again.
    assert!(steps_with_progress > 2, "{steps_with_progress}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_whose_connection_stalls_is_sent_again_and_reported() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let store = store(listener.local_addr().expect("an address"), Duration::from_secs(3));
    let observer = Arc::new(RecordingObserver::default());
    let _guard = store.observe(observer.clone());
    let server = tokio::spawn(async move {
        let (mut dead, _) = listener.accept().await.expect("a connection");
        dead.read_exact(&mut [0; 1000]).await.expect("the first bytes");
        let (connection, _) = listener.accept().await.expect("another connection");
        receive_body(BufReader::new(connection), &Semaphore::new(BODY_SIZE / STEP_SIZE)).await;
        drop(dead);
    });
    store.put("key", vec![1; BODY_SIZE]).await.expect("the second attempt succeeds");
    server.await.expect("no panic");
    let waits = observer.waits.lock().expect("not poisoned").clone();
    assert_eq!(waits, ["no bytes moved to or from s3://b for 3s; retrying"]);
    assert!(
        observer.chunks() > BODY_SIZE / CHUNK_SIZE && observer.chunks() < 2 * BODY_SIZE / CHUNK_SIZE,
        "{}",
        observer.chunks()
    );
}
