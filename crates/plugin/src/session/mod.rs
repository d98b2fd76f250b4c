//! A session with a plugin binary: its process is started on demand, monitored, and restarted after an exit.

mod health;
mod observers;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use plimsoll_progress::Task;
use prost::Message;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tonic::{Code, Status};

use self::health::HealthMonitor;
pub use self::observers::ObserverGuard;
use self::observers::Observers;
use crate::connection::Connection;
use crate::launch_config::LaunchConfig;
use crate::log_sink::LogSink;
use crate::process::Process;
use crate::sanitize::{sanitize, sanitize_to};
use crate::wire::{
    AppliesToRequest, AppliesToResponse, ClientStreaming, Empty, InitRequest, Method, PluginRequest, SHUTDOWN,
    ServerStreaming,
};
use crate::{Error, Result};

/// How long to wait for the exit of the process after a connection error: the exit status is the better error.
const EXIT_DETECTION_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of an [`InitCall`].
const INIT_TIMEOUT: Duration = Duration::from_mins(2);

/// A call to a new process before any other. Velero's plugin framework creates an implementation at the first call to it, and
/// this is not thread-safe: init calls run one after another.
#[derive(Clone, Debug)]
pub(crate) enum InitCall {
    /// The config of a location.
    Init(Method<InitRequest, Empty>, InitRequest),
    /// The call that creates an item action.
    AppliesTo(Method<AppliesToRequest, AppliesToResponse>, String),
}

impl std::fmt::Debug for Method<InitRequest, Empty> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.path())
    }
}

impl std::fmt::Debug for Method<AppliesToRequest, AppliesToResponse> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.path())
    }
}

/// A plugin binary and its process.
pub struct Session {
    name: String,
    binary: PathBuf,
    launch_config: LaunchConfig,
    logs: Arc<dyn LogSink>,
    init_calls: Vec<InitCall>,
    observers: Observers,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: Option<Arc<RunningProcess>>,
    exits: VecDeque<(Instant, String)>,
}

/// A running process and its connection.
struct RunningProcess {
    process: Process,
    connection: Connection,
    unhealthy: watch::Receiver<Option<Error>>,
    monitor_task: tokio::task::JoinHandle<()>,
}

impl RunningProcess {
    /// Waits until the process can no longer be used; returns the cause.
    async fn wait_for_failure(&self) -> Error {
        let mut unhealthy = self.unhealthy.clone();
        let unhealthy = async move {
            match unhealthy.wait_for(Option::is_some).await.ok().and_then(|found| found.clone()) {
                Some(error) => error,
                // The health monitor has stopped: wait for the exit.
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            error = unhealthy => error,
            error = self.process.wait_for_exit() => error,
        }
    }

    fn is_usable(&self) -> bool {
        !self.process.has_exited() && self.unhealthy.borrow().is_none()
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        self.monitor_task.abort();
    }
}

impl Session {
    /// A session with a binary. The process is started at the first call.
    pub(crate) fn new(
        binary: &Path,
        launch_config: &LaunchConfig,
        logs: Arc<dyn LogSink>,
        init_calls: Vec<InitCall>,
    ) -> Arc<Self> {
        let name =
            binary.file_name().map_or_else(|| binary.display().to_string(), |n| n.to_string_lossy().into_owned());
        Arc::new(Self {
            name: sanitize_to(&name, 100),
            binary: binary.to_owned(),
            launch_config: launch_config.clone(),
            logs,
            init_calls,
            observers: Observers::default(),
            state: Mutex::default(),
        })
    }

    /// The name of the binary.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id, if the process is running.
    pub async fn process_id(&self) -> Option<i32> {
        let state = self.state.lock().await;
        let running = state.running.as_ref().filter(|running| running.is_usable())?;
        running.process.id()
    }

    /// Reports the health of the process on a task until the guard is dropped: a silent process is not stalled, a failed health
    /// check is a stall.
    pub fn observe(&self, task: &Task) -> ObserverGuard {
        task.quiet();
        self.observers.add(task)
    }

    /// Calls a unary method.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call; the plugin may continue its work.
    pub async fn call<Input, Output>(
        &self,
        method: Method<Input, Output>,
        request: Input,
        limit: Duration,
    ) -> Result<Output>
    where
        Input: Message + PluginRequest + 'static,
        Output: Message + Default + 'static,
    {
        let running = self.running_process().await?;
        let call = Call { plugin: request.plugin().to_owned(), name: method.name(), limit };
        self.with_deadline(&running, &call, running.connection.unary(method, request)).await
    }

    /// Calls a client-streaming method.
    pub(crate) async fn client_streaming<Input, Output>(
        &self,
        method: Method<Input, Output, ClientStreaming>,
        plugin: &str,
        requests: impl Stream<Item = Input> + Send + 'static,
        limit: Duration,
    ) -> Result<Output>
    where
        Input: Message + PluginRequest + 'static,
        Output: Message + Default + 'static,
    {
        let running = self.running_process().await?;
        let call = Call { plugin: plugin.to_owned(), name: method.name(), limit };
        self.with_deadline(&running, &call, running.connection.client_streaming(method, requests)).await
    }

    /// Calls a server-streaming method; the limit applies to each message.
    pub(crate) async fn server_streaming<Input, Output>(
        self: &Arc<Self>,
        method: Method<Input, Output, ServerStreaming>,
        request: Input,
        limit: Duration,
    ) -> Result<BoxStream<'static, Result<Output>>>
    where
        Input: Message + PluginRequest + 'static,
        Output: Message + Default + 'static,
    {
        let running = self.running_process().await?;
        let call = Call { plugin: request.plugin().to_owned(), name: method.name(), limit };
        let messages =
            self.with_deadline(&running, &call, running.connection.server_streaming(method, request)).await?;
        let session = Arc::clone(self);
        let next = move |(mut messages, finished): (tonic::Streaming<Output>, bool)| {
            let (session, running, call) = (Arc::clone(&session), Arc::clone(&running), call.clone());
            async move {
                if finished {
                    return None;
                }
                let message = async { messages.message().await.map_err(Box::new) };
                match session.with_deadline(&running, &call, message).await {
                    Ok(Some(message)) => Some((Ok(message), (messages, false))),
                    Ok(None) => None,
                    Err(error) => Some((Err(error), (messages, true))),
                }
            }
        };
        Ok(futures::stream::unfold((messages, false), next).boxed())
    }

    /// Stops the process: requests a shutdown, then kills it.
    pub async fn close(&self) {
        let Some(running) = self.state.lock().await.running.take() else { return };
        let shutdown = async {
            // The process may exit before it has sent the response.
            let _ = running.connection.unary(SHUTDOWN, Empty {}).await;
            running.process.wait_for_exit().await;
        };
        let _ = tokio::time::timeout(self.launch_config.supervision.shutdown_timeout, shutdown).await;
        running.process.kill();
    }

    async fn with_deadline<T>(
        &self,
        running: &RunningProcess,
        call: &Call,
        response: impl Future<Output = Result<T, Box<Status>>>,
    ) -> Result<T> {
        let response = tokio::select! {
            biased;
            response = response => response,
            error = running.wait_for_failure() => return Err(error),
            () = tokio::time::sleep(call.limit) => return Err(call.timed_out()),
        };
        match response {
            Ok(response) => Ok(response),
            Err(status) => Err(classify_status(running, call, &status).await),
        }
    }

    /// The running process, or a new one.
    async fn running_process(&self) -> Result<Arc<RunningProcess>> {
        let mut state = self.state.lock().await;
        if let Some(running) = &state.running {
            if running.is_usable() {
                return Ok(Arc::clone(running));
            }
            let error = running.wait_for_failure().await;
            self.record_exit(&mut state, &error);
        }
        self.check_restart_limit(&mut state)?;
        match self.start().await {
            Ok(running) => {
                self.observers.for_each(Task::liveness_ok);
                state.running = Some(Arc::clone(&running));
                Ok(running)
            }
            Err(error) => {
                if is_process_failure(&error) {
                    self.record_exit(&mut state, &error);
                }
                Err(error)
            }
        }
    }

    fn record_exit(&self, state: &mut State, error: &Error) {
        state.running = None;
        state.exits.push_back((Instant::now(), error.to_string()));
        self.observers.for_each(|task| task.hint(error.to_string()));
        tracing::warn!("{error}");
    }

    fn check_restart_limit(&self, state: &mut State) -> Result<()> {
        let supervision = &self.launch_config.supervision;
        state.exits.retain(|(at, _)| at.elapsed() < supervision.exit_window);
        match state.exits.back() {
            Some((_, last)) if state.exits.len() >= supervision.max_exits => Err(Error::RestartLimitReached {
                plugin: self.name.clone(),
                times: state.exits.len(),
                within: supervision.exit_window,
                last: last.clone(),
            }),
            _ => Ok(()),
        }
    }

    async fn start(&self) -> Result<Arc<RunningProcess>> {
        let (process, socket) = Process::start(&self.name, &self.binary, &self.launch_config, &self.logs).await?;
        let connection = Connection::new(&socket, self.launch_config.supervision.max_message_size);
        let (to, unhealthy) = watch::channel(None);
        let monitor = HealthMonitor {
            name: self.name.clone(),
            connection: connection.clone(),
            interval: self.launch_config.supervision.health_check_interval,
            timeout: self.launch_config.supervision.health_check_timeout,
            observers: self.observers.clone(),
            logs: Arc::clone(&self.logs),
        };
        let killer = process.killer();
        let monitor_task = tokio::spawn(async move {
            if let Some(error) = monitor.run().await {
                let _ = to.send(Some(error));
                killer.kill();
            }
        });
        let running = Arc::new(RunningProcess { process, connection, unhealthy, monitor_task });
        for init_call in &self.init_calls {
            self.run_init_call(&running, init_call).await?;
        }
        Ok(running)
    }

    async fn run_init_call(&self, running: &RunningProcess, init_call: &InitCall) -> Result<()> {
        match init_call {
            InitCall::Init(method, request) => {
                let call = Call { plugin: request.plugin.clone(), name: method.name(), limit: INIT_TIMEOUT };
                self.with_deadline(running, &call, running.connection.unary(*method, request.clone())).await.map(drop)
            }
            InitCall::AppliesTo(method, plugin) => {
                let call = Call { plugin: plugin.clone(), name: method.name(), limit: INIT_TIMEOUT };
                let request = AppliesToRequest { plugin: plugin.clone() };
                self.with_deadline(running, &call, running.connection.unary(*method, request)).await.map(drop)
            }
        }
    }
}

/// Whether the error is the failure of a process.
fn is_process_failure(error: &Error) -> bool {
    use Error as E;
    matches!(error, E::Exited { .. } | E::Unhealthy { .. } | E::HandshakeInvalid { .. } | E::HandshakeTimedOut { .. })
}

/// The plugin and method of a call, for errors.
#[derive(Clone)]
struct Call {
    plugin: String,
    name: String,
    limit: Duration,
}

impl Call {
    fn timed_out(&self) -> Error {
        Error::TimedOut { plugin: self.plugin.clone(), call: self.name.clone(), limit: self.limit }
    }
}

/// The error for a gRPC status.
async fn classify_status(running: &RunningProcess, call: &Call, status: &Status) -> Error {
    let (plugin, name) = (call.plugin.clone(), call.name.clone());
    match status.code() {
        Code::Unimplemented => return Error::Unimplemented { plugin, call: name },
        Code::OutOfRange | Code::ResourceExhausted if is_message_size_error(status.message()) => {
            return Error::MessageTooLarge { plugin, call: name, detail: sanitize(status.message()) };
        }
        _ => {}
    }
    // A broken connection is usually caused by an exit, which is the better error.
    let disconnected = std::error::Error::source(status).is_some() || status.code() == Code::Unavailable;
    if disconnected && let Ok(error) = tokio::time::timeout(EXIT_DETECTION_TIMEOUT, running.wait_for_failure()).await {
        return error;
    }
    Error::CallFailed { plugin, call: name, message: sanitize(status.message()) }
}

/// The messages of tonic and grpc-go; the codes alone are ambiguous.
fn is_message_size_error(message: &str) -> bool {
    message.contains("message length too large") || message.contains("larger than max")
}
