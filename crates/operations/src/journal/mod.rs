//! The journal of one operation, in ConfigMaps owned by its subject.
//!
//! It holds effects, never items, so it stays small: a few lines for most operations. Appends are grouped: whatever arrives
//! while a write is under way, or within a fifth of a second of the last one, goes out together.

mod pages;
mod writer;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt};
use plimsoll_engine::ports::{Effect, IntentId, Journal, JournalEntry};
use plimsoll_engine::{Error, kill};
use tokio::sync::{mpsc, oneshot};

use self::pages::{LABEL, Line, create_page, load, read};
use self::writer::{Append, AppendError, Writer, write_loop};

/// The location and the owner of a journal.
#[derive(Clone, Debug)]
pub struct JournalLocation {
    /// Namespace of the subject.
    pub namespace: String,
    /// Name of the operation, `backup-x`.
    pub operation: String,
    /// The subject: a lost Operation must not take the journal along.
    pub owner: OwnerReference,
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
        return Err(journal_lost(&location.operation, "its ConfigMaps are missing"));
    }
    let known = read(&location.operation, &pages)?;
    if pages.is_empty() {
        pages.push(create_page(&api, &location, 0).await?);
    }
    let next = known.iter().map(|k| k.id.0 + 1).max().unwrap_or(0);
    let (appends, requests) = mpsc::channel(256);
    let operation = location.operation.clone();
    let pages_so_far = pages.len();
    let Some(last) = pages.pop() else { return Err(journal_lost(&operation, "no page could be created")) };
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

fn journal_lost(operation: &str, detail: impl Into<String>) -> Error {
    Error::JournalLost { operation: operation.to_owned(), detail: detail.into() }
}

impl ConfigMapJournal {
    async fn append(&self, line: Line) -> Result<(), Error> {
        let stopped = || journal_lost(&self.operation, "its writer has stopped");
        let (done, answer) = oneshot::channel();
        self.appends.send(Append { line, done }).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?.map_err(|error| match error {
            AppendError::Fenced(why) => Error::Fenced(why),
            AppendError::Lost(detail) => journal_lost(&self.operation, detail),
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
