//! `pods/log` and `pods/exec`.

use super::{lock, log::LogFormatter, pod::items, sandbox};
use crate::{
    Core,
    key::Key,
    object::text,
    request::Query,
    response::{self, Body},
    status_error::{StatusDetails, StatusError},
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

/// Interval at which a followed log is read.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The channels of a frame; with `v5`, the last says that the channel in the next byte has ended.
const STDIN: u8 = 0;
const ERROR: u8 = 3;
const CLOSE: u8 = 255;

/// The name of the requested container, by default of the first one.
fn container_name(pod: &Value, wanted: &str) -> Result<String, StatusError> {
    let mut all = items(pod, "/spec/containers").chain(items(pod, "/spec/initContainers"));
    let found = all.find(|one| wanted.is_empty() || text(one, "/name") == wanted);
    let unknown = || StatusError::bad_request(format!("container {wanted} is not valid for this pod"));
    Ok(text(found.ok_or_else(unknown)?, "/name").to_owned())
}

fn status<'a>(pod: &'a Value, container_name: &str) -> &'a Value {
    let all = items(pod, "/status/containerStatuses").chain(items(pod, "/status/initContainerStatuses"));
    all.into_iter().find(|status| text(status, "/name") == container_name).unwrap_or(&Value::Null)
}

impl Core {
    fn pod(&self, key: &Key) -> Result<Value, StatusError> {
        self.read_object("pods", &key.namespace, &key.name)?
            .ok_or_else(|| StatusError::not_found(StatusDetails { group: "", kind: "pods", name: &key.name }))
    }

    /// The log of a container. A followed log ends with the container.
    pub async fn log(self: &Arc<Self>, key: &Key, query: &Query) -> Result<Response<Body>, StatusError> {
        let pod = self.pod(key)?;
        let node = self.node.get().ok_or_else(|| StatusError::not_implemented("pods/log without --run-pods"))?;
        let container_name = container_name(&pod, &query.container)?;
        let count = status(&pod, &container_name)["restartCount"].as_u64().unwrap_or_default();
        let run = count.checked_sub(u64::from(query.has_flag("previous")));
        let logs = node.directory.join("pods").join(text(&pod, "/metadata/uid")).join("logs").join(&container_name);
        let open = File::open(logs.join(format!("{}.log", run.unwrap_or(u64::MAX)))).await;
        let reason = text(status(&pod, &container_name), "/state/waiting/reason").to_owned();
        let not_started =
            |_| StatusError::bad_request(format!("container {container_name:?} is waiting to start: {reason}"));
        let mut file = open.map_err(not_started)?;
        let mut first = Vec::new();
        file.read_to_end(&mut first).await.map_err(|error| StatusError::internal(error.to_string()))?;
        let mut formatter = LogFormatter::new(query.has_flag("timestamps"), query.since);
        let first = tail(&formatter.format(&first), query.tail);
        let (core, key) = (Arc::clone(self), key.clone());
        let container_runs = move || {
            let now = core.pod(&key).unwrap_or_default();
            let now = status(&now, &container_name);
            now["restartCount"].as_u64() == run && now["state"]["terminated"].is_null()
        };
        let rest = stream::unfold((file, formatter, container_runs, query.has_flag("follow")), next_chunk);
        let mut response = response::stream(stream::iter([first]).chain(rest));
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain"));
        Ok(response)
    }

    /// Runs a command in a container, over a WebSocket.
    pub fn exec(&self, key: &Key, query: &Query, parts: &Parts) -> Result<Response<Body>, StatusError> {
        let pod = self.pod(key)?;
        let node = self.node.get().ok_or_else(|| StatusError::not_implemented("pods/exec without --run-pods"))?;
        if query.has_flag("tty") {
            return Err(StatusError::bad_request("the embedded node does not support terminals; omit -t"));
        }
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let offered = header("sec-websocket-protocol");
        let protocol = ["v5.channel.k8s.io", "v4.channel.k8s.io"].into_iter().find(|known| offered.contains(known));
        let (Some(protocol), Some(upgrade)) = (protocol, parts.extensions.get::<OnUpgrade>().cloned()) else {
            return Err(StatusError::bad_request("exec needs a WebSocket with v5.channel.k8s.io or v4.channel.k8s.io"));
        };
        let container_name = container_name(&pod, &query.container)?;
        let runner = lock(&node.runners).get(text(&pod, "/metadata/uid")).cloned();
        let running = runner.and_then(|runner| runner.sandbox_config(&container_name));
        let (process, config) =
            running.ok_or_else(|| StatusError::bad_request(format!("container {container_name} is not running")))?;
        let (command, wants_input) = (sandbox::exec_command(&config, process, &query.command), query.has_flag("stdin"));
        tokio::spawn(async move {
            match upgrade.await {
                Ok(upgraded) => run_exec(TokioIo::new(upgraded), command, wants_input).await,
                Err(error) => tracing::debug!(%error, "exec: connection upgrade failed"),
            }
        });
        let response = Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(header::UPGRADE, "websocket")
            .header(header::CONNECTION, "Upgrade")
            .header(header::SEC_WEBSOCKET_ACCEPT, derive_accept_key(header("sec-websocket-key").as_bytes()))
            .header(header::SEC_WEBSOCKET_PROTOCOL, protocol)
            .body(Empty::new().boxed_unsync());
        response.map_err(|error| StatusError::internal(error.to_string()))
    }
}

fn tail(log: &[u8], lines: Option<usize>) -> Bytes {
    let Some(lines) = lines else { return Bytes::copy_from_slice(log) };
    let all: Vec<&[u8]> = log.split_inclusive(|byte| *byte == b'\n').collect();
    all[all.len().saturating_sub(lines)..].concat().into()
}

/// An open log: its file, its formatter, whether its container runs, and whether it is followed.
type LogReader<R> = (File, LogFormatter, R, bool);

/// The next chunk of a log. After the container has ended, the rest of its output is still read.
async fn next_chunk<R: Fn() -> bool>(
    (mut file, mut formatter, container_runs, is_followed): LogReader<R>,
) -> Option<(Bytes, LogReader<R>)> {
    let mut chunk = vec![0; 32 * 1024];
    loop {
        let is_running = container_runs();
        let read = file.read(&mut chunk).await.ok()?;
        if read > 0 {
            let output = formatter.format(&chunk[..read]);
            return Some((output, (file, formatter, container_runs, is_followed)));
        }
        if !is_followed || !is_running {
            return None;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn frame(channel: u8, bytes: &[u8]) -> Message {
    Message::Binary([&[channel], bytes].concat().into())
}

/// Copies bytes between a WebSocket and a process until one of them ends.
async fn run_exec<S>(socket: S, mut command: Command, wants_input: bool)
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
        sink.send(frame(ERROR, exit_status(code).to_string().as_bytes())).await?;
        let end = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        sink.send(Message::Close(Some(end))).await
    };
    let input = async {
        while let Some(Ok(message)) = source.next().await {
            match (message, &mut input) {
                (Message::Close(_), _) => return,
                (Message::Binary(bytes), _) if bytes.starts_with(&[CLOSE, STDIN]) => input = None,
                (Message::Binary(bytes), Some(pipe)) if bytes.first() == Some(&STDIN) => {
                    // The process may have closed its standard input.
                    let _ = pipe.write_all(&bytes[1..]).await;
                }
                _ => {}
            }
        }
    };
    tokio::select! {
        sent = output => if let Err(error) = sent { tracing::debug!(%error, "exec: connection failed") },
        () = input => tracing::debug!("exec: client disconnected"),
    }
}

fn outputs(child: &mut Child) -> impl Stream<Item = Message> + use<> {
    let out = child.stdout.take().map(ReaderStream::new);
    let err = child.stderr.take().map(ReaderStream::new);
    let out = stream::iter(out).flatten().filter_map(|chunk| async { Some(frame(1, &chunk.ok()?)) });
    let err = stream::iter(err).flatten().filter_map(|chunk| async { Some(frame(2, &chunk.ok()?)) });
    stream::select(out, err)
}

/// The final status on the error channel.
fn exit_status(code: i32) -> Value {
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: {code}"),
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}
