//! Item operations from their start to their end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use plimsoll_engine::Error;
use plimsoll_engine::backup::actions::ItemId;
use plimsoll_engine::item_operations::{
    ItemOperationClient, ItemOperationCounts, ItemOperationOwner, ItemOperationProgress, ItemOperations,
    StartedOperation,
};
use plimsoll_engine::outcome::Scope;
use plimsoll_engine::ports::{Effect, IntentId, Journal};
use plimsoll_engine::stages::Stages;
use plimsoll_progress::{Clock, Operation};
use serde_json::{Value, json};

#[derive(Default)]
struct RecordingJournal(Mutex<Vec<String>>);

impl Journal for RecordingJournal {
    fn record_intent(&self, effect: Effect) -> BoxFuture<'_, Result<IntentId, Error>> {
        self.0.lock().unwrap().push(effect.to_string());
        Box::pin(async { Ok(IntentId(7)) })
    }

    fn record_result(&self, _: IntentId, result: String) -> BoxFuture<'_, Result<(), Error>> {
        self.0.lock().unwrap().push(result);
        Box::pin(async { Ok(()) })
    }
}

/// Returns the reports in turn, and the last one for ever.
struct ScriptedClient(Mutex<Vec<ItemOperationProgress>>, Mutex<bool>);

impl ItemOperationClient for ScriptedClient {
    fn progress<'a>(&'a self, _: &'a str, _: &'a Value) -> BoxFuture<'a, Result<ItemOperationProgress, Error>> {
        let mut left = self.0.lock().unwrap();
        let next = if left.len() > 1 { left.remove(0) } else { left[0].clone() };
        Box::pin(async { Ok(next) })
    }

    fn cancel<'a>(&'a self, _: &'a str, _: &'a Value) -> BoxFuture<'a, Result<(), Error>> {
        *self.1.lock().unwrap() = true;
        Box::pin(async { Ok(()) })
    }
}

fn progress(done: u64, completed: bool, error: &str) -> ItemOperationProgress {
    ItemOperationProgress { done, total: 30, completed, error: error.to_owned(), ..ItemOperationProgress::default() }
}

async fn start_all(scripts: Vec<Arc<ScriptedClient>>, journal: &Arc<RecordingJournal>) -> ItemOperations {
    let operations = ItemOperations::new(Arc::clone(journal) as Arc<dyn Journal>);
    for (number, script) in scripts.into_iter().enumerate() {
        let item = ItemId::new("configmaps", Some("n"), "c");
        let started_operation =
            StartedOperation { id: format!("o{number}"), post: vec![ItemId::new("pods", Some("n"), "p")] };
        operations.start("x.io/slow", item, started_operation, script).await.unwrap();
    }
    operations
}

/// `namespace: message` of each failed operation.
fn failures(operations: &ItemOperations) -> Vec<String> {
    let text = |(scope, message): (Scope, String)| match scope {
        Scope::Namespace(namespace) => format!("{namespace}: {message}"),
        _ => message,
    };
    operations.failures().into_iter().map(text).collect()
}

pub fn failing_operation(error: &str) -> Arc<dyn ItemOperationClient> {
    script(vec![progress(10, true, error)])
}

fn script(reports: Vec<ItemOperationProgress>) -> Arc<ScriptedClient> {
    Arc::new(ScriptedClient(Mutex::new(reports), Mutex::default()))
}

#[tokio::test(start_paused = true)]
async fn operations_are_polled_to_their_end_and_the_file_records_the_result() {
    let journal = Arc::new(RecordingJournal::default());
    let succeeding = script(vec![progress(10, false, ""), progress(30, true, "")]);
    let failing = script(vec![progress(10, true, "no space")]);
    let operations = start_all(vec![succeeding, failing], &journal).await;
    let tree = Operation::new("backup-b", Clock::system());
    operations
        .poll_until_done(&json!({}), &Stages::plan(&tree.root(), &[]).operations(), Duration::from_mins(1))
        .await
        .unwrap();
    assert_eq!(operations.counts(), ItemOperationCounts { attempted: 2, completed: 1, failed: 1 });
    assert_eq!(failures(&operations), ["n: operation o1 of x.io/slow on configmaps n/c: no space"]);
    assert_eq!(operations.post_items(), [ItemId::new("pods", Some("n"), "p")]);
    let list = operations.list(ItemOperationOwner { verb: "backup", name: "b", uid: "u" });
    assert_eq!(
        list[0]["spec"],
        json!({ "backupName": "b", "backupUID": "u", "backupItemAction": "x.io/slow", "operationID": "o0",
            "resourceIdentifier": { "Group": "", "Resource": "configmaps", "Namespace": "n", "Name": "c" },
            "postOperationItems": [{ "Group": "", "Resource": "pods", "Namespace": "n", "Name": "p" }] })
    );
    assert_eq!((&list[0]["status"]["phase"], &list[1]["status"]["error"]), (&json!("Completed"), &json!("no space")));
    let recorded = journal.0.lock().unwrap().join("; ");
    assert!(
        recorded.starts_with("operation o0 of x.io/slow")
            && recorded.contains("Completed")
            && recorded.contains("Failed")
    );
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_exceeds_its_limit_is_cancelled() {
    let stuck = script(vec![progress(10, false, "")]);
    let operations = start_all(vec![Arc::clone(&stuck)], &Arc::default()).await;
    let tree = Operation::new("backup-b", Clock::system());
    operations
        .poll_until_done(&json!({}), &Stages::plan(&tree.root(), &[]).operations(), Duration::from_secs(90))
        .await
        .unwrap();
    assert!(*stuck.1.lock().unwrap());
    let expected = ["n: operation o0 of x.io/slow on configmaps n/c: timed out after 90 s; cancelled"];
    assert_eq!(failures(&operations), expected);
}
