//! `plimsoll repo`: the repositories of volume data. The server reads them; this sends it requests.

use anyhow::bail;
use futures::StreamExt;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use plimsoll_api::client_error::error_text;
use plimsoll_api::velero::v1::BackupRepository;
use plimsoll_progress::{Clock, Operation, view};
use plimsoll_volumes::repositories::{ANSWER, Answer, LockReport, REQUEST, Request, RequestKind, SnapshotReport};
use serde_json::{Value, json};

use super::delete::ask_to_continue;
use super::get::age;
use crate::args::Global;
use crate::args::options::{ListFormat, ObjectFormat};
use crate::args::repo::{AnswerTimeout, Repo, RepoDescribe, RepoGet, RepoOrphans, RepoUnlock};
use crate::describe::page::Page;
use crate::exit::Outcome;
use crate::progress_display::ProgressDisplay;
use crate::{connect, errors, output};

/// Carries out one of its verbs.
pub async fn run(global: &Global, verb: Repo) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    let repositories = RepositoryClient { client, namespace: &global.namespace };
    match verb {
        Repo::Get(options) => repositories.get(&options).await,
        Repo::Describe(options) => repositories.describe(&options).await,
        Repo::Orphans(options) => repositories.orphans(&options).await,
        Repo::Unlock(options) => repositories.unlock(&options).await,
        Repo::Stats(options) => repositories.stats(&options).await,
        Repo::Prune(options) => repositories.prune(&options).await,
    }
}

pub(super) struct RepositoryClient<'a> {
    client: Client,
    namespace: &'a str,
}

impl RepositoryClient<'_> {
    pub(super) fn api(&self) -> Api<BackupRepository> {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    /// The named repositories, or all.
    pub(super) async fn chosen(&self, names: &[String]) -> anyhow::Result<Vec<BackupRepository>> {
        let mut found = Vec::new();
        for name in names {
            found.push(self.api().get(name).await?);
        }
        if names.is_empty() {
            found = self.api().list(&ListParams::default()).await?.items;
            found.sort_by_key(ResourceExt::name_any);
        }
        Ok(found)
    }

    async fn get(&self, options: &RepoGet) -> anyhow::Result<Outcome> {
        let found = self.chosen(&options.names).await?;
        match options.output {
            ListFormat::Table => table(&found).into_iter().for_each(output::line),
            ListFormat::Name => found.iter().for_each(|one| output::line(one.name_any())),
            ListFormat::Json => output::object(&found, ObjectFormat::Json)?,
            ListFormat::Yaml => output::object(&found, ObjectFormat::Yaml)?,
        }
        Ok(Outcome::Success)
    }

    async fn describe(&self, options: &RepoDescribe) -> anyhow::Result<Outcome> {
        let mut all = Vec::new();
        for repository in self.chosen(&options.names).await? {
            let ready = repository
                .status
                .as_ref()
                .and_then(|status| status.phase.as_ref())
                .is_some_and(|phase| phase.as_str() == "Ready");
            // A repository that cannot be opened cannot be read: the reason is in its status.
            let answer = if ready {
                Some(self.send_request(&repository, RequestKind::Describe, &options.answer).await?)
            } else {
                None
            };
            all.push((repository, answer));
        }
        if let Some(format) = options.output {
            let facts = |(repository, answer): &(BackupRepository, Option<Answer>)| json!({ "repository": repository, "contents": answer });
            let facts: Vec<Value> = all.iter().map(facts).collect();
            output::object(&facts, format)?;
            return Ok(Outcome::Success);
        }
        for (index, (repository, answer)) in all.iter().enumerate() {
            if index > 0 {
                output::line("");
            }
            text(repository, answer.as_ref()).into_iter().for_each(output::line);
        }
        Ok(Outcome::Success)
    }

    async fn orphans(&self, options: &RepoOrphans) -> anyhow::Result<Outcome> {
        let older_than = options.older_than.unwrap_or_default().as_secs().try_into().unwrap_or(i64::MAX);
        let mut outcome = Outcome::Success;
        for repository in self.chosen(&options.names).await? {
            let name = repository.name_any();
            let found = self
                .send_request(&repository, RequestKind::Orphans { older_than, delete: false }, &options.answer)
                .await;
            let found = match found {
                Ok(found) => found,
                // The others are listed all the same.
                Err(error) if options.names.is_empty() => {
                    output::line(format!("{name}: {}", errors::cause_text(&error)));
                    outcome = Outcome::Failed;
                    continue;
                }
                Err(error) => return Err(error),
            };
            output::line(summary(&name, &found));
            for line in orphan_table(&found) {
                output::line(format!("  {line}"));
            }
            if options.delete && (found.orphan_count > 0 || older_than < 3600) {
                let question = format!("This deletes {} snapshots of repository {name}.", found.orphan_count);
                if !options.confirm && !ask_to_continue(&question)? {
                    continue;
                }
                let asked = RequestKind::Orphans { older_than, delete: true };
                let gone = self.send_request(&repository, asked, &options.answer).await?;
                output::line(format!("{name}: {} orphans deleted", gone.orphan_count));
            }
        }
        Ok(outcome)
    }

    async fn unlock(&self, options: &RepoUnlock) -> anyhow::Result<Outcome> {
        for repository in self.chosen(&options.names).await? {
            let name = repository.name_any();
            let answer = self.send_request(&repository, RequestKind::Unlock, &options.answer).await?;
            let removed = answer.locks.iter().filter(|lock| lock.removed).count();
            output::line(format!("{name}: {} locks, {removed} removed", answer.locks.len()));
            for line in lock_table(&answer) {
                output::line(format!("  {line}"));
            }
        }
        Ok(Outcome::Success)
    }

    /// Asks the server, and waits for its answer.
    pub(super) async fn send_request(
        &self,
        repository: &BackupRepository,
        asked: RequestKind,
        limit: &AnswerTimeout,
    ) -> anyhow::Result<Answer> {
        let name = repository.name_any();
        let request = Request { id: uuid::Uuid::new_v4().to_string(), asked };
        let text = serde_json::to_string(&request)?;
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { REQUEST: text } } }));
        self.api().patch(&name, &PatchParams::default(), &patch).await?;
        let operation = Operation::new(format!("repository {name}"), Clock::system());
        let _waiting = operation.root().wait("waiting for the answer of the server");
        let answer = tokio::time::timeout(limit.timeout, self.answer(&name, &request.id));
        let answer = ProgressDisplay::on_terminal_only().show_while(&operation, answer).await;
        let no_answer = || {
            let timeout = view::duration_text(limit.timeout);
            format!("no server in namespace {} answered about repository {name} within {timeout}", self.namespace)
        };
        let answer = answer.map_err(|_| anyhow::anyhow!(no_answer()))??;
        match answer.error {
            Some(error) => bail!("repository {name}: {error}"),
            None => Ok(answer),
        }
    }

    async fn answer(&self, name: &str, id: &str) -> anyhow::Result<Answer> {
        let mut changes = std::pin::pin!(watcher::watch_object(self.api(), name));
        while let Some(change) = changes.next().await {
            match change {
                Ok(None) => bail!("repository {name} was deleted before the server answered"),
                Ok(Some(repository)) => {
                    let answer = repository.annotations().get(ANSWER).and_then(|text| serde_json::from_str(text).ok());
                    if let Some(answer) = answer.filter(|answer: &Answer| answer.id == id) {
                        return Ok(answer);
                    }
                }
                Err(error) => tracing::warn!("watch failed, retrying: {}", error_text(&error)),
            }
        }
        bail!("the watch ended before the server answered")
    }
}

fn table(found: &[BackupRepository]) -> Vec<String> {
    let header = ["NAME", "STATUS", "TYPE", "NAMESPACE", "STORAGE LOCATION", "LAST MAINTENANCE", "AGE", "MESSAGE"];
    let row = |one: &BackupRepository| {
        let (spec, status) = (&one.spec, one.status.clone().unwrap_or_default());
        let maintenance = status.last_maintenance_time.map(|time| age(Some(&time.0.to_string())));
        vec![
            one.name_any(),
            status.phase.unwrap_or_default().to_string(),
            spec.repository_type
                .as_ref()
                .map(ToString::to_string)
                .filter(|text| !text.is_empty())
                .unwrap_or_else(|| "restic".into()),
            spec.volume_namespace.clone().unwrap_or_default(),
            spec.backup_storage_location.clone().unwrap_or_default(),
            maintenance.unwrap_or_else(|| "never".into()),
            age(one.creation_timestamp().map(|time| time.0.to_string()).as_deref()),
            status.message.unwrap_or_default(),
        ]
    };
    output::table(&header.map(str::to_owned), &found.iter().map(row).collect::<Vec<_>>())
}

fn summary(name: &str, answer: &Answer) -> String {
    match answer.orphan_count {
        0 => format!("{name}: no orphans among {} snapshots", answer.snapshots),
        count => format!("{name}: no backup refers to {count} of {} snapshots", answer.snapshots),
    }
}

fn orphan_table(answer: &Answer) -> Vec<String> {
    if answer.orphans.is_empty() {
        return Vec::new();
    }
    let row = |snapshot: &SnapshotReport| {
        let size = snapshot.bytes.map(super::volume::bytes_text).unwrap_or_default();
        vec![snapshot.id.clone(), age(Some(&snapshot.time.to_string())), size, snapshot.source.clone()]
    };
    let rows: Vec<_> = answer.orphans.iter().map(row).collect();
    let mut lines = output::table(&["SNAPSHOT", "AGE", "SIZE", "SOURCE"].map(str::to_owned), &rows);
    let more = answer.orphan_count.saturating_sub(answer.orphans.len() as u64);
    if more > 0 {
        lines.push(format!("... and {more} more"));
    }
    lines
}

fn lock_table(answer: &Answer) -> Vec<String> {
    if answer.locks.is_empty() {
        return Vec::new();
    }
    let row = |lock: &LockReport| {
        vec![
            lock.id.chars().take(8).collect(),
            age(Some(&lock.time.to_string())),
            format!("{} process {}", lock.hostname, lock.pid),
            if lock.exclusive { "exclusive" } else { "shared" }.to_owned(),
            lock.holder.clone(),
            if lock.removed { "removed" } else { "" }.to_owned(),
        ]
    };
    let rows: Vec<_> = answer.locks.iter().map(row).collect();
    output::table(&["LOCK", "AGE", "HELD BY", "KIND", "HOLDER", ""].map(str::to_owned), &rows)
}

fn text(repository: &BackupRepository, answer: Option<&Answer>) -> Vec<String> {
    let (spec, status) = (&repository.spec, repository.status.clone().unwrap_or_default());
    let mut page = Page::default();
    page.section(|section| {
        section.field("Name", repository.name_any());
        section.field("Volumes of", spec.volume_namespace.as_deref().unwrap_or_default());
        section.field("Storage location", spec.backup_storage_location.as_deref().unwrap_or_default());
        section.field("Type", spec.repository_type.as_ref().map(ToString::to_string).unwrap_or_default());
        section.some("restic identifier", spec.restic_identifier.as_deref().filter(|text| !text.is_empty()));
        section.field("Phase", status.phase.unwrap_or_default());
        section.some("Message", status.message.as_deref());
    });
    if let Some(answer) = answer {
        page.section(|section| {
            section.field("Snapshots", answer.snapshots);
            section.field("Orphans", answer.orphan_count);
        });
        page.section(|section| section.block("Orphans", orphan_table(answer)));
        page.section(|section| section.block("Locks", lock_table(answer)));
    }
    page.lines()
}
