//! An S3 server far away: a real one behind a line on which every byte takes its time.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

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

/// Carries bytes one way: each arrives so much later, and as many as like may be on the way. Buffers are used again, so that
/// the line costs the programs at both ends little of the processors they share.
fn carry(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, receiver) = mpsc::sync_channel::<(Instant, Vec<u8>, usize)>(256);
    let (empty, emptied) = mpsc::sync_channel(256);
    std::thread::spawn(move || {
        loop {
            let mut buffer = emptied.try_recv().unwrap_or_else(|_| vec![0; 256 * 1024]);
            let Ok(read @ 1..) = from.read(&mut buffer) else { return };
            if sender.send((Instant::now() + delay, buffer, read)).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        while let Ok((due, bytes, read)) = receiver.recv() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes[..read]).is_err() {
                break;
            }
            let _ = empty.try_send(bytes);
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
