//! The journal of one operation, in ConfigMaps owned by its subject.
//!
//! It holds effects, never items, so it stays small: a few lines for most operations. Appends are grouped: whatever arrives
//! while a write is under way, or within a fifth of a second of the last one, goes out together.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt};
use plimsoll_engine::ports::{Effect, IntentId, Journal};
use plimsoll_engine::{Error, kill};
use plimsoll_store::RetryPolicy;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// A ConfigMap holds at most this much of it; then the next one begins.
const PAGE_BYTES: usize = 512 * 1024;
/// Five commits a second at most.
const COMMIT_INTERVAL: Duration = Duration::from_millis(200);
const LABEL: &str = "plimsoll.dev/journal-of";
const KEY: &str = "entries";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Line {
    Intent { id: u64, effect: Effect },
    Settled { id: u64, result: String },
}

/// An effect that was requested, and its result if that is known.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalEntry {
    /// Its number in the journal.
    pub id: IntentId,
    /// What was requested.
    pub effect: Effect,
    /// Its result; `None` if the process died before it was written.
    pub result: Option<String>,
}

/// Where a journal is stored, and its owner.
#[derive(Clone, Debug)]
pub struct JournalLocation {
    /// Namespace of the subject.
    pub namespace: String,
    /// Name of the operation, `backup-x`.
    pub operation: String,
    /// The subject: a lost Operation must not take the journal along.
    pub owner: OwnerReference,
}

struct Append {
    line: Line,
    done: oneshot::Sender<Result<(), AppendError>>,
}

/// Why a group of entries could not be written.
#[derive(Clone)]
enum AppendError {
    /// Another process leads.
    Fenced(String),
    /// The journal cannot be written any more.
    Lost(String),
}

impl From<Error> for AppendError {
    fn from(error: Error) -> Self {
        match error {
            Error::Fenced(why) => Self::Fenced(why),
            other => Self::Lost(other.to_string()),
        }
    }
}

/// The journal that this process writes.
pub struct ConfigMapJournal {
    operation: String,
    next: std::sync::atomic::AtomicU64,
    appends: mpsc::Sender<Append>,
}

/// Opens the journal of an operation and returns its entries. With `expected`, an absent journal is a lost one.
pub async fn open(
    client: Client,
    location: JournalLocation,
    expected: bool,
) -> Result<(ConfigMapJournal, Vec<JournalEntry>), Error> {
    let api: Api<ConfigMap> = Api::namespaced(client, &location.namespace);
    let mut pages = load(&api, &location).await?;
    if pages.is_empty() && expected {
        return Err(lost(&location.operation, "its ConfigMaps are missing"));
    }
    let known = read(&location.operation, &pages)?;
    if pages.is_empty() {
        pages.push(create_page(&api, &location, 0).await?);
    }
    let next = known.iter().map(|k| k.id.0 + 1).max().unwrap_or(0);
    let (appends, requests) = mpsc::channel(256);
    let operation = location.operation.clone();
    let pages_so_far = pages.len();
    let Some(last) = pages.pop() else { return Err(lost(&operation, "no page could be created")) };
    tokio::spawn(write_loop(Writer { api, location, page: last, pages: pages_so_far }, requests));
    Ok((ConfigMapJournal { operation, next: next.into(), appends }, known))
}

/// Removes the journal of an operation that has ended.
pub async fn remove(client: Client, namespace: &str, operation: &str) -> Result<(), Error> {
    let api: Api<ConfigMap> = Api::namespaced(client, namespace);
    let selector = ListParams::default().labels(&format!("{LABEL}={}", plimsoll_api::labels::valid_name(operation)));
    let pages = api.list(&selector).await.map_err(|e| Error::api(format!("list the journal of {operation}"), e))?;
    for page in pages {
        match api.delete(&page.name_any(), &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(Error::api(format!("delete ConfigMap {}", page.name_any()), error)),
        }
    }
    Ok(())
}

fn lost(operation: &str, detail: impl Into<String>) -> Error {
    Error::JournalLost { operation: operation.to_owned(), detail: detail.into() }
}

/// The pages of this subject, in order. Pages of an earlier subject of the same name are deleted.
async fn load(api: &Api<ConfigMap>, location: &JournalLocation) -> Result<Vec<ConfigMap>, Error> {
    let label = plimsoll_api::labels::valid_name(&location.operation);
    let list = api
        .list(&ListParams::default().labels(&format!("{LABEL}={label}")))
        .await
        .map_err(|e| Error::api(format!("read the journal of {}", location.operation), e))?;
    let mut pages = Vec::new();
    for page in list {
        if page.owner_references().iter().any(|owner| owner.uid == location.owner.uid) {
            pages.push(page);
        } else {
            let _ = api.delete(&page.name_any(), &DeleteParams::default()).await;
        }
    }
    pages.sort_by_key(|page| page_number(&page.name_any()));
    for (index, page) in pages.iter().enumerate() {
        if page_number(&page.name_any()) != Some(index) {
            return Err(lost(&location.operation, format!("page {index} is missing")));
        }
    }
    Ok(pages)
}

fn page_number(name: &str) -> Option<usize> {
    name.rsplit_once('-').and_then(|(_, number)| number.parse().ok())
}

fn read(operation: &str, pages: &[ConfigMap]) -> Result<Vec<JournalEntry>, Error> {
    let mut known: BTreeMap<u64, JournalEntry> = BTreeMap::new();
    let lines = pages.iter().filter_map(|p| p.data.as_ref()?.get(KEY)).flat_map(|text| text.lines());
    for line in lines {
        match serde_json::from_str(line).map_err(|e| lost(operation, format!("entry {line:?} cannot be read: {e}")))? {
            Line::Intent { id, effect } => {
                known.insert(id, JournalEntry { id: IntentId(id), effect, result: None });
            }
            Line::Settled { id, result } => {
                let intent = known.get_mut(&id);
                intent.ok_or_else(|| lost(operation, format!("entry {id} has a result but no intent")))?.result =
                    Some(result);
            }
        }
    }
    Ok(known.into_values().collect())
}

async fn create_page(api: &Api<ConfigMap>, location: &JournalLocation, number: usize) -> Result<ConfigMap, Error> {
    let name = format!("{}-{number}", location.operation);
    let page = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(location.namespace.clone()),
            labels: Some([(LABEL.to_owned(), plimsoll_api::labels::valid_name(&location.operation))].into()),
            owner_references: Some(vec![location.owner.clone()]),
            ..ObjectMeta::default()
        },
        data: Some([(KEY.to_owned(), String::new())].into()),
        ..ConfigMap::default()
    };
    api.create(&PostParams::default(), &page).await.map_err(|e| Error::api(format!("create ConfigMap {name}"), e))
}

struct Writer {
    api: Api<ConfigMap>,
    location: JournalLocation,
    page: ConfigMap,
    pages: usize,
}

async fn write_loop(mut writer: Writer, mut requests: mpsc::Receiver<Append>) {
    let mut last_commit = Instant::now().checked_sub(COMMIT_INTERVAL);
    while let Some(first) = requests.recv().await {
        if let Some(last) = last_commit {
            tokio::time::sleep_until(last + COMMIT_INTERVAL).await;
        }
        let mut group = vec![first];
        while let Ok(more) = requests.try_recv() {
            group.push(more);
        }
        let answer = writer.commit(group.iter().map(|append| &append.line)).await.map_err(AppendError::from);
        last_commit = Some(Instant::now());
        for append in group {
            let _ = append.done.send(answer.clone());
        }
    }
}

impl Writer {
    async fn commit(&mut self, entries: impl Iterator<Item = &Line>) -> Result<(), Error> {
        let mut lines = String::new();
        for entry in entries {
            lines += &serde_json::to_string(entry).map_err(|e| lost(&self.location.operation, e.to_string()))?;
            lines.push('\n');
        }
        if self.text().len() + lines.len() > PAGE_BYTES && !self.text().is_empty() {
            self.page = create_page(&self.api, &self.location, self.pages).await?;
            self.pages += 1;
        }
        let text = self.text().to_owned() + &lines;
        let mut page = self.page.clone();
        page.data = Some([(KEY.to_owned(), text)].into());
        self.page = self.replace(page).await?;
        Ok(())
    }

    fn text(&self) -> &str {
        self.page.data.as_ref().and_then(|data| data.get(KEY)).map_or("", String::as_str)
    }

    /// Writes a page under the version we know. After a change by a successor this process must stop.
    async fn replace(&self, page: ConfigMap) -> Result<ConfigMap, Error> {
        let name = page.name_any();
        let replace = || async {
            match self.api.replace(&name, &PostParams::default(), &page).await {
                Ok(page) => Ok(page),
                Err(kube::Error::Api(status)) if status.code == 409 => self.resolve_conflict(&page).await,
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    Err(lost(&self.location.operation, format!("ConfigMap {name} was deleted")))
                }
                Err(error) => Err(Error::api(format!("write ConfigMap {name}"), error)),
            }
        };
        RetryPolicy::default().run(Error::is_retryable, |_| (), replace).await
    }

    /// A conflict is our own write if its answer was lost; otherwise a successor has written the page.
    async fn resolve_conflict(&self, page: &ConfigMap) -> Result<ConfigMap, Error> {
        let name = page.name_any();
        let found = self.api.get(&name).await.map_err(|e| Error::api(format!("read ConfigMap {name}"), e))?;
        if found.data == page.data {
            return Ok(found);
        }
        Err(Error::Fenced(format!("ConfigMap {name} was written by another process")))
    }
}

impl ConfigMapJournal {
    async fn append(&self, line: Line) -> Result<(), Error> {
        let stopped = || lost(&self.operation, "its writer has stopped");
        let (done, answer) = oneshot::channel();
        self.appends.send(Append { line, done }).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?.map_err(|error| match error {
            AppendError::Fenced(why) => Error::Fenced(why),
            AppendError::Lost(detail) => lost(&self.operation, detail),
        })
    }
}

impl Journal for ConfigMapJournal {
    fn record_intent(&self, effect: Effect) -> BoxFuture<'_, Result<IntentId, Error>> {
        Box::pin(async move {
            let id = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            kill::point("journal.intent.before");
            self.append(Line::Intent { id, effect }).await?;
            kill::point("journal.intent.after");
            Ok(IntentId(id))
        })
    }

    fn record_result(&self, intent: IntentId, result: String) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            kill::point("journal.result.before");
            self.append(Line::Settled { id: intent.0, result }).await?;
            kill::point("journal.result.after");
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> ConfigMap {
        ConfigMap { data: Some([(KEY.to_owned(), text.to_owned())].into()), ..ConfigMap::default() }
    }

    fn line(entry: &Line) -> String {
        serde_json::to_string(entry).unwrap() + "\n"
    }

    fn begin() -> Effect {
        Effect::Begin { prefix: "backups/x/".into() }
    }

    #[test]
    fn an_intent_without_a_result_is_known_as_open() {
        let text = line(&Line::Intent { id: 3, effect: begin() });
        assert_eq!(
            read("backup-x", &[page(&text)]).unwrap(),
            [JournalEntry { id: IntentId(3), effect: begin(), result: None }]
        );
    }

    #[test]
    fn a_result_may_stand_on_a_later_page() {
        let first = line(&Line::Intent { id: 0, effect: begin() });
        let second = line(&Line::Settled { id: 0, result: "done".into() });
        let known = read("backup-x", &[page(&first), page(&second)]).unwrap();
        assert_eq!(known[0].result.as_deref(), Some("done"));
    }

    #[test]
    fn a_journal_that_cannot_be_read_is_lost_not_guessed() {
        for text in ["{\"intent\":", "{\"settled\":{\"id\":1,\"result\":\"x\"}}\n"] {
            assert_eq!(read("backup-x", &[page(text)]).unwrap_err().reason(), "JournalLost");
        }
    }
}
