//! Options of the commands that observe or cancel an operation: `plimsoll top`, `why`, `watch` and `cancel`.

use std::io::IsTerminal;

use clap::Args;

use super::names::Reference;
use super::options::{EventFormat, ObjectFormat};
use crate::observation::ObservedReference;

#[derive(Debug, Args)]
pub struct Cancel {
    /// Kind and name, e.g. backup/nightly
    #[arg(value_name = "KIND/NAME")]
    pub reference: Reference,
    /// Wait until it has ended
    #[arg(long, short)]
    pub wait: bool,
}

pub(super) const TOP: &str = "Reads the cluster with your kubeconfig and changes nothing; no server of Plimsoll is needed. Without a terminal, or with
--once, prints one table and exits, with exit code 7 if an operation is stalled.

Keys: arrows or j/k select, Enter opens, w explains, l shows the log, c cancels (after confirmation), s sorts, / filters, e shows
ended operations, ? shows help, q quits.

Examples:
  plimsoll top
  plimsoll top -n velero --once
  plimsoll top -o json | jq '.operations[] | select(.verdict == \"Stuck\")'";
pub(super) const WHY: &str = "Examines the operation, its volumes, their pods and events, the queue, the location, the repository, the node agents and the
server. Works with any Velero or Kanister, with your kubeconfig, and lists what it could not read.

Kinds: backup, restore, actionset, schedule, backup-location, deletebackuprequest; for single volumes podvolumebackup (pvb),
podvolumerestore (pvr), dataupload, datadownload, volumepluginbackup, volumepluginrestore.

Exit codes: 0 in progress, queued or succeeded; 7 stalled; 3, 4, 5, 6 as it ended; 1 it could not be read.

Examples:
  plimsoll why backup/nightly
  plimsoll why restore/monday -o json
  plimsoll why schedule/daily
  plimsoll why pvb/nightly-x7k2p";
pub(super) const WATCH: &str = "On a terminal, draws the tree of tasks with progress bars, rate and time left. Elsewhere, prints plain lines or events.

Examples:
  plimsoll watch restore/monday
  plimsoll watch pvb/nightly-x7k2p --events json";

#[derive(Debug, Args)]
pub struct Top {
    /// Print one table and exit
    #[arg(long)]
    pub once: bool,
    /// Output format; implies --once
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<TopFormat>,
    /// Show only operations whose text contains TEXT
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub filter: String,
}

impl Top {
    /// Whether it draws on the whole terminal.
    pub fn is_drawn(&self) -> bool {
        let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        !self.once && self.output.is_none() && terminal
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TopFormat {
    Table,
    Json,
}

#[derive(Debug, Args)]
pub struct Why {
    /// Kind and name, e.g. backup/nightly
    #[arg(value_name = "KIND/NAME")]
    pub reference: ObservedReference,
    /// Output format
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct Watch {
    /// Kind and name, e.g. restore/monday
    #[arg(value_name = "KIND/NAME")]
    pub reference: ObservedReference,
    /// Print one JSON object on a line for every change (docs/reference/events.md)
    #[arg(long, value_name = "FORMAT")]
    pub events: Option<EventFormat>,
}
