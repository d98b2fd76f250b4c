//! Waiting until an object is deleted.

use futures::{Stream, StreamExt, stream};
use kube::api::{DynamicObject, ListParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use plimsoll_api::labels;
use plimsoll_api::plimsoll::v1alpha1::Operation as Record;
use plimsoll_api::velero::v1::{DeleteBackupRequest, DeleteBackupRequestPhase};
use plimsoll_progress::{Clock, Node, Operation, Snapshot, State, Task};

use crate::args::names::ResourceKind;
use crate::exit::Outcome;
use crate::output;
use crate::progress_display::ProgressDisplay;
use crate::subjects::Subject;

/// Waits until the object is deleted, or until the server reports why it cannot be.
pub async fn wait_until_deleted(client: &Client, namespace: &str, subject: &Subject) -> anyhow::Result<Outcome> {
    let reference = subject.reference();
    let operation = Operation::new(format!("deleting {reference}"), Clock::system());
    let faults =
        ProgressDisplay::new().show_while(&operation, end(client, namespace, subject, &operation.root())).await?;
    if faults.is_empty() {
        output::line(format!("{reference} deleted"));
        return Ok(Outcome::Success);
    }
    output::line(format!("cannot delete {reference}:"));
    for fault in &faults {
        output::line(format!("  {fault}"));
    }
    Ok(Outcome::Failed)
}

enum WatchEvent {
    Object(Option<String>),
    Request(Request),
}

/// The state of the requests to delete a backup.
#[derive(Default)]
struct Request {
    faults: Vec<String>,
    /// The current task of the server.
    doing: Option<String>,
}

async fn end(client: &Client, namespace: &str, subject: &Subject, shown: &Task) -> anyhow::Result<Vec<String>> {
    let reason = format!("waiting for the deletion of {}", subject.reference());
    let mut waiting = (String::new(), shown.wait(&reason));
    let uid = subject.text("/metadata/uid").map(str::to_owned);
    let mut news = std::pin::pin!(stream::select(
        object_news(subject.kind.api(client, namespace), subject.name()).boxed(),
        request_news(client, namespace, subject).boxed()
    ));
    while let Some(item) = news.next().await {
        match item? {
            // A new object of the same name is not the deleted one.
            WatchEvent::Object(found) if found != uid => return Ok(Vec::new()),
            WatchEvent::Request(request) if !request.faults.is_empty() => return Ok(request.faults),
            WatchEvent::Request(Request { doing: Some(doing), .. }) if waiting.0 != doing => {
                let said = shown.wait(format!("{reason}: {doing}"));
                waiting = (doing, said);
            }
            _ => {}
        }
    }
    anyhow::bail!("the watch ended before {} was deleted", subject.reference())
}

fn object_news(api: Api<DynamicObject>, name: &str) -> impl Stream<Item = anyhow::Result<WatchEvent>> + use<> {
    watcher::watch_object(api, name).filter_map(|event| async {
        // The watcher restarts a broken watch by itself.
        event.ok().map(|object| Ok(WatchEvent::Object(object.and_then(|object| object.uid()))))
    })
}

/// The state of the requests to delete this backup, every second.
fn request_news(
    client: &Client,
    namespace: &str,
    subject: &Subject,
) -> impl Stream<Item = anyhow::Result<WatchEvent>> + use<> {
    let requests: Api<DeleteBackupRequest> = Api::namespaced(client.clone(), namespace);
    let operations: Api<Record> = Api::namespaced(client.clone(), namespace);
    let mine = format!("{}={}", labels::BACKUP_NAME, labels::valid_name(subject.name()));
    let is_backup = subject.kind == ResourceKind::Backup;
    stream::unfold((), move |()| {
        let (requests, operations, mine) = (requests.clone(), operations.clone(), ListParams::default().labels(&mine));
        async move {
            if !is_backup {
                return None;
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            Some((request(&requests, &operations, &mine).await.map(WatchEvent::Request), ()))
        }
    })
}

async fn request(
    requests: &Api<DeleteBackupRequest>,
    operations: &Api<Record>,
    mine: &ListParams,
) -> anyhow::Result<Request> {
    let list = requests.list(mine).await?.items;
    let names: Vec<_> = list.iter().map(ResourceExt::name_any).collect();
    let mut request = Request { faults: list.into_iter().flat_map(faults).collect(), doing: None };
    for name in names {
        // An unchanged Velero has no such kind, and the user may not be allowed to read it.
        let operation = operations.get_opt(&plimsoll_operations::operation_name("delete", &name)).await;
        request.doing = request.doing.or_else(|| current_activity(operation.ok()??));
    }
    Ok(request)
}

/// The innermost active task of the server.
fn current_activity(operation: Record) -> Option<String> {
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
