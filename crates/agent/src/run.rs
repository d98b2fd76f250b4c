//! One transfer from the moment a node takes it up to its end.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::{Api, ResourceExt};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{TransferPhase, UploaderType};
use plimsoll_engine::Error;
use plimsoll_engine::{RetryPolicy, kill};
use plimsoll_mover::{Job, MoverError, MoverKind, Outcome, Repository, Work, spawn_at};
use plimsoll_operations::EventType;
use plimsoll_progress::{Clock, Ending, Graft, Observer, Operation, Task, Wait};
use plimsoll_volumes::transfer::restore_wait::{cannot_wait, has_gone_on, has_waited};
use plimsoll_volumes::transfer::{
    REPOSITORY_SECRET, RESTORE_WAIT, Transfer, TransferError, TransferRecord, VolumePath,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::cache::CacheGuard;
use crate::decide::MAX_ATTEMPTS;
use crate::handshake::{self, RestoreMarker};
use crate::services::AgentServices;
use crate::status_writer::{self, ProgressFloor, StatusWriter, StatusWriterSettings};
use crate::{directory, repository};

/// The first pause before a mover is tried again; it doubles.
const MIN_RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// The longest: a transfer should not wait much longer than the lock it waits for is held.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(15);
/// The built-in mover reports this many times as often: polling other programs costs more.
const BUILT_IN_INTERVAL_DIVISOR: u32 = 4;
/// How long a volume that is not mounted is waited for.
const MOUNT_TIMEOUT: Duration = Duration::from_mins(2);
/// How often a pod is read that may have been released before.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Works on a transfer to its end. An error means that the end could not be written.
pub(crate) async fn run<T: Transfer>(
    services: Arc<AgentServices>,
    object: T,
    cancel: CancellationToken,
) -> Result<(), Error> {
    let record = TransferRecord::new(services.client.clone(), &services.settings.namespace, &object);
    let tree = Operation::new(object.name_any(), Clock::system());
    let (retry, root) = (RetryPolicy::default(), tree.root());
    let current = tokio::select! {
        current = retry.run(&root, || record.current()) => current?,
        () = cancel.cancelled() => Some(object),
    };
    let Some(object) = current else { return Ok(()) };
    let status_writer_task = StatusWriter::start(StatusWriterSettings {
        record: record.clone(),
        tree: tree.observer(),
        floor: ProgressFloor::of(&object),
        expected: object.expected_bytes(),
        running: services.running.clone(),
        gone: cancel.clone(),
    });
    let observer = tree.observer();
    let uid = object.uid().unwrap_or_default();
    let _shown = services.settings.trees.register(&uid, move || Some(observer.snapshot()));
    let mover = OnceLock::new();
    let (root, observer) = (tree.root(), tree.observer());
    let run =
        Run { services: &services, object: &object, record: &record, root, tree: observer, cancel: &cancel, mover };
    let answer = run.work().await;
    let floor = status_writer_task.stop().await;
    end(&services, &object, &record, &tree, floor, answer).await
}

/// Ends a transfer that does not run.
pub(crate) async fn end_before_start<T: Transfer>(
    services: &AgentServices,
    object: &T,
    error: TransferError,
) -> Result<(), Error> {
    let tree = Operation::new(object.name_any(), Clock::system());
    let record = TransferRecord::new(services.client.clone(), &services.settings.namespace, object);
    end(services, object, &record, &tree, ProgressFloor::of(object), Err(error)).await
}

struct Run<'a, T> {
    services: &'a AgentServices,
    object: &'a T,
    record: &'a TransferRecord<T>,
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
    _inside: VolumePath,
    _cache: Option<CacheGuard>,
}

impl<T: Transfer> Run<'_, T> {
    async fn work(&self) -> Result<Outcome, TransferError> {
        if let Some(text) = self.object.annotations().get(labels::DATA_MOVEMENT_RESULT) {
            return self.resume_handshake(handshake::parse_outcome(text)).await;
        }
        let outcome = self.move_until_done().await?;
        // Waiting for a pod takes no slot, and nothing is moved again whatever happens.
        if self.object.waiting_restore()?.is_some() {
            self.wait_until_marker_seen().await?;
        }
        Ok(outcome)
    }

    /// As often as it takes, each time in one of the node's slots: others may work while this one waits.
    async fn move_until_done(&self) -> Result<Outcome, TransferError> {
        let (mut pause, mut lock) = (MIN_RETRY_INTERVAL, None);
        loop {
            self.wait_for_wait_container().await?;
            let slot = self.slot().await?;
            let (in_vain, answer) = self.attempt_after_lock(&mut lock).await?;
            drop(slot);
            let error = match answer {
                // Waiting for another process's lock is no attempt: the parent's own timeout limits it.
                Err(error) if error.is_locked_out() => self.uncount_locked_attempt().await.map(|()| error)?,
                Err(error) if error.is_retryable() && in_vain < MAX_ATTEMPTS => error,
                answer => return answer,
            };
            info!("{} {}: {error}; trying again", T::kind(&()), self.record.name());
            self.root.hint(error.to_string());
            let waiting = self.root.wait(format!("trying again: {}", error.message()));
            drop(lock.take());
            self.unless_cancelled(tokio::time::sleep(pause)).await?;
            lock = error.is_locked_out().then_some(waiting);
            pause = (pause * 2).min(MAX_RETRY_INTERVAL);
        }
    }

    /// Nothing is written into a volume but while the container runs that waits for it: before, it may not be mounted, and after,
    /// the application is at work. A transfer that is resumed may find the pod in any of these states.
    async fn wait_for_wait_container(&self) -> Result<(), TransferError> {
        if self.object.waiting_restore()?.is_none() {
            return Ok(());
        }
        let path = path_of(&self.object.pod());
        let mut waiting = None;
        loop {
            let pod = self.unless_cancelled(self.pod()).await??;
            if T::suits(&pod) {
                return Ok(());
            }
            if has_gone_on(&pod) {
                return Err(TransferError::NotWaiting { pod: path });
            }
            let why = cannot_wait(&pod).map(|why| format!(": {why}")).unwrap_or_default();
            let words = format!("waiting for container {RESTORE_WAIT} of pod {path} to run{why}");
            waiting.get_or_insert_with(|| self.root.wait(words.clone())).reword(words);
            self.unless_cancelled(tokio::time::sleep(POLL_INTERVAL)).await?;
        }
    }

    /// An attempt after one that another process's lock refused. Its holder is shown until this one is past it, because most of
    /// them are refused again.
    async fn attempt_after_lock(
        &self,
        lock: &mut Option<Wait>,
    ) -> Result<(u32, Result<Outcome, TransferError>), TransferError> {
        let past_it = async {
            while lock.is_some() {
                tokio::time::sleep(POLL_INTERVAL).await;
                lock.take_if(|_| status_writer::mover_has_started(&self.tree.snapshot()));
            }
            std::future::pending().await
        };
        tokio::select! {
            answer = self.attempt() => answer,
            never = past_it => never,
        }
    }

    /// Writes down that an attempt met a lock before it could do anything.
    async fn uncount_locked_attempt(&self) -> Result<(), TransferError> {
        let counted = |current: &T| {
            let locked_out = (number(current, labels::LOCKED_ATTEMPTS) + 1).to_string();
            json!({ "metadata": { "annotations": { labels::LOCKED_ATTEMPTS: locked_out } } })
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
        let slots = Arc::clone(&self.services.slots);
        if let Ok(slot) = Arc::clone(&slots).try_acquire_owned() {
            return Ok(slot);
        }
        let (node, most) = (&self.services.settings.node, self.services.settings.concurrency);
        let _waiting = self.root.wait_in_queue(format!("waiting for one of {most} transfers on node {node} to end"));
        self.accept().await?;
        let slot = self.unless_cancelled(slots.acquire_owned()).await?;
        slot.map_err(|_| TransferError::Cancelled)
    }

    async fn accept(&self) -> Result<(), TransferError> {
        let node = &self.services.settings.node;
        let accepted = |current: &T| {
            if current.phase() != TransferPhase::New {
                return json!({});
            }
            let mut status = T::start_status(Path::new(""), node);
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
            Err(error) => return Ok((MAX_ATTEMPTS, Err(error))),
        };
        let boot = matches!(job.work, Work::Restore(_)).then(boot).flatten();
        let written = self.begin(&directory, boot.as_deref()).await?;
        job.epoch = attempts(&written).into();
        if let Work::Restore(restore) = &mut job.work {
            restore.resumed = is_resumed(&written, boot.as_deref());
        }
        let settled = match self.move_data(&job).await {
            Ok(outcome) => self.confirm_moved(&directory, outcome).await,
            Err(error) => Err(error),
        };
        Ok((failed_attempts(&written), settled))
    }

    /// Writes down that the data is there, and tells the pod.
    async fn confirm_moved(&self, directory: &Path, outcome: Outcome) -> Result<Outcome, TransferError> {
        let Some(restore) = self.object.waiting_restore()? else { return Ok(outcome) };
        kill::point("transfer.moved.before");
        let moved = json!({ "metadata": { "annotations": { labels::DATA_MOVEMENT_RESULT: handshake::serialize_outcome(&outcome) } } });
        self.record.change(&self.root, |_| moved.clone()).await?.ok_or(TransferError::Cancelled)?;
        kill::point("transfer.settle.before");
        RestoreMarker::new(directory, restore).create().map_err(|error| self.handshake_error(&error))?;
        kill::point("transfer.settle.after");
        Ok(outcome)
    }

    /// A container that ran when the data began to come may have crashed since. Nothing is restored as long as it cannot see
    /// that the data is there; the server judges how long that may last.
    async fn wait_until_marker_seen(&self) -> Result<(), TransferError> {
        let mut waiting = None;
        loop {
            let words = match self.unless_cancelled(self.pod()).await? {
                Ok(pod) => cannot_wait(&pod).map(|why| format!("waiting for container {RESTORE_WAIT} to start: {why}")),
                // Gone before it could see its data; had it seen it, that would be its own affair.
                Err(error @ TransferError::PodGone { .. }) if waiting.is_some() => return Err(error),
                Err(TransferError::PodGone { .. }) => None,
                Err(error) => Some(format!("waiting for the API server to tell of its pod: {error}")),
            };
            let Some(words) = words else { return Ok(()) };
            waiting.get_or_insert_with(|| self.root.wait(words.clone())).reword(words);
            self.unless_cancelled(tokio::time::sleep(POLL_INTERVAL)).await?;
        }
    }

    /// Tells a pod whose data was there before: an earlier agent may have signalled it without writing that down. A pod that was
    /// told removes the marker, or has ended its waiting.
    async fn resume_handshake(&self, outcome: Outcome) -> Result<Outcome, TransferError> {
        let Some(restore) = self.object.waiting_restore()? else { return Ok(outcome) };
        let pod = self.pod().await?;
        if has_waited(&pod) {
            return Ok(outcome);
        }
        let directory = self.directory(&pod).await?;
        let marker = RestoreMarker::new(&directory, restore);
        if marker.exists() {
            self.wait_until_marker_seen().await?;
            return Ok(outcome);
        }
        marker.create().map_err(|error| self.handshake_error(&error))?;
        let _waiting = self.root.wait_in_queue("waiting for the pod to see that its data is there");
        let put = tokio::time::Instant::now();
        while marker.exists() && put.elapsed() < handshake::RELEASE_TIMEOUT {
            let waited = match self.pod().await {
                Ok(pod) => has_waited(&pod),
                Err(TransferError::PodGone { .. }) => true,
                Err(error) => return Err(error),
            };
            if waited {
                marker.remove().map_err(|error| self.handshake_error(&error))?;
            } else {
                self.unless_cancelled(tokio::time::sleep(POLL_INTERVAL)).await?;
            }
        }
        if marker.exists() {
            self.wait_until_marker_seen().await?;
        }
        Ok(outcome)
    }

    fn handshake_error(&self, error: &std::io::Error) -> TransferError {
        let (volume, cause) = (self.object.volume().to_owned(), error.to_string());
        TransferError::Handshake { volume, pod: path_of(&self.object.pod()), cause }
    }

    /// The pod, as it is now.
    async fn pod(&self) -> Result<Pod, TransferError> {
        let reference = self.object.pod();
        let path = path_of(&reference);
        let namespace = reference.namespace.as_deref().unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(self.services.client.clone(), namespace);
        let name = reference.name.clone().unwrap_or_default();
        let read = || async { pods.get_opt(&name).await.map_err(|e| Error::api(format!("read pod {path}"), e)) };
        let pod = RetryPolicy::default().run(&self.root, read).await?;
        let same = |pod: &Pod| reference.uid.is_none() || pod.uid() == reference.uid;
        pod.filter(same).ok_or(TransferError::PodGone { pod: path.clone() })
    }

    /// Finds the volume and the repository.
    async fn prepare(&self) -> Result<Prepared, TransferError> {
        let services = self.services;
        let pod = self.pod().await?;
        let directory = self.directory(&pod).await?;
        let kind = self.kind()?;
        let opened = self.retry_api_errors(|| self.repository(kind)).await?;
        let cache = services.caches.hold(&opened);
        let inside = directory::inside(&directory, self.object.inner().as_deref())?;
        let work = self.object.work(&inside)?;
        let mut job = Job::new(self.record.name(), kind, opened, work);
        job.program = services.settings.program(kind);
        job.cache = cache.as_ref().map(|held| held.path().to_owned());
        let interval = services.settings.progress_interval;
        let interval = if kind == MoverKind::BuiltIn { interval / BUILT_IN_INTERVAL_DIVISOR } else { interval };
        job.interval = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        Ok(Prepared { directory, job, _inside: inside, _cache: cache })
    }

    /// An API server that does not answer now may answer soon; nothing else is asked twice.
    async fn retry_api_errors<R, F>(&self, mut ask: impl FnMut() -> F) -> Result<R, TransferError>
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
        RetryPolicy::default().run(&self.root, attempt).await?
    }

    /// The volume's directory, once it is mounted: right after a node was started anew it may not be.
    async fn directory(&self, pod: &Pod) -> Result<PathBuf, TransferError> {
        let (client, settings) = (&self.services.client, &self.services.settings);
        let find = || directory::find(client, &settings.pods_directory, pod, self.object.volume());
        let (mut waiting, since) = (None, tokio::time::Instant::now());
        loop {
            match self.retry_api_errors(find).await {
                Err(error @ TransferError::NotMounted { .. }) if since.elapsed() < MOUNT_TIMEOUT => {
                    waiting.get_or_insert_with(|| self.root.wait(format!("waiting: {error}")));
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                answer => return answer,
            }
        }
    }

    async fn repository(&self, kind: MoverKind) -> Result<Repository, TransferError> {
        let (client, settings) = (&self.services.client, &self.services.settings);
        if let Some(secret) = self.object.annotations().get(REPOSITORY_SECRET) {
            return repository::from_secret(client, &settings.namespace, secret).await;
        }
        let namespace = self.object.repository_namespace();
        repository::open(client, settings, self.object.location(), kind, &namespace).await
    }

    fn kind(&self) -> Result<MoverKind, TransferError> {
        let wanted = self.object.annotations().get(labels::MOVER).map(String::as_str);
        match (self.object.uploader(), wanted) {
            (UploaderType::Kopia, _) => Ok(MoverKind::Kopia),
            (UploaderType::Restic | UploaderType::Unset, Some("restic")) => Ok(MoverKind::Restic),
            (UploaderType::Restic | UploaderType::Unset, _) => Ok(MoverKind::BuiltIn),
            (other, _) => Err(TransferError::Invalid(format!("spec.uploaderType: {other} is not known here"))),
        }
    }

    /// The write that says that work has begun, and what it says now. What writes into a volume notes the boot at which it was
    /// empty.
    async fn begin(&self, directory: &Path, boot: Option<&str>) -> Result<T, TransferError> {
        kill::point("transfer.begin.before");
        let now = format!("{:.0}", Timestamp::now());
        let node = &self.services.settings.node;
        let begun = |current: &T| {
            let mut status = T::start_status(directory, node);
            status["phase"] = json!(TransferPhase::InProgress.as_str());
            if ![TransferPhase::InProgress, TransferPhase::Canceling].contains(&current.phase()) {
                status["startTimestamp"] = json!(now);
            }
            let before = attempts(current);
            let mut annotations = json!({ labels::ATTEMPTS: (before + 1).to_string() });
            if let Some(boot) = boot.filter(|_| before == 0 && is_empty(directory)) {
                annotations[labels::RESTORE_BOOT_ID] = json!(boot);
            }
            json!({ "metadata": { "annotations": annotations }, "status": status })
        };
        let written = self.record.change(&self.root, begun).await?.ok_or(TransferError::Cancelled)?;
        kill::point("transfer.begin.after");
        Ok(written)
    }

    async fn move_data(&self, job: &Job) -> Result<Outcome, TransferError> {
        let place = self.mover.get_or_init(|| self.root.graft(job.kind.name()));
        let transfer = spawn_at(&self.services.settings.launch, job, place)?;
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
/// Nor was it where another process's lock kept it from starting.
pub(crate) fn failed_attempts<T: Transfer>(object: &T) -> u32 {
    if object.annotations().contains_key(labels::DATA_MOVEMENT_RESULT) {
        return 0;
    }
    attempts(object).saturating_sub(number(object, labels::LOCKED_ATTEMPTS))
}

/// Whether nothing but earlier attempts at the same transfer wrote into the volume, and all that they wrote is still there: a
/// machine that crashes loses what it had not flushed.
fn is_resumed<T: Transfer>(object: &T, boot: Option<&str>) -> bool {
    let since = object.annotations().get(labels::RESTORE_BOOT_ID).map(String::as_str);
    attempts(object) > 1 && boot.is_some() && since == boot
}

/// What a new file system has in its root is not data.
fn is_empty(directory: &Path) -> bool {
    directory.read_dir().is_ok_and(|entries| entries.flatten().all(|entry| entry.file_name() == "lost+found"))
}

/// Changes whenever the machine loses its memory.
fn boot() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

/// The last write. One that has ended by another hand is left as it is.
async fn end<T: Transfer>(
    services: &AgentServices,
    object: &T,
    record: &TransferRecord<T>,
    tree: &Operation,
    floor: ProgressFloor,
    answer: Result<Outcome, TransferError>,
) -> Result<(), Error> {
    let (status, words) = final_status::<T>(&answer);
    tree.end(match &answer {
        Ok(_) => Ending::Succeeded,
        Err(TransferError::Cancelled) => Ending::Cancelled("asked for".into()),
        Err(error) => Ending::Failed(error.to_string()),
    });
    let ended = |_: &T| {
        let mut all = status_writer::status(&tree.snapshot(), &mut floor.clone(), None);
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
        services.events.record(&object.object_ref(&()), event_type, reason, &words).await;
    }
    Ok(())
}

fn final_status<T: Transfer>(answer: &Result<Outcome, TransferError>) -> (Value, String) {
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
            annotations[labels::RESTORE_BOOT_ID] = json!(since);
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
        assert_eq!(failed_attempts(&restore), 5);
        restore.annotations_mut().insert(labels::DATA_MOVEMENT_RESULT.into(), "{}".into());
        assert_eq!(failed_attempts(&restore), 0);
    }

    #[test]
    fn waiting_for_another_process_lock_is_no_failed_attempt() {
        let mut restore = restore(9, None);
        restore.annotations_mut().insert(labels::LOCKED_ATTEMPTS.into(), "7".into());
        assert_eq!(failed_attempts(&restore), 2);
        restore.annotations_mut().insert(labels::LOCKED_ATTEMPTS.into(), "70".into());
        assert_eq!(failed_attempts(&restore), 0, "it was written by hand");
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
