//! Object stores that run as processes of this machine.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// A server that ends with the test.
pub struct StoreServer {
    pub port: u16,
    process: Child,
    _folder: TempDir,
}

impl StoreServer {
    /// Starts a program with the arguments that are set for a port and a data directory, and waits until it accepts connections.
    pub fn start(name: &str, set_arguments: impl FnOnce(&mut Command, u16, &Path)) -> Option<Self> {
        let mut command = Command::new(program(name)?);
        let (folder, port) = (tempfile::tempdir().expect("a directory"), free_port());
        set_arguments(&mut command, port, folder.path());
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
        let mut server = Self { port, process, _folder: folder };
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(server.process.try_wait().expect("a status").is_none(), "{name} ended");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The path of a server's program. With `CI=true` it must be installed.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn program(name: &str) -> Option<PathBuf> {
    let in_home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/plimsoll"));
    let cache = std::env::var_os("PLIMSOLL_CACHE").map(PathBuf::from).or_else(in_home)?;
    let installed = Some(cache.join("bin").join(name)).filter(|program| program.is_file());
    if installed.is_none() {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{name} is not installed");
        eprintln!("SKIPPED: {name} is not installed");
    }
    installed
}

/// A port that is free. It lies below the ports that the kernel gives to outgoing connections, so none of them takes it
/// before the server does that it is meant for.
fn free_port() -> u16 {
    let candidate = || 10_000 + u16::try_from(RandomState::new().build_hasher().finish() % 20_000).expect("small");
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    std::iter::repeat_with(candidate).find(is_free).expect("some port is free")
}
