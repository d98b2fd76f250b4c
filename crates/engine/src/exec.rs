//! A command in a container of a running pod, with an end.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{AttachParams, AttachedProcess};
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};

/// What to run, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The container.
    pub container: String,
    /// The command and its arguments; no shell is involved.
    pub command: Vec<String>,
    /// How long it may take.
    pub timeout: Duration,
}

/// What a command that ended well printed, cut to what a log should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Printed {
    /// On its standard output.
    pub stdout: String,
    /// On its standard error.
    pub stderr: String,
}

/// Why a command did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// It could not be started, or the connection broke.
    #[error("the command could not be run in container {container} of pod {pod}: {detail}")]
    Unreachable {
        /// `namespace/name`.
        pod: String,
        /// The container.
        container: String,
        /// What the API server or the node said.
        detail: String,
    },
    /// It ended with another exit code than 0.
    #[error("the command in container {container} of pod {pod} failed: {detail}{}", told(printed))]
    Failed {
        /// `namespace/name`.
        pod: String,
        /// The container.
        container: String,
        /// The exit code, in words.
        detail: String,
        /// What it printed.
        printed: Printed,
    },
    /// It took too long. It may still be running in the container.
    #[error("the command in container {container} of pod {pod} did not end within {timeout:?}")]
    TimedOut {
        /// `namespace/name`.
        pod: String,
        /// The container.
        container: String,
        /// How long it had.
        timeout: Duration,
    },
}

impl ExecError {
    /// A stable word for conditions, metrics and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "ExecUnreachable",
            Self::Failed { .. } => "ExecFailed",
            Self::TimedOut { .. } => "ExecTimedOut",
        }
    }

    /// A command may have had effects: running it again is never for us to decide.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

fn told(printed: &Printed) -> String {
    let text = if printed.stderr.trim().is_empty() { &printed.stdout } else { &printed.stderr };
    if text.trim().is_empty() { String::new() } else { format!(": {}", text.trim()) }
}

/// So much of each stream is kept; the rest is read and dropped, so that the command can go on.
const KEPT_BYTES: usize = 8 << 10;

/// Runs a command and waits for its end.
///
/// # Cancel safety
/// Dropping the future closes the connection; the command itself goes on in the container.
pub async fn exec(client: &Client, command: &Command) -> Result<Printed, ExecError> {
    match tokio::time::timeout(command.timeout, attach_and_wait(client, command)).await {
        Ok(answer) => answer,
        Err(_) => Err(ExecError::TimedOut {
            pod: command.path(),
            container: command.container.clone(),
            timeout: command.timeout,
        }),
    }
}

impl Command {
    /// `namespace/name` of the pod.
    pub fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.pod)
    }

    fn unreachable(&self, detail: &impl ToString) -> ExecError {
        ExecError::Unreachable { pod: self.path(), container: self.container.clone(), detail: detail.to_string() }
    }
}

async fn attach_and_wait(client: &Client, command: &Command) -> Result<Printed, ExecError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &command.namespace);
    let streams = AttachParams::default().container(&command.container).stdin(false).stdout(true).stderr(true);
    let attached = pods.exec(&command.pod, command.command.clone(), &streams).await;
    let mut process = attached.map_err(|error| command.unreachable(&error))?;
    let (printed, status) = read_to_end(&mut process).await;
    let joined = process.join().await;
    match status {
        Some(status) => judge(command, printed, &status),
        None => Err(command.unreachable(&joined.err().map_or("it ended without a status".into(), |e| e.to_string()))),
    }
}

async fn read_to_end(process: &mut AttachedProcess) -> (Printed, Option<Status>) {
    let (stdout, stderr, status) = (process.stdout(), process.stderr(), process.take_status());
    let (stdout, stderr, status) = tokio::join!(keep(stdout), keep(stderr), async {
        match status {
            Some(status) => status.await,
            None => None,
        }
    });
    (Printed { stdout, stderr }, status)
}

async fn keep(stream: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let (mut kept, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut piece).await {
        let room = KEPT_BYTES.saturating_sub(kept.len());
        kept.extend_from_slice(&piece[..read.min(room)]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

fn judge(command: &Command, printed: Printed, status: &Status) -> Result<Printed, ExecError> {
    if status.status.as_deref() == Some("Success") {
        return Ok(printed);
    }
    let detail = status.message.clone().unwrap_or_else(|| "no reason is given".into());
    let (pod, container) = (command.path(), command.container.clone());
    let ran = status.reason.as_deref() == Some("NonZeroExitCode");
    Err(if ran {
        ExecError::Failed { pod, container, detail, printed }
    } else {
        ExecError::Unreachable { pod, container, detail }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        Command {
            namespace: "shop".into(),
            pod: "db-0".into(),
            container: "db".into(),
            command: vec!["fsfreeze".into()],
            timeout: Duration::from_secs(30),
        }
    }

    #[test]
    fn a_failed_command_tells_its_exit_code_and_what_it_printed() {
        let status = Status {
            status: Some("Failure".into()),
            reason: Some("NonZeroExitCode".into()),
            message: Some("command terminated with non-zero exit code: exit status 3".into()),
            ..Status::default()
        };
        let printed = Printed { stderr: "disk is busy\n".into(), ..Printed::default() };
        assert_eq!(
            judge(&command(), printed, &status).unwrap_err().to_string(),
            "the command in container db of pod shop/db-0 failed: command terminated with non-zero exit code: exit status 3: disk is busy"
        );
    }

    #[test]
    fn a_command_that_never_ran_is_not_called_failed() {
        let status = Status {
            status: Some("Failure".into()),
            reason: Some("InternalError".into()),
            message: Some("executable file not found".into()),
            ..Status::default()
        };
        assert_eq!(judge(&command(), Printed::default(), &status).unwrap_err().reason(), "ExecUnreachable");
    }
}
