//! The command line of this program.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

/// The command line.
pub struct Options {
    pub artifacts: PathBuf,
    /// Earlier steps with their duration in seconds, listed with the rest.
    pub parts: Vec<(String, f64)>,
    pub arguments: Vec<String>,
}

impl Options {
    pub fn from_arguments(mut given: impl Iterator<Item = String>) -> Result<Self> {
        let artifacts = given.next().context("usage: run-tests <artifacts> [--part <name>=<seconds>]... [-- ...]")?;
        let mut options = Self { artifacts: artifacts.into(), parts: Vec::new(), arguments: Vec::new() };
        while let Some(argument) = given.next() {
            match argument.as_str() {
                "--part" => {
                    let part = given.next().context("--part needs <name>=<seconds>")?;
                    let (name, seconds) = part.split_once('=').context("--part needs <name>=<seconds>")?;
                    options.parts.push((name.to_owned(), seconds.parse()?));
                }
                "--" => options.arguments = given.by_ref().collect(),
                other => anyhow::bail!("unknown argument {other}"),
            }
        }
        Ok(options)
    }
}
