//! The fault proxy injects each fault into matching requests only.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::ListParams;
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::wait::{WAIT_TIMEOUT, until};
use plimsoll_testkit::{Pod, Proxy, Stopwatch, cluster, require};
use tokio::net::{TcpListener, TcpStream};

const ANSWER: usize = 100_000;
const SOON: Duration = Duration::from_millis(400);

/// A server that counts the requests and the bytes it gets, and answers each with 100,000 bytes.
struct Server {
    url: String,
    requests: Arc<AtomicUsize>,
    received: Arc<AtomicUsize>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { url, requests: Arc::default(), received: Arc::default() };
        let (requests, received) = (Arc::clone(&server.requests), Arc::clone(&server.received));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (requests, received) = (Arc::clone(&requests), Arc::clone(&received));
                let answer =
                    move |request: Request<Incoming>| answer(request, Arc::clone(&requests), Arc::clone(&received));
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), service_fn(answer)));
            }
        });
        server
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

async fn answer(
    request: Request<Incoming>,
    requests: Arc<AtomicUsize>,
    received: Arc<AtomicUsize>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    requests.fetch_add(1, Ordering::SeqCst);
    let mut body = request.into_body();
    while let Some(Ok(frame)) = body.frame().await {
        received.fetch_add(frame.data_ref().map_or(0, Bytes::len), Ordering::SeqCst);
    }
    Ok(Response::new(Full::from(vec![b'x'; ANSWER])))
}

async fn send(proxy: &Proxy, method: Method, path: &str, body: &[u8]) -> Result<Response<Incoming>, hyper::Error> {
    let address = proxy.url().replace("http://", "");
    let stream = TcpStream::connect(&address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let body = Full::new(Bytes::copy_from_slice(body));
    sender.send_request(Request::builder().method(method).uri(path).header("host", address).body(body).unwrap()).await
}

async fn get(proxy: &Proxy, path: &str) -> Result<Response<Incoming>, hyper::Error> {
    send(proxy, Method::GET, path, b"").await
}

/// The number of received bytes of the body, and whether it was complete.
async fn read(response: Response<Incoming>) -> (usize, bool) {
    let (mut body, mut count) = (response.into_body(), 0);
    loop {
        match body.frame().await {
            None => return (count, true),
            Some(Err(_)) => return (count, false),
            Some(Ok(frame)) => count += frame.data_ref().map_or(0, Bytes::len),
        }
    }
}

async fn both() -> (Server, Proxy) {
    let server = Server::start().await;
    let proxy = Proxy::for_server("127.0.0.1:0", &server.url).await.unwrap();
    (server, proxy)
}

#[tokio::test]
async fn without_faults_it_changes_nothing() {
    let (server, proxy) = both().await;
    assert_eq!(read(send(&proxy, Method::PUT, "/a?b=c", &[1; 5000]).await.unwrap()).await, (ANSWER, true));
    assert_eq!(server.received.load(Ordering::SeqCst), 5000);
    assert_eq!(proxy.count_requests(&Requests::with_method(Method::PUT).containing("b=c")), 1);
    assert_eq!(proxy.count_requests(&Requests::with_method(Method::GET)), 0);
}

#[tokio::test]
async fn latency_delays_the_matching_request_and_no_other() {
    let (_server, proxy) = both().await;
    let fault = proxy.inject(Requests::all().containing("/slow"), Fault::Latency(SOON));
    let started = Stopwatch::start();
    read(get(&proxy, "/fast").await.unwrap()).await;
    assert!(started.elapsed() < SOON);
    let started = Instant::now();
    assert_eq!(read(get(&proxy, "/slow").await.unwrap()).await, (ANSWER, true));
    assert!(started.elapsed() >= SOON);
    assert_eq!(fault.hits(), 1);
}

#[tokio::test]
async fn a_status_is_returned_up_to_the_limit_and_the_server_never_gets_the_request() {
    let (server, proxy) = both().await;
    let fault = proxy.inject(Requests::all().first(2), Fault::Status(503));
    for _ in 0..2 {
        assert_eq!(get(&proxy, "/").await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(server.requests(), 0);
    assert_eq!(get(&proxy, "/").await.unwrap().status(), StatusCode::OK);
    assert_eq!(fault.hits(), 2);
}

#[tokio::test]
async fn one_in_a_few_requests_meets_a_fault_and_the_others_do_not() {
    let (_server, proxy) = both().await;
    let fault = proxy.inject(Requests::all().containing("/some").one_in(3), Fault::Status(503));
    let mut refused = 0;
    for _ in 0..300 {
        refused += usize::from(get(&proxy, "/some").await.unwrap().status() == StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(get(&proxy, "/other").await.unwrap().status(), StatusCode::OK);
    assert_eq!(refused, fault.hits());
    assert!((70..=130).contains(&refused), "{refused} of 300");
}

#[tokio::test]
async fn a_fault_ends_when_its_guard_is_dropped() {
    let (_server, proxy) = both().await;
    drop(proxy.inject(Requests::all(), Fault::Status(500)));
    assert_eq!(get(&proxy, "/").await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_hang_gives_no_response_and_the_server_never_gets_the_request() {
    let (server, proxy) = both().await;
    let _fault = proxy.inject(Requests::all(), Fault::Hang);
    assert!(tokio::time::timeout(SOON, get(&proxy, "/")).await.is_err());
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn a_closed_connection_ends_the_request() {
    let (server, proxy) = both().await;
    let _fault = proxy.inject(Requests::all(), Fault::CloseConnection);
    assert!(get(&proxy, "/").await.is_err());
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn a_dropped_response_does_not_prevent_the_work_of_the_server() {
    let (server, proxy) = both().await;
    let _fault = proxy.inject(Requests::all(), Fault::DropResponse);
    assert!(get(&proxy, "/").await.is_err());
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn a_truncated_response_ends_after_the_exact_number_of_bytes() {
    let (_server, proxy) = both().await;
    let _fault = proxy.inject(Requests::all(), Fault::TruncateResponse(1234));
    assert_eq!(read(get(&proxy, "/").await.unwrap()).await, (1234, false));
}

#[tokio::test]
async fn a_stalled_response_stalls_after_the_number_of_bytes() {
    let (_server, proxy) = both().await;
    let _fault = proxy.inject(Requests::all(), Fault::StallResponse(1234));
    let mut body = get(&proxy, "/").await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), 1234);
    assert!(tokio::time::timeout(SOON, body.frame()).await.is_err());
}

#[tokio::test]
async fn a_truncated_request_reaches_the_server_partially() {
    let (server, proxy) = both().await;
    let _fault = proxy.inject(Requests::all(), Fault::TruncateRequest(1234));
    assert!(send(&proxy, Method::PUT, "/", &[1; 5000]).await.is_err());
    let received = || async { Ok::<_, Infallible>((server.received.load(Ordering::SeqCst) == 1234).then_some(())) };
    until("the part", WAIT_TIMEOUT, received).await.unwrap();
}

#[tokio::test]
async fn a_stall_stops_all_traffic_until_it_ends() {
    let (_server, proxy) = both().await;
    proxy.stall();
    let request = get(&proxy, "/");
    tokio::pin!(request);
    assert!(tokio::time::timeout(SOON, &mut request).await.is_err());
    proxy.open();
    assert_eq!(read(request.await.unwrap()).await, (ANSWER, true));
}

#[tokio::test]
async fn a_bandwidth_limit_is_shared_by_all_connections_until_removed() {
    let (_server, proxy) = both().await;
    let one = async || read(get(&proxy, "/").await.unwrap()).await;
    proxy.slow_down(Some(250_000));
    let begun = Instant::now();
    assert_eq!(tokio::join!(one(), one()), ((ANSWER, true), (ANSWER, true)));
    assert!(begun.elapsed() >= Duration::from_millis(800), "{:?}", begun.elapsed());
    proxy.slow_down(None);
    let fast = tokio::time::timeout(Duration::from_mins(1), async {
        for _ in 0..300 {
            one().await;
        }
    });
    fast.await.expect("it would take two minutes with the limit");
}

#[tokio::test]
async fn closing_ends_open_streams_and_rejects_new_ones_until_reopened() {
    let (_server, proxy) = both().await;
    let fault = proxy.inject(Requests::all(), Fault::StallResponse(10));
    let open = get(&proxy, "/").await.unwrap();
    proxy.close();
    assert_eq!(read(open).await, (10, false));
    drop(fault);
    assert!(get(&proxy, "/").await.is_err());
    proxy.open();
    assert_eq!(read(get(&proxy, "/").await.unwrap()).await, (ANSWER, true));
}

#[tokio::test]
async fn a_proxy_for_an_api_server_passes_lists_and_exec_and_returns_status_errors() {
    let cluster = require!(cluster().await);
    let proxy = Proxy::for_api_server(cluster).await.unwrap();
    let client = proxy.client().await.unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    assert!(!namespaces.list(&ListParams::default()).await.unwrap().items.is_empty());

    let fault = proxy.inject(Requests::all().containing("/namespaces/default"), Fault::Status(409));
    match namespaces.get("default").await {
        Err(kube::Error::Api(status)) => assert!(status.is_conflict(), "{status:?}"),
        other => panic!("expected a conflict, got {other:?}"),
    }
    drop(fault);

    let namespace = cluster.namespace("proxy").await.unwrap();
    let pod = Pod::idle("idle").create(&client, namespace.name()).await.unwrap();
    pod.ready().await.unwrap();
    assert_eq!(pod.exec(["echo", "through"]).await.unwrap().stdout, "through\n");
    assert_eq!(proxy.count_requests(&Requests::all().containing("/exec?")), 1);
}
