//! Object stores that speak S3.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{free_port, own_directory};
use crate::cache;
use crate::keeper::Kept;
use crate::wait::until_blocking;

/// The access key of every server started here.
pub const ACCESS_KEY: &str = "plimsolltestaccess";
/// The secret key of every server started here.
pub const SECRET_KEY: &str = "plimsolltestsecret";

/// Which program serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum S3Program {
    /// The usual one.
    S3sFs,
    /// A second opinion, and the one to use with restic, which does not see its packs on the other.
    Versity,
}

/// A running S3 server; it and its buckets are gone when this is dropped.
#[derive(Debug)]
pub struct S3Server {
    process: Kept,
    endpoint: String,
}

impl S3Server {
    /// Starts one on an address of this machine: `127.0.0.1`, or the one that pods can reach. It takes a port of its own.
    pub fn start(program: S3Program, address: &str) -> Result<Self> {
        let directory = own_directory("s3");
        let buckets = directory.join("buckets");
        fs::create_dir_all(&buckets)?;
        let port = free_port(address)?;
        let command = program.command(address, port, &buckets)?;
        let server = Self { process: Kept::start(command, directory)?, endpoint: format!("http://{address}:{port}") };
        let listens = || TcpStream::connect((address, port)).is_ok().then_some(());
        until_blocking("the S3 server", Duration::from_secs(20), listens).with_context(|| server.process.log())?;
        Ok(server)
    }

    /// Its address.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Creates a bucket, and says where its objects lie.
    pub fn create_bucket(&self, name: &str) -> Result<PathBuf> {
        let path = self.process.directory().join("buckets").join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// Its process, for tests that stop it.
    pub fn process(&self) -> &Kept {
        &self.process
    }
}

impl S3Program {
    fn command(self, address: &str, port: u16, buckets: &std::path::Path) -> Result<Command> {
        let program = match self {
            Self::S3sFs => "s3s-fs",
            Self::Versity => "versitygw",
        };
        let mut command = Command::new(cache::program(program)?);
        match self {
            Self::S3sFs => {
                command.args(["--host", address, "--port", &port.to_string()]);
                command.args(["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]).arg(buckets);
            }
            Self::Versity => {
                command.args(["--access", ACCESS_KEY, "--secret", SECRET_KEY]);
                command.args(["--port", &format!("{address}:{port}"), "posix"]).arg(buckets);
            }
        }
        Ok(command)
    }
}
