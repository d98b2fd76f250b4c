//! Arguments of `plimsoll repo`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::options::{ListFormat, ObjectFormat};
use super::values::duration;

/// `plimsoll repo`
#[derive(Debug, Subcommand)]
pub enum Repo {
    /// List repositories and their status
    #[command(after_help = "Examples:\n  plimsoll repo get\n  plimsoll repo get shop-default-kopia -o yaml")]
    Get(RepoGet),
    /// Show snapshots, locks and orphans of repositories
    #[command(after_help = "Examples:\n  plimsoll repo describe shop-default-restic")]
    Describe(RepoDescribe),
    /// List, or delete, snapshots that no backup in the location refers to
    ///
    /// The server reads every backup in the location, of every cluster. Snapshots that another program keeps in the same
    /// repository are orphans too: review the list before you delete.
    #[command(after_help = "Examples:\n  plimsoll repo orphans\n  \
        plimsoll repo orphans shop-default-restic --delete --older-than 720h")]
    Orphans(RepoOrphans),
    /// Remove stale locks
    ///
    /// A lock is stale when its holder was a server or agent of this cluster that no longer exists, or when it is older than
    /// 30 minutes and unchanged in two checks six minutes apart; run the command a second time then. A lock that is refreshed
    /// is never removed.
    #[command(after_help = "Examples:\n  plimsoll repo unlock shop-default-restic")]
    Unlock(RepoUnlock),
    /// Show how much of a repository is used, and why the rest is still stored
    #[command(after_help = "Examples:\n  plimsoll repo stats\n  plimsoll repo stats shop-default-restic")]
    Stats(RepoStats),
    /// Free the space of deleted backups
    ///
    /// The plan is shown first. The server then runs the maintenance of the repository: a prune, or kopia's maintenance, which
    /// keeps its own safety periods. Backups can run between the slices of a prune. The server also does this on its own, at the
    /// interval in spec.maintenanceFrequency.
    #[command(after_help = "Examples:\n  plimsoll repo prune shop-default-restic --dry-run\n  \
        plimsoll repo prune shop-default-restic --confirm")]
    Prune(RepoPrune),
}

#[derive(Debug, Args)]
pub struct RepoStats {
    /// Names of the repositories [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    #[command(flatten)]
    pub answer: AnswerTimeout,
}

#[derive(Debug, Args)]
pub struct RepoPrune {
    /// Name of the repository
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Show the plan and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Skip the confirmation
    #[arg(long)]
    pub confirm: bool,
    #[command(flatten)]
    pub answer: AnswerTimeout,
}

#[derive(Debug, Args)]
pub struct RepoGet {
    /// Names of the repositories [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub output: ListFormat,
}

#[derive(Debug, Args)]
pub struct RepoDescribe {
    /// Names of the repositories [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Output format
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
    #[command(flatten)]
    pub answer: AnswerTimeout,
}

#[derive(Debug, Args)]
pub struct RepoOrphans {
    /// Names of the repositories [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Select only snapshots older than this
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub older_than: Option<Duration>,
    /// Delete the selected snapshots
    #[arg(long, requires = "older_than")]
    pub delete: bool,
    /// Skip the confirmation
    #[arg(long)]
    pub confirm: bool,
    #[command(flatten)]
    pub answer: AnswerTimeout,
}

#[derive(Debug, Args)]
pub struct RepoUnlock {
    /// Names of the repositories
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    #[command(flatten)]
    pub answer: AnswerTimeout,
}

/// The timeout of a request to the server.
#[derive(Debug, Args)]
pub struct AnswerTimeout {
    /// Timeout for the answer of the server
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub timeout: Duration,
}
