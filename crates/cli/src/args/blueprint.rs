//! Blueprints, and the commands inside their pods.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::options::ObjectFormat;

#[derive(Debug, Subcommand)]
pub enum Blueprint {
    /// Say what is wrong with blueprints, without a cluster
    #[command(after_help = "Errors keep a blueprint from running (exit code 6); warnings do not.\n\n\
        Examples:\n  plimsoll blueprint validate mysql-blueprint.yaml\n  \
        kubectl get blueprint mysql -n kanister -o yaml | plimsoll blueprint validate -")]
    Validate(ValidateBlueprint),
}

#[derive(Debug, Args)]
pub struct ValidateBlueprint {
    /// Files with blueprints, in YAML or JSON; - reads standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print the findings as an object
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct Kando {
    #[command(subcommand)]
    pub command: KandoCommand,
    /// Taken for the sake of scripts that say it; the log is chosen with --log
    #[arg(long, short, global = true, value_name = "LEVEL", hide = true)]
    pub verbosity: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum KandoCommand {
    /// Move data to, from or out of a profile's location
    Location(KandoLocation),
    /// Give the phase an output
    #[command(after_help = "Examples:\n  kando output s3path /backups/dump.sql.gz")]
    Output {
        /// Letters, digits and underscores
        key: String,
        /// Any text
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Not supported
    #[command(hide = true)]
    Chronicle(Rest),
    /// Not supported
    #[command(hide = true)]
    Stream(Rest),
    /// Not supported
    #[command(hide = true)]
    Process(Rest),
}

/// Whatever else was typed.
#[derive(Debug, Args)]
pub struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub words: Vec<String>,
}

#[derive(Args)]
pub struct KandoLocation {
    #[command(subcommand)]
    pub verb: LocationVerb,
    /// The profile as JSON, as `toJson .Profile` writes it
    #[arg(long, short, global = true, value_name = "JSON", conflicts_with = "profile_path")]
    pub profile: Option<String>,
    /// A file with the profile, which keeps its credentials out of the list of processes
    #[arg(long, global = true, value_name = "FILE")]
    pub profile_path: Option<PathBuf>,
    /// Where in the location, below the profile's prefix
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
    /// Write a file, or what comes through a pipe, to the location
    #[command(after_help = "Examples:\n  mysqldump --all-databases | gzip | \
        kando location push --profile \"$PROFILE\" --path /backups/dump.sql.gz -")]
    Push {
        /// A file, or - for standard input
        source: String,
        /// Not supported: only kopia's snapshots have one
        #[arg(long, short, value_name = "NAME", hide = true)]
        output_name: Option<String>,
    },
    /// Read from the location into a file or a pipe
    #[command(after_help = "Examples:\n  kando location pull --profile \"$PROFILE\" --path /backups/dump.sql.gz - | \
        gunzip | mysql")]
    Pull {
        /// A file, or - for standard output
        target: String,
        /// Not supported
        #[arg(long, short, value_name = "JSON", hide = true)]
        kopia_snapshot: Option<String>,
    },
    /// Remove what lies at a path and below it
    #[command(after_help = "Examples:\n  kando location delete --profile \"$PROFILE\" --path /backups/dump.sql.gz")]
    Delete {
        /// Not supported
        #[arg(long, short, value_name = "JSON", hide = true)]
        kopia_snapshot: Option<String>,
    },
}
