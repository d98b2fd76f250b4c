//! One transfer from the moment a node takes it up to its end.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::{Api, ResourceExt};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{TransferPhase, UploaderType};
use plimsoll_engine::{Patience, kill};
use plimsoll_mover::{Job, Kind, MoverError, Outcome, Repository, Work, spawn_at};
use plimsoll_operations::EventType;
use plimsoll_progress::{Clock, Ending, Graft, Observer, Operation, Task, Wait};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::agent::Agent;
use super::cache::Held;
use super::decide::MOST_ATTEMPTS;
use super::directory::Inside;
use super::error::TransferError;
use super::handshake::{self, Mark, has_waited};
use super::kind::{REPOSITORY_SECRET, RESTORE_WAIT, Transfer};
use super::report::{self, Floor, Reporter, Reporting};
use super::write::Record;
use super::{directory, repository};
use crate::Error;

/// The first pause before a mover is tried again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest: whoever waits for a lock should not wait much longer than the lock is held.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Our own mover tells so many times as often how far it is: looking costs more with other programs.
const OWN_OFTENER: u32 = 4;
/// How long a volume that is not mounted is waited for.
const MOUNTED_WITHIN: Duration = Duration::from_mins(2);
/// How often a pod is looked at that may have been told before.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Works on a transfer to its end. An error means that the end could not be written.
pub(super) async fn run<T: Transfer>(agent: Arc<Agent>, object: T, cancel: CancellationToken) -> Result<(), Error> {
    let record = Record::new(agent.client.clone(), &agent.settings.namespace, &object);
    let tree = Operation::new(object.name_any(), Clock::system());
    let (patience, root) = (Patience::default(), tree.root());
    let current = tokio::select! {
        current = patience.run(&root, || record.current()) => current?,
        () = cancel.cancelled() => Some(object),
    };
    let Some(object) = current else { return Ok(()) };
    let reporter = Reporter::start(Reporting {
        record: record.clone(),
        tree: tree.observer(),
        floor: Floor::of(&object),
        expected: object.expected_bytes(),
        running: agent.running.clone(),
        gone: cancel.clone(),
    });
    let observer = tree.observer();
    let uid = object.uid().unwrap_or_default();
    let _shown = agent.settings.trees.show(&uid, move || Some(observer.snapshot()));
    let mover = OnceLock::new();
    let (root, observer) = (tree.root(), tree.observer());
    let run = Run { agent: &agent, object: &object, record: &record, root, tree: observer, cancel: &cancel, mover };
    let answer = run.work().await;
    let floor = reporter.stop().await;
    end(&agent, &object, &record, &tree, floor, answer).await
}

/// Ends a transfer that nobody works on.
pub(super) async fn end_unbegun<T: Transfer>(agent: &Agent, object: &T, error: TransferError) -> Result<(), Error> {
    let tree = Operation::new(object.name_any(), Clock::system());
    let record = Record::new(agent.client.clone(), &agent.settings.namespace, object);
    end(agent, object, &record, &tree, Floor::of(object), Err(error)).await
}

struct Run<'a, T> {
    agent: &'a Agent,
    object: &'a T,
    record: &'a Record<T>,
    root: Task,
    tree: Observer,
    cancel: &'a CancellationToken,
    /// Where the mover's tree is shown, whichever attempt it is.
    mover: OnceLock<Graft>,
}

/// What an attempt needs. What is inside of the volume and the repository's cache are held until the data has been moved.
struct Prepared {
    directory: PathBuf,
    job: Job,
    _inside: Inside,
    _cache: Option<Held>,
}

impl<T: Transfer> Run<'_, T> {
    async fn work(&self) -> Result<Outcome, TransferError> {
        if let Some(text) = self.object.annotations().get(labels::MOVED) {
            return self.settle_again(handshake::noted(text)).await;
        }
        let outcome = self.move_until_done().await?;
        // Whoever waits for a pod keeps no other transfer waiting, and moves nothing again whatever comes.
        if self.object.awaited_by()?.is_some() {
            self.until_seen().await?;
        }
        Ok(outcome)
    }

    /// As often as it takes, each time in one of the node's slots: others may work while this one waits.
    async fn move_until_done(&self) -> Result<Outcome, TransferError> {
        let (mut pause, mut lock) = (FIRST_PAUSE, None);
        loop {
            self.until_it_waits().await?;
            let slot = self.slot().await?;
            let (in_vain, answer) = self.attempt_behind(&mut lock).await?;
            drop(slot);
            let error = match answer {
                // Who waits for somebody else's lock has not tried: the parent's own limit says how long that may last.
                Err(error) if error.is_locked_out() => self.not_counted().await.map(|()| error)?,
                Err(error) if error.is_retryable() && in_vain < MOST_ATTEMPTS => error,
                answer => return answer,
            };
            info!("{} {}: {error}; trying again", T::kind(&()), self.record.name());
            self.root.hint(error.to_string());
            let waiting = self.root.wait(format!("trying again: {}", error.message()));
            drop(lock.take());
            self.unless_cancelled(tokio::time::sleep(pause)).await?;
            lock = error.is_locked_out().then_some(waiting);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Nothing is written into a volume but while the container runs that waits for it: before, it may not be mounted, and after,
    /// the application is at work. Whoever takes a transfer up may find the pod in any of these.
    async fn until_it_waits(&self) -> Result<(), TransferError> {
        if self.object.awaited_by()?.is_none() {
            return Ok(());
        }
        let path = path_of(&self.object.pod());
        let mut waiting = None;
        loop {
            let pod = self.unless_cancelled(self.pod()).await??;
            if T::suits(&pod) {
                return Ok(());
            }
            if handshake::has_gone_on(&pod) {
                return Err(TransferError::NotWaiting { pod: path });
            }
            let why = handshake::cannot_wait(&pod).map(|why| format!(": {why}")).unwrap_or_default();
            let words = format!("waiting for container {RESTORE_WAIT} of pod {path} to run{why}");
            waiting.get_or_insert_with(|| self.root.wait(words.clone())).reword(words);
            self.unless_cancelled(tokio::time::sleep(LOOK_EVERY)).await?;
        }
    }

    /// An attempt after one that somebody else's lock refused. Who holds that is said until this one is past it, because most of
    /// them are refused again.
    async fn attempt_behind(
        &self,
        lock: &mut Option<Wait>,
    ) -> Result<(u32, Result<Outcome, TransferError>), TransferError> {
        let past_it = async {
            while lock.is_some() {
                tokio::time::sleep(LOOK_EVERY).await;
                lock.take_if(|_| report::has_begun(&self.tree.snapshot()));
            }
            std::future::pending().await
        };
        tokio::select! {
            answer = self.attempt() => answer,
            never = past_it => never,
        }
    }

    /// Writes down that an attempt met a lock before it could do anything.
    async fn not_counted(&self) -> Result<(), TransferError> {
        let counted = |current: &T| {
            let locked_out = (number(current, labels::LOCKED_OUT) + 1).to_string();
            json!({ "metadata": { "annotations": { labels::LOCKED_OUT: locked_out } } })
        };
        let written = self.record.change(&self.root, counted).await?;
        written.map(|_| ()).ok_or(TransferError::Cancelled)
    }

    async fn unless_cancelled<R>(&self, work: impl Future<Output = R>) -> Result<R, TransferError> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(TransferError::Cancelled),
            answer = work => Ok(answer),
        }
    }

    /// One of this node's slots. While all are taken the transfer is accepted, and says what it waits for.
    async fn slot(&self) -> Result<tokio::sync::OwnedSemaphorePermit, TransferError> {
        let slots = Arc::clone(&self.agent.slots);
        if let Ok(slot) = Arc::clone(&slots).try_acquire_owned() {
            return Ok(slot);
        }
        let (node, most) = (&self.agent.settings.node, self.agent.settings.concurrency);
        let _waiting = self.root.wait_patiently(format!("waiting for one of {most} transfers on node {node} to end"));
        self.accept().await?;
        let slot = self.unless_cancelled(slots.acquire_owned()).await?;
        slot.map_err(|_| TransferError::Cancelled)
    }

    async fn accept(&self) -> Result<(), TransferError> {
        let node = &self.agent.settings.node;
        let accepted = |current: &T| {
            if current.phase() != TransferPhase::New {
                return json!({});
            }
            let mut status = T::begun(Path::new(""), node);
            if let Some(fields) = status.as_object_mut() {
                fields.retain(|_, value| value != "");
            }
            status["phase"] = json!(TransferPhase::Accepted.as_str());
            status["acceptedTimestamp"] = json!(format!("{:.0}", Timestamp::now()));
            json!({ "status": status })
        };
        let written = self.record.change(&self.root, accepted).await?;
        written.map(|_| ()).ok_or(TransferError::Cancelled)
    }

    /// One attempt: how many were in vain if it is, and how it ended.
    async fn attempt(&self) -> Result<(u32, Result<Outcome, TransferError>), TransferError> {
        let prepared = self.unless_cancelled(Box::pin(self.prepare())).await?;
        let Prepared { directory, mut job, _inside, _cache } = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Ok((MOST_ATTEMPTS, Err(error))),
        };
        let boot = matches!(job.work, Work::Restore(_)).then(boot).flatten();
        let written = self.begin(&directory, boot.as_deref()).await?;
        job.epoch = attempts(&written).into();
        if let Work::Restore(restore) = &mut job.work {
            restore.resumed = is_resumed(&written, boot.as_deref());
        }
        let settled = match self.move_data(&job).await {
            Ok(outcome) => self.settle(&directory, outcome).await,
            Err(error) => Err(error),
        };
        Ok((vain_attempts(&written), settled))
    }

    /// Writes down that the data is there, and tells the pod.
    async fn settle(&self, directory: &Path, outcome: Outcome) -> Result<Outcome, TransferError> {
        let Some(restore) = self.object.awaited_by()? else { return Ok(outcome) };
        kill::point("transfer.moved.before");
        let moved = json!({ "metadata": { "annotations": { labels::MOVED: handshake::note(&outcome) } } });
        self.record.change(&self.root, |_| moved.clone()).await?.ok_or(TransferError::Cancelled)?;
        kill::point("transfer.settle.before");
        Mark::new(directory, restore).put().map_err(|error| self.untold(&error))?;
        kill::point("transfer.settle.after");
        Ok(outcome)
    }

    /// A container that ran when the data began to come may have crashed since. Nothing is restored as long as it cannot see
    /// that the data is there; the server judges how long that may last.
    async fn until_seen(&self) -> Result<(), TransferError> {
        let mut waiting = None;
        loop {
            let words = match self.unless_cancelled(self.pod()).await? {
                Ok(pod) => handshake::cannot_wait(&pod)
                    .map(|why| format!("waiting for container {RESTORE_WAIT} to start: {why}")),
                // Gone before it could see its data; had it seen it, that would be its own affair.
                Err(error @ TransferError::PodGone { .. }) if waiting.is_some() => return Err(error),
                Err(TransferError::PodGone { .. }) => None,
                Err(error) => Some(format!("waiting for the API server to tell of its pod: {error}")),
            };
            let Some(words) = words else { return Ok(()) };
            waiting.get_or_insert_with(|| self.root.wait(words.clone())).reword(words);
            self.unless_cancelled(tokio::time::sleep(LOOK_EVERY)).await?;
        }
    }

    /// Tells a pod whose data was there before: it may have been told by somebody who could not write that down. A pod that was
    /// told takes the mark away, or has ended its waiting; then nobody else does.
    async fn settle_again(&self, outcome: Outcome) -> Result<Outcome, TransferError> {
        let Some(restore) = self.object.awaited_by()? else { return Ok(outcome) };
        let pod = self.pod().await?;
        if has_waited(&pod) {
            return Ok(outcome);
        }
        let directory = self.directory(&pod).await?;
        let mark = Mark::new(&directory, restore);
        if mark.is_there() {
            self.until_seen().await?;
            return Ok(outcome);
        }
        mark.put().map_err(|error| self.untold(&error))?;
        let _waiting = self.root.wait_patiently("waiting for the pod to see that its data is there");
        let put = tokio::time::Instant::now();
        while mark.is_there() && put.elapsed() < handshake::TAKEN_WITHIN {
            let waited = match self.pod().await {
                Ok(pod) => has_waited(&pod),
                Err(TransferError::PodGone { .. }) => true,
                Err(error) => return Err(error),
            };
            if waited {
                mark.take_away().map_err(|error| self.untold(&error))?;
            } else {
                self.unless_cancelled(tokio::time::sleep(LOOK_EVERY)).await?;
            }
        }
        if mark.is_there() {
            self.until_seen().await?;
        }
        Ok(outcome)
    }

    fn untold(&self, error: &std::io::Error) -> TransferError {
        let (volume, cause) = (self.object.volume().to_owned(), error.to_string());
        TransferError::Handshake { volume, pod: path_of(&self.object.pod()), cause }
    }

    /// The pod, as it is now.
    async fn pod(&self) -> Result<Pod, TransferError> {
        let reference = self.object.pod();
        let path = path_of(&reference);
        let namespace = reference.namespace.as_deref().unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(self.agent.client.clone(), namespace);
        let name = reference.name.clone().unwrap_or_default();
        let read = || async { pods.get_opt(&name).await.map_err(|e| Error::api(format!("read pod {path}"), e)) };
        let pod = Patience::default().run(&self.root, read).await?;
        let same = |pod: &Pod| reference.uid.is_none() || pod.uid() == reference.uid;
        pod.filter(same).ok_or(TransferError::PodGone { pod: path.clone() })
    }

    /// Finds the volume and the repository.
    async fn prepare(&self) -> Result<Prepared, TransferError> {
        let agent = self.agent;
        let pod = self.pod().await?;
        let directory = self.directory(&pod).await?;
        let kind = self.kind()?;
        let opened = self.patiently(|| self.repository(kind)).await?;
        let cache = agent.caches.hold(&opened);
        let inside = directory::inside(&directory, self.object.inner().as_deref())?;
        let work = self.object.work(&inside)?;
        let mut job = Job::new(self.record.name(), kind, opened, work);
        job.program = agent.settings.program(kind);
        job.cache = cache.as_ref().map(|held| held.path().to_owned());
        let interval = agent.settings.progress_interval;
        let interval = if kind == Kind::BuiltIn { interval / OWN_OFTENER } else { interval };
        job.interval = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        Ok(Prepared { directory, job, _inside: inside, _cache: cache })
    }

    /// An API server that does not answer now may answer soon; nothing else is asked twice.
    async fn patiently<R, F>(&self, mut ask: impl FnMut() -> F) -> Result<R, TransferError>
    where
        F: Future<Output = Result<R, TransferError>>,
    {
        let attempt = || {
            let asked = ask();
            async {
                match asked.await {
                    Err(TransferError::Api(error)) => Err(error),
                    answer => Ok(answer),
                }
            }
        };
        Patience::default().run(&self.root, attempt).await?
    }

    /// The volume's directory, once it is mounted: right after a node was started anew it may not be.
    async fn directory(&self, pod: &Pod) -> Result<PathBuf, TransferError> {
        let (client, settings) = (&self.agent.client, &self.agent.settings);
        let find = || directory::find(client, &settings.pods_directory, pod, self.object.volume());
        let (mut waiting, since) = (None, tokio::time::Instant::now());
        loop {
            match self.patiently(find).await {
                Err(error @ TransferError::NotMounted { .. }) if since.elapsed() < MOUNTED_WITHIN => {
                    waiting.get_or_insert_with(|| self.root.wait(format!("waiting: {error}")));
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                answer => return answer,
            }
        }
    }

    async fn repository(&self, kind: Kind) -> Result<Repository, TransferError> {
        let (client, settings) = (&self.agent.client, &self.agent.settings);
        if let Some(secret) = self.object.annotations().get(REPOSITORY_SECRET) {
            return repository::given(client, &settings.namespace, secret).await;
        }
        let namespace = self.object.repository_namespace();
        repository::open(client, settings, self.object.location(), kind, &namespace).await
    }

    fn kind(&self) -> Result<Kind, TransferError> {
        let wanted = self.object.annotations().get(labels::MOVER).map(String::as_str);
        match (self.object.uploader(), wanted) {
            (UploaderType::Kopia, _) => Ok(Kind::Kopia),
            (UploaderType::Restic | UploaderType::Unset, Some("restic")) => Ok(Kind::Restic),
            (UploaderType::Restic | UploaderType::Unset, _) => Ok(Kind::BuiltIn),
            (other, _) => Err(TransferError::Invalid(format!("spec.uploaderType: {other} is not known here"))),
        }
    }

    /// The write that says that work has begun, and what it says now. What writes into a volume notes the boot at which it was
    /// empty.
    async fn begin(&self, directory: &Path, boot: Option<&str>) -> Result<T, TransferError> {
        kill::point("transfer.begin.before");
        let now = format!("{:.0}", Timestamp::now());
        let node = &self.agent.settings.node;
        let begun = |current: &T| {
            let mut status = T::begun(directory, node);
            status["phase"] = json!(TransferPhase::InProgress.as_str());
            if ![TransferPhase::InProgress, TransferPhase::Canceling].contains(&current.phase()) {
                status["startTimestamp"] = json!(now);
            }
            let before = attempts(current);
            let mut annotations = json!({ labels::ATTEMPTS: (before + 1).to_string() });
            if let Some(boot) = boot.filter(|_| before == 0 && is_empty(directory)) {
                annotations[labels::WRITTEN_SINCE] = json!(boot);
            }
            json!({ "metadata": { "annotations": annotations }, "status": status })
        };
        let written = self.record.change(&self.root, begun).await?.ok_or(TransferError::Cancelled)?;
        kill::point("transfer.begin.after");
        Ok(written)
    }

    async fn move_data(&self, job: &Job) -> Result<Outcome, TransferError> {
        let place = self.mover.get_or_init(|| self.root.graft(job.kind.name()));
        let transfer = spawn_at(&self.agent.settings.launch, job, place)?;
        let canceller = transfer.canceller();
        let cancelled = async {
            self.cancel.cancelled().await;
            canceller.cancel();
            std::future::pending::<()>().await;
        };
        let answer = tokio::select! {
            answer = transfer.wait() => answer,
            () = cancelled => Err(MoverError::Cancelled),
        };
        match answer {
            Err(MoverError::Cancelled) => Err(TransferError::Cancelled),
            answer => Ok(answer?),
        }
    }
}

fn path_of(pod: &ObjectReference) -> String {
    format!("{}/{}", pod.namespace.as_deref().unwrap_or_default(), pod.name.as_deref().unwrap_or_default())
}

fn number<T: Transfer>(object: &T, annotation: &str) -> u32 {
    object.annotations().get(annotation).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// How often a transfer was taken up.
fn attempts<T: Transfer>(object: &T) -> u32 {
    number(object, labels::ATTEMPTS)
}

/// How often it was taken up in vain. Once the data is there it was not: what is left is to tell the pod, as often as it takes.
/// Nor was it where somebody else's lock kept it from beginning.
pub(super) fn vain_attempts<T: Transfer>(object: &T) -> u32 {
    if object.annotations().contains_key(labels::MOVED) {
        return 0;
    }
    attempts(object).saturating_sub(number(object, labels::LOCKED_OUT))
}

/// Whether nothing but earlier attempts at the same transfer wrote into the volume, and all that they wrote is still there: a
/// machine that crashes loses what it had not flushed.
fn is_resumed<T: Transfer>(object: &T, boot: Option<&str>) -> bool {
    let since = object.annotations().get(labels::WRITTEN_SINCE).map(String::as_str);
    attempts(object) > 1 && boot.is_some() && since == boot
}

/// What a new file system has in its root is nobody's file.
fn is_empty(directory: &Path) -> bool {
    directory.read_dir().is_ok_and(|entries| entries.flatten().all(|entry| entry.file_name() == "lost+found"))
}

/// Changes whenever the machine loses its memory.
fn boot() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

/// The last write. One that has ended by another hand is left as it is.
async fn end<T: Transfer>(
    agent: &Agent,
    object: &T,
    record: &Record<T>,
    tree: &Operation,
    floor: Floor,
    answer: Result<Outcome, TransferError>,
) -> Result<(), Error> {
    let (status, words) = last_words::<T>(&answer);
    tree.end(match &answer {
        Ok(_) => Ending::Succeeded,
        Err(TransferError::Cancelled) => Ending::Cancelled("asked for".into()),
        Err(error) => Ending::Failed(error.to_string()),
    });
    let ended = |_: &T| {
        let mut all = report::status(&tree.snapshot(), &mut floor.clone(), None);
        // What was shown stays, unless it ended well: then both counts are in the last words.
        all.as_object_mut().map(|all| all.remove("progress"));
        if let (Some(all), Some(last)) = (all.as_object_mut(), status.as_object()) {
            all.extend(last.clone());
        }
        json!({ "status": all })
    };
    kill::point("transfer.end.before");
    let written = record.change(&tree.root(), ended).await?;
    kill::point("transfer.end.after");
    if written.is_some() {
        info!("{} {}: {words}", T::kind(&()), record.name());
        let (event_type, reason) = match &answer {
            Ok(_) => (EventType::Normal, "Completed"),
            Err(error) => (EventType::Warning, error.reason()),
        };
        agent.events.record(&object.object_ref(&()), event_type, reason, &words).await;
    }
    Ok(())
}

fn last_words<T: Transfer>(answer: &Result<Outcome, TransferError>) -> (Value, String) {
    let (phase, mut status, words) = match answer {
        Ok(outcome) => (TransferPhase::Completed, T::ended(outcome), "completed".to_owned()),
        Err(error @ TransferError::Cancelled) => {
            (TransferPhase::Canceled, json!({ "message": "cancelled" }), error.to_string())
        }
        Err(error) => (TransferPhase::Failed, json!({ "message": error.message() }), error.to_string()),
    };
    status["phase"] = json!(phase.as_str());
    status["completionTimestamp"] = json!(format!("{:.0}", Timestamp::now()));
    (status, words)
}

#[cfg(test)]
mod tests {
    use plimsoll_api::velero::v1::PodVolumeRestore;

    use super::*;

    fn restore(attempts: u32, since: Option<&str>) -> PodVolumeRestore {
        let mut annotations = json!({ labels::ATTEMPTS: attempts.to_string() });
        if let Some(since) = since {
            annotations[labels::WRITTEN_SINCE] = json!(since);
        }
        serde_json::from_value(json!({ "metadata": { "name": "x", "annotations": annotations }, "spec": {} })).unwrap()
    }

    #[test]
    fn only_a_later_attempt_at_the_same_boot_trusts_what_an_earlier_one_wrote() {
        assert!(is_resumed(&restore(2, Some("boot")), Some("boot")));
        assert!(!is_resumed(&restore(1, Some("boot")), Some("boot")), "nothing was written before");
        assert!(!is_resumed(&restore(3, Some("earlier boot")), Some("boot")), "files may be full of zeros");
        assert!(!is_resumed(&restore(2, None), Some("boot")), "the volume was not empty");
        assert!(!is_resumed(&restore(2, None), None));
    }

    #[test]
    fn a_transfer_whose_data_is_there_was_never_taken_up_in_vain() {
        let mut restore = restore(5, None);
        assert_eq!(vain_attempts(&restore), 5);
        restore.annotations_mut().insert(labels::MOVED.into(), "{}".into());
        assert_eq!(vain_attempts(&restore), 0);
    }

    #[test]
    fn waiting_for_somebody_elses_lock_is_no_vain_attempt() {
        let mut restore = restore(9, None);
        restore.annotations_mut().insert(labels::LOCKED_OUT.into(), "7".into());
        assert_eq!(vain_attempts(&restore), 2);
        restore.annotations_mut().insert(labels::LOCKED_OUT.into(), "70".into());
        assert_eq!(vain_attempts(&restore), 0, "somebody wrote it by hand");
    }

    #[test]
    fn a_new_file_system_is_empty() {
        let volume = tempfile::tempdir().unwrap();
        std::fs::create_dir(volume.path().join("lost+found")).unwrap();
        assert!(is_empty(volume.path()));
        std::fs::write(volume.path().join("file"), "").unwrap();
        assert!(!is_empty(volume.path()));
    }
}
