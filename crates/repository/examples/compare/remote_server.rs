//! An S3 server far away: a real one behind a line on which every byte takes its time.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use crate::Failure;

/// The keys of the server.
pub const ACCESS: &str = "benchaccesskey";
pub const SECRET: &str = "benchsecretkey";

/// A running server; it ends with this value, the line with the process.
pub struct Distant {
    server: Child,
    port: u16,
}

impl Drop for Distant {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Distant {
    /// Starts a server on a directory, and a line to it with this delay for a question and its answer together.
    pub fn start(program: &Path, folder: &Path, delay: Duration) -> Result<Self, Failure> {
        std::fs::create_dir_all(folder)?;
        let server_port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        // Connections are kept, as S3 itself keeps them.
        let server = Command::new(program)
            .args(["--access", ACCESS, "--secret", SECRET, "--keep-alive", "--quiet"])
            .args(["--port", &format!("127.0.0.1:{server_port}"), "posix"])
            .arg(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let line = TcpListener::bind("127.0.0.1:0")?;
        let distant = Self { server, port: line.local_addr()?.port() };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", server_port)).is_err() {
            if begun.elapsed() > Duration::from_secs(20) {
                return Err("the S3 server does not start".into());
            }
            std::thread::yield_now();
        }
        std::thread::spawn(move || {
            for client in line.incoming().flatten() {
                if let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)) {
                    let _ = join(client, server, delay / 2);
                }
            }
        });
        Ok(distant)
    }

    /// The process that serves.
    pub fn process(&self) -> u32 {
        self.server.id()
    }

    /// Where clients find it.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

fn join(client: TcpStream, server: TcpStream, delay: Duration) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    carry(client.try_clone()?, server.try_clone()?, delay);
    carry(server, client, delay);
    Ok(())
}

/// What is on the way at the same time at most, in steps.
const STEPS: usize = 256;
const STEP: usize = 256 * 1024;

/// A part of the way: the system keeps the bytes, nobody copies them.
struct Stretch {
    out: OwnedFd,
    into: OwnedFd,
}

impl Stretch {
    fn new() -> std::io::Result<Self> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC)?;
        // Pages that arrive need not be full: room for many of them.
        fcntl_setpipe_size(&into, 4 * STEP)?;
        Ok(Self { out, into })
    }

    fn take(&self, from: &TcpStream) -> std::io::Result<usize> {
        Ok(splice(from, None, &self.into, None, STEP, SpliceFlags::MOVE)?)
    }

    fn give(&self, to: &TcpStream, mut left: usize) -> std::io::Result<()> {
        while left > 0 {
            match splice(&self.out, None, to, None, left, SpliceFlags::MOVE)? {
                0 => return Err(std::io::ErrorKind::WriteZero.into()),
                given => left -= given,
            }
        }
        Ok(())
    }
}

/// Carries bytes one way: each arrives so much later, and as many as like may be on the way. They never leave the system, so
/// that the line takes little of the processors that it shares with the programs at both its ends.
fn carry(from: TcpStream, to: TcpStream, delay: Duration) {
    let (sender, receiver) = mpsc::sync_channel::<(Instant, Stretch, usize)>(STEPS);
    let (empty, emptied) = mpsc::sync_channel(STEPS);
    std::thread::spawn(move || {
        loop {
            let Ok(stretch) = emptied.try_recv().or_else(|_| Stretch::new()) else { return };
            let Ok(taken @ 1..) = stretch.take(&from) else { return };
            if sender.send((Instant::now() + delay, stretch, taken)).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        while let Ok((due, stretch, taken)) = receiver.recv() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if stretch.give(&to, taken).is_err() {
                break;
            }
            let _ = empty.try_send(stretch);
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
