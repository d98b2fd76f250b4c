//! What a plugin writes to standard error: log lines, as JSON where its framework does so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::text::{bounded, clean};

/// A line longer than this is cut; what follows up to its end is dropped.
const LONGEST_LINE: usize = 64 * 1024;
/// How many fields of a line are kept, and how much of each.
const FIELDS: usize = 12;
const LONGEST_FIELD: usize = 200;
/// How many of the last lines are remembered for when the process ends.
const REMEMBERED: usize = 3;

/// How grave a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gravity {
    /// For whoever looks for a fault.
    Debug,
    /// For the record.
    Info,
    /// Somebody should look at it.
    Warning,
    /// Something did not work.
    Error,
}

/// A line of a plugin's log, cleaned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The plugin's binary.
    pub plugin: String,
    /// How grave it is.
    pub gravity: Gravity,
    /// What it says.
    pub message: String,
    /// Its other fields, `key=value`.
    pub fields: Vec<String>,
}

impl LogLine {
    /// The line in one text.
    pub fn text(&self) -> String {
        let words = std::iter::once(self.message.as_str()).chain(self.fields.iter().map(String::as_str));
        format!("plugin {}: {}", self.plugin, words.collect::<Vec<_>>().join(" "))
    }
}

/// Takes the log lines of plugins.
pub trait LogSink: Send + Sync {
    /// Takes one line. Must not block.
    fn line(&self, line: &LogLine);
}

/// Passes them on to this program's own log.
pub struct Tracing;

impl LogSink for Tracing {
    fn line(&self, line: &LogLine) {
        match line.gravity {
            Gravity::Debug => tracing::debug!("{}", line.text()),
            Gravity::Info => tracing::info!("{}", line.text()),
            Gravity::Warning => tracing::warn!("{}", line.text()),
            Gravity::Error => tracing::error!("{}", line.text()),
        }
    }
}

/// The last lines of a process, for when it ends.
#[derive(Clone, Default)]
pub(crate) struct LastWords(Arc<Mutex<VecDeque<String>>>);

impl LastWords {
    fn remember(&self, message: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_back(bounded(message, 130));
        while lines.len() > REMEMBERED {
            lines.pop_front();
        }
    }

    pub(crate) fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
    }
}

/// Reads a stream of lines to its end, whatever is in it.
pub(crate) async fn drain(mut from: impl AsyncRead + Unpin, mut line: impl FnMut(&[u8])) {
    let (mut pending, mut skipping) = (Vec::new(), false);
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        for piece in buffer[..read].split_inclusive(|byte| *byte == b'\n') {
            let ends = piece.ends_with(b"\n");
            if !skipping {
                pending.extend_from_slice(piece);
            }
            if ends || pending.len() > LONGEST_LINE {
                if !skipping {
                    line(&pending);
                }
                pending.clear();
                skipping = !ends;
            }
        }
    }
    if !pending.is_empty() {
        line(&pending);
    }
}

/// Reads standard error.
pub(crate) async fn follow(plugin: String, from: impl AsyncRead + Unpin, sink: Arc<dyn LogSink>, last: LastWords) {
    let mut panicking = false;
    drain(from, |bytes| {
        let Some(mut line) = parse(&plugin, &String::from_utf8_lossy(bytes)) else { return };
        panicking |= line.message.starts_with("panic:") || line.message.starts_with("fatal error:");
        if panicking {
            line.gravity = Gravity::Error;
        }
        if line.gravity > Gravity::Debug || line.fields.is_empty() {
            last.remember(&line.message);
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
        return Some(structured(plugin, &entry));
    }
    let (gravity, message) = prefixed(text);
    Some(LogLine { plugin: plugin.to_owned(), gravity, message: clean(message), fields: Vec::new() })
}

/// The two spellings: Velero's framework writes `level` and `@message`, the plugin library itself `@level` and `@message`.
fn structured(plugin: &str, entry: &Map<String, Value>) -> LogLine {
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    let message = text("@message").or_else(|| text("msg")).or_else(|| text("message")).unwrap_or_default();
    let level = text("@level").or_else(|| text("level")).unwrap_or("info");
    let known =
        ["@message", "msg", "message", "@level", "level", "@timestamp", "time", "@module", "logSource", "pluginName"];
    let fields = entry.iter().filter(|(key, _)| !known.contains(&key.as_str())).take(FIELDS);
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    LogLine {
        plugin: plugin.to_owned(),
        gravity: gravity(level),
        message: clean(message),
        fields: fields.map(|(key, value)| bounded(&format!("{key}={}", shown(value)), LONGEST_FIELD)).collect(),
    }
}

fn gravity(level: &str) -> Gravity {
    match level.to_ascii_lowercase().as_str() {
        "trace" | "debug" => Gravity::Debug,
        "warn" | "warning" => Gravity::Warning,
        "error" | "fatal" | "panic" => Gravity::Error,
        _ => Gravity::Info,
    }
}

/// A line of no known form is for whoever looks for a fault, unless it says otherwise.
fn prefixed(text: &str) -> (Gravity, &str) {
    let known = [("[ERROR]", Gravity::Error), ("[WARN]", Gravity::Warning), ("[INFO]", Gravity::Info)];
    known
        .iter()
        .find_map(|(prefix, gravity)| Some((*gravity, text.strip_prefix(prefix)?.trim())))
        .unwrap_or((Gravity::Debug, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Gravity, String, Vec<String>) {
        let line = parse("p", text).unwrap();
        (line.gravity, line.message, line.fields)
    }

    #[test]
    fn levels_are_read_in_both_spellings() {
        let velero =
            r#"{"@message":"disk full","level":"error","logSource":"a.go:1","backup":"velero/b","pluginName":"x"}"#;
        assert_eq!(read(velero), (Gravity::Error, "disk full".into(), vec!["backup=velero/b".into()]));
        let library = r#"{"@level":"warn","@message":"odd","@module":"m","@timestamp":"t"}"#;
        assert_eq!(read(library), (Gravity::Warning, "odd".into(), vec![]));
    }

    #[test]
    fn a_line_of_no_known_form_is_kept_for_debugging_and_cleaned() {
        assert_eq!(read("\u{1b}[2Jhello"), (Gravity::Debug, " [2Jhello".into(), vec![]));
        assert_eq!(read("[ERROR] no"), (Gravity::Error, "no".into(), vec![]));
    }

    struct Keep(Mutex<Vec<LogLine>>);

    impl LogSink for Keep {
        fn line(&self, line: &LogLine) {
            self.0.lock().unwrap().push(line.clone());
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_error_to_its_last_line_and_an_endless_line_is_cut() {
        let keep = Arc::new(Keep(Mutex::default()));
        let last = LastWords::default();
        let text = format!("{}\npanic: oh no\n\ngoroutine 1 [running]:\n", "x".repeat(300_000));
        follow("p".into(), text.as_bytes(), keep.clone(), last.clone()).await;
        let lines = keep.0.lock().unwrap();
        let gravities: Vec<_> = lines.iter().map(|line| line.gravity).collect();
        assert_eq!(gravities, [Gravity::Debug, Gravity::Error, Gravity::Error]);
        assert!(last.text().ends_with("panic: oh no; goroutine 1 [running]:"));
    }
}
