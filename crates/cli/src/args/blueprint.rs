//! Arguments of `plimsoll blueprint` and `kando`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::options::ObjectFormat;

#[derive(Debug, Subcommand)]
pub enum Blueprint {
    /// Validate blueprints in files, or those of the cluster with these names
    #[command(
        after_help = "Files need no cluster. A blueprint with errors cannot run (exit code 6); one with warnings can.\n\n\
        Examples:\n  plimsoll blueprint validate mysql-blueprint.yaml\n  \
        kubectl get blueprint mysql -n kanister -o yaml | plimsoll blueprint validate -\n  plimsoll blueprint validate --name mysql --namespace kanister"
    )]
    Validate(ValidateBlueprint),
}

#[derive(Debug, Args)]
pub struct ValidateBlueprint {
    /// Blueprint files in YAML or JSON; - reads standard input
    #[arg(required_unless_present = "name", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Blueprint in the cluster; may be repeated
    #[arg(long, value_name = "NAME")]
    pub name: Vec<String>,
    /// Output format
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct Kando {
    #[command(subcommand)]
    pub command: KandoCommand,
    /// Ignored; for compatibility with scripts (see --log)
    #[arg(long, short, global = true, value_name = "LEVEL", hide = true)]
    pub verbosity: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum KandoCommand {
    /// Push, pull or delete data in the location of a profile
    Location(KandoLocation),
    /// Set an output of the phase
    #[command(after_help = "Examples:\n  kando output s3path /backups/dump.sql.gz")]
    Output {
        /// Key: letters, digits and underscores
        key: String,
        /// Value: any text
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Not supported
    #[command(hide = true)]
    Chronicle(RemainingArguments),
    /// Not supported
    #[command(hide = true)]
    Stream(RemainingArguments),
    /// Not supported
    #[command(hide = true)]
    Process(RemainingArguments),
}

/// The remaining arguments.
#[derive(Debug, Args)]
pub struct RemainingArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub words: Vec<String>,
}

#[derive(Args)]
pub struct KandoLocation {
    #[command(subcommand)]
    pub verb: LocationVerb,
    /// Profile as JSON, as `toJson .Profile` renders it
    #[arg(long, short, global = true, value_name = "JSON", conflicts_with = "profile_path")]
    pub profile: Option<String>,
    /// File with the profile; keeps credentials out of the process list
    #[arg(long, global = true, value_name = "FILE")]
    pub profile_path: Option<PathBuf>,
    /// Path in the location, below the prefix of the profile
    #[arg(long, short = 's', global = true, value_name = "PATH")]
    pub path: Option<String>,
}

impl std::fmt::Debug for KandoLocation {
    /// The profile holds credentials.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("KandoLocation").field("verb", &self.verb).field("path", &self.path).finish_non_exhaustive()
    }
}

#[derive(Debug, Subcommand)]
pub enum LocationVerb {
    /// Upload a file or standard input to the location
    #[command(after_help = "Examples:\n  mysqldump --all-databases | gzip | \
        kando location push --profile \"$PROFILE\" --path /backups/dump.sql.gz -")]
    Push {
        /// File, or - for standard input
        source: String,
        /// Output of the phase that gets the snapshot, with a profile of a Kopia server; ignored with other profiles
        #[arg(long, short, value_name = "NAME")]
        output_name: Option<String>,
    },
    /// Download from the location into a file or standard output
    #[command(after_help = "Examples:\n  kando location pull --profile \"$PROFILE\" --path /backups/dump.sql.gz - | \
        gunzip | mysql")]
    Pull {
        /// File, or - for standard output
        target: String,
        /// Snapshot, as a push with a profile of a Kopia server printed it
        #[arg(long, short, value_name = "JSON")]
        kopia_snapshot: Option<String>,
    },
    /// Delete the objects at a path and below it
    #[command(after_help = "Examples:\n  kando location delete --profile \"$PROFILE\" --path /backups/dump.sql.gz")]
    Delete {
        /// Snapshot, as a push with a profile of a Kopia server printed it
        #[arg(long, short, value_name = "JSON")]
        kopia_snapshot: Option<String>,
    },
}
