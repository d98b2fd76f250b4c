//! The sandbox of a container: its own process tree and its own mounts.
//!
//! The programs of util-linux create the namespaces, so this needs no unsafe code and does not re-execute itself. The
//! first process of the tree is a shell that waits for two things: the exit of the container, and the end of its
//! standard input. That is a pipe from this process; when this process ends for any reason, the pipe ends, the shell
//! exits and the kernel kills the tree.

use super::log;
use std::{
    collections::BTreeSet,
    ffi::OsString,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, Command},
    task::JoinHandle,
};

/// Directories that are private to the container; the rest is the host's, read-only.
const PRIVATE_DIRECTORIES: [&str; 5] = ["/proc", "/dev", "/sys", "/tmp", "/run"];
/// Private directories that start empty, which hides the host's content.
const EMPTY_DIRECTORIES: [&str; 2] = ["/tmp", "/run"];
const INIT_SCRIPT: &str = include_str!("init.sh");

/// Command, environment and mounts of a container.
#[derive(Clone, Debug, Default)]
pub(super) struct SandboxConfig {
    /// An empty directory on which the root of the container is mounted.
    pub root: PathBuf,
    pub log: PathBuf,
    pub working_directory: String,
    pub command: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub mounts: Vec<Mount>,
}

#[derive(Clone, Debug)]
pub(super) struct Mount {
    pub source: PathBuf,
    pub path: PathBuf,
    pub read_only: bool,
}

/// A container was not started.
#[derive(Debug, thiserror::Error)]
pub(super) enum SandboxError {
    /// The system cannot create the sandbox.
    #[error("{0}")]
    Setup(String),
    /// The program does not exist in the sandbox.
    #[error("{0}")]
    ProgramNotFound(String),
}

/// The exit code of `init.sh` if the program does not exist, as in container runtimes.
pub(super) const EXIT_PROGRAM_NOT_FOUND: i32 = 128;

/// A running container. Dropping it kills all its processes.
pub(super) struct Sandbox {
    child: Child,
    control_pipe: Option<ChildStdin>,
    /// Writes its log. Ends with the last of its processes.
    log: Option<JoinHandle<()>>,
}

impl Sandbox {
    /// Starts a container.
    pub async fn start(config: &SandboxConfig) -> Result<Self, SandboxError> {
        // Below nohup SIGHUP is ignored, which a shell cannot undo: its first process would never end.
        let mut command = Command::new(host_program("env"));
        command.arg("--default-signal").arg(host_program("unshare"));
        if !is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "--pid", "--fork", "--kill-child"]).arg(host_program("sh")).args([
            "-c",
            INIT_SCRIPT,
            "init",
        ]);
        // Mounts of another user namespace are locked together and can only be bound recursively.
        command
            .arg(if is_root() { "--bind" } else { "--rbind" })
            .args([&config.root, &resolve(Path::new(&config.working_directory))]);
        command.args(mount_steps(config, &programs(config))).arg("--").args(&config.command);
        command.env_clear().envs(config.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let spawn_error = |error| SandboxError::Setup(format!("cannot run unshare of util-linux: {error}"));
        let mut child = command.spawn().map_err(spawn_error)?;
        let (control_pipe, mut first_line) = (child.stdin.take(), String::new());
        if let Some(out) = child.stdout.take() {
            let mut out = BufReader::new(out);
            let _ = out.read_line(&mut first_line).await;
            if first_line.trim() == "ready" {
                let path = config.log.clone();
                let log = tokio::spawn(async move { log::write_log(out, &path).await });
                return Ok(Self { child, control_pipe, log: Some(log) });
            }
        }
        let mut message = String::new();
        if let Some(mut err) = child.stderr.take() {
            let _ = err.read_to_string(&mut message).await;
        }
        let message = message.trim().to_owned();
        let code = child.wait().await.ok().and_then(|status| status.code());
        Err(if code == Some(EXIT_PROGRAM_NOT_FOUND) {
            SandboxError::ProgramNotFound(message)
        } else {
            SandboxError::Setup(message)
        })
    }

    /// The id of the process whose namespaces it uses.
    pub fn process_id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until it has exited and its log is complete. Returns the exit code.
    pub async fn wait(&mut self) -> i32 {
        let code = self.child.wait().await.ok().and_then(|status| status.code()).unwrap_or(137);
        if let Some(log) = &mut self.log {
            let _ = log.await;
            self.log = None;
        }
        code
    }

    /// Sends SIGTERM, and SIGKILL after the grace period.
    pub async fn stop(&mut self, grace: Duration) -> i32 {
        if let Some(control_pipe) = &mut self.control_pipe {
            // It may have exited already.
            let _ = control_pipe.write_all(b"TERM\n").await;
        }
        if let Ok(code) = tokio::time::timeout(grace, self.wait()).await {
            return code;
        }
        self.control_pipe = None;
        self.wait().await
    }
}

/// A command that runs in an existing container.
pub(super) fn exec_command(config: &SandboxConfig, process_id: u32, words: &[String]) -> Command {
    let namespace_file = |namespace: &str| format!("/proc/{process_id}/ns/{namespace}");
    let mut command = Command::new(host_program("nsenter"));
    if !is_root() {
        command.arg(format!("--user={}", namespace_file("user"))).arg("--preserve-credentials");
    }
    command
        .arg(format!("--mount={}", namespace_file("mnt")))
        .arg(format!("--pid={}", namespace_file("pid_for_children")))
        .arg("--");
    command
        .arg(host_program("chroot"))
        .arg(&config.root)
        .args(["/usr/bin/env", "-C", &config.working_directory, "--"])
        .args(words);
    command.env_clear().envs(config.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// A program of the host. The `PATH` of the container need not contain the host's directories.
fn host_program(name: &str) -> PathBuf {
    let directories = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let installed = directories.iter().map(|directory| Path::new(directory).join(name)).find(|path| path.is_file());
    installed.unwrap_or_else(|| name.into())
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

fn is_private(path: &Path) -> bool {
    PRIVATE_DIRECTORIES.iter().any(|own| path.starts_with(own))
}

/// The programs of the host that a container must see in any directory: its own, and this executable, which also runs
/// in containers.
fn programs(config: &SandboxConfig) -> Vec<PathBuf> {
    let own = config.command.first().map(PathBuf::from).filter(|program| program.is_absolute());
    std::env::current_exe().ok().into_iter().chain(own).filter(|program| program.is_file()).collect()
}

/// The paths of a program below [`EMPTY_DIRECTORIES`]: as it is named, and with links resolved.
fn hidden_paths(program: &Path) -> BTreeSet<PathBuf> {
    let paths = [program.to_owned(), resolve(program)];
    paths.into_iter().filter(|path| EMPTY_DIRECTORIES.iter().any(|empty| path.starts_with(empty))).collect()
}

/// The mount steps: first the host's files, then the volumes, outer before inner.
fn mount_steps(config: &SandboxConfig, programs: &[PathBuf]) -> Vec<OsString> {
    let working_directory = resolve(Path::new(&config.working_directory));
    let mut mounts: Vec<Mount> =
        config.mounts.iter().map(|mount| Mount { path: resolve(&mount.path), ..mount.clone() }).collect();
    mounts.sort_by(|one, other| one.path.cmp(&other.path));
    let points: Vec<&Path> =
        mounts.iter().map(|mount| mount.path.as_path()).chain([working_directory.as_path()]).collect();
    let mut steps = host_mounts(&points);
    for path in programs.iter().flat_map(|program| hidden_paths(program)).collect::<BTreeSet<PathBuf>>() {
        steps.extend(["ro".into(), path.clone().into(), path.into()]);
    }
    for Mount { source, path, read_only } in &mounts {
        steps.extend([if *read_only { "ro" } else { "rw" }.into(), source.into(), path.into()]);
    }
    steps
}

/// A path with links resolved as far as it exists: nothing may be created through a link of the host.
fn resolve(path: &Path) -> PathBuf {
    let existing = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match existing.map(|(above, real)| (path.strip_prefix(above).unwrap_or(path), real)) {
        // Joining an empty path would append a slash.
        Some((rest, real)) if rest.as_os_str().is_empty() => real,
        Some((rest, real)) => real.join(rest),
        None => path.to_owned(),
    }
}

/// Mounts of the host's files. A directory in which a mount point must be created is replaced by one with the same
/// entries.
fn host_mounts(points: &[&Path]) -> Vec<OsString> {
    let missing = points.iter().filter(|point| !point.exists() && !is_private(point));
    let mut replaced: BTreeSet<&Path> = missing.flat_map(|point| point.ancestors().skip(1)).collect();
    replaced.insert(Path::new("/"));
    let mut steps = Vec::new();
    for entry in replaced.iter().filter_map(|directory| directory.read_dir().ok()).flatten().flatten() {
        let path = entry.path();
        if is_private(&path) || replaced.contains(path.as_path()) || points.contains(&path.as_path()) {
            continue;
        }
        match path.read_link() {
            Ok(target) => steps.extend(["link".into(), target.into(), path.into()]),
            Err(_) => steps.extend(["ro".into(), path.clone().into(), path.into()]),
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_sees_its_program_in_any_directory() {
        let is_mounted = |program: &str| {
            let steps = mount_steps(&SandboxConfig::default(), &[program.into()]);
            let reached = |step: &[OsString]| step[0] != "link" && Path::new(program).starts_with(&step[2]);
            steps.chunks(3).any(reached)
        };
        assert!(is_mounted("/tmp/downloads/plimsoll") && is_mounted("/run/plimsoll"));
        assert!(is_mounted("/usr/local/bin/plimsoll"), "with the rest of the host");
    }
}
