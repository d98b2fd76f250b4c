//! Paths with slashes, on every system.

use super::super::functions::Function;
use super::super::value::Value;
use super::text;

pub(super) const FUNCTIONS: &[Function] = &[
    Function { name: "base", takes: "s", run: |scope, values| scope.text(base(&text(&values[0]))) },
    Function { name: "dir", takes: "s", run: |scope, values| scope.text(dir(&text(&values[0]))) },
    Function { name: "clean", takes: "s", run: |scope, values| scope.text(clean(&text(&values[0]))) },
    Function { name: "ext", takes: "s", run: |scope, values| scope.text(ext(&text(&values[0]))) },
    Function { name: "isAbs", takes: "s", run: |_, values| Ok(Value::Bool(text(&values[0]).starts_with('/'))) },
];

fn base(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    match (path.is_empty(), trimmed.rsplit('/').next()) {
        (true, _) => ".",
        (false, Some(name)) if !name.is_empty() => name,
        _ => "/",
    }
}

fn dir(path: &str) -> String {
    clean(&path[..path.rfind('/').map_or(0, |slash| slash + 1)])
}

fn ext(path: &str) -> &str {
    let name = &path[path.rfind('/').map_or(0, |slash| slash + 1)..];
    name.rfind('.').map_or("", |dot| &name[dot..])
}

/// Removes empty, `.` and `..` parts lexically.
fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if rooted => {}
            _ => parts.push(part),
        }
    }
    match (rooted, parts.join("/")) {
        (true, joined) => format!("/{joined}"),
        (false, joined) if joined.is_empty() => ".".into(),
        (false, joined) => joined,
    }
}
