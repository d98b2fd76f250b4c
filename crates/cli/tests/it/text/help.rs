//! The help of all commands.

use tokio::process::Command;

/// The program without the environment of this machine, which defaults come from.
fn plimsoll() -> Command {
    let mut command = crate::bed::plimsoll();
    command.env_clear().env("COLUMNS", "120");
    command
}

async fn stdout(arguments: &[&str]) -> String {
    let output = plimsoll().args(arguments).output().await.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_help_of_every_command_reads_as_reviewed() {
    let reference = stdout(&["reference"]).await;
    let commands = reference.lines().filter_map(|line| line.strip_prefix("## plimsoll"));
    let mut all = String::new();
    for command in [""].into_iter().chain(commands) {
        let arguments: Vec<_> = command.split_whitespace().chain(["--help"]).collect();
        let text = stdout(&arguments).await;
        // The same in every command, and part of the first one.
        let own = if command.is_empty() { text.as_str() } else { text.split("Global options:\n").next().unwrap() };
        let examples = text.split_once("\nExamples:\n").filter(|_| !command.is_empty());
        let examples = examples.map(|(_, examples)| format!("\nExamples:\n{}\n", examples.trim_end()));
        all += &format!("$ plimsoll{command} --help\n{}\n{}\n", own.trim_end(), examples.unwrap_or_default());
    }
    let all: Vec<_> = all.lines().map(str::trim_end).collect();
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!("help", all.join("\n")) });
}
