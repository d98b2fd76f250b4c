//! Writes entries in groups: entries that arrive during a write go out together with the next one.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use plimsoll_engine::Error;
use plimsoll_store::RetryPolicy;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::pages::{KEY, Line, create_page};
use super::{JournalLocation, journal_lost};
use crate::record_version;

/// Maximum size of a page; then the next one begins.
const PAGE_BYTES: usize = 512 * 1024;
/// Five commits a second at most.
const COMMIT_INTERVAL: Duration = Duration::from_millis(200);

/// An entry to write.
pub(super) struct Append {
    pub line: Line,
    pub done: oneshot::Sender<Result<(), AppendError>>,
}

/// Why a group of entries could not be written.
#[derive(Clone)]
pub(super) enum AppendError {
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

/// Holds the last page, as this process has written it.
pub(super) struct Writer {
    pub api: Api<ConfigMap>,
    pub location: JournalLocation,
    pub page: ConfigMap,
    pub pages: usize,
}

/// Writes entries until the journal is dropped.
pub(super) async fn write_loop(mut writer: Writer, mut requests: mpsc::Receiver<Append>) {
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
            lines +=
                &serde_json::to_string(entry).map_err(|e| journal_lost(&self.location.operation, e.to_string()))?;
            lines.push('\n');
        }
        if self.text().len() + lines.len() > PAGE_BYTES && !self.text().is_empty() {
            self.page = create_page(&self.api, &self.location, self.pages).await?;
            self.pages += 1;
        }
        let text = self.text().to_owned() + &lines;
        let mut page = self.page.clone();
        // An older server may have created it.
        record_version::mark(&mut page.metadata);
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
                    Err(journal_lost(&self.location.operation, format!("ConfigMap {name} was deleted")))
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
