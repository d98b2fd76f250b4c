//! ActionSets.

use serde_json::{Value, json};

use super::page::Page;
use crate::commands::get::age;
use crate::subjects::Subject;

/// What is known about it, for programs.
pub fn facts(subject: &Subject) -> Value {
    json!({ "name": subject.name(), "state": subject.phase(), "spec": subject.object["spec"], "status": subject.object["status"] })
}

/// What is known about it, for people.
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
        section.some("Stalled", subject.text("/status/plimsoll/stalled/message"));
        section.field("Age", age(subject.text("/metadata/creationTimestamp")));
    });
    for action in subject.object.pointer("/status/actions").and_then(Value::as_array).into_iter().flatten() {
        page.section(|section| {
            let object = &action["object"];
            let word = |field: &str| object[field].as_str().unwrap_or_default();
            let percent = action.pointer("/progress/percentCompleted").and_then(Value::as_str).unwrap_or("0.00");
            let name = action["name"].as_str().unwrap_or_default();
            section.line_at(0, format!("Action {name}: {percent}%"));
            section.field_at(1, "Blueprint", action["blueprint"].as_str().unwrap_or_default());
            section.field_at(1, "Object", format!("{} {}/{}", word("kind"), word("namespace"), word("name")));
            let phases = action["phases"].as_array().into_iter().flatten();
            for phase in phases.chain(action.get("deferPhase")) {
                section.field_at(
                    1,
                    &format!("Phase {}", phase["name"].as_str().unwrap_or_default()),
                    phase_text(phase),
                );
            }
            for (name, artifact) in action["artifacts"].as_object().into_iter().flatten() {
                let values = artifact["keyValue"].as_object().into_iter().flatten();
                let values: Vec<_> =
                    values.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
                section.field_at(1, &format!("Artifact {name}"), values.join("\n"));
            }
        });
    }
    page.lines()
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
}
