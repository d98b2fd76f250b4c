//! Log lines that a host understands.

use std::io::Write;

use serde_json::json;

use crate::Gravity;

/// Writes a line to standard error, as hosts read it. A full pipe or a gone host is not the plugin's to mend.
pub fn log(gravity: Gravity, message: &str) {
    let level = match gravity {
        Gravity::Debug => "debug",
        Gravity::Info => "info",
        Gravity::Warning => "warn",
        Gravity::Error => "error",
    };
    let _ = writeln!(std::io::stderr(), "{}", json!({ "@message": message, "level": level }));
}
