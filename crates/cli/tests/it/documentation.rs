//! The tutorials work as they are written: their commands are run in their order by a shell.

use std::path::Path;
use std::process::Command;

use plimsoll_testkit::{cache, require};

/// After this a reader looks whether the cluster has started.
const START: &str = "export KUBECONFIG=";
const WAIT: &str = "until plimsoll get backup-locations 2>/dev/null | grep -q Available; do sleep 0.2; done\n";

/// The blocks of a page that are meant for a shell, in their order.
fn script(page: &str) -> String {
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut script = "set -eu\ntrap 'kill $(jobs -p)' EXIT\n".to_owned();
    for line in blocks.flat_map(str::lines) {
        script.push_str(line);
        script.push('\n');
        if line.starts_with(START) {
            script.push_str(WAIT);
        }
    }
    script
}

/// Runs a tutorial and gives what it prints.
fn run(name: &str, kubectl: &Path) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorials").join(name);
    let script = script(&std::fs::read_to_string(page).unwrap());
    assert!(script.contains(START), "{script}");
    let directory = tempfile::tempdir().unwrap();
    let programs =
        [Path::new(env!("CARGO_BIN_EXE_plimsoll")), kubectl].map(|program| program.parent().unwrap().display());
    let search = format!("{}:{}:{}", programs[0], programs[1], std::env::var("PATH").unwrap());
    let mut command = Command::new("timeout");
    command.args(["120", "bash", "-c", &script]).current_dir(&directory).env("PATH", search);
    let output = command.env_remove("PLIMSOLL_NAMESPACE").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}\n{script}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn the_first_tutorial_runs_as_it_is_written() {
    let text = run("first-backup.md", &require!(cache::program("kubectl")));
    for seen in ["2 of 2 items backed up", "2 of 2 items restored", "a: b", "daily"] {
        assert!(text.contains(seen), "{seen:?} is missing: {text}");
    }
}

#[test]
fn the_tutorial_about_a_lost_cluster_runs_as_it_is_written() {
    let text = run("recover-a-lost-cluster.md", &require!(cache::program("kubectl")));
    for seen in ["2 of 2 items backed up", "2 of 2 items restored", "a: b"] {
        assert!(text.contains(seen), "{seen:?} is missing: {text}");
    }
}
