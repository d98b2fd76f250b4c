//! Tables, JSON, YAML, and the log.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use serde::Serialize;
use tracing_subscriber::EnvFilter;

use crate::args::Global;
use crate::args::options::ObjectFormat;

/// Prints one line to standard output. A reader that has gone away (`| head`) ends the program quietly.
pub fn line(text: impl AsRef<str>) {
    use std::io::Write;
    if writeln!(std::io::stdout().lock(), "{}", text.as_ref()).is_err() {
        std::process::exit(0);
    }
}

/// Prints text that has its own line breaks.
pub fn text(text: &str) {
    if !text.is_empty() {
        line(text.trim_end_matches('\n'));
    }
}

/// The default log filter. The client library is left out: it logs every error response without the request, and the caller reports
/// the error with the request anyway.
const DEFAULT_LOG_FILTER: &str = "warn,plimsoll=info,plimsoll_agent=info,plimsoll_controllers=info,plimsoll_operations=info,plimsoll_plugin=info,\
     plimsoll_volumes=info,kube_client::client::builder=off";

/// Sends the log to standard error, so that standard output stays for results.
///
/// A program that draws on the whole terminal switches logging off: log lines would be drawn over the frame.
pub fn init_logging(global: &Global, silent: bool) {
    let usual = if silent { "off" } else { DEFAULT_LOG_FILTER };
    let filter = global.log.as_deref().unwrap_or(usual);
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // Otherwise a line that cannot be written ends the program by a panic: standard error may be a closed pipe.
        .log_internal_errors(false)
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

/// Columns as wide as their widest cell, two blanks apart.
pub fn table(header: &[String], rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..header.len()).map(width).collect();
    std::iter::once(header).chain(rows.iter().map(Vec::as_slice)).map(|row| pad(row, &widths)).collect()
}

fn pad(row: &[String], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

/// `a=b`, `c=d`, and something between them.
pub fn pairs(map: &BTreeMap<String, String>, between: &str) -> String {
    map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = vec![vec!["a".into(), "long value".into()], vec!["longer".into(), "b".into()]];
        let header = ["NAME", "STATUS"].map(str::to_owned);
        assert_eq!(table(&header, &rows), ["NAME    STATUS", "a       long value", "longer  b"]);
    }
}
