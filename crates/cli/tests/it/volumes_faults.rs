//! What goes wrong with a volume has a name, in its own status and in its backup's errors.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use plimsoll_repository::{Lock, LockKind, OpenOptions, Repository};
use plimsoll_store::Store;
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{Proxy, Stopwatch, cache, require};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::bed::{Bed, Home, eventually, is_ended, phase, terminate_server};
use crate::planted::restored_file;
use crate::pod_volumes::{
    Application, agent, agent_log, agent_on_a_small_disk, agent_through, path, server, transfer, unpacked,
};

/// What is promised for `spec.cancel`.
const CANCEL_LIMIT: Duration = Duration::from_secs(5);

fn message(transfer: &Value) -> &str {
    transfer.pointer("/status/message").and_then(Value::as_str).unwrap_or_default()
}

/// A backup whose volumes all fail with one reason, which every output shows.
async fn fails(home: &Home<'_>, application: &Application<'_>, name: &str, reason: &str) {
    home.backup(name, json!({ "includedNamespaces": [application.namespace] })).await;
    let backup = home.ended("Backup", name).await;
    let errors = home.messages(name, "errors");
    assert_eq!(phase(&backup), "PartiallyFailed", "{errors}\n{}\n{}", home.log(), agent_log(home));
    assert!(errors.contains(reason) && errors.contains("writer/data"), "{reason}: {errors}");
    assert_eq!(backup["status"]["errors"], 2, "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_agent_a_missing_program_and_a_wrong_password_are_named() {
    require!(cache::program("kopia"));
    let bed = Bed::local_with_pods().await;
    let application = Application::start(&bed, "shop", 100_000).await;
    let home = bed.home("home").await;
    home.create_secret("velero-repo-credentials", "repository-password", "right").await;
    let _server = server(&home, "kopia", &["--agent-heartbeat-timeout", "3s"]);
    fails(&home, &application, "alone", "NodeAgentMissing: no agent runs on node local").await;
    let failed = transfer(&home, "PodVolumeBackup", "data").await.unwrap();
    assert_eq!((phase(&failed), message(&failed)), ("Failed", "NodeAgentMissing: no agent runs on node local"));

    let lost = agent(&home, &["--kopia", "/nowhere/kopia"], &[]);
    fails(&home, &application, "lost", "MoverProgramMissing").await;
    terminate_server(lost).await;

    let found = agent(&home, &[], &[]);
    home.backup("good", json!({ "includedNamespaces": [application.namespace] })).await;
    let good = home.ended("Backup", "good").await;
    assert_eq!(phase(&good), "Completed", "{}\n{}", home.messages("good", "errors"), agent_log(&home));
    let wrong = json!({ "stringData": { "repository-password": "wrong" } });
    home.patch("Secret", "velero-repo-credentials", wrong).await;
    fails(&home, &application, "locked-out", "wrong password in the Secret").await;
    terminate_server(found).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_heartbeats_is_reported_and_does_not_block_the_backup() {
    let bed = Bed::local_with_pods().await;
    let application = Application::start(&bed, "shop", 100_000).await;
    let home = bed.home("home").await;
    let _server = server(&home, "built-in", &["--agent-heartbeat-timeout", "3s"]);
    let agent = agent(&home, &[], &[]);
    eventually("the agent renews its Lease", async || agent_log(&home).contains("at work")).await;
    let process = Pid::from_raw(i32::try_from(agent.id().unwrap()).unwrap()).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    // An agent that has sent a heartbeat gets half a minute.
    let ended = || async {
        let backup = home.get("Backup", "b").await;
        Ok::<_, kube::Error>(is_ended(&backup).then_some(backup))
    };
    let backup = plimsoll_testkit::wait::until("the backup to end", Duration::from_mins(3), ended).await.unwrap();
    let errors = home.messages("b", "errors");
    assert_eq!(phase(&backup), "PartiallyFailed", "{errors}");
    let words = "NodeAgentSilent: no heartbeat from the agent of node local for";
    assert!(errors.contains(words) && errors.contains("writer/data"), "{errors}");
    let failed = transfer(&home, "PodVolumeBackup", "data").await.unwrap();
    assert!(phase(&failed) == "Failed" && message(&failed).starts_with(words), "{failed:#}");
    kill_process(process, Signal::CONT).unwrap();
    terminate_server(agent).await;
}

/// A Backup or Restore with its own timeout for volumes.
async fn timed(home: &Home<'_>, kind: &str, name: &str, timeout: &str, spec: Value) -> Value {
    let metadata = json!({ "name": name, "annotations": { "velero.io/pod-volume-timeout": timeout } });
    home.create(json!({ "apiVersion": "velero.io/v1", "kind": kind, "metadata": metadata, "spec": spec }))
        .await
        .unwrap();
    home.ended(kind, name).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_and_a_restore_set_the_timeout_of_their_volumes() {
    let bed = Bed::local_with_pods().await;
    let application = Application::start(&bed, "shop", 100_000).await;
    let home = bed.home("home").await;
    let (_server, agent) = (server(&home, "built-in", &[]), agent(&home, &[], &[]));
    eventually("the agent renews its Lease", async || agent_log(&home).contains("at work")).await;
    let of_shop = json!({ "includedNamespaces": [application.namespace] });
    let good = timed(&home, "Backup", "soon", "soon", of_shop.clone()).await;
    assert_eq!(phase(&good), "Completed", "{}\n{}", home.messages("soon", "errors"), agent_log(&home));
    let warnings = home.messages("soon", "warnings");
    assert!(warnings.contains("annotation velero.io/pod-volume-timeout: \"soon\" is not a duration"), "{warnings}");
    assert_eq!(good["status"]["warnings"], 1, "{warnings}");

    // Long before it would be taken for dead.
    let process = Pid::from_raw(i32::try_from(agent.id().unwrap()).unwrap()).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    let backup = timed(&home, "Backup", "late", "3s", of_shop).await;
    let errors = home.messages("late", "errors");
    assert_eq!(phase(&backup), "PartiallyFailed", "{errors}");
    assert!(errors.contains("writer/data: TimedOut"), "{errors}");
    let mapping = json!({ (application.namespace.as_str()): format!("{}-back", home.namespace) });
    let spec = json!({ "backupName": "soon", "namespaceMapping": mapping });
    let restore = timed(&home, "Restore", "late", "3s", spec).await;
    let errors = restored_file(&home, "late", "results.gz")["errors"].to_string();
    assert_eq!(phase(&restore), "PartiallyFailed", "{errors}");
    assert!(errors.contains("writer/data: TimedOut"), "{errors}");
    kill_process(process, Signal::CONT).unwrap();
    terminate_server(agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_agent_that_never_returns_is_reported_within_a_minute() {
    let bed = Bed::local_with_pods().await;
    require!(cache::program("versitygw"));
    let application = Application::start(&bed, "shop", 3_000_000).await;
    let (_store, proxy, home) = bed.home_on_proxied_s3("home").await;
    // The store takes no pack, so that no transfer can end before its agent does.
    let _stuck = proxy.inject(Requests::with_method(Method::PUT).containing("/data/"), Fault::Hang);
    let _server = server(&home, "built-in", &[]);
    let mut agent = agent(&home, &[], &[]);
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    let transfers =
        async || home.list("PodVolumeBackup").await.into_iter().map(|one| json!(one)).collect::<Vec<Value>>();
    eventually("both volumes are on their way", async || {
        let all = transfers().await;
        all.len() == 2 && all.iter().all(|one| phase(one) == "InProgress")
    })
    .await;
    agent.kill().await.unwrap();
    let killed = Stopwatch::start();
    let words = "NodeAgentSilent: no heartbeat from the agent of node local for";
    for one in transfers().await {
        let failed = home.ended("PodVolumeBackup", one["metadata"]["name"].as_str().unwrap()).await;
        assert!(phase(&failed) == "Failed" && message(&failed).starts_with(words), "{failed:#}\n{}", home.log());
    }
    assert!(killed.elapsed() < Duration::from_mins(1), "{:?}\n{}", killed.elapsed(), home.log());
    let backup = home.ended("Backup", "b").await;
    let errors = home.messages("b", "errors");
    assert_eq!(phase(&backup), "PartiallyFailed", "{errors}");
    assert!(errors.contains(words) && errors.contains("writer/data"), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_stop_when_they_or_their_backup_are_cancelled() {
    let bed = Bed::local_with_pods().await;
    let application = Application::start(&bed, "shop", 96 << 20).await;
    require!(cache::program("versitygw"));
    let (_store, proxy, home) = bed.home_on_proxied_s3("home").await;
    // The store takes no pack, so that no transfer can end before it is cancelled.
    let stand_still = || proxy.inject(Requests::with_method(Method::PUT).containing("/data/"), Fault::Hang);
    let stuck = stand_still();
    let (_server, agent) = (server(&home, "built-in", &[]), agent(&home, &["--concurrency", "1"], &[]));
    home.backup("one", json!({ "includedNamespaces": [application.namespace] })).await;
    let mut found = Value::Null;
    eventually("a volume is on its way", async || {
        let mut all = home.list("PodVolumeBackup").await.into_iter().map(|one| json!(one));
        found = all.find(|one| phase(one) == "InProgress").unwrap_or_default();
        !found.is_null()
    })
    .await;
    let name = found["metadata"]["name"].as_str().unwrap().to_owned();
    let asked = Stopwatch::start();
    home.patch("PodVolumeBackup", &name, json!({ "spec": { "cancel": true } })).await;
    let ended = home.ended("PodVolumeBackup", &name).await;
    let took = asked.elapsed();
    assert_eq!(phase(&ended), "Canceled", "{ended:#}\n{}", agent_log(&home));
    assert!(took < CANCEL_LIMIT, "{took:?}\n{}", agent_log(&home));
    let progress = &ended["status"]["progress"];
    assert!(progress.is_null() || progress["bytesDone"].as_u64() < progress["totalBytes"].as_u64(), "{progress}");
    drop(stuck);
    let backup = home.ended("Backup", "one").await;
    assert_eq!(phase(&backup), "PartiallyFailed", "{backup:#}");
    let (errors, volume) = (home.messages("one", "errors"), found["spec"]["volume"].as_str().unwrap());
    assert!(errors.contains(&format!("writer/{volume}: its backup was cancelled")), "{errors}");
    home.delete("PodVolumeBackup", &name).await;

    let _stuck = stand_still();
    home.backup("two", json!({ "includedNamespaces": [application.namespace] })).await;
    let of_second = async || {
        let all = home.list("PodVolumeBackup").await.into_iter().map(|one| json!(one));
        all.filter(|one| one["metadata"]["labels"]["velero.io/backup-name"] == "two").collect::<Vec<_>>()
    };
    eventually("its volumes are on their way", async || of_second().await.iter().any(|one| phase(one) == "InProgress"))
        .await;
    home.patch("Operation", "backup-two", json!({ "spec": { "cancel": true } })).await;
    let backup = home.ended("Backup", "two").await;
    assert_eq!((phase(&backup), &backup["status"]["failureReason"]), ("Failed", &json!("Cancelled")), "{backup:#}");
    let phases: Vec<String> = of_second().await.iter().map(|one| phase(one).to_owned()).collect();
    assert!(phases.iter().all(|phase| phase == "Canceled" || phase == "Completed"), "{phases:?}");
    assert!(phases.contains(&"Canceled".to_owned()), "{phases:?}");
    terminate_server(agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_fails_and_names_a_container_that_cannot_wait_for_the_data() {
    let bed = Bed::local_with_pods().await;
    let application = Application::start(&bed, "shop", 100_000).await;
    // One program that does not exist, and one that runs only for a moment while its data begins to arrive.
    for (home, program) in [("missing", "/nowhere/plimsoll"), ("crashing", "/bin/false")] {
        let home = bed.home(home).await;
        let arguments =
            ["--uploader-type", "built-in", "--restore-helper-program", program, "--resource-timeout", "15s"];
        let search = path();
        let server = home.server_through(&bed.kubeconfig, &arguments, &[("PATH", search.as_str())]);
        let agent = agent(&home, &[], &[]);
        home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
        assert_eq!(phase(&home.ended("Backup", "b").await), "Completed", "{}", agent_log(&home));
        let mapping = json!({ (application.namespace.as_str()): format!("{}-back", home.namespace) });
        home.restore("r", json!({ "backupName": "b", "namespaceMapping": mapping })).await;
        let words = "InitContainerStuck: container restore-wait of pod";
        eventually("the transfer says what it waits for", async || {
            let waiting = transfer(&home, "PodVolumeRestore", "data").await.unwrap_or_default();
            !is_ended(&waiting) && message(&waiting).starts_with(words)
        })
        .await;
        let restore = home.get("Restore", "r").await;
        assert!(!is_ended(&restore), "{restore:#}");
        let restore = home.ended("Restore", "r").await;
        assert_eq!(phase(&restore), "PartiallyFailed", "{restore:#}\n{}", home.log());
        let failed = transfer(&home, "PodVolumeRestore", "data").await.unwrap();
        assert!(phase(&failed) == "Failed" && message(&failed).starts_with(words), "{failed:#}");
        assert!(program != "/nowhere/plimsoll" || message(&failed).contains("no such file"), "{failed:#}");
        terminate_server(agent).await;
        terminate_server(server).await;
    }
}

/// A program for a container to run. The node shows it to the container wherever the target directory lies.
fn helper(name: &str, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

fn server_with_helper(home: &Home<'_>, mover: &str, program: &str, timeout: &str) -> tokio::process::Child {
    let arguments = ["--uploader-type", mover, "--restore-helper-program", program, "--resource-timeout", timeout];
    let search = path();
    home.server_through(&home.bed.kubeconfig, &arguments, &[("PATH", search.as_str())])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_killed_while_it_removes_its_markers_is_notified_again() {
    let bed = Bed::local_with_pods().await;
    let (home, application) = (bed.home("home").await, Application::start(&bed, "shop", 100_000).await);
    let before = application.files().await;
    // The first time it dies between the two volumes.
    let plimsoll = env!("CARGO_BIN_EXE_plimsoll");
    let text = format!(
        "data=/restores/data scratch=/restores/scratch\n\
         if [ -e $scratch/died ]; then rm $scratch/died; exec {plimsoll} \"$@\"; fi\n\
         until [ -e $data/.velero/$2 ] && [ -e $scratch/.velero/$2 ]; do sleep 0.1; done\n\
         touch $scratch/died; rm -r $data/.velero; exit 137"
    );
    let (_server, agent) =
        (server_with_helper(&home, "built-in", &helper("mortal", &text), "2m"), agent(&home, &[], &[]));
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    assert_eq!(phase(&home.ended("Backup", "b").await), "Completed", "{}", agent_log(&home));
    application.lose().await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}\n{}", home.log(), agent_log(&home));
    let pod = application.pod().await.unwrap();
    assert_eq!(pod["status"]["initContainerStatuses"][0]["restartCount"], 1, "{pod:#}");
    eventually("the pod runs with its data", async || application.is_running().await).await;
    assert_eq!(application.files().await, before);
    terminate_server(agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_fails_and_names_a_pod_that_does_not_start_after_its_data_is_restored() {
    let bed = Bed::local_with_pods().await;
    let (home, application) = (bed.home("home").await, Application::start(&bed, "shop", 100_000).await);
    let deaf = helper("deaf", "exec sleep 2147483647");
    let (_server, agent) = (server_with_helper(&home, "built-in", &deaf, "15s"), agent(&home, &[], &[]));
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    assert_eq!(phase(&home.ended("Backup", "b").await), "Completed", "{}", agent_log(&home));
    application.lose().await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let words = "waiting for container restore-wait of pod shop/writer to see that its data is restored";
    eventually("the restore says what it waits for", async || {
        home.list("Operation").await.iter().any(|operation| operation.data["status"].to_string().contains(words))
    })
    .await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "PartiallyFailed", "{restore:#}\n{}", home.log());
    let words = "pod shop/writer has its data, but its container restore-wait does not go on";
    let results = unpacked(&home, "restores/r/restore-r-results.gz");
    assert!(results["errors"].to_string().contains(words), "{results:#}\n{}", home.log());
    for volume in ["data", "scratch"] {
        let done = transfer(&home, "PodVolumeRestore", volume).await.unwrap();
        assert_eq!(phase(&done), "Completed", "{done:#}");
    }
    terminate_server(agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_names_a_container_without_permission_to_read_its_volume() {
    use std::os::unix::fs::{PermissionsExt, chown};
    require!(cache::program("kopia"));
    let bed = Bed::local_with_pods().await;
    let (home, application) = (bed.home("home").await, Application::start(&bed, "shop", 100_000).await);
    // As for databases: readable by their user only. Without capabilities root cannot read it either.
    let data = application.directory("data").await.unwrap();
    chown(&data, Some(999), Some(999)).unwrap();
    std::fs::set_permissions(&data, PermissionsExt::from_mode(0o700)).unwrap();
    let plimsoll = env!("CARGO_BIN_EXE_plimsoll");
    let powerless = format!("exec setpriv --inh-caps=-all --bounding-set=-all {plimsoll} \"$@\"");
    let program = helper("powerless", &powerless);
    let (_server, agent) = (server_with_helper(&home, "kopia", &program, "30s"), agent(&home, &[], &[]));
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    assert_eq!(phase(&home.ended("Backup", "b").await), "Completed", "{}", agent_log(&home));
    application.lose().await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "PartiallyFailed", "{restore:#}\n{}", home.log());
    let errors = unpacked(&home, "restores/r/restore-r-results.gz")["errors"].to_string();
    let words = "restore-wait cannot read /restores/data: Permission denied (os error 13): it belongs to user 999 and group 999 \
        with mode 0700, and this is user 0 and group 0";
    assert!(errors.contains(words), "{errors}\n{}\n{}", home.log(), agent_log(&home));
    terminate_server(agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_brief_api_server_failure_does_not_fail_a_transfer() {
    let bed = Bed::local_with_pods().await;
    let (home, application) = (bed.home("home").await, Application::start(&bed, "shop", 100_000).await);
    let proxy = Proxy::for_kubeconfig("127.0.0.1:0", &bed.kubeconfig).await.unwrap();
    // The first read of each of them.
    let reads = |what: &str| Requests::with_method(Method::GET).containing(what).first(1);
    let broken = [
        "/podvolumebackups/",
        "/persistentvolumeclaims/data",
        "/persistentvolumes/",
        "/backupstoragelocations/default",
        "/secrets/velero-repo-credentials",
    ];
    let faults = broken.map(|what| proxy.inject(reads(what), Fault::Status(500)));
    let _server = server(&home, "built-in", &[]);
    let agent = agent_through(&home, proxy.kubeconfig().unwrap());
    eventually("the agent is at work", async || agent_log(&home).contains("at work")).await;
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{}\n{}", home.messages("b", "errors"), agent_log(&home));
    for (fault, what) in faults.iter().zip(broken) {
        assert_eq!(fault.hits(), 1, "{what}");
    }
    terminate_server(agent).await;
}

/// Creates a PodVolumeBackup without a server.
async fn create_pod_volume_backup(
    home: &Home<'_>,
    application: &Application<'_>,
    name: &str,
    mover: &str,
    more: Value,
) {
    let mut annotations = more;
    annotations["plimsoll.dev/mover"] = json!(mover);
    let pod = application.pod().await.unwrap();
    let pod =
        json!({ "kind": "Pod", "namespace": application.namespace, "name": "writer", "uid": pod["metadata"]["uid"] });
    let backup = json!({ "apiVersion": "velero.io/v1", "kind": "PodVolumeBackup",
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "node": "local", "pod": pod, "volume": "data", "backupStorageLocation": "default", "repoIdentifier": "",
            "uploaderType": "restic" } });
    home.create(backup).await.unwrap();
}

async fn assert_transfer_fails(home: &Home<'_>, name: &str, words: &str) {
    let failed = home.ended("PodVolumeBackup", name).await;
    assert!(phase(&failed) == "Failed" && message(&failed).starts_with(words), "{failed:#}\n{}", agent_log(home));
}

/// Waits until the status names the obstacle, while the transfer is not ended.
async fn waits(home: &Home<'_>, name: &str, words: &str) {
    let mut seen = Value::Null;
    eventually(&format!("{name} says {words}"), async || {
        seen = home.get("PodVolumeBackup", name).await;
        assert!(!is_ended(&seen), "{seen:#}");
        seen["status"]["plimsoll"]["doing"].as_str().is_some_and(|doing| doing.starts_with(words))
    })
    .await;
}

async fn assert_transfer_completes(home: &Home<'_>, name: &str) {
    let ended = home.ended("PodVolumeBackup", name).await;
    assert_eq!(phase(&ended), "Completed", "{ended:#}\n{}", agent_log(home));
}

/// The lock of another process that prunes the repository.
async fn lock(bucket: &Path, prefix: String, password: &'static str) -> Lock {
    let (store, runtime) = (Store::directory(bucket, &prefix).unwrap(), tokio::runtime::Handle::current());
    let take = move || {
        let opened = Repository::open(store, runtime, password.as_bytes(), OpenOptions::default()).unwrap();
        Lock::take(&Arc::new(opened), LockKind::Exclusive).unwrap()
    };
    tokio::task::spawn_blocking(take).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_reports_repository_errors_in_its_status() {
    let bed = Bed::local_with_pods().await;
    let application = Application::start(&bed, "shop", 100_000).await;
    let home = bed.home("home").await;
    home.create_secret("velero-repo-credentials", "repository-password", "right").await;
    let server = server(&home, "built-in", &[]);
    let agent_in_order = agent(&home, &["--restic", "/nowhere/restic"], &[]);
    home.backup("good", json!({ "includedNamespaces": [application.namespace] })).await;
    let good = home.ended("Backup", "good").await;
    assert_eq!(phase(&good), "Completed", "{}\n{}", home.messages("good", "errors"), agent_log(&home));
    terminate_server(server).await;

    create_pod_volume_backup(&home, &application, "lost", "restic", json!({})).await;
    assert_transfer_fails(
        &home,
        "lost",
        "MoverProgramMissing: program restic not found: /nowhere/restic does not exist",
    )
    .await;

    let held = lock(&home.bucket, format!("restic/{}", application.namespace), "right").await;
    create_pod_volume_backup(&home, &application, "locked", "built-in", json!({})).await;
    waits(&home, "locked", "trying again: RepositoryLocked: repository").await;
    // However often it had to wait, also for an agent before this one: that is no try.
    let waited = json!({ "plimsoll.dev/attempts": "40", "plimsoll.dev/locked-attempts": "39" });
    create_pod_volume_backup(&home, &application, "locked-for-long", "built-in", waited).await;
    waits(&home, "locked-for-long", "trying again: RepositoryLocked: repository").await;
    eventually("both waits are counted apart", async || {
        let seen = home.get("PodVolumeBackup", "locked-for-long").await["metadata"]["annotations"].clone();
        seen["plimsoll.dev/attempts"] == "42" && seen["plimsoll.dev/locked-attempts"] == "41"
    })
    .await;
    create_pod_volume_backup(&home, &application, "locked-and-unwanted", "built-in", json!({})).await;
    waits(&home, "locked-and-unwanted", "trying again: RepositoryLocked: repository").await;
    home.patch("PodVolumeBackup", "locked-and-unwanted", json!({ "spec": { "cancel": true } })).await;
    let unwanted = home.ended("PodVolumeBackup", "locked-and-unwanted").await;
    assert_eq!(phase(&unwanted), "Canceled", "{unwanted:#}");
    tokio::task::spawn_blocking(move || drop(held)).await.unwrap();
    assert_transfer_completes(&home, "locked").await;
    assert_transfer_completes(&home, "locked-for-long").await;

    home.patch("Secret", "velero-repo-credentials", json!({ "stringData": { "repository-password": "wrong" } })).await;
    create_pod_volume_backup(&home, &application, "locked-out", "built-in", json!({})).await;
    assert_transfer_fails(&home, "locked-out", "WrongRepositoryPassword: failed to open repository").await;
    home.patch("Secret", "velero-repo-credentials", json!({ "stringData": { "repository-password": "right" } })).await;
    terminate_server(agent_in_order).await;

    let noise = std::process::Command::new("head").args(["-c", "64M", "/dev/urandom"]).output().unwrap().stdout;
    std::fs::write(application.directory("data").await.unwrap().join("much"), noise).unwrap();
    let crowded = agent_on_a_small_disk(&home, &home.bucket, "24m");
    create_pod_volume_backup(&home, &application, "full", "built-in", json!({})).await;
    assert_transfer_fails(&home, "full", "RepositoryFull: failed to write to repository").await;
    terminate_server(crowded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_reports_an_unavailable_store_in_its_status_until_it_recovers() {
    let bed = Bed::local_with_pods().await;
    require!(cache::program("versitygw"));
    let application = Application::start(&bed, "shop", 100_000).await;
    let (_store, proxy, home) = bed.home_on_proxied_s3("home").await;
    let (server, agent) = (server(&home, "built-in", &[]), agent(&home, &[], &[]));
    home.backup("good", json!({ "includedNamespaces": [application.namespace] })).await;
    let good = home.ended("Backup", "good").await;
    assert_eq!(phase(&good), "Completed", "{}\n{}", home.messages("good", "errors"), agent_log(&home));
    terminate_server(server).await;

    proxy.close();
    create_pod_volume_backup(&home, &application, "dead", "built-in", json!({})).await;
    waits(&home, "dead", "trying again: RepositoryUnreachable: repository").await;
    proxy.open();
    assert_transfer_completes(&home, "dead").await;
    terminate_server(agent).await;
}
