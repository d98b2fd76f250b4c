//! Waiting for something to be gone.

use anyhow::Context;
use futures::{Stream, StreamExt, stream};
use kube::api::{DynamicObject, ListParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use plimsoll_api::labels;
use plimsoll_api::plimsoll::v1alpha1::Operation as Record;
use plimsoll_api::velero::v1::{DeleteBackupRequest, DeleteBackupRequestPhase};
use plimsoll_progress::{Clock, Node, Operation, Snapshot, State, Task};

use crate::args::names::Kind;
use crate::exit::Outcome;
use crate::output;
use crate::picture::Picture;
use crate::subjects::Seen;

/// Waits until it is gone, or until the server says why it does not go.
pub async fn wait(client: &Client, namespace: &str, seen: &Seen) -> anyhow::Result<Outcome> {
    let reference = seen.reference();
    let operation = Operation::new(format!("deleting {reference}"), Clock::system());
    let faults = Picture::new().of(&operation, end(client, namespace, seen, &operation.root())).await?;
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
    Request(Request),
}

/// What the requests to delete something say.
#[derive(Default)]
struct Request {
    faults: Vec<String>,
    /// What the server does for one of them right now.
    doing: Option<String>,
}

async fn end(client: &Client, namespace: &str, seen: &Seen, shown: &Task) -> anyhow::Result<Vec<String>> {
    let reason = format!("waiting for {} to be gone", seen.reference());
    let mut waiting = (String::new(), shown.wait(&reason));
    let uid = seen.text("/metadata/uid").map(str::to_owned);
    let mut news = std::pin::pin!(stream::select(
        object_news(seen.kind.api(client, namespace), seen.name()).boxed(),
        request_news(client, namespace, seen).boxed()
    ));
    while let Some(item) = news.next().await {
        match item? {
            // Another one of the same name is not the one that was deleted.
            News::Object(found) if found != uid => return Ok(Vec::new()),
            News::Request(request) if !request.faults.is_empty() => return Ok(request.faults),
            News::Request(Request { doing: Some(doing), .. }) if waiting.0 != doing => {
                let said = shown.wait(format!("{reason}: {doing}"));
                waiting = (doing, said);
            }
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

/// What the requests to delete this backup say, every second.
fn request_news(client: &Client, namespace: &str, seen: &Seen) -> impl Stream<Item = anyhow::Result<News>> + use<> {
    let requests: Api<DeleteBackupRequest> = Api::namespaced(client.clone(), namespace);
    let operations: Api<Record> = Api::namespaced(client.clone(), namespace);
    let mine = format!("{}={}", labels::BACKUP_NAME, labels::valid_name(seen.name()));
    let is_backup = seen.kind == Kind::Backup;
    stream::unfold((), move |()| {
        let (requests, operations, mine) = (requests.clone(), operations.clone(), ListParams::default().labels(&mine));
        async move {
            if !is_backup {
                return None;
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            Some((request(&requests, &operations, &mine).await.map(News::Request), ()))
        }
    })
}

async fn request(
    requests: &Api<DeleteBackupRequest>,
    operations: &Api<Record>,
    mine: &ListParams,
) -> anyhow::Result<Request> {
    let list = requests.list(mine).await.context("cannot list requests to delete backups")?.items;
    let names: Vec<_> = list.iter().map(ResourceExt::name_any).collect();
    let mut request = Request { faults: list.into_iter().flat_map(faults).collect(), doing: None };
    for name in names {
        // An unchanged Velero has no such kind, and not everybody may read it: then nothing more is known.
        let operation = operations.get_opt(&plimsoll_operations::operation_name("delete", &name)).await;
        request.doing = request.doing.or_else(|| doing(operation.ok()??));
    }
    Ok(request)
}

/// The innermost thing that a server is at.
fn doing(operation: Record) -> Option<String> {
    let tree: Snapshot = serde_json::from_value(operation.status?.tree?).ok()?;
    let is_at_work = |node: &&Node| matches!(node.state, State::Running | State::Waiting);
    let node = tree.nodes.iter().filter(is_at_work).max_by_key(|node| node.path.matches('/').count())?;
    let what = node.reason.as_ref().or(node.item.as_ref())?;
    Some(what.to_string())
}

fn faults(request: DeleteBackupRequest) -> Vec<String> {
    let status = request.status.unwrap_or_default();
    if status.phase == Some(DeleteBackupRequestPhase::Processed) { status.errors } else { Vec::new() }
}
