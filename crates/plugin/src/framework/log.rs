//! Log lines in the format that servers parse.

use std::io::Write;

use serde_json::json;

use crate::LogLevel;

/// Writes a line to standard error. Write errors are ignored.
pub fn log(level: LogLevel, message: &str) {
    let name = match level {
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warning => "warn",
        LogLevel::Error => "error",
    };
    let _ = writeln!(std::io::stderr(), "{}", json!({ "@message": message, "level": name }));
}
