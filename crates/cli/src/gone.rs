//! Waiting for something to be gone.

use anyhow::Context;
use futures::{Stream, StreamExt, stream};
use kube::api::{DynamicObject, ListParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{DeleteBackupRequest, DeleteBackupRequestPhase};
use plimsoll_progress::{Clock, Operation};

use crate::args::names::Kind;
use crate::exit::Outcome;
use crate::output;
use crate::picture::Picture;
use crate::subjects::Seen;

/// Waits until it is gone, or until the server says why it does not go.
pub async fn wait(client: &Client, namespace: &str, seen: &Seen) -> anyhow::Result<Outcome> {
    let reference = seen.reference();
    let operation = Operation::new(format!("deleting {reference}"), Clock::system());
    let waiting = operation.root().wait(format!("waiting for {reference} to be gone"));
    let faults = Picture::new().of(&operation, end(client, namespace, seen)).await?;
    drop(waiting);
    if faults.is_empty() {
        output::line(format!("{reference} is gone"));
        return Ok(Outcome::Success);
    }
    output::line(format!("{reference} could not be deleted:"));
    for fault in &faults {
        output::line(format!("  {fault}"));
    }
    Ok(Outcome::Failed)
}

enum News {
    Object(Option<String>),
    Faults(Vec<String>),
}

async fn end(client: &Client, namespace: &str, seen: &Seen) -> anyhow::Result<Vec<String>> {
    let uid = seen.text("/metadata/uid").map(str::to_owned);
    let mut news = std::pin::pin!(stream::select(
        object_news(seen.kind.api(client, namespace), seen.name()).boxed(),
        fault_news(client, namespace, seen).boxed()
    ));
    while let Some(item) = news.next().await {
        match item? {
            // Another one of the same name is not the one that was deleted.
            News::Object(found) if found != uid => return Ok(Vec::new()),
            News::Faults(faults) if !faults.is_empty() => return Ok(faults),
            _ => {}
        }
    }
    anyhow::bail!("the watch ended before {} was gone", seen.reference())
}

fn object_news(api: Api<DynamicObject>, name: &str) -> impl Stream<Item = anyhow::Result<News>> + use<> {
    watcher::watch_object(api, name).filter_map(|event| async {
        // A watch that breaks is begun again by itself.
        event.ok().map(|object| Ok(News::Object(object.and_then(|object| object.uid()))))
    })
}

/// What the requests to delete this backup say went wrong, every second.
fn fault_news(client: &Client, namespace: &str, seen: &Seen) -> impl Stream<Item = anyhow::Result<News>> + use<> {
    let api: Api<DeleteBackupRequest> = Api::namespaced(client.clone(), namespace);
    let mine = format!("{}={}", labels::BACKUP_NAME, labels::valid_name(seen.name()));
    let is_backup = seen.kind == Kind::Backup;
    stream::unfold((), move |()| {
        let (api, mine) = (api.clone(), ListParams::default().labels(&mine));
        async move {
            if !is_backup {
                return None;
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            let list = api.list(&mine).await.context("cannot list requests to delete backups");
            let faults = list.map(|list| News::Faults(list.items.into_iter().flat_map(faults).collect()));
            Some((faults, ()))
        }
    })
}

fn faults(request: DeleteBackupRequest) -> Vec<String> {
    let status = request.status.unwrap_or_default();
    if status.phase == Some(DeleteBackupRequestPhase::Processed) { status.errors } else { Vec::new() }
}
