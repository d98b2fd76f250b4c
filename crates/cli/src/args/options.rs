//! Options of the verbs that every kind has.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ObjectFormat {
    Json,
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    Table,
    Json,
    Yaml,
    Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EventFormat {
    Json,
}

#[derive(Debug, Args)]
pub struct GetOptions {
    /// Label selector, e.g. velero.io/schedule-name=daily
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub output: ListFormat,
    /// Labels to show as columns
    #[arg(long, short = 'L', value_name = "LABELS", value_delimiter = ',')]
    pub label_columns: Vec<String>,
    /// Show all labels in the last column
    #[arg(long)]
    pub show_labels: bool,
}

#[derive(Debug, Args)]
pub struct DescribeOptions {
    /// Label selector
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Also list every item, every message and the result for each namespace
    #[arg(long)]
    pub details: bool,
    /// Output format
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
    #[command(flatten)]
    pub tls: TlsOptions,
}

#[derive(Debug, Args)]
pub struct LogsOptions {
    /// Follow the log until the operation ends
    #[arg(long, short)]
    pub follow: bool,
    /// Timeout for the answer of the server
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub timeout: Duration,
    #[command(flatten)]
    pub tls: TlsOptions,
}

#[derive(Debug, Args)]
pub struct DownloadOptions {
    /// File to write [default: NAME-data.tar.gz]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
    /// Timeout for the answer of the server
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub timeout: Duration,
    #[command(flatten)]
    pub tls: TlsOptions,
}

/// TLS verification of object storage.
#[derive(Clone, Debug, Default, Args)]
pub struct TlsOptions {
    /// CA certificates in PEM [default: those of the backup location]
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// Do not verify the certificate of object storage (insecure)
    #[arg(long)]
    pub insecure_skip_tls_verify: bool,
}

#[derive(Debug, Args)]
pub struct DeleteOptions {
    /// Delete all
    #[arg(long)]
    pub all: bool,
    /// Label selector
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Skip the confirmation
    #[arg(long)]
    pub confirm: bool,
    /// Wait until they are deleted
    #[arg(long, short)]
    pub wait: bool,
}

#[derive(Debug, Args)]
pub struct PauseOptions {
    /// Select all schedules
    #[arg(long)]
    pub all: bool,
    /// Label selector
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Skip a backup that is due when the schedule resumes
    #[arg(long, value_name = "BOOL")]
    pub skip_immediately: Option<bool>,
}

/// What to do after creating the object.
#[derive(Debug, Args)]
pub struct CreationOptions {
    /// Wait until it ends, with live progress; the exit code is the outcome
    #[arg(long, short)]
    pub wait: bool,
    /// Wait until it ends, and print one JSON object on a line for every change (docs/reference/events.md)
    #[arg(long, value_name = "FORMAT")]
    pub events: Option<EventFormat>,
    /// Show the plan without creating the object
    #[arg(long, conflicts_with_all = ["wait", "events"])]
    pub dry_run: bool,
    /// Print the object in this format without creating it; with --dry-run, the format of the plan
    #[arg(long, short, value_name = "FORMAT", conflicts_with_all = ["wait", "events"])]
    pub output: Option<ObjectFormat>,
}
