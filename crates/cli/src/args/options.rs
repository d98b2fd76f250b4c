//! The options of the verbs that every kind has.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::duration;

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
    /// Only those with these labels, e.g. velero.io/schedule-name=daily
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// How to print them
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
    /// Only those with these labels
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Also list every item, every message and what became of each namespace
    #[arg(long)]
    pub details: bool,
    /// How to print it
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
    #[command(flatten)]
    pub trust: Trust,
}

#[derive(Debug, Args)]
pub struct LogsOptions {
    /// Go on printing while it runs
    #[arg(long, short)]
    pub follow: bool,
    /// How long to wait for the server's answer
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub timeout: Duration,
    #[command(flatten)]
    pub trust: Trust,
}

#[derive(Debug, Args)]
pub struct DownloadOptions {
    /// File to write; by default NAME-data.tar.gz
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
    /// How long to wait for the server's answer
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub timeout: Duration,
    #[command(flatten)]
    pub trust: Trust,
}

/// Whom to believe when a file is fetched from the object store.
#[derive(Clone, Debug, Default, Args)]
pub struct Trust {
    /// Certificates to trust in place of the storage location's, in PEM
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// Do not check the object store's certificate: anybody in between can read and change what is fetched
    #[arg(long)]
    pub insecure_skip_tls_verify: bool,
}

#[derive(Debug, Args)]
pub struct DeleteOptions {
    /// All of them
    #[arg(long)]
    pub all: bool,
    /// Those with these labels
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Do not ask
    #[arg(long)]
    pub confirm: bool,
    /// Wait until they are gone
    #[arg(long, short)]
    pub wait: bool,
}

#[derive(Debug, Args)]
pub struct PauseOptions {
    /// All of them
    #[arg(long)]
    pub all: bool,
    /// Those with these labels
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Whether a backup that is due when the schedule goes on is left out
    #[arg(long, value_name = "BOOL")]
    pub skip_immediately: Option<bool>,
}

/// What to do after asking.
#[derive(Debug, Args)]
pub struct Following {
    /// Wait for the end: a live picture on a terminal, plain lines elsewhere; the exit code tells the outcome
    #[arg(long, short)]
    pub wait: bool,
    /// Wait for the end, and print one JSON object on a line for every change (docs/events.md)
    #[arg(long, value_name = "FORMAT")]
    pub events: Option<EventFormat>,
    /// Show what would be done, and do nothing
    #[arg(long, conflicts_with_all = ["wait", "events"])]
    pub dry_run: bool,
    /// Print the object and create nothing; with --dry-run, the format of the plan
    #[arg(long, short, value_name = "FORMAT", conflicts_with_all = ["wait", "events"])]
    pub output: Option<ObjectFormat>,
}
