//! What restic says with `--json`, over ten versions.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

/// A line of `backup --json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Message {
    #[serde(rename = "message_type")]
    pub kind: String,
    pub action: String,
    pub seconds_remaining: Option<u64>,
    pub total_bytes: Option<u64>,
    pub bytes_done: Option<u64>,
    pub total_files: Option<u64>,
    pub files_done: Option<u64>,
    pub current_files: Vec<String>,
    // The summary.
    pub snapshot_id: Option<String>,
    pub total_files_processed: u64,
    pub total_bytes_processed: u64,
    pub data_added: Option<u64>,
    // Restores, since 0.16.
    pub bytes_restored: Option<u64>,
    pub bytes_skipped: Option<u64>,
    pub files_restored: Option<u64>,
    pub files_skipped: Option<u64>,
    // Errors.
    pub during: String,
    pub item: String,
    pub error: Value,
    #[serde(rename = "message")]
    pub text: String,
}

impl Message {
    pub(super) fn parse(line: &str) -> Option<Self> {
        line.starts_with('{').then(|| serde_json::from_str(line).ok()).flatten()
    }

    /// The words of an error: older versions print the fields of Go's own error.
    pub(super) fn cause(&self) -> String {
        let text = |key: &str| self.error.get(key).and_then(Value::as_str);
        match (text("message"), text("Op"), self.error.get("Err")) {
            (Some(message), ..) => message.to_owned(),
            (None, operation, Some(code)) => {
                let number = code.as_i64().and_then(|code| i32::try_from(code).ok());
                let words = number.map(|code| std::io::Error::from_raw_os_error(code).to_string());
                format!("{}: {}", operation.unwrap_or("read"), words.unwrap_or_else(|| code.to_string()))
            }
            _ if self.error.is_null() => self.text.clone(),
            _ => self.error.to_string(),
        }
    }
}

/// What of a line is more than progress.
pub(super) fn besides_progress(line: &str) -> &str {
    if Message::parse(line).is_some_and(|message| message.kind == "status") { "" } else { line }
}

/// The last words of restic without their JSON.
pub(super) fn exit_message(last_words: &str) -> String {
    let plain = |line: &str| {
        Message::parse(line).map_or_else(
            || line.to_owned(),
            |message| {
                if message.text.is_empty() { message.cause() } else { message.text }
            },
        )
    };
    last_words.lines().map(plain).collect::<Vec<_>>().join("\n")
}

/// Decides when restic's total can be believed: while it scans, it sends what it has found so far as if that were all.
#[derive(Debug, Default)]
pub(super) struct Scan {
    total: Option<u64>,
    equal: u32,
    counted: Option<Instant>,
    finished: bool,
}

/// How far restic's total can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// It will grow.
    Scanning,
    /// It has stood still for a while, and may still grow.
    Settled(u64),
    /// It is all there is.
    Known(u64),
}

/// This many samples in a row with the same total make it credible.
const ENOUGH: u32 = 3;
/// Samples closer together than this are one: a scan may well pause for a moment.
const APART: Duration = Duration::from_secs(1);

impl Scan {
    /// Looks at a status line that has not been looked at before.
    pub(super) fn sample(&mut self, status: &Message, now: Instant) -> Trust {
        let Some(total) = status.total_bytes else { return Trust::Scanning };
        // restic estimates the time left only once it knows how much there is.
        self.finished |= status.seconds_remaining.is_some_and(|seconds| seconds > 0);
        if self.total != Some(total) {
            (self.total, self.equal, self.counted) = (Some(total), 1, Some(now));
        } else if self.counted.is_none_or(|last| now.duration_since(last) >= APART) {
            (self.equal, self.counted) = (self.equal + 1, Some(now));
        }
        match self.finished {
            true => Trust::Known(total),
            false if self.equal >= ENOUGH => Trust::Settled(total),
            false => Trust::Scanning,
        }
    }

    /// restic said that it has seen everything.
    pub(super) fn finish(&mut self) {
        self.finished = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(total: u64, done: u64, left: Option<u64>) -> Message {
        Message { total_bytes: Some(total), bytes_done: Some(done), seconds_remaining: left, ..Message::default() }
    }

    #[test]
    fn a_total_that_still_grows_is_not_believed() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let mut scan = Scan::default();
        for (at, total) in [(0, 10), (1000, 100), (2000, 600), (2300, 600), (2600, 600), (3000, 600)] {
            assert_eq!(scan.sample(&status(total, 5, None), after(at)), Trust::Scanning);
        }
        assert_eq!(scan.sample(&status(600, 6, None), after(4000)), Trust::Settled(600), "three equal samples");
        assert_eq!(scan.sample(&status(900, 6, None), after(5000)), Trust::Scanning, "it grew after all");
        assert_eq!(
            scan.sample(&status(900, 5, Some(9)), after(5100)),
            Trust::Known(900),
            "restic estimates the time left"
        );
        let mut scan = Scan::default();
        scan.finish();
        assert_eq!(scan.sample(&status(10, 5, None), start), Trust::Known(10), "restic says so");
    }

    #[test]
    fn errors_of_all_versions_have_words() {
        let old = r#"{"message_type":"error","error":{"Op":"open","Path":"d/f7","Err":13},"during":"archival","item":"/s/d/f7"}"#;
        let new = r#"{"message_type":"error","error":{"message":"open d/f7: permission denied"},"during":"archival","item":"/s/d/f7"}"#;
        for line in [old, new] {
            let message = Message::parse(line).expect("JSON");
            assert!(message.cause().to_lowercase().contains("permission denied"), "{}", message.cause());
        }
        assert_eq!(
            exit_message("{\"message_type\":\"exit_error\",\"message\":\"Fatal: x\"}\nplain\n"),
            "Fatal: x\nplain"
        );
    }

    #[test]
    fn the_lines_of_the_specification_are_understood() {
        let line = r#"{"message_type":"status","percent_done":0.00038,"total_files":10,"total_bytes":49461329920,"bytes_done":18874368,"current_files":["/file1","/file3"]}"#;
        let message = Message::parse(line).expect("JSON");
        assert_eq!((message.bytes_done, message.total_bytes), (Some(18_874_368), Some(49_461_329_920)));
        assert_eq!(message.current_files, ["/file1", "/file3"]);
        assert!(Message::parse("restoring <Snapshot x> to /t").is_none());
    }
}
