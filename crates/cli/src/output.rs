//! Tables, JSON, YAML, and the log.

use std::io::IsTerminal;

use serde::Serialize;
use tracing_subscriber::EnvFilter;

use crate::args::{Global, ListFormat, ObjectFormat};

/// Prints one line to standard output. A reader that has gone away (`| head`) ends the program quietly.
pub fn line(text: impl AsRef<str>) {
    use std::io::Write;
    if writeln!(std::io::stdout().lock(), "{}", text.as_ref()).is_err() {
        std::process::exit(0);
    }
}

/// Sends the log to standard error, so that standard output stays for results.
pub fn log_to_stderr(global: &Global) {
    let filter = global.log.as_deref().unwrap_or("warn,plimsoll=info,plimsoll_controllers=info");
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}

/// Prints one object.
pub fn object(value: &impl Serialize, format: ObjectFormat) -> anyhow::Result<()> {
    line(match format {
        ObjectFormat::Json => serde_json::to_string_pretty(value)?,
        ObjectFormat::Yaml => serde_saphyr::to_string(&serde_json::to_value(value)?)?.trim_end().to_owned(),
    });
    Ok(())
}

/// Prints a list, as a table if nothing else is asked for.
pub fn list<T: Serialize>(
    items: &[T],
    format: ListFormat,
    header: &[&str],
    row: impl Fn(&T) -> Vec<String>,
) -> anyhow::Result<()> {
    match format {
        ListFormat::Json => object(&items, ObjectFormat::Json),
        ListFormat::Yaml => object(&items, ObjectFormat::Yaml),
        ListFormat::Table => {
            let rows: Vec<_> = items.iter().map(row).collect();
            for text in table(header, &rows) {
                line(text);
            }
            Ok(())
        }
    }
}

/// Columns as wide as their widest cell, two blanks apart.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..header.len()).map(width).collect();
    let header = header.iter().map(ToString::to_string).collect();
    std::iter::once(&header).chain(rows).map(|row: &Vec<String>| pad(row, &widths)).collect()
}

fn pad(row: &[String], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = vec![vec!["a".into(), "long value".into()], vec!["longer".into(), "b".into()]];
        assert_eq!(table(&["NAME", "STATUS"], &rows), ["NAME    STATUS", "a       long value", "longer  b"]);
    }
}
