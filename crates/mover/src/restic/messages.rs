//! The JSON messages of restic, across ten versions.

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

    /// The text of an error: older versions print the fields of Go's error type.
    pub(super) fn cause(&self) -> String {
        let field = |key: &str| self.error.get(key).and_then(Value::as_str);
        match (field("message"), field("Op"), self.error.get("Err")) {
            (Some(message), ..) => message.to_owned(),
            (None, operation, Some(code)) => {
                let number = code.as_i64().and_then(|code| i32::try_from(code).ok());
                let text = number.map(|code| std::io::Error::from_raw_os_error(code).to_string());
                format!("{}: {}", operation.unwrap_or("read"), text.unwrap_or_else(|| code.to_string()))
            }
            _ if self.error.is_null() => self.text.clone(),
            _ => self.error.to_string(),
        }
    }
}

/// A line without progress output: empty for status messages.
pub(super) fn strip_progress(line: &str) -> &str {
    if Message::parse(line).is_some_and(|message| message.kind == "status") { "" } else { line }
}

/// The texts of restic's standard error without JSON.
pub(super) fn exit_message(stderr_tail: &str) -> String {
    let plain = |line: &str| {
        Message::parse(line).map_or_else(
            || line.to_owned(),
            |message| {
                if message.text.is_empty() { message.cause() } else { message.text }
            },
        )
    };
    stderr_tail.lines().map(plain).collect::<Vec<_>>().join("\n")
}

/// Decides when restic's total is final: while it scans, it reports the bytes found so far as the total.
#[derive(Debug, Default)]
pub(super) struct ScanDetector {
    total: Option<u64>,
    equal_samples: u32,
    last_sample: Option<Instant>,
    is_finished: bool,
}

/// The reliability of restic's total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportedTotal {
    /// It will grow.
    Scanning,
    /// It is stable for a while, and may still grow.
    Estimated(u64),
    /// It is final.
    Final(u64),
}

/// The number of equal samples in a row that make a total an estimate.
const MIN_EQUAL_SAMPLES: u32 = 3;
/// Samples closer together count once: a scan may pause for a moment.
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

impl ScanDetector {
    /// Evaluates a new status message.
    pub(super) fn sample(&mut self, status: &Message, now: Instant) -> ReportedTotal {
        let Some(total) = status.total_bytes else { return ReportedTotal::Scanning };
        // restic estimates the remaining time only after its scan.
        self.is_finished |= status.seconds_remaining.is_some_and(|seconds| seconds > 0);
        if self.total != Some(total) {
            (self.total, self.equal_samples, self.last_sample) = (Some(total), 1, Some(now));
        } else if self.last_sample.is_none_or(|last| now.duration_since(last) >= MIN_SAMPLE_INTERVAL) {
            (self.equal_samples, self.last_sample) = (self.equal_samples + 1, Some(now));
        }
        match self.is_finished {
            true => ReportedTotal::Final(total),
            false if self.equal_samples >= MIN_EQUAL_SAMPLES => ReportedTotal::Estimated(total),
            false => ReportedTotal::Scanning,
        }
    }

    /// Records that restic reported the end of its scan.
    pub(super) fn finish(&mut self) {
        self.is_finished = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(total: u64, done: u64, left: Option<u64>) -> Message {
        Message { total_bytes: Some(total), bytes_done: Some(done), seconds_remaining: left, ..Message::default() }
    }

    #[test]
    fn a_growing_total_is_reported_as_scanning() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let mut scan = ScanDetector::default();
        for (at, total) in [(0, 10), (1000, 100), (2000, 600), (2300, 600), (2600, 600), (3000, 600)] {
            assert_eq!(scan.sample(&status(total, 5, None), after(at)), ReportedTotal::Scanning);
        }
        assert_eq!(
            scan.sample(&status(600, 6, None), after(4000)),
            ReportedTotal::Estimated(600),
            "three equal samples"
        );
        assert_eq!(scan.sample(&status(900, 6, None), after(5000)), ReportedTotal::Scanning, "it grew again");
        assert_eq!(
            scan.sample(&status(900, 5, Some(9)), after(5100)),
            ReportedTotal::Final(900),
            "restic estimates the remaining time"
        );
        let mut scan = ScanDetector::default();
        scan.finish();
        assert_eq!(
            scan.sample(&status(10, 5, None), start),
            ReportedTotal::Final(10),
            "restic reported the end of its scan"
        );
    }

    #[test]
    fn errors_of_all_versions_have_a_text() {
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
    fn status_messages_are_parsed() {
        let line = r#"{"message_type":"status","percent_done":0.00038,"total_files":10,"total_bytes":49461329920,"bytes_done":18874368,"current_files":["/file1","/file3"]}"#;
        let message = Message::parse(line).expect("JSON");
        assert_eq!((message.bytes_done, message.total_bytes), (Some(18_874_368), Some(49_461_329_920)));
        assert_eq!(message.current_files, ["/file1", "/file3"]);
        assert!(Message::parse("restoring <Snapshot x> to /t").is_none());
    }
}
