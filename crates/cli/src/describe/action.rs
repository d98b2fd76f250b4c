//! ActionSets.

use plimsoll_blueprint::percent::{COMPLETE, format as percent_text, mean, parse};
use serde_json::{Value, json};

use super::page::Page;
use crate::commands::get::age;
use crate::subjects::Subject;

/// The description of an action as JSON.
pub fn facts(subject: &Subject) -> Value {
    json!({ "name": subject.name(), "state": subject.phase(), "spec": subject.object["spec"], "status": subject.object["status"] })
}

/// The description of an action as text.
pub fn text(subject: &Subject) -> Vec<String> {
    let mut page = Page::default();
    page.section(|section| {
        section.field("Name", subject.name());
        section.some("Namespace", subject.text("/metadata/namespace"));
        section.field("State", subject.phase());
        section
            .some("Progress", subject.text("/status/progress/percentCompleted").map(|percent| format!("{percent}%")));
        section.some("Running phase", subject.text("/status/progress/runningPhase").filter(|name| !name.is_empty()));
        section.some("Error", subject.text("/status/error/message").filter(|message| !message.is_empty()));
        let verdict = subject.text("/status/plimsoll/verdict").unwrap_or("Stalled");
        section.some(verdict, subject.text("/status/plimsoll/stalled/message"));
        section.field("Age", age(subject.text("/metadata/creationTimestamp")));
    });
    for action in subject.object.pointer("/status/actions").and_then(Value::as_array).into_iter().flatten() {
        page.section(|section| {
            let object = &action["object"];
            let word = |field: &str| object[field].as_str().unwrap_or_default();
            let name = action["name"].as_str().unwrap_or_default();
            section.line_at(
                0,
                format!("Action {name}{}", percent(action).map(|text| format!(": {text}%")).unwrap_or_default()),
            );
            section.field_at(1, "Blueprint", action["blueprint"].as_str().unwrap_or_default());
            section.field_at(1, "Object", format!("{} {}/{}", word("kind"), word("namespace"), word("name")));
            for phase in phases(action).chain(defer_phase(action)) {
                section.field_at(
                    1,
                    &format!("Phase {}", phase["name"].as_str().unwrap_or_default()),
                    phase_text(phase),
                );
            }
            for (name, artifact) in action["artifacts"].as_object().into_iter().flatten() {
                section.field_at(1, &format!("Artifact {name}"), artifact_text(artifact));
            }
        });
    }
    page.lines()
}

fn phases(action: &Value) -> impl Iterator<Item = &Value> {
    action["phases"].as_array().into_iter().flatten()
}

/// Kanister writes an empty one for an action without a deferPhase.
fn defer_phase(action: &Value) -> Option<&Value> {
    action.get("deferPhase").filter(|phase| phase["state"].as_str().is_some_and(|state| !state.is_empty()))
}

/// How far an action is. Kanister writes it for its phases only.
fn percent(action: &Value) -> Option<String> {
    if let Some(percent) = action.pointer("/progress/percentCompleted").and_then(Value::as_str) {
        return Some(percent.to_owned());
    }
    let of_phase = |phase: &Value| match phase["state"].as_str() {
        Some("complete") => COMPLETE,
        _ => phase.pointer("/progress/progressPercent").and_then(Value::as_str).and_then(parse).unwrap_or(0),
    };
    let all: Vec<_> = phases(action).map(of_phase).collect();
    mean(&all).map(percent_text)
}

/// The values of an artifact. Kanister keeps the templates in an action that does not complete.
fn artifact_text(artifact: &Value) -> String {
    let values = artifact["keyValue"].as_object().into_iter().flatten();
    let values = values.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
    let snapshot =
        artifact["kopiaSnapshot"].as_str().filter(|text| !text.is_empty()).map(|text| ("kopiaSnapshot", text));
    let one = |(key, value): (&str, &str)| match value {
        template if template.contains("{{") => format!("{key}: not set, the action did not complete"),
        value => format!("{key}={value}"),
    };
    values.chain(snapshot).map(one).collect::<Vec<_>>().join("\n")
}

fn phase_text(phase: &Value) -> String {
    let progress = &phase["progress"];
    let mut parts = vec![phase["state"].as_str().unwrap_or_default().to_owned()];
    parts.extend(progress["progressPercent"].as_str().map(|percent| format!("{percent}%")));
    let bytes = |done: &str, total: &str, word: &str| {
        let (moved, total) = (progress[done].as_u64(), progress[total].as_u64());
        match (moved, total) {
            (Some(moved), Some(total)) => Some(format!("{moved} of {total} bytes {word}ed")),
            (Some(moved), None) => Some(format!("{moved} bytes {word}ed")),
            (None, Some(total)) => Some(format!("{total} bytes to {word}")),
            (None, None) => None,
        }
    };
    parts.extend(bytes("sizeUploadedB", "estimatedUploadSizeB", "upload"));
    parts.extend(bytes("sizeDownloadedB", "estimatedDownloadSizeB", "download"));
    parts.extend(progress["estimatedTimeSeconds"].as_u64().map(|seconds| format!("{seconds} s left at most")));
    let mut text = parts.join(", ");
    for (key, value) in phase["output"].as_object().into_iter().flatten() {
        text += &format!("\n{key}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::names::ResourceKind;

    #[test]
    fn bytes_that_are_not_counted_yet_are_not_shown_as_zero() {
        let text = |progress: Value| phase_text(&json!({ "state": "running", "progress": progress }));
        assert_eq!(
            text(json!({ "progressPercent": "90.00", "estimatedUploadSizeB": 100 })),
            "running, 90.00%, 100 bytes to upload"
        );
        let both = json!({ "sizeDownloadedB": 40, "estimatedDownloadSizeB": 100 });
        assert_eq!(text(both), "running, 40 of 100 bytes downloaded");
        assert_eq!(text(json!({ "sizeUploadedB": 40 })), "running, 40 bytes uploaded");
    }

    /// An ActionSet as Kanister's controller leaves it.
    fn described(recorded: &str) -> String {
        let object = serde_json::from_str(recorded).unwrap();
        text(&Subject { kind: ResourceKind::Action, object, operation: None }).join("\n")
    }

    #[test]
    fn what_kanister_completed_is_never_shown_as_zero() {
        let text = described(include_str!("../../../observe/tests/it/kanister/complete.json"));
        assert!(text.contains("Action backup: 100.00%") && !text.contains(" 0.00%"), "{text}");
        assert!(!text.contains("Phase :") && text.contains("path=dumps/shop/db.gz"), "{text}");
    }

    #[test]
    fn a_failed_defer_phase_of_kanister_is_shown_and_no_template_as_an_artifact() {
        let text = described(include_str!("../../../observe/tests/it/kanister/failed_in_defer_phase.json"));
        assert!(text.contains("Action backup: 100.00%") && text.contains("failed"), "{text}");
        assert!(text.contains("Phase tidy") && text.contains("path: not set, the action did not complete"), "{text}");
        assert!(!text.contains("{{"), "{text}");
    }

    #[test]
    fn a_recorded_action_of_kanister_is_shown_as_it_ended() {
        let text = described(include_str!("../../../observe/tests/it/kanister/recording.json"));
        assert!(text.contains("Progress:") && text.contains("100%") && !text.contains(" 0.00%"), "{text}");
        assert!(text.contains("Phase tidy:") && text.contains("Phase up:"), "{text}");
        assert!(text.contains("originalReplicaCount=1") && !text.contains("{{"), "{text}");
    }

    #[test]
    fn a_running_action_of_kanister_is_the_mean_of_its_phases() {
        let text = described(include_str!("../../../observe/tests/it/kanister/running.json"));
        assert!(text.contains("Action backup: 33.33%") && text.contains("Running phase"), "{text}");
        let none = described(include_str!("../../../observe/tests/it/kanister/blueprint_missing.json"));
        assert!(!none.contains('%'), "{none}");
    }
}
