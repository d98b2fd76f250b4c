//! Log lines of plugins: read from standard error, as JSON or text.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::sanitize::{sanitize, sanitize_to};

/// Maximum length of a line; the rest is dropped.
const MAX_LINE_LENGTH: usize = 64 * 1024;
/// Maximum number of fields of a line, and their maximum length.
const MAX_FIELDS: usize = 12;
const MAX_FIELD_LENGTH: usize = 200;
/// Number of lines in the error of an exited process.
const STDERR_TAIL_LINES: usize = 3;

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// For debugging.
    Debug,
    /// Informational.
    Info,
    /// Needs attention.
    Warning,
    /// A failure.
    Error,
}

/// A sanitized log line of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The binary of the plugin.
    pub plugin: String,
    /// The level.
    pub level: LogLevel,
    /// The message.
    pub message: String,
    /// The other fields, as `key=value`.
    pub fields: Vec<String>,
}

impl LogLine {
    /// The line as one string.
    pub fn text(&self) -> String {
        let words = std::iter::once(self.message.as_str()).chain(self.fields.iter().map(String::as_str));
        format!("plugin {}: {}", self.plugin, words.collect::<Vec<_>>().join(" "))
    }
}

/// Receives the log lines of plugins.
pub trait LogSink: Send + Sync {
    /// Receives one line. Must not block.
    fn line(&self, line: &LogLine);
}

/// Forwards log lines to `tracing`.
pub struct TracingLogSink;

impl LogSink for TracingLogSink {
    fn line(&self, line: &LogLine) {
        match line.level {
            LogLevel::Debug => tracing::debug!("{}", line.text()),
            LogLevel::Info => tracing::info!("{}", line.text()),
            LogLevel::Warning => tracing::warn!("{}", line.text()),
            LogLevel::Error => tracing::error!("{}", line.text()),
        }
    }
}

/// The last lines of standard error, for the error of an exited process.
#[derive(Clone, Default)]
pub(crate) struct StderrTail(Arc<Mutex<VecDeque<String>>>);

impl StderrTail {
    fn push(&self, message: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_back(sanitize_to(message, 130));
        while lines.len() > STDERR_TAIL_LINES {
            lines.pop_front();
        }
    }

    pub(crate) fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
    }
}

/// Reads a stream to its end and calls `line` for each line.
pub(crate) async fn read_lines(mut from: impl AsyncRead + Unpin, mut line: impl FnMut(&[u8])) {
    let (mut pending, mut skipping) = (Vec::new(), false);
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        for piece in buffer[..read].split_inclusive(|byte| *byte == b'\n') {
            let complete = piece.ends_with(b"\n");
            if !skipping {
                pending.extend_from_slice(piece);
            }
            if complete || pending.len() > MAX_LINE_LENGTH {
                if !skipping {
                    line(&pending);
                }
                pending.clear();
                skipping = !complete;
            }
        }
    }
    if !pending.is_empty() {
        line(&pending);
    }
}

/// Reads standard error and forwards its lines to a sink.
pub(crate) async fn forward_stderr(
    plugin: String,
    from: impl AsyncRead + Unpin,
    sink: Arc<dyn LogSink>,
    tail: StderrTail,
) {
    let mut panicking = false;
    read_lines(from, |bytes| {
        let Some(mut line) = parse(&plugin, &String::from_utf8_lossy(bytes)) else { return };
        panicking |= line.message.starts_with("panic:") || line.message.starts_with("fatal error:");
        if panicking {
            line.level = LogLevel::Error;
        }
        if line.level > LogLevel::Debug || line.fields.is_empty() {
            tail.push(&line.message);
        }
        sink.line(&line);
    })
    .await;
}

fn parse(plugin: &str, text: &str) -> Option<LogLine> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    if let Ok(entry) = serde_json::from_str::<Map<String, Value>>(text) {
        return Some(parse_structured(plugin, &entry));
    }
    let (level, message) = parse_prefixed(text);
    Some(LogLine { plugin: plugin.to_owned(), level, message: sanitize(message), fields: Vec::new() })
}

/// Parses the two JSON formats: Velero's framework writes `level` and `@message`, go-plugin `@level` and `@message`.
fn parse_structured(plugin: &str, entry: &Map<String, Value>) -> LogLine {
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    let message = text("@message").or_else(|| text("msg")).or_else(|| text("message")).unwrap_or_default();
    let level_name = text("@level").or_else(|| text("level")).unwrap_or("info");
    let known =
        ["@message", "msg", "message", "@level", "level", "@timestamp", "time", "@module", "logSource", "pluginName"];
    let fields = entry.iter().filter(|(key, _)| !known.contains(&key.as_str())).take(MAX_FIELDS);
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    LogLine {
        plugin: plugin.to_owned(),
        level: parse_level(level_name),
        message: sanitize(message),
        fields: fields.map(|(key, value)| sanitize_to(&format!("{key}={}", shown(value)), MAX_FIELD_LENGTH)).collect(),
    }
}

fn parse_level(level: &str) -> LogLevel {
    match level.to_ascii_lowercase().as_str() {
        "trace" | "debug" => LogLevel::Debug,
        "warn" | "warning" => LogLevel::Warning,
        "error" | "fatal" | "panic" => LogLevel::Error,
        _ => LogLevel::Info,
    }
}

/// A text line: `Debug` unless it has a known prefix.
fn parse_prefixed(text: &str) -> (LogLevel, &str) {
    let known = [("[ERROR]", LogLevel::Error), ("[WARN]", LogLevel::Warning), ("[INFO]", LogLevel::Info)];
    known
        .iter()
        .find_map(|(prefix, level)| Some((*level, text.strip_prefix(prefix)?.trim())))
        .unwrap_or((LogLevel::Debug, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (LogLevel, String, Vec<String>) {
        let line = parse("p", text).unwrap();
        (line.level, line.message, line.fields)
    }

    #[test]
    fn levels_are_parsed_in_both_formats() {
        let velero =
            r#"{"@message":"disk full","level":"error","logSource":"a.go:1","backup":"velero/b","pluginName":"x"}"#;
        assert_eq!(read(velero), (LogLevel::Error, "disk full".into(), vec!["backup=velero/b".into()]));
        let library = r#"{"@level":"warn","@message":"odd","@module":"m","@timestamp":"t"}"#;
        assert_eq!(read(library), (LogLevel::Warning, "odd".into(), vec![]));
    }

    #[test]
    fn a_text_line_is_sanitized_and_has_the_debug_level() {
        assert_eq!(read("\u{1b}[2Jhello"), (LogLevel::Debug, " [2Jhello".into(), vec![]));
        assert_eq!(read("[ERROR] no"), (LogLevel::Error, "no".into(), vec![]));
    }

    struct RecordingSink(Mutex<Vec<LogLine>>);

    impl LogSink for RecordingSink {
        fn line(&self, line: &LogLine) {
            self.0.lock().unwrap().push(line.clone());
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_error_to_its_last_line_and_a_long_line_is_truncated() {
        let sink = Arc::new(RecordingSink(Mutex::default()));
        let tail = StderrTail::default();
        let text = format!("{}\npanic: oh no\n\ngoroutine 1 [running]:\n", "x".repeat(300_000));
        forward_stderr("p".into(), text.as_bytes(), sink.clone(), tail.clone()).await;
        let lines = sink.0.lock().unwrap();
        let levels: Vec<_> = lines.iter().map(|line| line.level).collect();
        assert_eq!(levels, [LogLevel::Debug, LogLevel::Error, LogLevel::Error]);
        assert!(tail.text().ends_with("panic: oh no; goroutine 1 [running]:"));
    }
}
