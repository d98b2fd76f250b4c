//! A slow line that breaks late: what moved until then is begun again, what did not is given up as soon as ever.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use plimsoll_store::{Location, Store, Tuning};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

const GIVE_UP: Duration = Duration::from_secs(1);
/// More than the buffers of a connection hold, and so much that a part of an upload is full.
const LARGE: usize = 5 << 20;
const STEP: usize = 64 << 10;

/// Buffers are small on this side, so that most of what has gone out has arrived.
fn listen() -> (TcpListener, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(64 << 10).expect("a small buffer");
    socket.set_send_buffer_size(64 << 10).expect("a small buffer");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let listener = socket.listen(8).expect("listens");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

fn store(address: SocketAddr, tuning: Tuning) -> Store {
    let mut location = Location { provider: "aws".into(), bucket: "b".into(), tuning, ..Location::default() };
    location.config.insert("s3Url".into(), format!("http://{address}"));
    location.config.insert("s3ForcePathStyle".into(), "true".into());
    location.credentials = Some(b"[default]\naws_access_key_id=a\naws_secret_access_key=b".to_vec().into());
    Store::open(&location).expect("opens")
}

fn patient() -> Tuning {
    Tuning { give_up: GIVE_UP, ..Tuning::default() }
}

/// The head of a request, in small letters, and the length of its body. Nothing once the client has gone.
async fn read_head(connection: &mut BufReader<TcpStream>) -> Option<(String, usize)> {
    let (mut head, mut length, mut line) = (String::new(), 0, String::new());
    while connection.read_line(&mut line).await.ok()? > 2 {
        line.make_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        head.push_str(&std::mem::take(&mut line));
    }
    (!head.is_empty()).then_some((head, length))
}

/// A slow line has room for more when a provider no longer tries by itself. What buffers hold is not all of it.
async fn take_slowly(connection: &mut BufReader<TcpStream>) {
    tokio::time::sleep(GIVE_UP).await;
    connection.read_exact(&mut vec![0; LARGE / 2]).await.expect("more of it");
}

async fn give_slowly(connection: &mut BufReader<TcpStream>, content: &[u8]) {
    connection.write_all(&content[..STEP]).await.expect("is taken");
    tokio::time::sleep(GIVE_UP).await;
    connection.write_all(&content[STEP..2 * STEP]).await.expect("is taken");
}

async fn answer(connection: &mut BufReader<TcpStream>, head: &str, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 {head}\r\nETag: \"1\"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes()).await.expect("answers");
    connection.write_all(body).await.expect("answers");
}

fn content() -> Vec<u8> {
    (0..=250).cycle().take(LARGE).collect()
}

#[tokio::test]
async fn a_body_that_breaks_off_late_on_a_slow_line_is_sent_again() {
    let (listener, address) = listen();
    let server = tokio::spawn(async move {
        let mut first = BufReader::new(listener.accept().await.expect("a connection").0);
        read_head(&mut first).await.expect("a request");
        take_slowly(&mut first).await;
        drop(first);
        let mut second = BufReader::new(listener.accept().await.expect("another connection").0);
        let (_, length) = read_head(&mut second).await.expect("a request");
        let mut body = vec![0; length];
        second.read_exact(&mut body).await.expect("all of it");
        answer(&mut second, "200 OK", b"").await;
        body
    });
    store(address, patient()).put("key", content()).await.expect("the second try");
    assert!(server.await.expect("no panic") == content(), "the same bytes");
}

#[tokio::test]
async fn a_line_that_always_breaks_ends_with_an_error_that_says_so() {
    let (listener, address) = listen();
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let server = tokio::spawn(async move {
        loop {
            let mut connection = BufReader::new(listener.accept().await.expect("a connection").0);
            read_head(&mut connection).await.expect("a request");
            counted.fetch_add(1, Ordering::SeqCst);
            take_slowly(&mut connection).await;
        }
    });
    let store = store(address, Tuning { retries: 1, ..patient() });
    let error = store.put("data/pack", content()).await.expect_err("it always breaks");
    server.abort();
    assert_eq!((error.reason(), error.is_retryable()), ("StoreUnavailable", true));
    let said = "s3://b failed for data/pack: given up after 2 tries, the last one: ";
    assert!(error.to_string().starts_with(said), "{error}");
    assert_eq!(tries.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_store_that_takes_nothing_is_not_tried_more_often_for_what_the_buffers_took() {
    let (listener, address) = listen();
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let server = tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            held.push(listener.accept().await.expect("a connection"));
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let store = store(address, Tuning { idle: GIVE_UP / 4, ..patient() });
    let error = store.put("key", content()).await.expect_err("nobody takes it");
    server.abort();
    assert!(error.is_retryable() && !error.to_string().contains("given up after"), "{error}");
    assert!(tries.load(Ordering::SeqCst) < 6, "{tries:?} tries of a quarter of the time each");
}

#[tokio::test]
async fn a_range_that_breaks_off_late_on_a_slow_line_is_read_again() {
    let (listener, address) = listen();
    let server = tokio::spawn(async move {
        let partial = format!("206 Partial Content\r\nContent-Range: bytes 0-{}/{LARGE}", LARGE - 1);
        let mut first = BufReader::new(listener.accept().await.expect("a connection").0);
        read_head(&mut first).await.expect("a request");
        let head = format!(
            "HTTP/1.1 {partial}\r\nETag: \"1\"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n\
             content-length: {LARGE}\r\n\r\n"
        );
        first.write_all(head.as_bytes()).await.expect("answers");
        give_slowly(&mut first, &content()).await;
        drop(first);
        let mut second = BufReader::new(listener.accept().await.expect("another connection").0);
        read_head(&mut second).await.expect("a request");
        answer(&mut second, &partial, &content()).await;
    });
    let read = store(address, patient()).get_range("key", 0..LARGE as u64).await.expect("the second try");
    server.await.expect("no panic");
    assert!(read == content(), "the same bytes");
}

/// One connection of a server that takes an upload in parts, and the first part slowly and in vain.
async fn take_upload(mut connection: BufReader<TcpStream>, parts: Arc<AtomicUsize>, done: Arc<AtomicUsize>) {
    while let Some((head, length)) = read_head(&mut connection).await {
        let is_part = head.contains("partnumber=");
        if is_part && parts.fetch_add(1, Ordering::SeqCst) == 0 {
            return take_slowly(&mut connection).await;
        }
        connection.read_exact(&mut vec![0; length]).await.expect("all of it");
        done.fetch_add(if is_part { length } else { 0 }, Ordering::SeqCst);
        let body = match head.split_whitespace().next() {
            Some("post") if head.contains("?uploads") => {
                "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"
            }
            Some("post") => "<CompleteMultipartUploadResult><ETag>1</ETag></CompleteMultipartUploadResult>",
            _ => "",
        };
        answer(&mut connection, "200 OK", body.as_bytes()).await;
    }
}

#[tokio::test]
async fn a_part_of_an_upload_that_breaks_off_late_is_sent_again_in_its_place() {
    let (listener, address) = listen();
    let (parts, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, taken) = (parts.clone(), done.clone());
    let server = tokio::spawn(async move {
        loop {
            let (connection, _) = listener.accept().await.expect("a connection");
            tokio::spawn(take_upload(BufReader::new(connection), counted.clone(), taken.clone()));
        }
    });
    let mut upload = store(address, patient()).upload("key").await.expect("begins");
    upload.write(Bytes::from(content())).await.expect("a part");
    upload.write(Bytes::from(content())).await.expect("another part");
    upload.finish().await.expect("all parts are there");
    server.abort();
    assert_eq!((parts.load(Ordering::SeqCst), done.load(Ordering::SeqCst)), (3, 2 * LARGE));
}

#[tokio::test]
async fn an_object_that_is_read_piece_by_piece_goes_on_where_it_broke_off() {
    let (listener, address) = listen();
    let server = tokio::spawn(async move {
        let mut first = BufReader::new(listener.accept().await.expect("a connection").0);
        read_head(&mut first).await.expect("a request");
        let head = format!(
            "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n\
             content-length: {LARGE}\r\n\r\n"
        );
        first.write_all(head.as_bytes()).await.expect("answers");
        give_slowly(&mut first, &content()).await;
        drop(first);
        let mut second = BufReader::new(listener.accept().await.expect("another connection").0);
        let (head, _) = read_head(&mut second).await.expect("a request");
        let range = head.split_once("range: bytes=").expect("a range").1;
        let from: usize = range.split_once('-').expect("a beginning").0.parse().expect("a number");
        let partial = format!("206 Partial Content\r\nContent-Range: bytes {from}-{}/{LARGE}", LARGE - 1);
        answer(&mut second, &partial, &content()[from..]).await;
        (head, from)
    });
    let reader = store(address, patient()).reader("key").await.expect("begins");
    let pieces: Vec<Bytes> = reader.try_collect().await.expect("goes on");
    assert!(pieces.concat() == content(), "the same bytes");
    let (head, from) = server.await.expect("no panic");
    assert!(from > 0 && head.contains("if-match: \"1\""), "{head}");
}
