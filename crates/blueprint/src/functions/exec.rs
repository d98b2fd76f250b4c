//! Runs a command in a container of a running pod and streams its output. Secrets are passed on stdin.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::AttachParams;
use kube::{Api, Client, ResourceExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use crate::Error;

/// Reads variables, one per line, up to a dot; then executes the command. The values do not appear in the process list. A key of
/// Google's has to be in a file, which is removed afterwards.
const WITH_VARIABLES: &str = r#"while IFS= read -r variable; do [ "$variable" = . ] && break; export "$variable"; done
[ -n "$PLIMSOLL_GOOGLE_KEY" ] || exec "$@"
umask 077; key=$(mktemp) || exit; trap 'rm -f "$key"' EXIT; trap 'exit 143' TERM INT HUP
printf %s "$PLIMSOLL_GOOGLE_KEY" >"$key"; unset PLIMSOLL_GOOGLE_KEY
GOOGLE_APPLICATION_CREDENTIALS=$key "$@""#;

/// Exit codes of a shell or container runtime for a missing program.
pub const PROGRAM_NOT_FOUND: [i32; 2] = [127, 126];
/// Messages of container runtimes that could not start a program, in lower case.
const START_FAILURES: [&str; 3] = ["executable file", "no such file or directory", "permission denied"];

/// A command and the container it runs in.
#[derive(Clone, Debug)]
pub struct Exec {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The container; the first one if unset.
    pub container: Option<String>,
    /// The command and its arguments.
    pub command: Vec<String>,
    input: Option<String>,
}

/// Receives the output of a command.
pub trait OutputListener: Send {
    /// A chunk of stdout.
    fn stdout(&mut self, chunk: &[u8]) -> Result<(), Error>;
    /// A chunk of stderr.
    fn stderr(&mut self, chunk: &[u8]) -> Result<(), Error>;
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitResult {
    /// Exit code 0.
    Success,
    /// Another exit code.
    ExitCode(i32),
}

impl Exec {
    /// A command in a pod.
    pub fn new(namespace: &str, pod: &str, container: Option<&str>, command: Vec<String>) -> Self {
        let container = container.filter(|name| !name.is_empty()).map(str::to_owned);
        Self { namespace: namespace.to_owned(), pod: pod.to_owned(), container, command, input: None }
    }

    /// Sets stdin, which stays open until the command has exited.
    pub fn with_input(mut self, input: String) -> Self {
        self.input = Some(input);
        self
    }

    /// Sets environment variables that only the command can read.
    pub fn with_variables(mut self, variables: &[(&'static str, String)]) -> Result<Self, Error> {
        let mut input = String::new();
        for (name, value) in variables {
            if value.contains(['\n', '\0']) {
                return Err(Error::Unsupported(format!("value of {name} has more than one line")));
            }
            input += &format!("{name}={value}\n");
        }
        input += ".\n";
        let wrapped = ["sh", "-c", WITH_VARIABLES, "sh"].map(str::to_owned).into_iter().chain(self.command);
        self.command = wrapped.collect();
        self.input = Some(input);
        Ok(self)
    }

    /// `namespace/name`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.pod)
    }

    fn container_path(&self) -> String {
        match &self.container {
            Some(container) => format!("container {container} of pod {}", self.path()),
            None => format!("pod {}", self.path()),
        }
    }

    fn command_error(&self, detail: &impl ToString) -> Error {
        Error::Command { what: format!("command in {}", self.container_path()), detail: detail.to_string() }
    }

    /// The error for a non-zero exit code.
    pub fn failed(&self, code: i32, output_tail: &str) -> Error {
        let mut detail = format!("exit code {code}");
        if !output_tail.is_empty() {
            detail += &format!(": {output_tail}");
        }
        self.command_error(&detail)
    }

    /// Checks that the pod is running and has the container.
    pub async fn check(&self, client: &Client) -> Result<(), Error> {
        let api: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        let found = api.get_opt(&self.pod).await.map_err(|e| Error::api(format!("read pod {}", self.path()), e))?;
        let pod = found.ok_or_else(|| Error::Missing(format!("pod {} does not exist", self.path())))?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        if phase != "Running" {
            return Err(Error::Pod { pod: self.path(), detail: format!("is {phase}, expected Running") });
        }
        let has = |name: &str| pod.spec.as_ref().is_some_and(|spec| spec.containers.iter().any(|one| one.name == name));
        match &self.container {
            Some(container) if !has(container) => {
                Err(Error::Missing(format!("pod {} has no container {container}", pod.name_any())))
            }
            _ => Ok(()),
        }
    }

    /// Runs the command until it exits.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection; the command may continue in the container.
    pub async fn run(&self, client: &Client, listener: &mut dyn OutputListener) -> Result<ExitResult, Error> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        let mut streams = AttachParams::default().stdin(self.input.is_some()).stdout(true).stderr(true);
        streams.container.clone_from(&self.container);
        let attached = pods.exec(&self.pod, self.command.clone(), &streams).await;
        let mut process = attached.map_err(|error| self.command_error(&error))?;
        // Kept open: a program may treat the end of stdin as the exit of its parent.
        let mut stdin = process.stdin();
        if let (Some(input), Some(stdin)) = (&self.input, &mut stdin) {
            // Ignored: a missing program reads nothing; the status has the error.
            let _ = stdin.write_all(input.as_bytes()).await;
            let _ = stdin.flush().await;
        }
        let (stdout, stderr, status) = (process.stdout(), process.stderr(), process.take_status());
        read_streams(stdout, stderr, listener).await?;
        let status = match status {
            Some(status) => status.await,
            None => None,
        };
        drop(stdin);
        let joined = process.join().await;
        match status {
            Some(status) => self.classify(&status),
            None => Err(self.command_error(&joined.err().map_or("exited without a status".into(), |e| e.to_string()))),
        }
    }

    fn classify(&self, status: &Status) -> Result<ExitResult, Error> {
        if status.status.as_deref() == Some("Success") {
            return Ok(ExitResult::Success);
        }
        if status.reason.as_deref() != Some("NonZeroExitCode") {
            let message = status.message.clone().unwrap_or_else(|| "no reason reported".into());
            return if is_start_failure(&message) {
                Ok(ExitResult::ExitCode(PROGRAM_NOT_FOUND[0]))
            } else {
                Err(self.command_error(&message))
            };
        }
        let causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
        let code =
            causes.filter(|cause| cause.reason.as_deref() == Some("ExitCode")).find_map(|cause| cause.message.clone());
        Ok(ExitResult::ExitCode(code.and_then(|code| code.parse().ok()).unwrap_or(1)))
    }
}

/// Whether the message of a container runtime means that the program is missing: there is no exit code for that.
fn is_start_failure(message: &str) -> bool {
    let message = message.to_lowercase();
    message.contains("oci runtime exec failed") && START_FAILURES.iter().any(|text| message.contains(text))
}

async fn read_streams(
    mut stdout: Option<impl AsyncRead + Unpin>,
    mut stderr: Option<impl AsyncRead + Unpin>,
    listener: &mut dyn OutputListener,
) -> Result<(), Error> {
    let (mut out, mut err) = (vec![0; 32 << 10], vec![0; 8 << 10]);
    while stdout.is_some() || stderr.is_some() {
        tokio::select! {
            read = read(&mut stdout, &mut out) => match read {
                0 => stdout = None,
                read => listener.stdout(&out[..read])?,
            },
            read = read(&mut stderr, &mut err) => match read {
                0 => stderr = None,
                read => listener.stderr(&err[..read])?,
            },
        }
    }
    Ok(())
}

async fn read(stream: &mut Option<impl AsyncRead + Unpin>, into: &mut [u8]) -> usize {
    match stream {
        Some(stream) => stream.read(into).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_distinguished_from_other_errors() {
        let runc = "error executing command in container: failed to exec in container: failed to start exec \"1\": OCI runtime exec \
                    failed: exec failed: unable to start container process: exec: \"plimsoll\": executable file not found in $PATH";
        let crun = "OCI runtime exec failed: exec failed: executable file `plimsoll` not found in $PATH: No such file or directory";
        assert!(is_start_failure(runc) && is_start_failure(crun));
        assert!(!is_start_failure("error dialing backend: dial tcp 10.0.0.1:10250: connect: connection refused"));
        assert!(!is_start_failure("OCI runtime exec failed: exec failed: cannot exec in a stopped container"));
    }
}
