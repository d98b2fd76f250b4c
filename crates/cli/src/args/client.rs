//! Arguments of `plimsoll client` and `plimsoll debug`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Print or change settings of the command line
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print settings
    #[command(after_help = "Examples:\n  plimsoll client config get\n  plimsoll client config get namespace")]
    Get {
        /// Names of the settings [default: all]
        #[arg(value_name = "KEY")]
        keys: Vec<String>,
    },
    /// Change settings in the file that `velero client config` uses
    #[command(after_help = "The only setting is namespace, the default of --namespace. An empty value removes it.\n\n\
        Examples:\n  plimsoll client config set namespace=backup\n  plimsoll client config set namespace=")]
    Set {
        /// Settings and their values
        #[arg(value_name = "KEY=VALUE", required = true)]
        pairs: Vec<String>,
    },
}

/// `plimsoll debug`
#[derive(Debug, Args)]
pub struct Debug {
    /// Include only the transfers of this backup
    #[arg(long, value_name = "NAME")]
    pub backup: Option<String>,
    /// Include only the transfers of this restore
    #[arg(long, value_name = "NAME")]
    pub restore: Option<String>,
    /// File to write [default: bundle-TIME.tar.gz]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Number of lines of the log of each pod
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub lines: i64,
}
