//! How the data of a phase is moved where its container has no restic: our own program there, or the agent of its node.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use plimsoll_api::velero::v1::{PodVolumeBackup, PodVolumeBackupSpec, TransferPhase, UploaderType};
use plimsoll_blueprint::Error;
use plimsoll_blueprint::functions::data_movers::{DataMovers, MoverMessage, Repository, VolumeTransfer};
use plimsoll_blueprint::functions::{BackupSummary, Call, Direction, TransferProgress};
use plimsoll_mover::{self as mover, Backup, Job, MoverCommand, MoverError, MoverKind, Outcome, Work};
use plimsoll_volumes::fs_backup::{Follower, TransferLost};
use plimsoll_volumes::transfer::agent_lease::lease_name;
use plimsoll_volumes::transfer::{INCOMPLETE, INNER_PATH, PLACED_AT, REPOSITORY_KEY, REPOSITORY_SECRET};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::context::Context;

/// Label: which phase a transfer belongs to.
const PHASE: &str = "plimsoll.dev/phase";
/// Note of a phase that has created a transfer.
const TRANSFER_NOTE: &str = "transfer";
/// How often a transfer is read.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Our own movers, for phases.
pub struct Agents {
    context: Arc<Context>,
}

impl Agents {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.context.leader.client.clone(), &self.context.leader.namespace)
    }

    /// An agent makes no repository: two of them at once would lose data.
    async fn prepare(&self, call: &Call, repository: &mover::Repository) -> Result<(), Error> {
        let job = Job::new("repository", MoverKind::BuiltIn, repository.clone(), Work::Ensure);
        let task = call.task.child("repository");
        let launch = MoverCommand::this_program().map_err(|error| failed(&error))?;
        let made = mover::spawn(&launch, &job, &task).map_err(|error| failed(&error))?.wait().await;
        match made {
            Ok(_) => task.finish(),
            Err(error) => {
                task.fail(error.to_string());
                return Err(failed(&error));
            }
        }
        Ok(())
    }

    async fn require_agent(&self, node: &str) -> Result<(), Error> {
        let leases: Api<Lease> = Api::namespaced(self.context.leader.client.clone(), &self.context.leader.namespace);
        let name = lease_name(node);
        let found = leases.get_opt(&name).await.map_err(|e| Error::api(format!("read Lease {name}"), e))?;
        let held = found.and_then(|lease| lease.spec?.holder_identity).is_some();
        if held { Ok(()) } else { Err(Error::Missing(format!("no agent runs on node {node}"))) }
    }

    async fn create(
        &self,
        call: &Call,
        name: &str,
        repository: &mover::Repository,
        wanted: &VolumeTransfer<'_>,
    ) -> Result<(), Error> {
        if call.host.recall(TRANSFER_NOTE).is_none() {
            call.host.remember(TRANSFER_NOTE, wanted.node.clone()).await?;
        }
        call.host.authorize_effect()?;
        call.host.failpoint("phase.transfer.before");
        let content = serde_json::to_vec(repository).map_err(|error| Error::Unsupported(error.to_string()))?;
        let secret = Secret {
            metadata: metadata(call, name),
            data: Some([(REPOSITORY_KEY.to_owned(), ByteString(content))].into()),
            ..Secret::default()
        };
        unless_there(self.secrets().create(&PostParams::default(), &secret).await, &format!("secret {name}"))?;
        let object = transfer(call, name, wanted);
        let transfers = self.context.leader.api::<PodVolumeBackup>();
        unless_there(transfers.create(&PostParams::default(), &object).await, &format!("PodVolumeBackup {name}"))?;
        call.host.failpoint("phase.transfer.after");
        Ok(())
    }

    /// Waits for its end, and shows how far it is.
    async fn follow(&self, call: &Call, name: &str, pod: &str) -> Result<(BackupSummary, String), Error> {
        let selector = format!("{PHASE}={}", call.identity);
        let follower: Follower<PodVolumeBackup> =
            Follower::start(&self.context.transfers, selector, self.context.settings.fs_backup_timeout);
        let ended = follower.follow(name, call.task.child(format!("transfer of pod {pod} by its node's agent")));
        let shown = async {
            let mut look = tokio::time::interval(POLL_INTERVAL);
            loop {
                look.tick().await;
                if let Ok(Some(now)) = self.context.leader.api::<PodVolumeBackup>().get_opt(name).await {
                    call.gauge.moved(pod, moved(&now));
                }
            }
        };
        let ended = tokio::select! {
            ended = ended => ended,
            () = shown => Err(TransferLost::Unread),
        };
        let failed = |detail: String| Error::Command { what: format!("the transfer of pod {pod}"), detail };
        let ended = ended.map_err(|lost| failed(format!("PodVolumeBackup {name} {lost}")))?;
        // One that an earlier process asked for has the tag that it chose.
        let tag = ended.spec.tags.keys().next().cloned().unwrap_or_default();
        Ok((saved(&ended).map_err(failed)?, tag))
    }
}

impl DataMovers for Agents {
    fn ensure(&self, repository: &Repository) -> Result<String, Error> {
        line(&Job::new("repository", MoverKind::BuiltIn, of(repository), Work::Ensure))
    }

    fn backup(&self, repository: &Repository, path: &str, tag: &str) -> Result<String, Error> {
        let mut backup = Backup::new(path, path, [(tag.to_owned(), String::new())].into());
        backup.at = Some(path.into());
        line(&Job::new("backup", MoverKind::BuiltIn, of(repository), Work::Backup(backup)))
    }

    fn parse_message(&self, line: &[u8]) -> MoverMessage {
        match mover::parse_message(line) {
            Ok(mover::MoverMessage::Progress(frame)) => MoverMessage::Progress(frame),
            Ok(mover::MoverMessage::Result(Ok(Outcome::Backup(done)))) => kept(&done),
            Ok(mover::MoverMessage::Result(Ok(_))) => MoverMessage::Done,
            Ok(mover::MoverMessage::Result(Err(error))) => MoverMessage::Failed(error.to_string()),
            // Messages of a shell or a loader arrive on the other stream too.
            Err(_) => MoverMessage::Ignored,
        }
    }

    fn transfer<'a>(
        &'a self,
        call: &'a Call,
        wanted: &'a VolumeTransfer<'a>,
    ) -> BoxFuture<'a, Result<(BackupSummary, String), Error>> {
        Box::pin(async move {
            self.require_agent(&wanted.node).await?;
            let repository = of(&wanted.repository);
            self.prepare(call, &repository).await?;
            let name = name_of(call, wanted.pod);
            call.log(&format!(
                "pod {}/{} has no restic: the agent of node {} reads {}",
                wanted.namespace, wanted.pod, wanted.node, wanted.path
            ));
            self.create(call, &name, &repository, wanted).await?;
            self.follow(call, &name, wanted.pod).await
        })
    }

    fn clean_up<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if call.host.recall(TRANSFER_NOTE).is_none() {
                return;
            }
            let leave = || call.host.authorize_effect().map_err(|error| error.to_string());
            if let Err(error) = self.sweep(&call.identity, &leave).await {
                call.log(&format!("what an agent was asked for cannot be removed: {error}"));
            }
        })
    }
}

impl Agents {
    /// Removes what a phase has asked agents for, with leave for each removal.
    pub async fn sweep(&self, identity: &str, leave: &Leave<'_>) -> Result<(), String> {
        let ours = ListParams::default().labels(&format!("{PHASE}={identity}"));
        let transfers = self.context.leader.api::<PodVolumeBackup>();
        // Both are looked for: the one may be gone already. The agent of a transfer that is gone stops.
        let results = [remove_all(leave, &transfers, &ours).await, remove_all(leave, &self.secrets(), &ours).await];
        results.into_iter().collect()
    }
}

/// Leave to act, as it is asked for before every effect.
type Leave<'a> = dyn Fn() -> Result<(), String> + Sync + 'a;

async fn remove_all<K>(leave: &Leave<'_>, api: &Api<K>, ours: &ListParams) -> Result<(), String>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let found = api.list_metadata(ours).await.map_err(|error| error.to_string())?;
    for name in found.items.into_iter().filter_map(|one| one.metadata.name) {
        leave()?;
        match api.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            answer => answer.map(|_| ()).map_err(|error| error.to_string())?,
        }
    }
    Ok(())
}

/// A backup that lacks files is none, as with restic.
fn kept(done: &mover::BackupOutcome) -> MoverMessage {
    if let Some(first) = done.problems.named.first() {
        let count = done.problems.count;
        return MoverMessage::Failed(format!(
            "{count} files could not be read, among them {}: {}",
            first.path, first.cause
        ));
    }
    MoverMessage::BackupSummary(BackupSummary {
        id: short(done.snapshot.as_deref().unwrap_or_default()),
        files: done.files,
        size: done.bytes,
        added: done.added.unwrap_or(0),
    })
}

fn failed(error: &MoverError) -> Error {
    Error::Command { what: "the repository".into(), detail: error.to_string() }
}

fn of(repository: &Repository) -> mover::Repository {
    mover::Repository {
        location: mover::RepositoryLocation::from(&repository.location),
        password: mover::Secret::new(repository.password.expose_secret()),
    }
}

fn line(job: &Job) -> Result<String, Error> {
    let text = serde_json::to_string(job).map_err(|error| Error::Unsupported(error.to_string()))?;
    Ok(text + "\n")
}

/// As short as Kanister's users know them.
fn short(snapshot: &str) -> String {
    snapshot.chars().take(8).collect()
}

/// The same for every leader.
fn name_of(call: &Call, pod: &str) -> String {
    let digest = Sha256::digest(pod.as_bytes());
    format!("phase-{}-{}", call.identity, hex::encode(&digest[..4]))
}

fn metadata(call: &Call, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some([(PHASE.to_owned(), call.identity.clone())].into()),
        owner_references: Some(vec![call.owner.clone()]),
        ..ObjectMeta::default()
    }
}

fn transfer(call: &Call, name: &str, wanted: &VolumeTransfer<'_>) -> PodVolumeBackup {
    let pod = json!({ "kind": "Pod", "namespace": wanted.namespace, "name": wanted.pod, "uid": wanted.uid });
    let notes = [(REPOSITORY_SECRET, name), (INNER_PATH, wanted.inner.as_str()), (PLACED_AT, wanted.path)];
    let notes = notes.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let spec = PodVolumeBackupSpec {
        node: Some(wanted.node.clone()),
        pod: serde_json::from_value(pod).ok(),
        volume: Some(wanted.volume.clone()),
        backup_storage_location: Some(String::new()),
        repo_identifier: Some(wanted.repository.location.display_name()),
        uploader_type: Some(UploaderType::Restic),
        tags: [(wanted.tag.to_owned(), String::new())].into(),
        ..PodVolumeBackupSpec::default()
    };
    PodVolumeBackup { metadata: ObjectMeta { annotations: Some(notes), ..metadata(call, name) }, spec, status: None }
}

fn unless_there<K>(answer: kube::Result<K>, what: &str) -> Result<(), Error> {
    match answer {
        // Made by a server before this one.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        answer => answer.map(|_| ()).map_err(|error| Error::api(format!("create {what}"), error)),
    }
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64()
}

/// The progress of a transfer. A growing total is not reported.
fn moved(now: &PodVolumeBackup) -> TransferProgress {
    let status = json!(now.status);
    let (read, total) = (number(&status["progress"]["bytesDone"]), number(&status["progress"]["totalBytes"]));
    let grows = status["plimsoll"]["percent"].as_str().is_none_or(|percent| percent.starts_with('~'));
    let total = total.filter(|_| !grows);
    TransferProgress { direction: Direction::Upload, read: read.unwrap_or(0), total, ..TransferProgress::default() }
}

fn saved(ended: &PodVolumeBackup) -> Result<BackupSummary, String> {
    let status = json!(ended.status);
    let message = status["message"].as_str().unwrap_or("it does not say why").to_owned();
    if ended.phase() != TransferPhase::Completed || message.starts_with(INCOMPLETE) {
        return Err(message);
    }
    Ok(BackupSummary {
        id: short(status["snapshotID"].as_str().unwrap_or_default()),
        files: number(&status["fileCount"]).unwrap_or(0),
        size: number(&status["progress"]["totalBytes"]).unwrap_or(0),
        added: number(&status["incrementalBytes"]).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_shows_a_total_once_it_is_known_and_one_that_lacks_files_has_failed() {
        let of = |status: Value| -> PodVolumeBackup {
            serde_json::from_value(json!({ "metadata": { "name": "t" }, "spec": {}, "status": status })).unwrap()
        };
        let progress = json!({ "totalBytes": 10, "bytesDone": 4 });
        let counting = of(json!({ "progress": progress, "plimsoll": { "percent": "~40.00" } }));
        assert_eq!((moved(&counting).read, moved(&counting).total), (4, None));
        let known = of(json!({ "progress": progress, "plimsoll": { "percent": "40.00" } }));
        assert_eq!((moved(&known).read, moved(&known).total), (4, Some(10)));
        let ended = |message: &str| {
            of(json!({ "phase": "Completed", "snapshotID": "0123456789", "message": message,
            "progress": progress, "fileCount": 2, "incrementalBytes": 3 }))
        };
        let whole = BackupSummary { id: "01234567".into(), files: 2, size: 10, added: 3 };
        assert_eq!(saved(&ended("")), Ok(whole));
        assert!(saved(&ended("Incomplete: 1 files could not be read")).is_err());
        assert_eq!(
            saved(&of(json!({ "phase": "Failed", "message": "PodGone: it is gone" }))),
            Err("PodGone: it is gone".into())
        );
    }

    #[test]
    fn our_own_program_s_words_are_understood_and_foreign_ones_passed_over() {
        let mut done =
            mover::BackupOutcome { snapshot: Some("0123456789".into()), bytes: 7, files: 1, ..Default::default() };
        assert!(matches!(kept(&done), MoverMessage::BackupSummary(saved) if saved.id == "01234567" && saved.size == 7));
        done.problems.count = 1;
        done.problems.named.push(mover::Problem { path: "a".into(), cause: "denied".into() });
        assert!(matches!(kept(&done), MoverMessage::Failed(why) if why.contains("among them a: denied")));
    }
}
