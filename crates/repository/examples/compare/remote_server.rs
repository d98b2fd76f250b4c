//! A remote S3 server: a local one behind a proxy that models a line.

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

/// The line to the server. Each connection has it for itself.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The time from a question to its answer.
    pub round_trip: Duration,
    /// The bytes in a second of each connection and direction, once it has reached its speed.
    pub rate: f64,
}

impl Line {
    /// What a connection costs before its first request: TCP and TLS.
    const CONNECT_ROUND_TRIPS: u32 = 2;
    /// The first window of a connection, which doubles with each answer: ten segments (RFC 6928).
    const FIRST_WINDOW: f64 = 14_600.0;
}

/// One direction of a connection: when its next bytes may be sent.
struct Pace {
    line: Line,
    free: Instant,
    window: f64,
}

impl Pace {
    fn new(line: Line) -> Self {
        Self { line, free: Instant::now() + line.round_trip * Line::CONNECT_ROUND_TRIPS, window: Line::FIRST_WINDOW }
    }

    /// Sends this many bytes, which takes as long as the window and the rate say. Returns when they arrive.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn send(&mut self, bytes: usize) -> Instant {
        let round_trip = self.line.round_trip.as_secs_f64().max(1e-6);
        let rate = self.line.rate.min(self.window / round_trip);
        self.window = (self.window + bytes as f64).min(self.line.rate * round_trip + Line::FIRST_WINDOW);
        self.free = self.free.max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / rate);
        self.free + self.line.round_trip / 2
    }

    fn wait_until_free(&self) {
        std::thread::sleep(self.free.saturating_duration_since(Instant::now()));
    }
}

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
    /// Starts a server on a directory, and a proxy that models this line.
    pub fn start(program: &Path, folder: &Path, model: Line) -> Result<Self, Failure> {
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
                    let _ = join(client, server, model);
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

fn join(client: TcpStream, server: TcpStream, line: Line) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    forward(client.try_clone()?, server.try_clone()?, line);
    forward(server, client, line);
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

/// Forwards bytes in one direction as the line does. They stay in the kernel, so that the proxy takes little processor time from
/// the programs.
fn forward(from: TcpStream, to: TcpStream, line: Line) {
    let (sender, receiver) = mpsc::sync_channel::<(Instant, PipeBuffer, usize)>(MAX_BUFFERS);
    let (empty, emptied) = mpsc::sync_channel(MAX_BUFFERS);
    std::thread::spawn(move || {
        let mut pace = Pace::new(line);
        loop {
            // Bytes that wait here would be in flight: the sender must wait instead.
            pace.wait_until_free();
            let Ok(stretch) = emptied.try_recv().or_else(|_| PipeBuffer::new()) else { return };
            let Ok(taken @ 1..) = stretch.take(&from) else { return };
            if sender.send((pace.send(taken), stretch, taken)).is_err() {
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
