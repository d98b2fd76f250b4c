//! A remote S3 server: a local one behind a proxy with latency.

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

/// A running server, stopped on drop; the proxy ends with the process.
pub struct RemoteServer {
    server: Child,
    port: u16,
}

impl Drop for RemoteServer {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl RemoteServer {
    /// Starts a server on a directory, and a proxy with this round-trip latency.
    pub fn start(program: &Path, folder: &Path, delay: Duration) -> Result<Self, Failure> {
        std::fs::create_dir_all(folder)?;
        let server_port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        // Connections are kept alive, as in S3.
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

    /// The process ID of the server.
    pub fn process(&self) -> u32 {
        self.server.id()
    }

    /// The URL of the proxy.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

fn join(client: TcpStream, server: TcpStream, delay: Duration) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    forward(client.try_clone()?, server.try_clone()?, delay);
    forward(server, client, delay);
    Ok(())
}

/// The maximum number of buffers in flight.
const MAX_BUFFERS: usize = 256;
const BUFFER_SIZE: usize = 256 * 1024;

/// A pipe as a buffer in the kernel, without copies.
struct PipeBuffer {
    out: OwnedFd,
    into: OwnedFd,
}

impl PipeBuffer {
    fn new() -> std::io::Result<Self> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC)?;
        // Received pages may be partial: room for many of them.
        fcntl_setpipe_size(&into, 4 * BUFFER_SIZE)?;
        Ok(Self { out, into })
    }

    fn take(&self, from: &TcpStream) -> std::io::Result<usize> {
        Ok(splice(from, None, &self.into, None, BUFFER_SIZE, SpliceFlags::MOVE)?)
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

/// Forwards bytes in one direction with a delay and unlimited bandwidth. They stay in the kernel, so that the proxy takes little
/// processor time from the programs.
fn forward(from: TcpStream, to: TcpStream, delay: Duration) {
    let (sender, receiver) = mpsc::sync_channel::<(Instant, PipeBuffer, usize)>(MAX_BUFFERS);
    let (empty, emptied) = mpsc::sync_channel(MAX_BUFFERS);
    std::thread::spawn(move || {
        loop {
            let Ok(stretch) = emptied.try_recv().or_else(|_| PipeBuffer::new()) else { return };
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
