//! `plimsoll why`.

use plimsoll_observe::{Cause, Certainty, Explanation, Overview, Verdict};
use rustix::termios::tcgetwinsize;

use crate::args::options::ObjectFormat;
use crate::args::{Global, Why};
use crate::exit::Outcome;
use crate::{connect, observation, output};

/// The prefix of a command.
const NEXT: &str = "  next   ";

/// Explains the state of an operation, with the next commands.
pub async fn run(global: &Global, options: Why) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    let reader = observation::cluster_reader(&client, global);
    let cluster = reader.read().await;
    let object = observation::find(&cluster, &options.reference)?;
    let explanation = Overview::default().explain(object, &cluster);
    match options.output {
        Some(ObjectFormat::Json) => output::object(&explanation, ObjectFormat::Json)?,
        Some(ObjectFormat::Yaml) => output::object(&explanation, ObjectFormat::Yaml)?,
        None => print(&explanation),
    }
    Ok(outcome(explanation.verdict))
}

/// Prints an explanation. On a terminal long sentences are wrapped; commands stay on one line, to be copied.
pub fn print(explanation: &Explanation) {
    let width = tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    text(explanation).iter().flat_map(|line| folded(line, width)).for_each(output::line);
}

/// Wraps a line to so many columns. Continuation lines are indented to the start of the text.
fn folded(line: &str, width: usize) -> Vec<String> {
    const INDENT: usize = 9;
    let fits = |text: &str| text.chars().count() <= width;
    if width < 4 * INDENT || fits(line) || line.starts_with(NEXT) {
        return vec![line.to_owned()];
    }
    let indent = " ".repeat(if line.starts_with("  ") { INDENT } else { 0 });
    let start = line.len() - line.trim_start().len();
    let mut lines: Vec<String> = vec![line[..start].to_owned()];
    for word in line[start..].split(' ') {
        let last = lines.last_mut().expect("there is a first line");
        if last.trim().is_empty() {
            last.push_str(word);
        } else if fits(&format!("{last} {word}")) {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(format!("{indent}{word}"));
        }
    }
    lines
}

/// The exit code for scripts.
pub fn outcome(verdict: Verdict) -> Outcome {
    match verdict {
        Verdict::Stuck => Outcome::Stuck,
        Verdict::Failed => Outcome::Failed,
        Verdict::PartiallyFailed => Outcome::PartiallyFailed,
        Verdict::Refused => Outcome::Refused,
        Verdict::Cancelled => Outcome::Cancelled,
        Verdict::Quiet | Verdict::Waiting | Verdict::Moving | Verdict::Fine => Outcome::Success,
    }
}

/// The explanation as text.
pub fn text(explanation: &Explanation) -> Vec<String> {
    let mut lines = vec![explanation.headline.clone()];
    if explanation.causes.is_empty() && explanation.verdict == Verdict::Stuck {
        lines.push("  cause  unknown: no readable object explains it".to_owned());
        lines.extend(explanation.tree.stall.iter().map(|stall| format!("         {}: {}", stall.task, stall.message)));
    }
    for cause in &explanation.causes {
        lines.push(String::new());
        lines.push(format!("  {:6} {}", word(cause), cause.text));
        lines.extend(cause.evidence.iter().map(|evidence| format!("         {evidence}")));
        lines.extend(cause.next.iter().map(|command| format!("{NEXT}{command}")));
    }
    if !explanation.unseen.is_empty() {
        let unseen: Vec<_> =
            explanation.unseen.iter().map(|unseen| format!("{} ({})", unseen.what, unseen.why)).collect();
        lines.push(String::new());
        lines.push(format!("  Not read: {}", unseen.join(", ")));
    }
    lines
}

/// The certainty of a cause, as a word.
pub fn word(cause: &Cause) -> &'static str {
    match cause.certainty {
        _ if cause.expected && cause.reason.ends_with("Queued") => "queue",
        _ if cause.expected => "waits",
        Certainty::Certain => "cause",
        Certainty::Likely => "likely",
        Certainty::Possible => "maybe",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_terminal_sentences_are_broken_between_words_and_commands_are_not() {
        let cause = "  cause  node agents of velero are down, and no data moves";
        let broken = ["  cause  node agents of velero are down,", "         and no data moves"];
        assert_eq!(folded(cause, 42), broken);
        assert_eq!(folded(cause, 0), [cause], "the width is unknown");
        assert_eq!(folded("  next   kubectl -n velero get pods -o wide --watch", 40).len(), 1);
        let long = format!("         {}", "x".repeat(60));
        assert_eq!(folded(&long, 40), [long.as_str()], "a word stays whole");
        assert_eq!(folded("backup/nightly is stuck: nothing has moved for 44s", 40)[1], "moved for 44s");
    }
}
