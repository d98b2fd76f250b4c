//! What can be typed about repositories.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::duration;
use super::options::{ListFormat, ObjectFormat};

/// `plimsoll repo`
#[derive(Debug, Subcommand)]
pub enum Repo {
    /// List the repositories, and whether they open
    #[command(after_help = "Examples:\n  plimsoll repo get\n  plimsoll repo get shop-default-kopia -o yaml")]
    Get(RepoGet),
    /// Tell what is in repositories, who holds their locks, and what no backup refers to
    #[command(after_help = "Examples:\n  plimsoll repo describe shop-default-restic")]
    Describe(RepoDescribe),
    /// List snapshots that no backup in the location refers to, and remove them if asked to
    ///
    /// The server looks through every backup in the location, whichever cluster made it. What another owner of the bucket keeps
    /// in the same repository under no backup is an orphan too: look at the list before you delete.
    #[command(after_help = "Examples:\n  plimsoll repo orphans\n  \
        plimsoll repo orphans shop-default-restic --delete --older-than 720h")]
    Orphans(RepoOrphans),
    /// Remove the locks of holders that are gone
    ///
    /// A lock goes when its holder is ours and gone, or when it is older than thirty minutes and was found unchanged twice, six
    /// minutes apart: then run this again. Nothing forces it: a lock that is written anew has a holder at work.
    #[command(after_help = "Examples:\n  plimsoll repo unlock shop-default-restic")]
    Unlock(RepoUnlock),
}

#[derive(Debug, Args)]
pub struct RepoGet {
    /// Their names; all if none is given
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// How to print them
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub output: ListFormat,
}

#[derive(Debug, Args)]
pub struct RepoDescribe {
    /// Their names; all if none is given
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// How to print it
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
    #[command(flatten)]
    pub patience: Patience,
}

#[derive(Debug, Args)]
pub struct RepoOrphans {
    /// Their names; all if none is given
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Only snapshots that are older than this
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub older_than: Option<Duration>,
    /// Remove them
    #[arg(long, requires = "older_than")]
    pub delete: bool,
    /// Do not ask
    #[arg(long)]
    pub confirm: bool,
    #[command(flatten)]
    pub patience: Patience,
}

#[derive(Debug, Args)]
pub struct RepoUnlock {
    /// Their names
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    #[command(flatten)]
    pub patience: Patience,
}

/// How long the server may take.
#[derive(Debug, Args)]
pub struct Patience {
    /// How long to wait for the server's answer
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub timeout: Duration,
}
