//! `pods/log` and `pods/exec`.

use super::{lock, log::View, pod::items, sandbox};
use crate::{
    Core,
    answer::{self, Body},
    failure::{About, Failure},
    key::Key,
    object::text,
    target::Query,
};
use bytes::Bytes;
use futures::{SinkExt, Stream, StreamExt, stream};
use http::{Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Empty};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role, frame::coding::CloseCode},
    },
};
use tokio_util::io::ReaderStream;

/// How often a log that is followed is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// The channels of a frame; with `v5`, the last says that the channel in the next byte has ended.
const STDIN: u8 = 0;
const ERROR: u8 = 3;
const CLOSE: u8 = 255;

/// The name of the container that is meant, or of the first one.
fn container(pod: &Value, wanted: &str) -> Result<String, Failure> {
    let mut all = items(pod, "/spec/containers").chain(items(pod, "/spec/initContainers"));
    let found = all.find(|one| wanted.is_empty() || text(one, "/name") == wanted);
    let unknown = || Failure::bad_request(format!("container {wanted} is not valid for this pod"));
    Ok(text(found.ok_or_else(unknown)?, "/name").to_owned())
}

fn status<'a>(pod: &'a Value, container: &str) -> &'a Value {
    let all = items(pod, "/status/containerStatuses").chain(items(pod, "/status/initContainerStatuses"));
    all.into_iter().find(|status| text(status, "/name") == container).unwrap_or(&Value::Null)
}

impl Core {
    fn pod(&self, key: &Key) -> Result<Value, Failure> {
        self.read("pods", &key.namespace, &key.name)?
            .ok_or_else(|| Failure::not_found(About { group: "", kind: "pods", name: &key.name }))
    }

    /// The log of a container, from where it is wanted; followed, it ends with the container.
    pub async fn log(self: &Arc<Self>, key: &Key, query: &Query) -> Result<Response<Body>, Failure> {
        let pod = self.pod(key)?;
        let node = self.node.get().ok_or_else(|| Failure::not_implemented("pods/log without --run-pods"))?;
        let container = container(&pod, &query.container)?;
        let count = status(&pod, &container)["restartCount"].as_u64().unwrap_or_default();
        let run = count.checked_sub(u64::from(query.is("previous")));
        let logs = node.directory.join("pods").join(text(&pod, "/metadata/uid")).join("logs").join(&container);
        let open = File::open(logs.join(format!("{}.log", run.unwrap_or(u64::MAX)))).await;
        let reason = text(status(&pod, &container), "/state/waiting/reason").to_owned();
        let absent = |_| Failure::bad_request(format!("container {container:?} is waiting to start: {reason}"));
        let mut file = open.map_err(absent)?;
        let mut first = Vec::new();
        file.read_to_end(&mut first).await.map_err(|error| Failure::internal(error.to_string()))?;
        let mut view = View::new(query.is("timestamps"), query.since);
        let first = tail(&view.show(&first), query.tail);
        let (core, key) = (Arc::clone(self), key.clone());
        let runs = move || {
            let now = core.pod(&key).unwrap_or_default();
            let now = status(&now, &container);
            now["restartCount"].as_u64() == run && now["state"]["terminated"].is_null()
        };
        let rest = stream::unfold((file, view, runs, query.is("follow")), follow);
        let mut response = answer::stream(stream::iter([first]).chain(rest));
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain"));
        Ok(response)
    }

    /// Runs a command in a container, over a WebSocket.
    pub fn exec(&self, key: &Key, query: &Query, parts: &Parts) -> Result<Response<Body>, Failure> {
        let pod = self.pod(key)?;
        let node = self.node.get().ok_or_else(|| Failure::not_implemented("pods/exec without --run-pods"))?;
        if query.is("tty") {
            return Err(Failure::bad_request("the local node has no terminals: leave out -t"));
        }
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let offered = header("sec-websocket-protocol");
        let spoken = ["v5.channel.k8s.io", "v4.channel.k8s.io"].into_iter().find(|known| offered.contains(known));
        let (Some(spoken), Some(upgrade)) = (spoken, parts.extensions.get::<OnUpgrade>().cloned()) else {
            return Err(Failure::bad_request("exec needs a WebSocket with v5.channel.k8s.io or v4.channel.k8s.io"));
        };
        let container = container(&pod, &query.container)?;
        let run = lock(&node.runs).get(text(&pod, "/metadata/uid")).cloned();
        let place = run.and_then(|run| run.place(&container));
        let (process, plan) =
            place.ok_or_else(|| Failure::bad_request(format!("container {container} does not run")))?;
        let (command, wants_input) = (sandbox::enter(&plan, process, &query.command), query.is("stdin"));
        tokio::spawn(async move {
            match upgrade.await {
                Ok(upgraded) => talk(TokioIo::new(upgraded), command, wants_input).await,
                Err(error) => tracing::debug!(%error, "an exec was not taken up"),
            }
        });
        let response = Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(header::UPGRADE, "websocket")
            .header(header::CONNECTION, "Upgrade")
            .header(header::SEC_WEBSOCKET_ACCEPT, derive_accept_key(header("sec-websocket-key").as_bytes()))
            .header(header::SEC_WEBSOCKET_PROTOCOL, spoken)
            .body(Empty::new().boxed_unsync());
        response.map_err(|error| Failure::internal(error.to_string()))
    }
}

fn tail(log: &[u8], lines: Option<usize>) -> Bytes {
    let Some(lines) = lines else { return Bytes::copy_from_slice(log) };
    let all: Vec<&[u8]> = log.split_inclusive(|byte| *byte == b'\n').collect();
    all[all.len().saturating_sub(lines)..].concat().into()
}

/// A log that is read: its file, how it is shown, whether its container runs, and whether its end is waited for.
type Open<R> = (File, View, R, bool);

/// The next piece of a log. What was written before the end of the container is read after it.
async fn follow<R: Fn() -> bool>((mut file, mut view, runs, goes_on): Open<R>) -> Option<(Bytes, Open<R>)> {
    let mut piece = vec![0; 32 * 1024];
    loop {
        let alive = runs();
        let read = file.read(&mut piece).await.ok()?;
        if read > 0 {
            let shown = view.show(&piece[..read]);
            return Some((shown, (file, view, runs, goes_on)));
        }
        if !goes_on || !alive {
            return None;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn framed(channel: u8, bytes: &[u8]) -> Message {
    Message::Binary([&[channel], bytes].concat().into())
}

/// Carries bytes between a WebSocket and a process until one of them ends.
async fn talk<S>(socket: S, mut command: Command, wants_input: bool)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send,
{
    let socket = WebSocketStream::from_raw_socket(socket, Role::Server, None).await;
    let (mut sink, mut source) = socket.split();
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return tracing::warn!(%error, "cannot run nsenter of util-linux"),
    };
    let mut input = child.stdin.take().filter(|_| wants_input);
    let outputs = outputs(&mut child);
    let output = async {
        let mut outputs = std::pin::pin!(outputs);
        while let Some(message) = outputs.next().await {
            sink.send(message).await?;
        }
        let code = child.wait().await.ok().and_then(|status| status.code()).unwrap_or(137);
        sink.send(framed(ERROR, verdict(code).to_string().as_bytes())).await?;
        let end = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        sink.send(Message::Close(Some(end))).await
    };
    let input = async {
        while let Some(Ok(message)) = source.next().await {
            match (message, &mut input) {
                (Message::Close(_), _) => return,
                (Message::Binary(bytes), _) if bytes.starts_with(&[CLOSE, STDIN]) => input = None,
                (Message::Binary(bytes), Some(pipe)) if bytes.first() == Some(&STDIN) => {
                    // A process that has closed its input does not want the rest.
                    let _ = pipe.write_all(&bytes[1..]).await;
                }
                _ => {}
            }
        }
    };
    tokio::select! {
        sent = output => if let Err(error) = sent { tracing::debug!(%error, "an exec ended early") },
        () = input => tracing::debug!("the client of an exec has gone"),
    }
}

fn outputs(child: &mut Child) -> impl Stream<Item = Message> + use<> {
    let out = child.stdout.take().map(ReaderStream::new);
    let err = child.stderr.take().map(ReaderStream::new);
    let out = stream::iter(out).flatten().filter_map(|piece| async { Some(framed(1, &piece.ok()?)) });
    let err = stream::iter(err).flatten().filter_map(|piece| async { Some(framed(2, &piece.ok()?)) });
    stream::select(out, err)
}

/// What the error channel says at the end.
fn verdict(code: i32) -> Value {
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: {code}"),
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}
