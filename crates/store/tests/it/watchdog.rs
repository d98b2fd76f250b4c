//! A server that stands still: the request is cancelled, tried again, and somebody is told.

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

/// Answers every request but the first one: that is never answered.
async fn serve_all_but_the_first(listener: tokio::net::TcpListener, requests: Arc<AtomicUsize>) {
    while let Ok((connection, _)) = listener.accept().await {
        let requests = requests.clone();
        let service = service_fn(move |_: Request<Incoming>| {
            let requests = requests.clone();
            async move {
                if requests.fetch_add(1, Ordering::SeqCst) == 0 {
                    std::future::pending::<()>().await;
                }
                let answer = Response::builder()
                    .header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
                    .header("ETag", "\"1\"")
                    .body("answer".to_owned());
                Ok::<_, Infallible>(answer.expect("an answer"))
            }
        });
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(connection), service));
    }
}

fn store(address: SocketAddr, idle: Duration) -> Store {
    let mut location = Location { provider: "aws".into(), bucket: "b".into(), ..Location::default() };
    location.config.insert("s3Url".into(), format!("http://{address}"));
    location.config.insert("s3ForcePathStyle".into(), "true".into());
    location.credentials = Some(b"[default]\naws_access_key_id=a\naws_secret_access_key=b".to_vec().into());
    location.tuning = Tuning { idle, ..Tuning::default() };
    Store::open(&location).expect("opens")
}

#[tokio::test]
async fn a_request_that_moves_no_bytes_is_tried_again_and_reported() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let requests = Arc::new(AtomicUsize::new(0));
    let server = tokio::spawn(serve_all_but_the_first(listener, requests.clone()));

    let store = store(address, Duration::from_secs(2));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let noted = heard.clone();
    let observing = store.observe(Arc::new(move |wait: &Wait| noted.lock().expect("alone").push(wait.reason.clone())));
    assert_eq!(store.get("key").await.expect("the second try is answered"), "answer");
    drop(observing);
    server.abort();
    assert_eq!(requests.load(Ordering::SeqCst), 2);
    assert_eq!(*heard.lock().expect("alone"), ["s3://b has moved no bytes for 2s; trying again"]);
}

/// More than the buffers of a connection hold.
const LARGE: usize = 32 << 20;
const STEP: usize = 1 << 20;
/// What the client gives out at once.
const PIECE: usize = 128 << 10;

/// Reads the head of a request; answers with the length of its body.
async fn read_head(connection: &mut BufReader<TcpStream>) -> usize {
    let (mut line, mut length) = (String::new(), 0);
    while connection.read_line(&mut line).await.expect("reads") > 2 {
        let value = line.to_ascii_lowercase().strip_prefix("content-length:").map(|value| value.trim().to_owned());
        length = value.map_or(length, |value| value.parse().expect("a length"));
        line.clear();
    }
    length
}

/// Takes a body step by step, one for each permit, and says that it is stored.
async fn take_body(mut connection: BufReader<TcpStream>, permits: &Semaphore) {
    let mut left = read_head(&mut connection).await;
    assert_eq!(left, LARGE);
    let mut step = vec![0; STEP];
    while left > 0 {
        permits.acquire().await.expect("open").forget();
        left -= connection.read_exact(&mut step).await.expect("more of it");
    }
    let answer = b"HTTP/1.1 200 OK\r\nETag: \"1\"\r\ncontent-length: 0\r\n\r\n";
    connection.write_all(answer).await.expect("answers");
    connection.flush().await.expect("answers");
}

#[derive(Default)]
struct Signs {
    bytes: AtomicUsize,
    waits: Mutex<Vec<String>>,
}

impl Observer for Signs {
    fn on_wait(&self, wait: &Wait) {
        self.waits.lock().expect("alone").push(wait.reason.clone());
    }

    fn on_bytes(&self) {
        self.bytes.fetch_add(1, Ordering::SeqCst);
    }
}

impl Signs {
    fn seen(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_body_on_a_slow_line_gives_a_sign_whenever_some_of_it_has_gone_out() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let store = store(listener.local_addr().expect("an address"), Duration::from_mins(1));
    let (signs, permits) = (Arc::new(Signs::default()), Arc::new(Semaphore::new(0)));
    let _observing = store.observe(signs.clone());
    let allowed = permits.clone();
    let server = tokio::spawn(async move {
        let (connection, _) = listener.accept().await.expect("a connection");
        take_body(BufReader::new(connection), &allowed).await;
    });
    let put = tokio::spawn(async move { store.put("key", vec![1; LARGE]).await });
    let mut steps_that_showed = 0;
    let stepping = async {
        while signs.seen() < LARGE / PIECE {
            let before = signs.seen();
            permits.add_permits(1);
            while permits.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            steps_that_showed += usize::from(signs.seen() > before);
        }
    };
    tokio::time::timeout(Duration::from_mins(2), stepping).await.expect("the server takes it all");
    permits.add_permits(LARGE / STEP);
    put.await.expect("no panic").expect("stored");
    server.await.expect("no panic");
    assert_eq!((signs.seen(), signs.waits.lock().expect("alone").len()), (LARGE / PIECE, 0));
    // Not every step does: a system wakes who sends when a good part of its buffer is free again.
    assert!(steps_that_showed > 2, "{steps_that_showed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_nobody_takes_any_more_is_sent_again_and_that_is_said() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let store = store(listener.local_addr().expect("an address"), Duration::from_secs(3));
    let signs = Arc::new(Signs::default());
    let _observing = store.observe(signs.clone());
    let server = tokio::spawn(async move {
        let (mut dead, _) = listener.accept().await.expect("a connection");
        dead.read_exact(&mut [0; 1000]).await.expect("its beginning");
        let (connection, _) = listener.accept().await.expect("another connection");
        take_body(BufReader::new(connection), &Semaphore::new(LARGE / STEP)).await;
        drop(dead);
    });
    store.put("key", vec![1; LARGE]).await.expect("the second try");
    server.await.expect("no panic");
    let waits = signs.waits.lock().expect("alone").clone();
    assert_eq!(waits, ["s3://b has moved no bytes for 3s; trying again"]);
    assert!(signs.seen() > LARGE / PIECE && signs.seen() < 2 * LARGE / PIECE, "{}", signs.seen());
}
