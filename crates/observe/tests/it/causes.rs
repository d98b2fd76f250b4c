//! Each fault, made on purpose in the evidence, is named as what it is.

use plimsoll_observe::{ClusterState, Explanation, Kind, Object, Overview, causes};
use serde_json::{Value, json};

use crate::stock::*;

fn explanation(cluster: &ClusterState, kind: Kind, name: &str) -> Explanation {
    let object = cluster.all(kind).iter().find(|object| object.name() == name).unwrap();
    Overview::default().explain(object, cluster)
}

/// What a person is explanation, as text.
pub fn text(cluster: &ClusterState, kind: Kind, name: &str) -> String {
    let explanation = explanation(cluster, kind, name);
    let mut lines = vec![format!("{:?}: {}", explanation.verdict, explanation.headline)];
    for cause in &explanation.causes {
        let order = if cause.expected { ", in order" } else { "" };
        lines.push(format!("{} ({:?}{order}): {}", cause.reason, cause.certainty, cause.text));
        lines.extend(cause.evidence.iter().map(|evidence| format!("    {evidence}")));
        lines.extend(cause.next.iter().map(|next| format!("    $ {next}")));
    }
    lines.extend(explanation.unseen.iter().map(|unseen| format!("not seen: {}: {}", unseen.what, unseen.why)));
    lines.join("\n")
}

fn replaced(mut cluster: ClusterState, kind: Kind, value: Value) -> ClusterState {
    cluster.add(Object::new(kind, value));
    cluster
}

fn running() -> ClusterState {
    healthy().with(Kind::Backup, backup("nightly", "InProgress", 620, 590))
}

fn restoring() -> ClusterState {
    healthy()
        .with(Kind::Backup, backup("nightly", "Completed", 90_000, 90_000))
        .with(Kind::Restore, restore("monday", "InProgress", 620, 590))
        .with(Kind::PodVolumeRestore, volume_restore("monday-x1", "monday", "New", 600))
}

#[test]
fn a_location_that_is_unavailable() {
    let message = "BackupStorageLocation \"default\" is unavailable: rpc error: dial tcp 10.0.0.7:9000: connect: connection refused";
    let cluster = healthy().with(Kind::Backup, backup("nightly", "New", 300, 300));
    let cluster = replaced(cluster, Kind::Location, location("Unavailable", message, 15));
    insta::assert_snapshot!(text(&cluster, Kind::Backup, "nightly"));
}

#[test]
fn a_queue_and_what_holds_up_the_one_ahead() {
    let queued =
        with(backup("second", "Queued", 300, 290), json!({ "status": { "phase": "Queued", "queuePosition": 1 } }));
    let moving = healthy().with(Kind::Backup, backup("first", "InProgress", 60, 2)).with(Kind::Backup, queued.clone());
    let stopped = replaced(
        replaced(moving.clone(), Kind::Deployment, server(0, 0)),
        Kind::Location,
        location("Available", "", 900),
    );
    insta::assert_snapshot!(format!(
        "{}\n\n{}",
        text(&moving, Kind::Backup, "second"),
        text(&stopped, Kind::Backup, "second")
    ));
}

#[test]
fn a_pod_that_cannot_be_scheduled_holds_up_a_volume_restore() {
    let message = "0/3 nodes are available: 3 Insufficient memory. preemption: not eligible";
    let status = json!({ "phase": "Pending", "conditions": [
        { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message }] });
    let cluster = replaced(restoring(), Kind::Pod, pod("shop", "db-0", json!({}), "", status));
    insta::assert_snapshot!(text(&cluster, Kind::Restore, "monday"));
}

#[test]
fn an_init_container_that_cannot_start_holds_up_a_volume_restore() {
    let why = "failed to create containerd task: exec: \"/velero-restore-helper\": stat /velero-restore-helper: no such file or directory";
    let status = json!({ "phase": "Pending", "initContainerStatuses": [{ "name": "restore-wait", "restartCount": 6,
        "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container" } },
        "lastState": { "terminated": { "reason": "StartError", "exitCode": 128, "message": why } } }],
        "containerStatuses": [{ "name": "db", "state": { "waiting": { "reason": "PodInitializing" } } }] });
    let cluster = replaced(restoring(), Kind::Pod, pod("shop", "db-0", json!({}), "node-1", status)).with(
        Kind::Event,
        event("shop", "db-0", "BackOff", "Back-off restarting failed container restore-wait in pod db-0", 12),
    );
    insta::assert_snapshot!(text(&cluster, Kind::Restore, "monday"));
    assert_eq!(explanation(&cluster, Kind::PodVolumeRestore, "monday-x1").causes[0].reason, "InitContainerCannotStart");
}

#[test]
fn an_image_that_cannot_be_had() {
    let status = json!({ "phase": "Pending", "containerStatuses": [{ "name": "db", "image": "registry.example/db:17",
        "state": { "waiting": { "reason": "ImagePullBackOff", "message": "Back-off pulling image \"registry.example/db:17\"" } } }] });
    let cluster = replaced(restoring(), Kind::Pod, pod("shop", "db-0", json!({}), "node-1", status));
    insta::assert_snapshot!(text(&cluster, Kind::Restore, "monday"));
}

#[test]
fn a_pod_that_waits_for_its_volume_and_one_that_is_gone() {
    let status = json!({ "phase": "Pending", "containerStatuses": [{ "name": "db", "state": { "waiting": { "reason": "ContainerCreating" } } }] });
    let mount = replaced(restoring(), Kind::Pod, pod("shop", "db-0", json!({}), "node-1", status)).with(
        Kind::Event,
        event("shop", "db-0", "FailedMount", "MountVolume.SetUp failed for volume \"pv\": path does not exist", 40),
    );
    let mut gone = restoring();
    let others = gone.all(Kind::Pod).iter().filter(|pod| pod.namespace() == "velero").cloned().collect();
    gone.put(Kind::Pod, others);
    insta::assert_snapshot!(format!(
        "{}\n\n{}",
        text(&mount, Kind::Restore, "monday"),
        text(&gone, Kind::Restore, "monday")
    ));
}

#[test]
fn a_node_agent_that_is_missing_not_ready_or_not_installed() {
    let cluster = running().with(Kind::PodVolumeBackup, volume_backup("nightly-x1", "nightly", "New", 600, 0, 0));
    let mut missing = cluster.clone();
    let others = missing.all(Kind::Pod).iter().filter(|pod| pod.name() != "node-agent-1").cloned().collect();
    missing.put(Kind::Pod, others);
    let mut none = missing.clone();
    none.put(Kind::DaemonSet, Vec::new());
    let crash = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "False" }],
        "containerStatuses": [{ "name": "node-agent", "restartCount": 11, "state": { "waiting": { "reason": "CrashLoopBackOff" } },
            "lastState": { "terminated": { "reason": "OOMKilled", "exitCode": 137 } } }] });
    let crashing =
        replaced(cluster, Kind::Pod, pod("velero", "node-agent-1", json!({ "name": "node-agent" }), "node-1", crash));
    let texts = [missing, crashing, none].map(|cluster| text(&cluster, Kind::Backup, "nightly"));
    insta::assert_snapshot!(texts.join("\n\n"));
}

#[test]
fn a_node_that_is_not_ready() {
    let node = json!({ "metadata": { "name": "node-1" }, "status": { "conditions": [
        { "type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status." }] } });
    let cluster =
        running().with(Kind::PodVolumeBackup, volume_backup("nightly-x1", "nightly", "InProgress", 300, 900, 4000));
    insta::assert_snapshot!(text(&replaced(cluster, Kind::Node, node), Kind::Backup, "nightly"));
}

#[test]
fn a_transfer_that_waits_for_its_turn_and_one_that_has_fallen_silent() {
    let first = volume_backup("nightly-x1", "nightly", "InProgress", 4, 1 << 30, 3 << 30);
    let second = volume_backup("nightly-x2", "nightly", "New", 600, 0, 0);
    let turn = running().with(Kind::PodVolumeBackup, first).with(Kind::PodVolumeBackup, second);
    let silent = running()
        .with(Kind::PodVolumeBackup, volume_backup("nightly-x1", "nightly", "InProgress", 420, 1 << 30, 3 << 30));
    insta::assert_snapshot!(format!(
        "{}\n\n{}\n\n{}",
        text(&turn, Kind::Backup, "nightly"),
        text(&turn, Kind::PodVolumeBackup, "nightly-x2"),
        text(&silent, Kind::Backup, "nightly")
    ));
}

/// A backup that waits for a repository which is not ready, for this reason.
fn without_repository(message: &str) -> ClusterState {
    let repository = with(
        object("velero", "shop-default-kopia-x", 90_000, 400),
        json!({ "spec": { "volumeNamespace": "shop" }, "status": { "phase": "NotReady", "message": message } }),
    );
    running()
        .with(Kind::PodVolumeBackup, volume_backup("nightly-x1", "nightly", "Accepted", 500, 0, 0))
        .with(Kind::Repository, repository)
}

#[test]
fn a_repository_that_is_locked_or_not_ready() {
    let locked = without_repository("repository is already locked by PID 41 on node-7");
    let broken = without_repository("error to connect to repository: invalid repository password");
    insta::assert_snapshot!(format!(
        "{}\n\n{}",
        text(&locked, Kind::Backup, "nightly"),
        text(&broken, Kind::Backup, "nightly")
    ));
}

#[test]
fn what_our_own_agent_tries_again_for_is_named_in_its_own_words() {
    let cluster = |doing: &str| {
        let mut volume = volume_backup("nightly-x1", "nightly", "InProgress", 2, 0, 0);
        volume["status"]["plimsoll"] = json!({ "doing": doing });
        let repository = with(
            object("velero", "shop-default-restic", 90_000, 400),
            json!({ "spec": { "volumeNamespace": "shop", "backupStorageLocation": "default", "repositoryType": "restic" },
                "status": { "phase": "Ready" } }),
        );
        healthy_of_ours()
            .with(Kind::Backup, backup("nightly", "InProgress", 60, 5))
            .with(Kind::Operation, operation("backup", "nightly", 2))
            .with(Kind::PodVolumeBackup, volume)
            .with(Kind::Repository, repository)
    };
    let locked = cluster(
        "trying again: RepositoryLocked: repository /bucket/restic/shop is locked: exclusively root@node-2 (process 7) since 02:51",
    );
    let died = cluster("trying again: MoverDied: mover process exited without a result (signal 9): -");
    insta::assert_snapshot!(format!(
        "{}\n\n{}\n\n{}",
        text(&locked, Kind::PodVolumeBackup, "nightly-x1"),
        text(&locked, Kind::Backup, "nightly"),
        text(&died, Kind::PodVolumeBackup, "nightly-x1"),
    ));
    let other = cluster("reading /data/trying again: RepositoryLocked: no");
    assert!(explanation(&other, Kind::Backup, "nightly").causes.is_empty());
}

#[test]
fn a_repository_is_called_locked_only_where_its_message_names_a_lock() {
    let long = format!(
        "error running command=restic snapshots --repo=s3:{0}: unable to create lock in backend: {0}: exit status 1",
        "x".repeat(200)
    );
    let locked = [
        "repository is already locked exclusively by PID 7 on node-2 by root (UID 0, GID 0)",
        "Fatal: unable to create lock in backend: timeout",
        "stderr=unable to create lock in backend: refused\nthe `unlock` command can be used to remove stale locks",
        "Repository locked.",
        "repository shop-default is locked: PID 7 on node-2",
        "\"LOCKED\"",
        &long,
    ];
    let otherwise = [
        "error to connect to repository: invalid repository password",
        "failed to read block 7: unexpected end of file",
        "the request is blocked by a policy",
        "the clock of this node is 17 minutes behind that of the bucket",
        "the repository was unlocked and cannot be read",
        "run `restic unlock` and try again",
        "deadlock detected",
        "command=restic --no-lock snapshots: wrong password or no key found",
        "open /repository/locks/5d0f0b1f: permission denied",
        "Access Denied because object protected by object lock.",
        "flock: no such file or directory",
    ];
    let expected = locked.map(|message| (message, "RepositoryLocked")).into_iter();
    for (message, reason) in expected.chain(otherwise.map(|message| (message, "RepositoryNotReady"))) {
        let explanation = explanation(&without_repository(message), Kind::Backup, "nightly");
        let named = explanation.causes.iter().map(|cause| cause.reason).find(|reason| reason.starts_with("Repository"));
        assert_eq!(named, Some(reason), "{message}");
    }
}

#[test]
fn a_server_that_is_stopped_crashing_silent_or_was_killed_for_its_memory() {
    let quiet = |cluster: ClusterState| replaced(cluster, Kind::Location, location("Available", "", 900));
    let stopped = replaced(quiet(running()), Kind::Deployment, server(0, 0));
    let crash = json!({ "phase": "Running", "containerStatuses": [{ "name": "velero", "restartCount": 4,
        "state": { "waiting": { "reason": "CrashLoopBackOff" } }, "lastState": { "terminated": { "reason": "Error", "exitCode": 1 } } }] });
    let crashing = replaced(
        replaced(quiet(running()), Kind::Deployment, server(0, 1)),
        Kind::Pod,
        pod("velero", "velero-1", json!({ "deploy": "velero" }), "node-1", crash),
    );
    let killed = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }],
        "containerStatuses": [{ "name": "velero", "restartCount": 1, "state": { "running": { "startedAt": ago(200) } },
            "lastState": { "terminated": { "reason": "OOMKilled", "exitCode": 137, "finishedAt": ago(205) } } }] });
    let failed = with(
        backup("nightly", "Failed", 620, 190),
        json!({ "status": { "phase": "Failed", "startTimestamp": ago(620),
        "failureReason": "found a backup with status \"InProgress\" during the server starting, mark it as \"Failed\"" } }),
    );
    let killed = replaced(
        replaced(running(), Kind::Pod, pod("velero", "velero-1", json!({ "deploy": "velero" }), "node-1", killed)),
        Kind::Backup,
        failed,
    );
    let texts = [stopped, crashing, quiet(running()), killed].map(|cluster| text(&cluster, Kind::Backup, "nightly"));
    insta::assert_snapshot!(texts.join("\n\n"));
}

#[test]
fn a_server_beside_the_cluster_that_gives_signs_of_life_is_not_called_stopped() {
    let cluster =
        replaced(healthy(), Kind::Deployment, server(0, 0)).with(Kind::Backup, backup("nightly", "InProgress", 20, 1));
    let explanation = explanation(&cluster, Kind::Backup, "nightly");
    assert_eq!(
        (explanation.causes.as_slice(), format!("{:?}", explanation.verdict).as_str()),
        ([].as_slice(), "Moving")
    );
}

#[test]
fn a_plugin_that_says_nothing_and_an_item_that_takes_for_ever() {
    let waiting = with(
        backup("nightly", "", 2000, 900),
        json!({ "status": { "phase": "WaitingForPluginOperations",
        "startTimestamp": ago(2000), "progress": { "totalItems": 9, "itemsBackedUp": 9 },
        "backupItemOperationsAttempted": 3, "backupItemOperationsCompleted": 1 } }),
    );
    let mut hooks = backup("nightly", "InProgress", 620, 590);
    hooks["spec"]["hooks"] = json!({ "resources": [{ "name": "freeze" }] });
    let mut late = waiting.clone();
    late["spec"]["itemOperationTimeout"] = json!("16m0s");
    let states = [waiting, late, hooks].map(|backup| healthy().with(Kind::Backup, backup));
    insta::assert_snapshot!(states.map(|cluster| text(&cluster, Kind::Backup, "nightly")).join("\n\n"));
}

/// A backup whose objects are done, and which waits for its plugins.
fn waiting_for_plugins(limit: &str) -> Value {
    let mut backup = backup("nightly", "WaitingForPluginOperations", 2000, 590);
    backup["spec"]["itemOperationTimeout"] = json!(limit);
    backup["status"]["progress"]["itemsBackedUp"] = json!(400);
    backup
}

#[test]
fn a_plugins_snapshot_is_named_with_how_far_it_is_and_since_when_it_is_silent() {
    let counted = json!({ "phase": "Uploading", "message": "block 6 of 10", "progress": { "bytesDone": 600, "totalBytes": 1000 } });
    let quiet = json!({ "phase": "InProgress" });
    let cluster = |limit: &str, status: &Value, written: i64| {
        healthy()
            .with(Kind::Backup, waiting_for_plugins(limit))
            .with(Kind::VolumePluginBackup, plugin_backup("x1", "nightly", status.clone(), written))
            // It belongs to another backup, and says nothing about this one.
            .with(Kind::VolumePluginBackup, plugin_backup("x2", "weekly", json!({ "phase": "InProgress" }), 9000))
    };
    let states = [
        cluster("4h", &counted, 5),
        cluster("4h", &counted, 420),
        cluster("4h", &quiet, 420),
        cluster("7m30s", &quiet, 420),
        cluster(
            "4h",
            &json!({ "phase": "ERROR", "message": "disk is gone\u{1b}[31m", "completionTimestamp": ago(60) }),
            60,
        ),
    ];
    let backups = states.each_ref().map(|cluster| text(cluster, Kind::Backup, "nightly")).join("\n\n");
    let records = states.each_ref().map(|cluster| text(cluster, Kind::VolumePluginBackup, "x1")).join("\n\n");
    insta::assert_snapshot!(format!("{backups}\n\n{records}"));
}

#[test]
fn a_volume_that_a_plugin_makes_is_named_for_its_restore() {
    let status = json!({ "phase": "InProgress", "volumeID": "pv-9", "progress": { "bytesDone": 1 << 20, "totalBytes": 4 << 20 },
        "plimsoll": { "percent": "~25.00", "stalled": { "since": ago(95), "reason": "NoProgress", "message": "nothing has moved" } } });
    let cluster = healthy()
        .with(Kind::Backup, backup("nightly", "Completed", 90_000, 90_000))
        .with(Kind::Restore, restore("monday", "InProgress", 620, 590))
        .with(Kind::VolumePluginRestore, plugin_restore("monday-1", "monday", status, 4));
    let texts = [(Kind::Restore, "monday"), (Kind::VolumePluginRestore, "monday-1")];
    insta::assert_snapshot!(texts.map(|(kind, name)| text(&cluster, kind, name)).join("\n\n"));
}

#[test]
fn a_namespace_that_is_being_deleted_holds_up_a_restore() {
    let namespace = json!({ "metadata": { "name": "shop", "deletionTimestamp": ago(900) }, "status": { "phase": "Terminating",
        "conditions": [{ "type": "NamespaceFinalizersRemaining", "status": "True", "message": "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances" }] } });
    let cluster =
        healthy().with(Kind::Restore, restore("monday", "InProgress", 620, 590)).with(Kind::Namespace, namespace);
    insta::assert_snapshot!(text(&cluster, Kind::Restore, "monday"));
}

#[test]
fn a_schedule_that_is_paused_refused_or_whose_last_backup_does_not_end() {
    let schedule = |spec: Value, status: Value| {
        with(object("velero", "daily", 90_000, 9000), json!({ "spec": spec, "status": status }))
    };
    let paused = healthy().with(Kind::Schedule, schedule(json!({ "paused": true }), json!({ "phase": "Enabled" })));
    let refused = healthy().with(
        Kind::Schedule,
        schedule(
            json!({}),
            json!({ "phase": "FailedValidation", "validationErrors": ["invalid schedule: expected exactly 5 fields"] }),
        ),
    );
    let last =
        with(backup("daily-1", "InProgress", 9000, 8000), json!({ "labels": { "velero.io/schedule-name": "daily" } }));
    let running =
        healthy().with(Kind::Schedule, schedule(json!({}), json!({ "phase": "Enabled" }))).with(Kind::Backup, last);
    let fine = healthy().with(Kind::Schedule, schedule(json!({}), json!({ "phase": "Enabled" })));
    insta::assert_snapshot!(
        [paused, refused, running, fine].map(|cluster| text(&cluster, Kind::Schedule, "daily")).join("\n\n")
    );
}

#[test]
fn what_ended_says_how() {
    let partial = with(
        backup("nightly", "PartiallyFailed", 620, 590),
        json!({ "status": { "phase": "PartiallyFailed", "errors": 2, "warnings": 1 } }),
    );
    let mut volume = volume_backup("nightly-x1", "nightly", "Failed", 590, 10, 20);
    volume["status"]["message"] =
        json!("get a podvolumebackup with status \"InProgress\" during the server starting, mark it as \"Failed\"");
    let partial = healthy().with(Kind::Backup, partial).with(Kind::PodVolumeBackup, volume);
    let refused = with(
        backup("nightly", "", 620, 590),
        json!({ "status": { "phase": "FailedValidation",
        "validationErrors": ["an existing backup storage location was not specified at backup creation time"] } }),
    );
    let fine = healthy().with(Kind::Backup, backup("nightly", "Completed", 620, 590));
    let states = [partial, healthy().with(Kind::Backup, refused), fine];
    insta::assert_snapshot!(states.map(|cluster| text(&cluster, Kind::Backup, "nightly")).join("\n\n"));
}

#[test]
fn actions_that_are_stranded_quiet_failed_or_wait_for_a_pod() {
    let set = |state: &str, phase: &str, error: &str| {
        with(
            object("kanister", "dump", 900, 800),
            json!({ "status": { "state": state,
        "error": { "message": error },
        "actions": [{ "name": "backup", "object": { "kind": "StatefulSet", "namespace": "shop", "name": "db" },
            "phases": [{ "name": "freeze", "state": "complete" }, { "name": "dump", "state": phase, "progress": { "progressPercent": "0" } }] }] } }),
        )
    };
    let controller = |started: i64| {
        pod(
            "kanister",
            "kanister-1",
            json!({ "app": "kanister-operator" }),
            "node-1",
            json!({ "phase": "Running", "containerStatuses": [{ "name": "op", "state": { "running": { "startedAt": ago(started) } } }] }),
        )
    };
    let deployment =
        with(object("kanister", "kanister-operator", 90_000, 1), json!({ "status": { "readyReplicas": 1 } }));
    let with_controller =
        |started: i64| healthy().with(Kind::Deployment, deployment.clone()).with(Kind::Pod, controller(started));
    let job = pod(
        "kanister",
        "kanister-job-1",
        json!({ "createdBy": "kanister" }),
        "",
        json!({ "phase": "Pending",
        "conditions": [{ "type": "PodScheduled", "status": "False", "message": "0/1 nodes are available: 1 Insufficient cpu." }] }),
    );
    let states = [
        with_controller(300).with(Kind::ActionSet, set("running", "running", "")),
        with_controller(9000).with(Kind::ActionSet, set("running", "running", "")),
        with_controller(9000).with(Kind::ActionSet, set("failed", "failed", "pg_dump: connection refused")),
        with_controller(9000).with(Kind::ActionSet, set("running", "running", "")).with(Kind::Pod, job),
        healthy().with(Kind::ActionSet, set("", "pending", "")),
    ];
    insta::assert_snapshot!(states.map(|cluster| text(&cluster, Kind::ActionSet, "dump")).join("\n\n"));
}

fn action_set(state: &str, created: i64) -> Value {
    with(
        object("velero", "dump", created, created.min(20)),
        json!({ "status": { "state": state, "actions": [{ "name": "backup", "phases": [{ "name": "dump", "state": state }] }] } }),
    )
}

#[test]
fn an_action_of_our_own_server_needs_no_kanister() {
    let working = healthy_of_ours()
        .with(Kind::ActionSet, action_set("running", 60))
        .with(Kind::Operation, operation("run", "dump", 2));
    let pending = healthy_of_ours().with(Kind::ActionSet, action_set("pending", 2));
    // A server of ours beside the cluster has no Deployment.
    let mut beside = working.clone();
    beside.put(Kind::Deployment, Vec::new());
    let stopped = replaced(
        healthy_of_ours()
            .with(Kind::ActionSet, action_set("running", 60))
            .with(Kind::Operation, operation("run", "dump", 45)),
        Kind::Deployment,
        our_server(0, 0),
    );
    let mut unseen = ClusterState::new("velero", now()).with(Kind::ActionSet, action_set("running", 60));
    unseen.put(Kind::Deployment, Vec::new());
    unseen.add_unread("deployments", "forbidden to this user");
    let states = [working, pending, beside, stopped, unseen];
    insta::assert_snapshot!(states.map(|cluster| text(&cluster, Kind::ActionSet, "dump")).join("\n\n"));
}

#[test]
fn a_server_of_ours_that_is_stopped_missing_silent_or_was_killed_for_its_memory() {
    let working = |written: i64| {
        healthy_of_ours()
            .with(Kind::Backup, backup("nightly", "InProgress", 620, 590))
            .with(Kind::Operation, operation("backup", "nightly", written))
    };
    let stopped = replaced(working(45), Kind::Deployment, our_server(0, 0));
    let crash = json!({ "phase": "Running", "containerStatuses": [{ "name": "plimsoll", "restartCount": 4,
        "state": { "waiting": { "reason": "CrashLoopBackOff" } }, "lastState": { "terminated": { "reason": "Error", "exitCode": 1 } } }] });
    let mark = json!({ "app.kubernetes.io/name": "plimsoll" });
    let crashing = replaced(
        replaced(working(45), Kind::Deployment, our_server(0, 1)),
        Kind::Pod,
        pod("velero", "plimsoll-1", mark.clone(), "node-1", crash),
    );
    let mut missing = working(45);
    missing.put(Kind::Deployment, Vec::new());
    let killed = json!({ "phase": "Running", "containerStatuses": [{ "name": "plimsoll", "restartCount": 1,
        "state": { "running": {} }, "lastState": { "terminated": { "reason": "OOMKilled", "exitCode": 137, "finishedAt": ago(200) } } }] });
    let killed = replaced(working(2), Kind::Pod, pod("velero", "plimsoll-1", mark, "node-1", killed));
    let states = [stopped, crashing, missing, working(45), killed];
    insta::assert_snapshot!(states.map(|cluster| text(&cluster, Kind::Backup, "nightly")).join("\n\n"));
}

#[test]
fn without_a_server_neither_product_is_blamed_and_the_next_command_is_named() {
    let mut cluster = ClusterState::new("backups", now()).with(Kind::Backup, {
        let mut backup = backup("nightly", "New", 300, 300);
        backup["metadata"]["namespace"] = json!("backups");
        backup
    });
    assert!(causes::server_missing(&cluster).is_none(), "nothing is concluded from what was not looked at");
    cluster.put(Kind::Deployment, Vec::new());
    insta::assert_snapshot!(text(&cluster, Kind::Backup, "nightly"));
    assert!(causes::server_missing(&cluster).is_some());
    // Other Deployments are not servers, and a server outside the cluster has none but checks its locations.
    let foreign = cluster.clone().with(Kind::Deployment, object("backups", "web", 600, 600));
    assert!(causes::server_missing(&foreign).is_some());
    let mut checked = location("Available", "", 20);
    checked["metadata"]["namespace"] = json!("backups");
    assert!(causes::server_missing(&cluster.with(Kind::Location, checked)).is_none());
    assert!(causes::server_missing(&healthy()).is_none());
    assert!(causes::server_missing(&healthy_of_ours()).is_none());
}

#[test]
fn a_repository_is_named_for_a_single_transfer_too() {
    let repository = with(
        object("velero", "shop-default-kopia", 90_000, 60),
        json!({ "spec": { "volumeNamespace": "shop", "backupStorageLocation": "default" },
            "status": { "phase": "NotReady", "message": "unable to create lock in backend: repository is already locked by PID 7 on node-2" } }),
    );
    let upload = with(
        object("velero", "moved", 600, 500),
        json!({ "spec": { "sourceNamespace": "shop", "sourcePVC": "data", "backupStorageLocation": "default" },
            "labels": { "velero.io/backup-name": "nightly" }, "status": { "phase": "InProgress", "node": "node-1" } }),
    );
    let mut elsewhere = repository.clone();
    elsewhere["spec"]["backupStorageLocation"] = json!("other");
    let mut all = backup("nightly", "InProgress", 620, 590);
    all["spec"]["includedNamespaces"] = json!(["*"]);
    let cluster = |repository: &Value| {
        healthy()
            .with(Kind::Backup, all.clone())
            .with(Kind::Repository, repository.clone())
            .with(Kind::DataUpload, upload.clone())
            .with(Kind::PodVolumeBackup, volume_backup("nightly-x1", "other", "InProgress", 300, 900, 4000))
    };
    let reasons = |cluster: &ClusterState, kind: Kind, name: &str| {
        explanation(cluster, kind, name).causes.iter().map(|cause| cause.reason).collect::<Vec<_>>()
    };
    let locked = cluster(&repository);
    assert!(reasons(&locked, Kind::PodVolumeBackup, "nightly-x1").contains(&"RepositoryLocked"));
    assert!(reasons(&locked, Kind::DataUpload, "moved").contains(&"RepositoryLocked"));
    assert!(
        reasons(&locked, Kind::Backup, "nightly").contains(&"RepositoryLocked"),
        "its namespace is only in the upload"
    );
    assert!(!reasons(&cluster(&elsewhere), Kind::DataUpload, "moved").contains(&"RepositoryLocked"));
}

#[test]
fn what_may_not_be_read_is_said_and_nothing_is_concluded_from_it() {
    let mut cluster = ClusterState::new("velero", now())
        .with(Kind::Backup, backup("nightly", "InProgress", 620, 590))
        .with(Kind::PodVolumeBackup, volume_backup("nightly-x1", "nightly", "New", 600, 0, 0));
    for what in ["pods", "nodes", "deployments", "daemonsets", "backupstoragelocations"] {
        cluster.add_unread(what, "forbidden to this user");
    }
    insta::assert_snapshot!(text(&cluster, Kind::Backup, "nightly"));
}
