//! Nothing survives a run, however it ends.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use plimsoll_testkit::child_process::ChildProcess;
use plimsoll_testkit::enclosure::Lifetime;
use plimsoll_testkit::pod::Pod;
use plimsoll_testkit::process::{Process, find_by_command_line};
use plimsoll_testkit::wait::{WAIT_TIMEOUT, until_blocking};
use plimsoll_testkit::{Cluster, require};

/// Everything that a cluster could leave behind.
fn traces(state: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let path = state.display().to_string();
    let slot = state.file_name().unwrap().to_str().unwrap();
    found.extend(find_by_command_line(&format!("{path}/")).iter().map(|process| format!("process {}", process.id())));
    found.extend(state.exists().then(|| format!("directory {path}")));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    found.extend(mounts.lines().filter(|line| line.contains(&format!("{path}/"))).map(|line| format!("mount {line}")));
    let interface = PathBuf::from(format!("/sys/class/net/plimsoll{slot}"));
    found.extend(interface.exists().then(|| format!("interface {}", interface.display())));
    found.extend(control_groups(slot));
    found
}

fn control_groups(slot: &str) -> Vec<String> {
    let name = format!("plimsoll-{slot}");
    let folders = fs::read_dir("/sys/fs/cgroup").unwrap().map(|entry| entry.unwrap().path().join(&name));
    let folders = folders.chain([PathBuf::from("/sys/fs/cgroup").join(&name)]);
    folders.filter(|path| path.exists()).map(|path| format!("control group {}", path.display())).collect()
}

pub fn assert_no_traces(state: &Path) {
    let gone = until_blocking("the cluster to vanish", WAIT_TIMEOUT, || traces(state).is_empty().then_some(()));
    gone.unwrap_or_else(|_| panic!("still there: {:#?}", traces(state)));
}

#[test]
fn nothing_is_left_of_a_cluster_that_ended_with_a_pod() {
    require!(Cluster::preflight());
    let cluster = Cluster::start(Lifetime::Bound).unwrap();
    let state = cluster.machine().unwrap().directory();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let pod = Pod::idle("orphan").create(&cluster.client().await.unwrap(), "default").await.unwrap();
        pod.ready().await.unwrap();
    });
    assert!(traces(&state).len() >= 10, "the search must find a running cluster: {:?}", traces(&state));
    cluster.end().unwrap();
    assert_no_traces(&state);
}

#[test]
fn nothing_is_left_of_a_cluster_whose_test_process_was_killed() {
    require!(Cluster::preflight());
    let mut holder = Command::new(env!("CARGO_BIN_EXE_testkit")).arg("hold").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let state = PathBuf::from(line.trim());
    assert!(traces(&state).len() >= 10, "the search must find a running cluster: {:?}", traces(&state));
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_no_traces(&state);
}

#[test]
fn a_child_process_ends_with_its_guard_with_children_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("child");
    let mut command = Command::new("bash");
    command.args(["-c", "sleep 1000 & echo $!; wait"]);
    let guard = ChildProcess::start(command, directory.clone()).unwrap();
    let child = until_blocking("the child", WAIT_TIMEOUT, || guard.log().trim().parse().ok()).unwrap();
    let child = Process::find(child).unwrap();
    drop(guard);
    until_blocking("its end", WAIT_TIMEOUT, || (!child.is_alive()).then_some(())).unwrap();
    assert!(!directory.exists());
}

#[test]
fn a_child_process_ends_with_a_killed_test_process() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("child");
    let mut holder = Command::new(env!("CARGO_BIN_EXE_testkit"));
    let mut holder = holder.arg("keep").arg(&directory).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let child = Process::find(line.trim().parse().unwrap()).unwrap();
    assert!(child.is_alive() && directory.exists());
    holder.kill().unwrap();
    holder.wait().unwrap();
    let gone = || (!child.is_alive() && !directory.exists()).then_some(());
    until_blocking("the child process to end", WAIT_TIMEOUT, gone).unwrap();
}
