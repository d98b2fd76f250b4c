//! Plugins that exit, hang and misbehave.

use std::time::Duration;

use plimsoll_plugin::{PluginActions, Supervision};
use plimsoll_progress::{Clock, Operation, StallRule};
use plimsoll_testkit::process::Process;
use plimsoll_testkit::{require, wait};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::plugin_directory::{PluginDirectory, go_plugin};

const TIMEOUT: Duration = Duration::from_mins(1);

fn config_map_with_request(request: &str) -> Value {
    let annotations = json!({ "test.plimsoll.dev/ask": request });
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c", "namespace": "n", "annotations": annotations } })
}

fn backup() -> Value {
    json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": "b", "namespace": "velero" } })
}

/// Reason and message of the error of a script.
async fn discovery_error(script: &str, handshake_timeout: Duration) -> (String, String) {
    let supervision = Supervision { handshake_timeout, ..Supervision::default() };
    let plugins = PluginDirectory::new().script("bad", script).with_supervision(supervision);
    let registry = plugins.registry().await;
    assert_eq!(registry.plugins(), []);
    let [error] = registry.errors() else { panic!("{:?}", registry.errors()) };
    (error.reason().to_owned(), error.to_string())
}

#[tokio::test]
async fn a_binary_that_is_not_a_plugin_is_an_error_with_a_cause() {
    let cases = [
        ("echo hello world; sleep 60", "PluginHandshakeInvalid", "hello world"),
        ("head -c 100000 /dev/zero; sleep 60", "PluginHandshakeInvalid", "invalid handshake"),
        ("echo '1|9|unix|/nowhere|grpc|'; sleep 60", "PluginIncompatible", "plugin protocol version 9, expected 2"),
        ("echo '1|2|tcp|127.0.0.1:1|netrpc|'; sleep 60", "PluginIncompatible", "network \"tcp\", expected unix"),
        (
            "echo 'cannot find my library' >&2; exit 3",
            "PluginExited",
            "exit status: 3); stderr: cannot find my library",
        ),
        ("sleep 60", "PluginHandshakeTimedOut", "handshake timed out after 5s"),
    ];
    for (script, reason, text) in cases {
        // A busy machine takes its time to start even a script.
        let times_out = reason == "PluginHandshakeTimedOut";
        let timeout = if times_out { Duration::from_secs(5) } else { TIMEOUT };
        let (found, message) = discovery_error(script, timeout).await;
        assert!(found == reason && message.contains(text), "{script}: {found}: {message}");
    }
}

#[tokio::test]
async fn an_exit_is_reported_with_stderr_and_the_plugin_is_restarted() {
    let plugins = require!(go_plugin());
    let registry = plugins.registry().await;
    let actions = PluginActions::for_backup(&registry, &plugins.sink());
    let mark = actions.backup().next().unwrap();
    mark.execute(&config_map_with_request(""), &backup()).await.unwrap();
    let before = mark.session().process_id().await.unwrap();
    let error = mark.execute(&config_map_with_request("die"), &backup()).await.unwrap_err();
    assert_eq!(error.reason(), "PluginExited");
    assert!(
        error.to_string().contains("exit status: 7") && error.to_string().contains("these are my last words"),
        "{error}"
    );
    mark.execute(&config_map_with_request(""), &backup()).await.unwrap();
    assert_ne!(mark.session().process_id().await.unwrap(), before);
    let killed = Process::find(u32::try_from(mark.session().process_id().await.unwrap()).unwrap()).unwrap();
    killed.signal(Signal::KILL).unwrap();
    // The next call may still reach the killed process; the one after it reaches a new one.
    let _ = mark.execute(&config_map_with_request(""), &backup()).await;
    mark.execute(&config_map_with_request(""), &backup()).await.unwrap();
    actions.close().await;
}

#[tokio::test]
async fn a_plugin_that_exits_too_often_is_not_restarted() {
    let plugins = require!(go_plugin()).with_supervision(Supervision { max_exits: 2, ..Supervision::default() });
    let registry = plugins.registry().await;
    let actions = PluginActions::for_backup(&registry, &plugins.sink());
    let mark = actions.backup().next().unwrap();
    let mut reasons = Vec::new();
    for _ in 0..3 {
        reasons.push(mark.execute(&config_map_with_request("die"), &backup()).await.unwrap_err().reason());
    }
    assert_eq!(reasons, ["PluginExited", "PluginExited", "PluginRestartLimitReached"]);
}

#[tokio::test]
async fn a_stopped_plugin_is_stalled_and_replaced_but_a_silent_one_is_not() {
    let supervision = Supervision {
        health_check_interval: Duration::from_millis(100),
        health_check_timeout: Duration::from_secs(8),
        ..Supervision::default()
    };
    let plugins = require!(go_plugin()).with_supervision(supervision);
    let registry = plugins.registry().await;
    let actions = PluginActions::for_backup(&registry, &plugins.sink());
    let mark = actions.backup().next().unwrap();
    mark.execute(&config_map_with_request(""), &backup()).await.unwrap();
    let tree = Operation::new("backup-b", Clock::system())
        .with_stall_rule(StallRule { floor: Duration::from_millis(1), ..StallRule::default() });
    let task = tree.root().child("working");
    let observer = mark.session().observe(&task);
    let hanging = tokio::spawn({
        let mark = mark.clone();
        async move { mark.execute(&config_map_with_request("hang"), &backup()).await }
    });
    plugins.logs.level_of("asked to \"hang\"").await;
    assert!(tree.snapshot().stall.is_none(), "a process that answers its health check is quiet, not stalled");
    let process = Process::find(u32::try_from(mark.session().process_id().await.unwrap()).unwrap()).unwrap();
    process.signal(Signal::STOP).unwrap();
    let stalled = wait::until("the stall", TIMEOUT, || async { Ok::<_, String>(tree.snapshot().stall) }).await.unwrap();
    assert!(stalled.message.contains("health check of plugin"), "{stalled:?}");
    let error = hanging.await.unwrap().unwrap_err();
    assert_eq!(error.reason(), "PluginUnhealthy");
    // The lock of the hanging call was released with its process.
    mark.execute(&config_map_with_request(""), &backup()).await.unwrap();
    wait::until("recovery", TIMEOUT, || async { Ok::<_, String>(tree.snapshot().stall.is_none().then_some(())) })
        .await
        .unwrap();
    wait::until("its exit", TIMEOUT, || async { Ok::<_, String>((!process.is_alive()).then_some(())) }).await.unwrap();
    drop(observer);
    actions.close().await;
}

#[tokio::test]
async fn a_message_that_is_too_large_is_an_error_and_the_plugin_keeps_running() {
    let plugins =
        require!(go_plugin()).with_supervision(Supervision { max_message_size: 1 << 20, ..Supervision::default() });
    let registry = plugins.registry().await;
    let actions = PluginActions::for_backup(&registry, &plugins.sink());
    let mark = actions.backup().next().unwrap();
    let error = mark.execute(&config_map_with_request("large"), &backup()).await.unwrap_err();
    assert_eq!(error.reason(), "PluginMessageTooLarge");
    mark.execute(&config_map_with_request(""), &backup()).await.unwrap();
    actions.close().await;
}

#[tokio::test]
async fn a_process_is_killed_with_its_session() {
    let plugins = require!(go_plugin());
    let registry = plugins.registry().await;
    let actions = PluginActions::for_backup(&registry, &plugins.sink());
    let mark = actions.backup().next().unwrap();
    mark.execute(&config_map_with_request(""), &backup()).await.unwrap();
    let process = Process::find(u32::try_from(mark.session().process_id().await.unwrap()).unwrap()).unwrap();
    drop((mark, actions));
    wait::until("its exit", TIMEOUT, || async { Ok::<_, String>((!process.is_alive()).then_some(())) }).await.unwrap();
}
