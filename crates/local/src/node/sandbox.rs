//! A container: a process tree of its own, with its own view of the files.
//!
//! The programs of util-linux make the namespaces, so nothing here is unsafe and nothing has to be executed again. The
//! first process of the tree is a shell that waits for two things: the end of the container, and the end of its standard
//! input. That is a pipe from us; when we go, however we go, it ends and with the shell the kernel kills the tree.

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
};

/// Directories that are the container's own; the rest is the host's, read-only.
const PRIVATE: [&str; 5] = ["/proc", "/dev", "/sys", "/tmp", "/run"];
/// Those that are empty at first, so that what the host has there is hidden.
const EMPTY: [&str; 2] = ["/tmp", "/run"];
const INIT: &str = include_str!("init.sh");

/// What a container sees and does.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// An empty directory that its files appear below.
    pub root: PathBuf,
    pub log: PathBuf,
    pub work: String,
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

/// Why a container was not started.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// The system does not make one.
    #[error("{0}")]
    Container(String),
    /// There is one, and its program is not in it.
    #[error("{0}")]
    Program(String),
}

/// What `init.sh` ends with where the program is missing. Container runtimes have the same number for it.
pub(super) const NO_PROGRAM: i32 = 128;

/// A running container. Dropped, it is killed with all its processes.
pub(super) struct Cell {
    child: Child,
    lifeline: Option<ChildStdin>,
}

impl Cell {
    /// Starts a container; the error says what was refused.
    pub async fn start(plan: &Plan) -> Result<Self, Refused> {
        let mut command = Command::new("unshare");
        if !is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", INIT, "init"]);
        // Where somebody else's mounts are locked together they can only be bound together.
        command.arg(if is_root() { "--bind" } else { "--rbind" }).args([
            &plan.root,
            &plan.log,
            &resolve(Path::new(&plan.work)),
        ]);
        command.args(steps(plan, &programs(plan))).arg("--").args(&plan.command);
        command.env_clear().envs(plan.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let unable = |error| Refused::Container(format!("cannot run unshare of util-linux: {error}"));
        let mut child = command.spawn().map_err(unable)?;
        let (lifeline, mut said) = (child.stdin.take(), String::new());
        if let Some(out) = child.stdout.take() {
            let _ = BufReader::new(out).read_line(&mut said).await;
        }
        if said.trim() == "ready" {
            return Ok(Self { child, lifeline });
        }
        let mut why = String::new();
        if let Some(mut err) = child.stderr.take() {
            let _ = err.read_to_string(&mut why).await;
        }
        let why = why.trim().to_owned();
        let code = child.wait().await.ok().and_then(|status| status.code());
        Err(if code == Some(NO_PROGRAM) { Refused::Program(why) } else { Refused::Container(why) })
    }

    /// The process whose namespaces it is in.
    pub fn process(&self) -> Option<u32> {
        self.child.id()
    }

    /// Its exit code, once it has ended.
    pub async fn wait(&mut self) -> i32 {
        self.child.wait().await.ok().and_then(|status| status.code()).unwrap_or(137)
    }

    /// Asks it to end, and after a while no longer asks.
    pub async fn stop(&mut self, grace: Duration) -> i32 {
        if let Some(lifeline) = &mut self.lifeline {
            // It may have ended already.
            let _ = lifeline.write_all(b"TERM\n").await;
        }
        if let Ok(code) = tokio::time::timeout(grace, self.wait()).await {
            return code;
        }
        self.lifeline = None;
        self.wait().await
    }
}

/// A further command in a running container.
pub(super) fn enter(plan: &Plan, process: u32, words: &[String]) -> Command {
    let of = |namespace: &str| format!("/proc/{process}/ns/{namespace}");
    let mut command = Command::new("nsenter");
    if !is_root() {
        command.arg(format!("--user={}", of("user"))).arg("--preserve-credentials");
    }
    command.arg(format!("--mount={}", of("mnt"))).arg(format!("--pid={}", of("pid_for_children"))).arg("--");
    command.arg("chroot").arg(&plan.root).args(["/usr/bin/env", "-C", &plan.work, "--"]).args(words);
    command.env_clear().envs(plan.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn is_private(path: &Path) -> bool {
    PRIVATE.iter().any(|own| path.starts_with(own))
}

/// The programs of the host that a container must see wherever they lie: its own, and this one, which is run in
/// containers, too.
fn programs(plan: &Plan) -> Vec<PathBuf> {
    let own = plan.command.first().map(PathBuf::from).filter(|program| program.is_absolute());
    std::env::current_exe().ok().into_iter().chain(own).filter(|program| program.is_file()).collect()
}

/// The paths below the directories that are empty at first by which a program is reached: as it is named, and behind links.
fn hidden_paths(program: &Path) -> BTreeSet<PathBuf> {
    let paths = [program.to_owned(), resolve(program)];
    paths.into_iter().filter(|path| EMPTY.iter().any(|empty| path.starts_with(empty))).collect()
}

/// How to put the files together: first the host's, then what is mounted, outer before inner.
fn steps(plan: &Plan, programs: &[PathBuf]) -> Vec<OsString> {
    let work = resolve(Path::new(&plan.work));
    let mut mounts: Vec<Mount> =
        plan.mounts.iter().map(|mount| Mount { path: resolve(&mount.path), ..mount.clone() }).collect();
    mounts.sort_by(|one, other| one.path.cmp(&other.path));
    let points: Vec<&Path> = mounts.iter().map(|mount| mount.path.as_path()).chain([work.as_path()]).collect();
    let mut steps = host(&points);
    for path in programs.iter().flat_map(|program| hidden_paths(program)).collect::<BTreeSet<PathBuf>>() {
        steps.extend(["ro".into(), path.clone().into(), path.into()]);
    }
    for Mount { source, path, read_only } in &mounts {
        steps.extend([if *read_only { "ro" } else { "rw" }.into(), source.into(), path.into()]);
    }
    steps
}

/// A path with its links followed as far as it exists: nothing may be made behind a link of the host.
fn resolve(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match there.map(|(above, real)| (path.strip_prefix(above).unwrap_or(path), real)) {
        // Joined with nothing, the path of a file would end like that of a directory.
        Some((rest, real)) if rest.as_os_str().is_empty() => real,
        Some((rest, real)) => real.join(rest),
        None => path.to_owned(),
    }
}

/// The host's files. A directory in which a mount point must be made is replaced by one that has the same entries.
fn host(points: &[&Path]) -> Vec<OsString> {
    let missing = points.iter().filter(|point| !point.exists() && !is_private(point));
    let mut open: BTreeSet<&Path> = missing.flat_map(|point| point.ancestors().skip(1)).collect();
    open.insert(Path::new("/"));
    let mut steps = Vec::new();
    for entry in open.iter().filter_map(|directory| directory.read_dir().ok()).flatten().flatten() {
        let path = entry.path();
        if is_private(&path) || open.contains(path.as_path()) || points.contains(&path.as_path()) {
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
    fn a_program_is_seen_in_a_container_wherever_it_lies() {
        let seen = |program: &str| {
            let steps = steps(&Plan::default(), &[program.into()]);
            let reached = |step: &[OsString]| step[0] != "link" && Path::new(program).starts_with(&step[2]);
            steps.chunks(3).any(reached)
        };
        assert!(seen("/tmp/downloads/plimsoll") && seen("/run/plimsoll"));
        assert!(seen("/usr/local/bin/plimsoll"), "with the rest of the host");
    }
}
