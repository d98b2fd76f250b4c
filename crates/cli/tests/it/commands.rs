//! The commands, as users and scripts meet them.

use std::process::Output;

use serde_json::{Value, json};

use crate::bed::{Bed, Home, plimsoll};

/// Runs a command: exit code, standard output, standard error.
pub async fn run(home: &Home<'_>, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = home.command(arguments).output().await.unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_and_restore_work_with_commands_alone() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let _server = home.server();
    bed.application("shop", 30).await;
    let (code, out, err) = run(&home, &["backup", "create", "b", "--include-namespaces", "shop", "--wait"]).await;
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("backup b: Completed, 31 of 31 items backed up"), "{out}");
    assert!(!out.contains('\u{1b}'), "no colours in a pipe: {out:?}");
    let (code, out, _) = run(&home, &["backup", "get"]).await;
    assert_eq!(code, Some(0));
    assert!(out.contains("b     Completed  100.00%   31/31"), "{out}");
    let (_, out, _) = run(&home, &["describe", "backup/b"]).await;
    for line in ["Phase:  Completed", "Items backed up:              31"] {
        assert!(out.contains(line), "{line:?} is not in\n{out}");
    }
    let (_, out, _) = run(&home, &["backup", "describe", "b", "-o", "json"]).await;
    let description: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&description["phase"], &description["progress"]["done"]), (&json!("Completed"), &json!(31)));
    bed.delete_namespace("shop").await;
    let (code, out, err) = run(&home, &["restore", "create", "--from-backup", "b", "-w"]).await;
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("Completed, 31 of 31 items restored"), "{out}");
    let (_, out, _) = run(&home, &["get", "operations"]).await;
    assert!(out.contains("backup-b") && out.contains("Succeeded"), "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_reported_with_their_exit_codes() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let _server = home.server();
    let cases: [(&[&str], i32, &str); 7] = [
        (&["describe", "backup/none"], 1, "(NotFound): backups.velero.io \"none\" not found\nhint: "),
        (&["cancel", "backup/none"], 1, "backups.velero.io \"none\" not found"),
        (&["describe", "pod/x"], 2, "unknown kind \"pod\": expected backup, restore"),
        (&["backup", "create", "x", "-l", "a in (b"], 2, "invalid selector"),
        (&["backup", "create", "x", "--ttl", "soon"], 2, "ttl"),
        (&["restore", "create", "--from-backup", "none", "--wait"], 1, "backups.velero.io \"none\" not found"),
        (&["backup", "create", "y", "--storage-location", "nowhere", "--wait"], 6, "nowhere"),
    ];
    for (arguments, code, expected) in cases {
        let (found, out, err) = run(&home, arguments).await;
        assert!(found == Some(code) && format!("{out}{err}").contains(expected), "{arguments:?}: {found:?} {out}{err}");
    }
}

#[tokio::test]
async fn a_missing_cluster_is_named() {
    let output = plimsoll().args(["backup", "get", "--kubeconfig", "/nonexistent"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nonexistent"));
}

#[tokio::test]
async fn creating_with_an_output_format_creates_nothing() {
    let arguments =
        ["backup", "create", "x", "--include-namespaces", "a,b", "-l", "app=shop,tier!=cache", "-o", "json"];
    let output = plimsoll().args(arguments).output().await.unwrap();
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["kind"], "Backup");
    assert_eq!(object["spec"]["includedNamespaces"], json!(["a", "b"]));
    assert_eq!(object["spec"]["labelSelector"]["matchLabels"], json!({ "app": "shop" }));
}

#[tokio::test]
async fn every_command_has_help_and_every_shell_a_completion() {
    for arguments in [&["--help"][..], &["backup", "create", "--help"], &["local", "--help"], &["cancel", "--help"]] {
        let output = plimsoll().args(arguments).output().await.unwrap();
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("Usage:"), "{arguments:?}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let output = plimsoll().args(["completion", shell]).output().await.unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains("plimsoll"), "{shell}");
    }
}

#[tokio::test]
async fn the_local_cluster_refuses_to_listen_for_other_machines() {
    let output = plimsoll().args(["local", "--listen", "0.0.0.0:0"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("loopback"));
}
