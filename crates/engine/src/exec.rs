//! Runs a command in a container of a pod, with a timeout.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{AttachParams, AttachedProcess};
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};

/// A command and the container to run it in.
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
    /// Timeout.
    pub timeout: Duration,
}

/// Output of a command, truncated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// It could not be started, or the connection broke.
    #[error("failed to run the command in container {container} of pod {pod}: {detail}")]
    Unreachable {
        /// `namespace/name`.
        pod: String,
        /// The container.
        container: String,
        /// The message of the API server or the node.
        detail: String,
    },
    /// It ended with an exit code other than 0.
    #[error("command in container {container} of pod {pod} failed: {detail}{}", output_suffix(output))]
    Failed {
        /// `namespace/name`.
        pod: String,
        /// The container.
        container: String,
        /// The message with the exit code.
        detail: String,
        /// Its output.
        output: ExecOutput,
    },
    /// It timed out, and may still run in the container.
    #[error("command in container {container} of pod {pod} timed out after {timeout:?}")]
    TimedOut {
        /// `namespace/name`.
        pod: String,
        /// The container.
        container: String,
        /// The timeout.
        timeout: Duration,
    },
}

impl ExecError {
    /// A stable reason for conditions, metrics and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "ExecUnreachable",
            Self::Failed { .. } => "ExecFailed",
            Self::TimedOut { .. } => "ExecTimedOut",
        }
    }

    /// Never: the command may have had effects.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

fn output_suffix(output: &ExecOutput) -> String {
    let text = if output.stderr.trim().is_empty() { &output.stdout } else { &output.stderr };
    if text.trim().is_empty() { String::new() } else { format!(": {}", text.trim()) }
}

/// Bytes of each stream that are kept. The rest is read and dropped, so that the command does not block.
const MAX_OUTPUT_BYTES: usize = 8 << 10;

/// Runs a command and waits until it ends.
///
/// # Cancel safety
/// Dropping the future closes the connection; the command continues in the container.
pub async fn exec(client: &Client, command: &Command) -> Result<ExecOutput, ExecError> {
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

async fn attach_and_wait(client: &Client, command: &Command) -> Result<ExecOutput, ExecError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &command.namespace);
    let streams = AttachParams::default().container(&command.container).stdin(false).stdout(true).stderr(true);
    let attached = pods.exec(&command.pod, command.command.clone(), &streams).await;
    let mut process = attached.map_err(|error| command.unreachable(&error))?;
    let (output, status) = read_to_end(&mut process).await;
    let joined = process.join().await;
    match status {
        Some(status) => check_status(command, output, &status),
        None => Err(command.unreachable(&joined.err().map_or("no exit status received".into(), |e| e.to_string()))),
    }
}

async fn read_to_end(process: &mut AttachedProcess) -> (ExecOutput, Option<Status>) {
    let (stdout, stderr, status) = (process.stdout(), process.stderr(), process.take_status());
    let (stdout, stderr, status) = tokio::join!(read_truncated(stdout), read_truncated(stderr), async {
        match status {
            Some(status) => status.await,
            None => None,
        }
    });
    (ExecOutput { stdout, stderr }, status)
}

async fn read_truncated(stream: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let (mut kept, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
        let room = MAX_OUTPUT_BYTES.saturating_sub(kept.len());
        kept.extend_from_slice(&chunk[..read.min(room)]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

fn check_status(command: &Command, output: ExecOutput, status: &Status) -> Result<ExecOutput, ExecError> {
    if status.status.as_deref() == Some("Success") {
        return Ok(output);
    }
    let detail = status.message.clone().unwrap_or_else(|| "no message".into());
    let (pod, container) = (command.path(), command.container.clone());
    let ran = status.reason.as_deref() == Some("NonZeroExitCode");
    Err(if ran {
        ExecError::Failed { pod, container, detail, output }
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
    fn a_failed_command_reports_exit_code_and_output() {
        let status = Status {
            status: Some("Failure".into()),
            reason: Some("NonZeroExitCode".into()),
            message: Some("command terminated with non-zero exit code: exit status 3".into()),
            ..Status::default()
        };
        let output = ExecOutput { stderr: "disk is busy\n".into(), ..ExecOutput::default() };
        assert_eq!(
            check_status(&command(), output, &status).unwrap_err().to_string(),
            "command in container db of pod shop/db-0 failed: command terminated with non-zero exit code: exit status 3: disk is busy"
        );
    }

    #[test]
    fn a_command_that_did_not_start_is_unreachable() {
        let status = Status {
            status: Some("Failure".into()),
            reason: Some("InternalError".into()),
            message: Some("executable file not found".into()),
            ..Status::default()
        };
        assert_eq!(check_status(&command(), ExecOutput::default(), &status).unwrap_err().reason(), "ExecUnreachable");
    }
}
