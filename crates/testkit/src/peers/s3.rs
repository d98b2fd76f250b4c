//! An S3 server: versitygw on a directory.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{free_port, unique_directory};
use crate::cache;
use crate::child_process::ChildProcess;
use crate::wait::{WAIT_TIMEOUT, until_blocking};

/// The access key of every server started here.
pub const ACCESS_KEY: &str = "plimsolltestaccess";
/// The secret key of every server started here.
pub const SECRET_KEY: &str = "plimsolltestsecret";

const START_ATTEMPTS: usize = 3;

/// A running S3 server; dropping this removes it and its buckets.
#[derive(Debug)]
pub struct S3Server {
    process: ChildProcess,
    endpoint: String,
}

impl S3Server {
    /// Starts a server on an address of this machine, `127.0.0.1` or one that pods can reach, and a free port.
    pub fn start(address: &str) -> Result<Self> {
        // Another process may take the free port first: the server then exits, and another port is tried.
        (1..START_ATTEMPTS).find_map(|_| Self::start_once(address).ok()).map_or_else(|| Self::start_once(address), Ok)
    }

    fn start_once(address: &str) -> Result<Self> {
        let directory = unique_directory("s3");
        let buckets = directory.join("buckets");
        fs::create_dir_all(&buckets)?;
        let port = free_port(address)?;
        let mut command = Command::new(cache::program("versitygw")?);
        command.args(["--access", ACCESS_KEY, "--secret", SECRET_KEY]);
        command.args(["--port", &format!("{address}:{port}"), "posix"]).arg(&buckets);
        let mut process = ChildProcess::start(command, directory)?;
        let started = until_blocking("the S3 server", WAIT_TIMEOUT, || {
            let connected = TcpStream::connect((address, port)).is_ok();
            (connected || process.has_ended()).then_some(())
        });
        started.with_context(|| process.log())?;
        ensure!(!process.has_ended(), "the S3 server ended: {}", process.log());
        Ok(Self { process, endpoint: format!("http://{address}:{port}") })
    }

    /// Its address.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Creates a bucket and returns its directory.
    pub fn create_bucket(&self, name: &str) -> Result<PathBuf> {
        let path = self.process.directory().join("buckets").join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// Its process, for tests that stop it.
    pub fn process(&self) -> &ChildProcess {
        &self.process
    }
}
