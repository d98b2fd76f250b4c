//! `plimsoll top` on a real terminal: tmux is one, with keys, resizing and a screen that can be read.

use std::process::Command;
use std::time::Duration;

use plimsoll_testkit::{cache, require};
use serde_json::json;

use crate::bed::Bed;

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
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    pub fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Waits until the screen shows this; returns it.
    pub async fn shows(&self, text: &str) -> String {
        for _ in 0..1200 {
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
async fn top_is_driven_by_keys_survives_resizing_and_gives_the_terminal_back() {
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
    // After it ends, the shell says whether the terminal reads lines again, as before.
    let line = format!("{top}; echo ended with $?; stty -a | grep -o -- '.icanon'; sleep 600");
    let terminal = Terminal::run("keys", &line, (100, 24));
    let screen = terminal.shows("backup/first").await;
    assert!(screen.starts_with("plimsoll top") && screen.contains("backup/second"), "{screen}");
    terminal.press(&["Enter"]);
    terminal.shows("─ backup/").await;
    terminal.press(&["?"]);
    terminal.shows("asks first").await;
    terminal.tmux(&["resize-window", "-x", "50", "-y", "12"]);
    terminal.press(&["Escape"]);
    let small = terminal.shows("backup/second").await;
    assert!(small.lines().all(|line| line.chars().count() <= 50), "{small}");
    terminal.press(&["/", "s", "e", "c", "Enter"]);
    terminal.shows("filter: sec").await;
    assert!(!terminal.screen().contains("backup/first"));
    terminal.press(&["C-c"]);
    let after = terminal.shows("icanon").await;
    assert!(after.contains("ended with 0") && !after.contains("-icanon") && !after.contains("plimsoll top"), "{after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn top_gives_the_terminal_back_when_it_is_asked_to_end() {
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
    terminal.shows("There are no backups").await;
    let id = std::fs::read_to_string(&note).unwrap().trim().parse().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(id).unwrap(), rustix::process::Signal::TERM).unwrap();
    let after = terminal.shows("icanon").await;
    assert!(after.contains("ended with 0") && !after.contains("-icanon"), "{after}");
}
