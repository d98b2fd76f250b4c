//! `plimsoll why`.

use plimsoll_observe::{Cause, Certainty, Explanation, Overview, Verdict};

use crate::args::options::ObjectFormat;
use crate::args::{Global, Why};
use crate::exit::Outcome;
use crate::{connect, observed, output};

/// Says why an operation is as it is, and what to do next.
pub async fn run(global: &Global, options: Why) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    let gatherer = observed::gatherer(&client, global);
    let world = gatherer.gather().await;
    let object = observed::find(&world, &options.reference)?;
    let told = Overview::default().explain(object, &world);
    match options.output {
        Some(ObjectFormat::Json) => output::object(&told, ObjectFormat::Json)?,
        Some(ObjectFormat::Yaml) => output::object(&told, ObjectFormat::Yaml)?,
        None => text(&told).iter().for_each(output::line),
    }
    Ok(outcome(told.verdict))
}

/// What scripts are told.
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

/// What a person is told.
pub fn text(told: &Explanation) -> Vec<String> {
    let mut lines = vec![told.headline.clone()];
    if told.causes.is_empty() && told.verdict == Verdict::Stuck {
        lines.push("  cause  not known: nothing that can be read from here explains it".to_owned());
        lines.extend(told.tree.stall.iter().map(|stall| format!("         {}: {}", stall.task, stall.message)));
    }
    for cause in &told.causes {
        lines.push(String::new());
        lines.push(format!("  {:6} {}", word(cause), cause.text));
        lines.extend(cause.evidence.iter().map(|evidence| format!("         {evidence}")));
        lines.extend(cause.next.iter().map(|command| format!("  next   {command}")));
    }
    if !told.unseen.is_empty() {
        let unseen: Vec<_> = told.unseen.iter().map(|unseen| format!("{} ({})", unseen.what, unseen.why)).collect();
        lines.push(String::new());
        lines.push(format!("  Not looked at: {}", unseen.join(", ")));
    }
    lines
}

/// What kind of reason that is.
pub fn word(cause: &Cause) -> &'static str {
    match cause.certainty {
        _ if cause.orderly && cause.reason.ends_with("Queued") => "queue",
        _ if cause.orderly => "waits",
        Certainty::Certain => "cause",
        Certainty::Likely => "likely",
        Certainty::Possible => "maybe",
    }
}
