//! A plugin's binary, kept running: started when it is needed, watched while it runs, started again when it has died.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use plimsoll_progress::Task;
use prost::Message;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::channel::Connection;
use crate::launch::Launch;
use crate::logs::{Gravity, LogLine, LogSink, drain};
use crate::process::Process;
use crate::text::{bounded, clean};
use crate::wire::{
    AppliesToRequest, AppliesToResponse, CHECK_HEALTH, Down, Empty, ForPlugin, HEALTH_OF, HealthCheckRequest,
    InitRequest, Method, SERVING, SHUT_DOWN, STREAM_STDIO, StdioData, Up,
};
use crate::{Error, Result};

/// After a broken connection the process is given this long to be seen dead: its end says more than the connection's.
const END_SEEN: Duration = Duration::from_secs(2);
/// A part of a process's beginning that takes longer has failed.
const PRIMING: Duration = Duration::from_mins(2);

/// What a new process is told, in this order and one by one, before anything else is asked of it. The framework of the plugins
/// makes an implementation at the first call for it and is not made for two first calls at once.
#[derive(Clone, Debug)]
pub(crate) enum Prime {
    /// The settings of a location.
    Init(Method<InitRequest, Empty>, InitRequest),
    /// The question that makes an item action be there.
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

/// A binary, kept running.
pub struct Session {
    name: String,
    binary: PathBuf,
    launch: Launch,
    logs: Arc<dyn LogSink>,
    primes: Vec<Prime>,
    observers: Observers,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    live: Option<Arc<Live>>,
    ends: VecDeque<(Instant, String)>,
}

/// One life of the process.
struct Live {
    process: Process,
    connection: Connection,
    sick: watch::Receiver<Option<Error>>,
    watching: tokio::task::JoinHandle<()>,
}

impl Live {
    /// Why it can no longer be used, once it cannot.
    async fn gone(&self) -> Error {
        let mut sick = self.sick.clone();
        let sick = async move {
            match sick.wait_for(Option::is_some).await.ok().and_then(|found| found.clone()) {
                Some(error) => error,
                // Nobody watches it any longer: only its end is left to wait for.
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            error = sick => error,
            error = self.process.end() => error,
        }
    }

    fn is_usable(&self) -> bool {
        !self.process.has_ended() && self.sick.borrow().is_none()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Session {
    /// A session with a binary. Nothing is started before the first call.
    pub(crate) fn new(binary: &Path, launch: &Launch, logs: Arc<dyn LogSink>, primes: Vec<Prime>) -> Arc<Self> {
        let name =
            binary.file_name().map_or_else(|| binary.display().to_string(), |n| n.to_string_lossy().into_owned());
        Arc::new(Self {
            name: bounded(&name, 100),
            binary: binary.to_owned(),
            launch: launch.clone(),
            logs,
            primes,
            observers: Observers::default(),
            state: Mutex::default(),
        })
    }

    /// The name of its binary.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id, while there is one.
    pub async fn process_id(&self) -> Option<i32> {
        let state = self.state.lock().await;
        let live = state.live.as_ref().filter(|live| live.is_usable())?;
        live.process.id()
    }

    /// Shows on a task how the process is, until the returned value is dropped: silence alone is no stall, a failed health
    /// check is one.
    pub fn observe(&self, task: &Task) -> Observing {
        task.quiet();
        self.observers.add(task)
    }

    /// One question, one answer.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call; whether the plugin stops is up to it.
    pub async fn call<Ask, Answer>(&self, method: Method<Ask, Answer>, request: Ask, limit: Duration) -> Result<Answer>
    where
        Ask: Message + ForPlugin + 'static,
        Answer: Message + Default + 'static,
    {
        let live = self.live().await?;
        let call = Call { plugin: request.plugin().to_owned(), name: method.name(), limit };
        self.bounded(&live, &call, live.connection.one(method, request)).await
    }

    /// Several pieces up, one answer.
    pub(crate) async fn send<Ask, Answer>(
        &self,
        method: Method<Ask, Answer, Up>,
        plugin: &str,
        requests: impl Stream<Item = Ask> + Send + 'static,
        limit: Duration,
    ) -> Result<Answer>
    where
        Ask: Message + ForPlugin + 'static,
        Answer: Message + Default + 'static,
    {
        let live = self.live().await?;
        let call = Call { plugin: plugin.to_owned(), name: method.name(), limit };
        self.bounded(&live, &call, live.connection.up(method, requests)).await
    }

    /// One question, several pieces down; the limit is for each of them.
    pub(crate) async fn receive<Ask, Answer>(
        self: &Arc<Self>,
        method: Method<Ask, Answer, Down>,
        request: Ask,
        limit: Duration,
    ) -> Result<BoxStream<'static, Result<Answer>>>
    where
        Ask: Message + ForPlugin + 'static,
        Answer: Message + Default + 'static,
    {
        let live = self.live().await?;
        let call = Call { plugin: request.plugin().to_owned(), name: method.name(), limit };
        let pieces = self.bounded(&live, &call, live.connection.down(method, request)).await?;
        let session = Arc::clone(self);
        let next = move |(mut pieces, ended): (tonic::Streaming<Answer>, bool)| {
            let (session, live, call) = (Arc::clone(&session), Arc::clone(&live), call.clone());
            async move {
                if ended {
                    return None;
                }
                let piece = async { pieces.message().await.map_err(Box::new) };
                match session.bounded(&live, &call, piece).await {
                    Ok(Some(piece)) => Some((Ok(piece), (pieces, false))),
                    Ok(None) => None,
                    Err(error) => Some((Err(error), (pieces, true))),
                }
            }
        };
        Ok(futures::stream::unfold((pieces, false), next).boxed())
    }

    /// Ends the process as the protocol asks for: politely first.
    pub async fn close(&self) {
        let Some(live) = self.state.lock().await.live.take() else { return };
        let farewell = async {
            // The answer does not always come: the process may be gone before it is written.
            let _ = live.connection.one(SHUT_DOWN, Empty {}).await;
            live.process.end().await;
        };
        let _ = tokio::time::timeout(self.launch.supervision.farewell, farewell).await;
        live.process.kill();
    }

    async fn bounded<T>(
        &self,
        live: &Live,
        call: &Call,
        answer: impl Future<Output = Result<T, Box<Status>>>,
    ) -> Result<T> {
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            error = live.gone() => return Err(error),
            () = tokio::time::sleep(call.limit) => return Err(call.timed_out()),
        };
        match answer {
            Ok(answer) => Ok(answer),
            Err(status) => Err(explain(live, call, &status).await),
        }
    }

    /// The process that is there, or a new one.
    async fn live(&self) -> Result<Arc<Live>> {
        let mut state = self.state.lock().await;
        if let Some(live) = &state.live {
            if live.is_usable() {
                return Ok(Arc::clone(live));
            }
            let why = live.gone().await;
            self.note_end(&mut state, &why);
        }
        self.check_ends(&mut state)?;
        match self.start().await {
            Ok(live) => {
                self.observers.each(Task::liveness_ok);
                state.live = Some(Arc::clone(&live));
                Ok(live)
            }
            Err(error) => {
                if is_an_end(&error) {
                    self.note_end(&mut state, &error);
                }
                Err(error)
            }
        }
    }

    fn note_end(&self, state: &mut State, why: &Error) {
        state.live = None;
        state.ends.push_back((Instant::now(), why.to_string()));
        self.observers.each(|task| task.hint(why.to_string()));
        tracing::warn!("{why}");
    }

    fn check_ends(&self, state: &mut State) -> Result<()> {
        let supervision = &self.launch.supervision;
        state.ends.retain(|(at, _)| at.elapsed() < supervision.within);
        match state.ends.back() {
            Some((_, last)) if state.ends.len() >= supervision.ends => Err(Error::GivenUp {
                plugin: self.name.clone(),
                times: state.ends.len(),
                within: supervision.within,
                last: last.clone(),
            }),
            _ => Ok(()),
        }
    }

    async fn start(&self) -> Result<Arc<Live>> {
        let (process, socket) = Process::start(&self.name, &self.binary, &self.launch, &self.logs).await?;
        let connection = Connection::to(&socket, self.launch.supervision.largest_message);
        let (to, sick) = watch::channel(None);
        let monitor = Monitor {
            name: self.name.clone(),
            connection: connection.clone(),
            every: self.launch.supervision.health_every,
            patience: self.launch.supervision.health_patience,
            observers: self.observers.clone(),
            logs: Arc::clone(&self.logs),
        };
        let killer = process.killer();
        let watching = tokio::spawn(async move {
            if let Some(error) = monitor.run().await {
                let _ = to.send(Some(error));
                killer.kill();
            }
        });
        let live = Arc::new(Live { process, connection, sick, watching });
        for prime in &self.primes {
            self.prime(&live, prime).await?;
        }
        Ok(live)
    }

    async fn prime(&self, live: &Live, prime: &Prime) -> Result<()> {
        match prime {
            Prime::Init(method, request) => {
                let call = Call { plugin: request.plugin.clone(), name: method.name(), limit: PRIMING };
                self.bounded(live, &call, live.connection.one(*method, request.clone())).await.map(drop)
            }
            Prime::AppliesTo(method, plugin) => {
                let call = Call { plugin: plugin.clone(), name: method.name(), limit: PRIMING };
                let request = AppliesToRequest { plugin: plugin.clone() };
                self.bounded(live, &call, live.connection.one(*method, request)).await.map(drop)
            }
        }
    }
}

/// Whether an error is the end of a process, rather than a word from one that lives.
fn is_an_end(error: &Error) -> bool {
    use Error as E;
    matches!(error, E::Exited { .. } | E::Unhealthy { .. } | E::HandshakeInvalid { .. } | E::HandshakeTimedOut { .. })
}

/// What is being asked, for errors.
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

/// What a refusal means.
async fn explain(live: &Live, call: &Call, status: &Status) -> Error {
    let (plugin, name) = (call.plugin.clone(), call.name.clone());
    match status.code() {
        Code::Unimplemented => return Error::Unimplemented { plugin, call: name },
        Code::OutOfRange | Code::ResourceExhausted if is_about_size(status.message()) => {
            return Error::Oversized { plugin, call: name, detail: clean(status.message()) };
        }
        _ => {}
    }
    // A connection that breaks is most often a process that ends, and that says more.
    let broken = std::error::Error::source(status).is_some() || status.code() == Code::Unavailable;
    if broken && let Ok(error) = tokio::time::timeout(END_SEEN, live.gone()).await {
        return error;
    }
    Error::Refused { plugin, call: name, message: clean(status.message()) }
}

/// Both ends' words for it; the codes alone also mean other things.
fn is_about_size(message: &str) -> bool {
    message.contains("message length too large") || message.contains("larger than max")
}

/// Asks a process whether it is well, and reads what it writes to what it believes to be its output.
struct Monitor {
    name: String,
    connection: Connection,
    every: Duration,
    patience: Duration,
    observers: Observers,
    logs: Arc<dyn LogSink>,
}

impl Monitor {
    /// Ends when the process is not well. A process that ends is seen by others.
    async fn run(&self) -> Option<Error> {
        tokio::select! {
            error = self.watch_health() => error,
            () = async { self.read_output().await; std::future::pending().await } => None,
        }
    }

    async fn watch_health(&self) -> Option<Error> {
        loop {
            tokio::time::sleep(self.every).await;
            if let Err(cause) = self.check().await {
                let error = Error::Unhealthy { plugin: self.name.clone(), cause };
                self.observers.each(|task| task.liveness_failed(error.to_string()));
                return Some(error);
            }
            self.observers.each(Task::liveness_ok);
        }
    }

    async fn check(&self) -> Result<(), String> {
        let request = HealthCheckRequest { service: HEALTH_OF.to_owned() };
        let asked = self.connection.one(CHECK_HEALTH, request);
        match tokio::time::timeout(self.patience, asked).await {
            Err(_) => Err(format!("no answer within {} s", self.patience.as_secs_f64())),
            Ok(Ok(answer)) if answer.status == SERVING => Ok(()),
            Ok(Ok(answer)) => Err(format!("it says {}", answer.status)),
            // A plugin that has no such service is not sick for that.
            Ok(Err(status)) if matches!(status.code(), Code::Unimplemented | Code::NotFound) => Ok(()),
            Ok(Err(status)) => Err(clean(status.message())),
        }
    }

    /// A plugin whose output nobody reads blocks in its next write.
    async fn read_output(&self) {
        let Ok(pieces) = self.connection.down(STREAM_STDIO, Empty {}).await else { return };
        let pieces = pieces.filter_map(|piece| {
            std::future::ready(piece.ok().map(|StdioData { data, .. }| Ok::<_, std::io::Error>(Bytes::from(data))))
        });
        let lines = tokio_util::io::StreamReader::new(Box::pin(pieces));
        drain(lines, |line| {
            let message = clean(&String::from_utf8_lossy(line));
            let line = LogLine { plugin: self.name.clone(), gravity: Gravity::Info, message, fields: Vec::new() };
            self.logs.line(&line);
        })
        .await;
    }
}

/// The tasks that a process works for.
#[derive(Clone, Default)]
struct Observers(Arc<StdMutex<Vec<(u64, Task)>>>);

impl Observers {
    fn add(&self, task: &Task) -> Observing {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = tasks.last().map_or(0, |(id, _)| id + 1);
        tasks.push((id, task.clone()));
        Observing { observers: self.clone(), id }
    }

    fn each(&self, tell: impl Fn(&Task)) {
        for (_, task) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            tell(task);
        }
    }
}

/// Keeps a task informed about a process.
pub struct Observing {
    observers: Observers,
    id: u64,
}

impl Drop for Observing {
    fn drop(&mut self) {
        self.observers.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(id, _)| *id != self.id);
    }
}
