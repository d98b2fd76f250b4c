//! Plugins that die, hang, and say what they should not.

use std::time::Duration;

use plimsoll_plugin::{PluginActions, Supervision};
use plimsoll_progress::{Clock, Operation, StallRule};
use plimsoll_testkit::process::Process;
use plimsoll_testkit::{require, wait};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::{Bed, go_plugin};

const SOON: Duration = Duration::from_mins(1);

fn asking(ask: &str) -> Value {
    let annotations = json!({ "test.plimsoll.dev/ask": ask });
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c", "namespace": "n", "annotations": annotations } })
}

fn backup() -> Value {
    json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": "b", "namespace": "velero" } })
}

/// What discovery says of a script that has so long for its handshake.
async fn verdict(script: &str, handshake: Duration) -> (String, String) {
    let bed = Bed::new().script("bad", script).supervised(Supervision { handshake, ..Supervision::default() });
    let catalog = bed.catalog().await;
    assert_eq!(catalog.offers(), []);
    let [problem] = catalog.problems() else { panic!("{:?}", catalog.problems()) };
    (problem.reason().to_owned(), problem.to_string())
}

#[tokio::test]
async fn a_binary_that_is_no_plugin_is_named_with_what_it_did() {
    let cases = [
        ("echo hello world; sleep 60", "PluginHandshakeInvalid", "hello world"),
        ("head -c 100000 /dev/zero; sleep 60", "PluginHandshakeInvalid", "where its handshake belongs"),
        (
            "echo '1|9|unix|/nowhere|grpc|'; sleep 60",
            "PluginIncompatible",
            "it speaks plugin protocol 9, this server 2",
        ),
        ("echo '1|2|tcp|127.0.0.1:1|netrpc|'; sleep 60", "PluginIncompatible", "only unix sockets"),
        (
            "echo 'cannot find my library' >&2; exit 3",
            "PluginExited",
            "exit status: 3); its last words: cannot find my library",
        ),
        ("sleep 60", "PluginHandshakeTimedOut", "did not say hello within 5 s"),
    ];
    for (script, reason, text) in cases {
        // A busy machine takes its time to start even a script.
        let is_silent = reason == "PluginHandshakeTimedOut";
        let (found, said) = verdict(script, if is_silent { Duration::from_secs(5) } else { SOON }).await;
        assert!(found == reason && said.contains(text), "{script}: {found}: {said}");
    }
}

#[tokio::test]
async fn a_plugin_that_dies_says_its_last_words_and_is_started_again() {
    let bed = require!(go_plugin());
    let catalog = bed.catalog().await;
    let actions = PluginActions::for_backup(&catalog, &bed.sink());
    let mark = actions.backup().next().unwrap();
    mark.execute(&asking(""), &backup()).await.unwrap();
    let before = mark.session().process_id().await.unwrap();
    let died = mark.execute(&asking("die"), &backup()).await.unwrap_err();
    assert_eq!(died.reason(), "PluginExited");
    assert!(
        died.to_string().contains("exit status: 7") && died.to_string().contains("these are my last words"),
        "{died}"
    );
    mark.execute(&asking(""), &backup()).await.unwrap();
    assert_ne!(mark.session().process_id().await.unwrap(), before);
    let killed = Process::find(u32::try_from(mark.session().process_id().await.unwrap()).unwrap()).unwrap();
    killed.signal(Signal::KILL).unwrap();
    // Whether the next call still meets the dying process or already a new one, the one after it does not notice.
    let _ = mark.execute(&asking(""), &backup()).await;
    mark.execute(&asking(""), &backup()).await.unwrap();
    actions.close().await;
}

#[tokio::test]
async fn a_plugin_that_keeps_dying_is_left_alone_after_a_while() {
    let bed = require!(go_plugin()).supervised(Supervision { ends: 2, ..Supervision::default() });
    let catalog = bed.catalog().await;
    let actions = PluginActions::for_backup(&catalog, &bed.sink());
    let mark = actions.backup().next().unwrap();
    let mut reasons = Vec::new();
    for _ in 0..3 {
        reasons.push(mark.execute(&asking("die"), &backup()).await.unwrap_err().reason());
    }
    assert_eq!(reasons, ["PluginExited", "PluginExited", "PluginGivenUp"]);
}

#[tokio::test]
async fn a_stopped_plugin_is_stalled_killed_and_replaced_while_a_silent_one_is_left_in_peace() {
    let impatient = Supervision {
        health_every: Duration::from_millis(100),
        health_patience: Duration::from_secs(8),
        ..Supervision::default()
    };
    let bed = require!(go_plugin()).supervised(impatient);
    let catalog = bed.catalog().await;
    let actions = PluginActions::for_backup(&catalog, &bed.sink());
    let mark = actions.backup().next().unwrap();
    mark.execute(&asking(""), &backup()).await.unwrap();
    let tree = Operation::new("backup-b", Clock::system())
        .with_stall_rule(StallRule { floor: Duration::from_millis(1), ..StallRule::default() });
    let task = tree.root().child("working");
    let observing = mark.session().observe(&task);
    let hanging = tokio::spawn({
        let mark = mark.clone();
        async move { mark.execute(&asking("hang"), &backup()).await }
    });
    bed.logs.gravity_of("asked to \"hang\"").await;
    assert!(tree.snapshot().stall.is_none(), "a process that answers its health check is quiet, not stalled");
    let process = Process::find(u32::try_from(mark.session().process_id().await.unwrap()).unwrap()).unwrap();
    process.signal(Signal::STOP).unwrap();
    let stalled = wait::until("the stall", SOON, || async { Ok::<_, String>(tree.snapshot().stall) }).await.unwrap();
    assert!(stalled.message.contains("does not answer its health check"), "{stalled:?}");
    let error = hanging.await.unwrap().unwrap_err();
    assert_eq!(error.reason(), "PluginUnhealthy");
    // Another action of the same binary: the hanging one's turn ended with its process.
    mark.execute(&asking(""), &backup()).await.unwrap();
    wait::until("recovery", SOON, || async { Ok::<_, String>(tree.snapshot().stall.is_none().then_some(())) })
        .await
        .unwrap();
    wait::until("its end", SOON, || async { Ok::<_, String>((!process.is_alive()).then_some(())) }).await.unwrap();
    drop(observing);
    actions.close().await;
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused_by_name_and_the_plugin_lives_on() {
    let bed = require!(go_plugin()).supervised(Supervision { largest_message: 1 << 20, ..Supervision::default() });
    let catalog = bed.catalog().await;
    let actions = PluginActions::for_backup(&catalog, &bed.sink());
    let mark = actions.backup().next().unwrap();
    let error = mark.execute(&asking("large"), &backup()).await.unwrap_err();
    assert_eq!(error.reason(), "PluginMessageTooLarge");
    mark.execute(&asking(""), &backup()).await.unwrap();
    actions.close().await;
}

#[tokio::test]
async fn no_process_outlives_its_session() {
    let bed = require!(go_plugin());
    let catalog = bed.catalog().await;
    let actions = PluginActions::for_backup(&catalog, &bed.sink());
    let mark = actions.backup().next().unwrap();
    mark.execute(&asking(""), &backup()).await.unwrap();
    let process = Process::find(u32::try_from(mark.session().process_id().await.unwrap()).unwrap()).unwrap();
    drop((mark, actions));
    wait::until("its end", SOON, || async { Ok::<_, String>((!process.is_alive()).then_some(())) }).await.unwrap();
}
