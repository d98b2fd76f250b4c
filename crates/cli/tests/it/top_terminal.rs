//! `plimsoll top` in tmux, a terminal with keys, resizing and a screen that can be read.

use std::process::Command;
use std::time::Duration;

use plimsoll_testkit::{cache, require};
use serde_json::{Value, json};

use crate::bed::{Bed, Home, eventually};

pub struct Terminal {
    socket: String,
}

impl Terminal {
    /// Runs a shell line in a terminal of this size.
    pub fn run(name: &str, line: &str, (width, height): (u16, u16)) -> Self {
        let this = Self { socket: format!("plimsoll-{}-{name}", std::process::id()) };
        this.tmux(&["new-session", "-d", "-x", &width.to_string(), "-y", &height.to_string(), line]);
        this
    }

    pub fn tmux(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-f", "/dev/null", "-L", &self.socket])
            .args(arguments)
            .env("LC_ALL", "C.UTF-8")
            // Programs in the terminal inherit it: `top` would draw without colours.
            .env_remove("NO_COLOR")
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The line that shows this, with its colours.
    pub fn coloured(&self, text: &str) -> String {
        let screen = self.tmux(&["capture-pane", "-p", "-e"]);
        screen.lines().find(|line| line.contains(text)).unwrap_or_default().to_owned()
    }

    pub fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Waits until the screen shows this; returns it.
    pub async fn wait_for(&self, text: &str) -> String {
        for _ in 0..3600 {
            let screen = self.screen();
            if screen.contains(text) {
                return screen;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the screen never showed {text:?}:\n{}", self.screen());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn top_handles_keys_and_resizing_and_restores_the_terminal_on_ctrl_c() {
    require!(cache::system_program("tmux"));
    let bed = Bed::local().await;
    let home = bed.home("watched").await;
    for name in ["first", "second"] {
        home.backup(name, json!({ "includedNamespaces": ["shop"] })).await;
    }
    let top = format!(
        "{} top --kubeconfig {} -n {}",
        env!("CARGO_BIN_EXE_plimsoll"),
        bed.kubeconfig.display(),
        home.namespace
    );
    // After it ends, the shell prints whether the terminal is in canonical mode again.
    let line = format!("{top}; echo ended with $?; stty -a | grep -o -- '.icanon'; sleep 600");
    let terminal = Terminal::run("keys", &line, (100, 24));
    let screen = terminal.wait_for("backup/first").await;
    assert!(screen.starts_with("plimsoll top") && screen.contains("backup/second"), "{screen}");
    terminal.press(&["Enter"]);
    terminal.wait_for("─ backup/").await;
    terminal.press(&["?"]);
    terminal.wait_for("after confirmation").await;
    terminal.tmux(&["resize-window", "-x", "50", "-y", "12"]);
    terminal.press(&["Escape"]);
    let small = terminal.wait_for("backup/second").await;
    assert!(small.lines().all(|line| line.chars().count() <= 50), "{small}");
    terminal.press(&["/", "s", "e", "c", "Enter"]);
    terminal.wait_for("filter: sec").await;
    assert!(!terminal.screen().contains("backup/first"));
    terminal.press(&["C-c"]);
    let after = terminal.wait_for("icanon").await;
    assert!(after.contains("ended with 0") && !after.contains("-icanon") && !after.contains("plimsoll top"), "{after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn top_restores_the_terminal_on_sigterm() {
    require!(cache::system_program("tmux"));
    let bed = Bed::local().await;
    let home = bed.home("watched").await;
    let note = bed.directory.path().join("process");
    let top = format!(
        "{} top --kubeconfig {} -n {}",
        env!("CARGO_BIN_EXE_plimsoll"),
        bed.kubeconfig.display(),
        home.namespace
    );
    let line = format!(
        "sh -c 'echo $$ > {}; exec {top}'; echo ended with $?; stty -a | grep -o -- '.icanon'; sleep 600",
        note.display()
    );
    let terminal = Terminal::run("term", &line, (80, 24));
    terminal.wait_for("No backups, restores or actions found").await;
    let id = std::fs::read_to_string(&note).unwrap().trim().parse().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(id).unwrap(), rustix::process::Signal::TERM).unwrap();
    let after = terminal.wait_for("icanon").await;
    assert!(after.contains("ended with 0") && !after.contains("-icanon"), "{after}");
}

/// An Operation with so many tasks at work, as our server writes it.
async fn plant(home: &Home<'_>, name: &str, tasks: usize) {
    home.backup(name, json!({ "includedNamespaces": ["shop"] })).await;
    home.patch("Backup", name, json!({ "status": { "phase": "InProgress" } })).await;
    let uid = home.get("Backup", name).await["metadata"]["uid"].clone();
    let operation = format!("backup-{name}");
    home.create(json!({ "apiVersion": "plimsoll.dev/v1alpha1", "kind": "Operation", "metadata": { "name": operation },
        "spec": { "verb": "backup", "subject": { "apiVersion": "velero.io/v1", "kind": "Backup", "name": name, "uid": uid } } }))
        .await
        .unwrap();
    let task = |number: usize| {
        json!({ "path": format!("task-{number:02}"), "name": format!("task-{number:02}"), "state": "running", "percent": "~10.00",
            "ages": { "elapsedMs": 1000, "advanceMs": 10 } })
    };
    let root = json!({ "path": "", "name": operation, "state": "running", "percent": "~43.33", "ages": { "elapsedMs": 1000, "advanceMs": 10 } });
    let nodes: Vec<_> = std::iter::once(root).chain((0..tasks).map(task)).collect();
    let status = json!({ "status": { "state": "Running", "tree": { "operation": operation, "nodes": nodes } } });
    let parameters = kube::api::PatchParams::default();
    home.api("Operation").patch_status(&operation, &parameters, &kube::api::Patch::Merge(status)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn top_cancels_the_selected_operation_after_confirmation() {
    require!(cache::system_program("tmux"));
    let bed = Bed::local().await;
    let home = bed.home("watched").await;
    for name in ["first", "second"] {
        plant(&home, name, 1).await;
    }
    let cancelled = async |name: &str| home.get("Operation", &format!("backup-{name}")).await["spec"]["cancel"].clone();
    let line = format!(
        "{} top --kubeconfig {} -n {}",
        env!("CARGO_BIN_EXE_plimsoll"),
        bed.kubeconfig.display(),
        home.namespace
    );
    let terminal = Terminal::run("cancel", &line, (120, 30));
    terminal.wait_for("backup/first").await;
    terminal.wait_for("backup/second").await;
    // By name: their order by urgency is not tested here.
    terminal.press(&["s", "s"]);
    terminal.wait_for("sorted by name").await;
    terminal.press(&["G", "c"]);
    terminal.wait_for("Cancel backup/second?").await;
    assert_eq!(cancelled("second").await, Value::Null, "it only asks");
    terminal.press(&["n"]);
    eventually("the question is gone", async || !terminal.screen().contains("Cancel backup/second?")).await;
    assert_eq!(cancelled("second").await, Value::Null, "no is no");
    terminal.press(&["c"]);
    terminal.wait_for("Cancel backup/second?").await;
    terminal.press(&["y"]);
    terminal.wait_for("backup/second: cancellation requested").await;
    assert_eq!(cancelled("second").await, json!(true));
    assert_eq!(cancelled("first").await, Value::Null, "it was not requested");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_drawn_in_the_height_of_the_terminal_and_survives_resizing() {
    require!(cache::system_program("tmux"));
    let bed = Bed::local().await;
    let home = bed.home("watched").await;
    plant(&home, "nightly", 30).await;
    let line = format!(
        "{} watch backup/nightly --kubeconfig {} -n {}; echo ended with $?; sleep 600",
        env!("CARGO_BIN_EXE_plimsoll"),
        bed.kubeconfig.display(),
        home.namespace
    );
    let terminal = Terminal::run("tree", &line, (100, 12));
    let is_whole = |screen: &str, width: usize| {
        let roots = screen.lines().filter(|line| line.contains("backup/nightly")).count();
        let tasks: Vec<&str> = screen.lines().filter(|line| line.contains("task-")).collect();
        let twice = tasks.windows(2).any(|pair| pair[0].get(..20) == pair[1].get(..20));
        roots == 1 && !tasks.is_empty() && !twice && screen.lines().all(|line| line.chars().count() <= width)
    };
    terminal.wait_for("task-00").await;
    assert!(is_whole(&terminal.screen(), 100), "{}", terminal.screen());
    for (width, height) in [(60_u16, 8_u16), (140, 30), (50, 20)] {
        terminal.tmux(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
        eventually("the tree is drawn anew", async || is_whole(&terminal.screen(), usize::from(width))).await;
    }
    home.patch("Backup", "nightly", json!({ "status": { "phase": "Completed" } })).await;
    terminal.wait_for("ended with 0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stalls_are_red_with_their_cause_in_watch_and_top() {
    const RED: &str = "\u{1b}[31m";
    require!(cache::system_program("tmux"));
    let bed = Bed::local().await;
    let home = bed.home("watched").await;
    plant(&home, "nightly", 2).await;
    let stall =
        json!({ "task": "task-01", "ageMs": 90_000, "reason": "NoAdvance", "message": "the disk does not answer" });
    let mut tree = home.get("Operation", "backup-nightly").await["status"]["tree"].clone();
    tree["stall"] = stall.clone();
    tree["nodes"][2]["stall"] = stall;
    let status = json!({ "status": { "tree": tree } });
    let parameters = kube::api::PatchParams::default();
    home.api("Operation").patch_status("backup-nightly", &parameters, &kube::api::Patch::Merge(status)).await.unwrap();
    let run = |command: &str| {
        format!(
            "{} {command} --kubeconfig {} -n {}",
            env!("CARGO_BIN_EXE_plimsoll"),
            bed.kubeconfig.display(),
            home.namespace
        )
    };
    let watch = Terminal::run("red-watch", &run("watch backup/nightly"), (140, 20));
    watch.wait_for("the disk does not answer").await;
    let (stuck, moving) = (watch.coloured("task-01"), watch.coloured("task-00"));
    assert!(stuck.contains(&format!("{RED}!")), "the mark: {stuck:?}");
    let cause = stuck.find("the disk does not answer").unwrap_or_else(|| panic!("{stuck:?}"));
    assert!(stuck[..cause].rfind(RED) > stuck[..cause].rfind("\u{1b}[0m"), "the cause: {stuck:?}");
    assert!(!moving.is_empty() && !moving.contains(RED), "{moving:?}");
    let top = Terminal::run("red-top", &run("top"), (140, 20));
    top.wait_for("STUCK").await;
    // `top` writes colour 1 of the palette of 256: the same red.
    let listed = top.coloured("STUCK");
    assert!(listed.contains("38;5;1m"), "{listed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_reports_the_cause_and_the_next_command_on_a_terminal_and_in_a_pipe() {
    require!(cache::system_program("tmux"));
    let bed = Bed::local().await;
    let home = bed.home("no-server").await;
    let note = bed.directory.path().join("plain");
    let create = |name: &str| {
        format!(
            "{} backup create {name} --include-namespaces shop --wait --kubeconfig {} -n {}",
            env!("CARGO_BIN_EXE_plimsoll"),
            bed.kubeconfig.display(),
            home.namespace
        )
    };
    // No server: it is not started.
    let line = format!("{} > {} 2>&1 & {}; sleep 600", create("piped"), note.display(), create("drawn"));
    let terminal = Terminal::run("wait", &line, (120, 20));
    terminal.wait_for("neither Plimsoll nor Velero").await;
    let screen = terminal.wait_for("get deployments -A").await;
    assert!(screen.contains("backup drawn") && screen.contains("why") && screen.contains("next"), "{screen}");
    terminal.tmux(&["resize-window", "-x", "70", "-y", "10"]);
    eventually("it is drawn anew, once", async || {
        let screen = terminal.screen();
        screen.lines().filter(|line| line.contains("neither Plimsoll nor Velero")).count() == 1
            && screen.contains("backup drawn")
    })
    .await;
    let said = async || tokio::fs::read_to_string(&note).await.unwrap_or_default();
    eventually("a pipe gets the cause, too", async || {
        let said = said().await;
        said.contains("stalled: neither Plimsoll nor Velero") && said.contains("next: kubectl get deployments -A")
    })
    .await;
    assert_eq!(
        said().await.matches("stalled: neither Plimsoll nor Velero").count(),
        1,
        "it is said once: {}",
        said().await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_the_log_of_an_ended_operation() {
    require!(cache::system_program("tmux"));
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let _server = home.server();
    home.backup("done", json!({ "includedNamespaces": ["shop"] })).await;
    home.ended("Backup", "done").await;
    let logs = home.command(&["logs", "backup/done"]).output().await.unwrap();
    let logs = String::from_utf8_lossy(&logs.stdout).into_owned();
    let last = logs.lines().rfind(|line| !line.trim().is_empty()).unwrap();
    let line = format!(
        "{} top --kubeconfig {} -n {}",
        env!("CARGO_BIN_EXE_plimsoll"),
        bed.kubeconfig.display(),
        home.namespace
    );
    let terminal = Terminal::run("log", &line, (200, 30));
    terminal.wait_for("backup/done").await;
    terminal.press(&["l"]);
    terminal.wait_for(&last.chars().take(60).collect::<String>()).await;
}
