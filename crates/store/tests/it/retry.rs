//! Slow connections that fail late: a transfer that moved bytes is restarted, an idle one fails early.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use plimsoll_store::{Location, Store, Tuning};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

const RETRY_TIMEOUT: Duration = Duration::from_secs(1);
/// More than the buffers of a connection hold, and enough to fill a part of an upload.
const BODY_SIZE: usize = 5 << 20;
const CHUNK_SIZE: usize = 64 << 10;

/// Small buffers on the server's side, so that most of what was sent has arrived.
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

fn short_retry_timeout() -> Tuning {
    Tuning { retry_timeout: RETRY_TIMEOUT, ..Tuning::default() }
}

/// The head of a request in lower case, and the length of its body. `None` once the client has disconnected.
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

/// Receives more than the buffers hold, after the provider's own retry timeout is over.
async fn receive_slowly(connection: &mut BufReader<TcpStream>) {
    tokio::time::sleep(RETRY_TIMEOUT).await;
    connection.read_exact(&mut vec![0; BODY_SIZE / 2]).await.expect("more bytes");
}

async fn send_slowly(connection: &mut BufReader<TcpStream>, content: &[u8]) {
    connection.write_all(&content[..CHUNK_SIZE]).await.expect("sent");
    tokio::time::sleep(RETRY_TIMEOUT).await;
    connection.write_all(&content[CHUNK_SIZE..2 * CHUNK_SIZE]).await.expect("sent");
}

async fn respond(connection: &mut BufReader<TcpStream>, head: &str, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 {head}\r\nETag: \"1\"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes()).await.expect("sent");
    connection.write_all(body).await.expect("sent");
}

fn content() -> Vec<u8> {
    (0..=250).cycle().take(BODY_SIZE).collect()
}

#[tokio::test]
async fn a_body_that_fails_late_on_a_slow_connection_is_sent_again() {
    let (listener, address) = listen();
    let server = tokio::spawn(async move {
        let mut first = BufReader::new(listener.accept().await.expect("a connection").0);
        read_head(&mut first).await.expect("a request");
        receive_slowly(&mut first).await;
        drop(first);
        let mut second = BufReader::new(listener.accept().await.expect("another connection").0);
        let (_, length) = read_head(&mut second).await.expect("a request");
        let mut body = vec![0; length];
        second.read_exact(&mut body).await.expect("the whole body");
        respond(&mut second, "200 OK", b"").await;
        body
    });
    store(address, short_retry_timeout()).put("key", content()).await.expect("the second attempt succeeds");
    assert!(server.await.expect("no panic") == content(), "the same bytes");
}

#[tokio::test]
async fn a_connection_that_always_fails_ends_with_an_error_that_counts_the_attempts() {
    let (listener, address) = listen();
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let server = tokio::spawn(async move {
        loop {
            let mut connection = BufReader::new(listener.accept().await.expect("a connection").0);
            read_head(&mut connection).await.expect("a request");
            counted.fetch_add(1, Ordering::SeqCst);
            receive_slowly(&mut connection).await;
        }
    });
    let store = store(address, Tuning { max_retries: 1, ..short_retry_timeout() });
    let error = store.put("data/pack", content()).await.expect_err("the connection always fails");
    server.abort();
    assert_eq!((error.reason(), error.is_retryable()), ("StoreUnavailable", true));
    let expected = "request failed for data/pack in s3://b: failed after 2 attempts; last error: ";
    assert!(error.to_string().starts_with(expected), "{error}");
    assert_eq!(attempts.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn bytes_in_buffers_do_not_count_as_progress_of_a_store_that_receives_nothing() {
    let (listener, address) = listen();
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let server = tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            held.push(listener.accept().await.expect("a connection"));
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let store = store(address, Tuning { idle_timeout: RETRY_TIMEOUT / 4, ..short_retry_timeout() });
    let error = store.put("key", content()).await.expect_err("the server receives nothing");
    server.abort();
    assert!(error.is_retryable() && !error.to_string().contains("failed after"), "{error}");
    assert!(attempts.load(Ordering::SeqCst) < 6, "{attempts:?} attempts of a quarter of the time each");
}

#[tokio::test]
async fn a_range_that_fails_late_on_a_slow_connection_is_read_again() {
    let (listener, address) = listen();
    let server = tokio::spawn(async move {
        let partial = format!("206 Partial Content\r\nContent-Range: bytes 0-{}/{BODY_SIZE}", BODY_SIZE - 1);
        let mut first = BufReader::new(listener.accept().await.expect("a connection").0);
        read_head(&mut first).await.expect("a request");
        let head = format!(
            "HTTP/1.1 {partial}\r\nETag: \"1\"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n\
             content-length: {BODY_SIZE}\r\n\r\n"
        );
        first.write_all(head.as_bytes()).await.expect("sent");
        send_slowly(&mut first, &content()).await;
        drop(first);
        let mut second = BufReader::new(listener.accept().await.expect("another connection").0);
        read_head(&mut second).await.expect("a request");
        respond(&mut second, &partial, &content()).await;
    });
    let read = store(address, short_retry_timeout())
        .get_range("key", 0..BODY_SIZE as u64)
        .await
        .expect("the second attempt succeeds");
    server.await.expect("no panic");
    assert!(read == content(), "the same bytes");
}

/// Serves one connection of a multipart upload. The first part is received slowly and then fails.
async fn receive_upload(mut connection: BufReader<TcpStream>, parts: Arc<AtomicUsize>, stored: Arc<AtomicUsize>) {
    while let Some((head, length)) = read_head(&mut connection).await {
        let is_part = head.contains("partnumber=");
        if is_part && parts.fetch_add(1, Ordering::SeqCst) == 0 {
            return receive_slowly(&mut connection).await;
        }
        connection.read_exact(&mut vec![0; length]).await.expect("the whole body");
        stored.fetch_add(if is_part { length } else { 0 }, Ordering::SeqCst);
        let body = match head.split_whitespace().next() {
            Some("post") if head.contains("?uploads") => {
                "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"
            }
            Some("post") => "<CompleteMultipartUploadResult><ETag>1</ETag></CompleteMultipartUploadResult>",
            _ => "",
        };
        respond(&mut connection, "200 OK", body.as_bytes()).await;
    }
}

#[tokio::test]
async fn a_part_of_an_upload_that_fails_late_is_sent_again() {
    let (listener, address) = listen();
    let (parts, stored) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, received) = (parts.clone(), stored.clone());
    let server = tokio::spawn(async move {
        loop {
            let (connection, _) = listener.accept().await.expect("a connection");
            tokio::spawn(receive_upload(BufReader::new(connection), counted.clone(), received.clone()));
        }
    });
    let mut upload = store(address, short_retry_timeout()).upload("key").await.expect("started");
    upload.write(Bytes::from(content())).await.expect("a part");
    upload.write(Bytes::from(content())).await.expect("another part");
    upload.finish().await.expect("complete");
    server.abort();
    assert_eq!((parts.load(Ordering::SeqCst), stored.load(Ordering::SeqCst)), (3, 2 * BODY_SIZE));
}

#[tokio::test]
async fn a_streamed_read_resumes_at_its_offset() {
    let (listener, address) = listen();
    let server = tokio::spawn(async move {
        let mut first = BufReader::new(listener.accept().await.expect("a connection").0);
        read_head(&mut first).await.expect("a request");
        let head = format!(
            "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n\
             content-length: {BODY_SIZE}\r\n\r\n"
        );
        first.write_all(head.as_bytes()).await.expect("sent");
        send_slowly(&mut first, &content()).await;
        drop(first);
        let mut second = BufReader::new(listener.accept().await.expect("another connection").0);
        let (head, _) = read_head(&mut second).await.expect("a request");
        let range = head.split_once("range: bytes=").expect("a range").1;
        let from: usize = range.split_once('-').expect("a start").0.parse().expect("a number");
        let partial = format!("206 Partial Content\r\nContent-Range: bytes {from}-{}/{BODY_SIZE}", BODY_SIZE - 1);
        respond(&mut second, &partial, &content()[from..]).await;
        (head, from)
    });
    let reader = store(address, short_retry_timeout()).reader("key").await.expect("started");
    let chunks: Vec<Bytes> = reader.try_collect().await.expect("resumed");
    assert!(chunks.concat() == content(), "the same bytes");
    let (head, from) = server.await.expect("no panic");
    assert!(from > 0 && head.contains("if-match: \"1\""), "{head}");
}
