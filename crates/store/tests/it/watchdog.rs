//! A server that stands still: the request is cancelled, tried again, and somebody is told.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use plimsoll_store::{Location, Store, Tuning, Wait};

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

#[tokio::test]
async fn a_request_that_moves_no_bytes_is_tried_again_and_reported() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let requests = Arc::new(AtomicUsize::new(0));
    let server = tokio::spawn(serve_all_but_the_first(listener, requests.clone()));

    let mut location = Location { provider: "aws".into(), bucket: "b".into(), ..Location::default() };
    location.config.insert("s3Url".into(), format!("http://{address}"));
    location.config.insert("s3ForcePathStyle".into(), "true".into());
    location.credentials = Some(b"[default]\naws_access_key_id=a\naws_secret_access_key=b".to_vec().into());
    location.tuning = Tuning { idle: Duration::from_millis(200), ..Tuning::default() };
    let store = Store::open(&location).expect("opens");

    let heard = Arc::new(Mutex::new(Vec::new()));
    let noted = heard.clone();
    let observing = store.observe(Arc::new(move |wait: &Wait| noted.lock().expect("alone").push(wait.reason.clone())));
    assert_eq!(store.get("key").await.expect("the second try is answered"), "answer");
    drop(observing);
    server.abort();
    assert_eq!(requests.load(Ordering::SeqCst), 2);
    assert_eq!(*heard.lock().expect("alone"), ["s3://b has moved no bytes for 200ms; trying again"]);
}
