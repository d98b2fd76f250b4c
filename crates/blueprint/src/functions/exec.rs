//! A command in a container of a running pod, with what it prints as it prints it. Secrets go in by standard input.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::AttachParams;
use kube::{Api, Client, ResourceExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use crate::Error;

/// Reads variables, one on a line, until a dot; then becomes the command. Nothing of it appears in a list of processes.
const WITH_VARIABLES: &str =
    "while IFS= read -r variable; do [ \"$variable\" = . ] && break; export \"$variable\"; done; exec \"$@\"";

/// What a shell, or what starts containers, says about a program that is not there.
pub const NO_PROGRAM: [i32; 2] = [127, 126];
/// Words of container runtimes that could not even start a program, in lower case.
const NOT_STARTED: [&str; 3] = ["executable file", "no such file or directory", "permission denied"];

/// What to run, and where.
#[derive(Clone, Debug)]
pub struct Exec {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The container; the first one if none is named.
    pub container: Option<String>,
    /// The command and its arguments.
    pub command: Vec<String>,
    input: Option<String>,
}

/// Hears what a command prints.
pub trait Listener: Send {
    /// On its standard output.
    fn stdout(&mut self, piece: &[u8]) -> Result<(), Error>;
    /// On its standard error.
    fn stderr(&mut self, piece: &[u8]) -> Result<(), Error>;
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With exit code 0.
    Well,
    /// With another one.
    Badly(i32),
}

impl Exec {
    /// A command in a pod.
    pub fn new(namespace: &str, pod: &str, container: Option<&str>, command: Vec<String>) -> Self {
        let container = container.filter(|name| !name.is_empty()).map(str::to_owned);
        Self { namespace: namespace.to_owned(), pod: pod.to_owned(), container, command, input: None }
    }

    /// The same with this on its standard input, which stays open until it has ended.
    pub fn with_input(mut self, input: String) -> Self {
        self.input = Some(input);
        self
    }

    /// The same with variables that nobody but the command sees.
    pub fn with_variables(mut self, variables: &[(&'static str, String)]) -> Result<Self, Error> {
        let mut input = String::new();
        for (name, value) in variables {
            if value.contains(['\n', '\0']) {
                return Err(Error::Unsupported(format!("the value of {name} has more than one line")));
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

    fn place(&self) -> String {
        match &self.container {
            Some(container) => format!("container {container} of pod {}", self.path()),
            None => format!("pod {}", self.path()),
        }
    }

    fn unreachable(&self, detail: &impl ToString) -> Error {
        Error::Command { what: format!("the command in {}", self.place()), detail: detail.to_string() }
    }

    /// What an exit code other than 0 is as an error.
    pub fn failed(&self, code: i32, last_words: &str) -> Error {
        let mut detail = format!("exit code {code}");
        if !last_words.is_empty() {
            detail += &format!(": {last_words}");
        }
        self.unreachable(&detail)
    }

    /// Waits for nothing: the pod runs, and has the container.
    pub async fn check(&self, client: &Client) -> Result<(), Error> {
        let api: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        let found = api.get_opt(&self.pod).await.map_err(|e| Error::api(format!("read pod {}", self.path()), e))?;
        let pod = found.ok_or_else(|| Error::Missing(format!("pod {} does not exist", self.path())))?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        if phase != "Running" {
            return Err(Error::Pod { pod: self.path(), detail: format!("is {phase}, not Running") });
        }
        let has = |name: &str| pod.spec.as_ref().is_some_and(|spec| spec.containers.iter().any(|one| one.name == name));
        match &self.container {
            Some(container) if !has(container) => {
                Err(Error::Missing(format!("pod {} has no container {container}", pod.name_any())))
            }
            _ => Ok(()),
        }
    }

    /// Runs it to its end.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection; the command itself may go on in the container.
    pub async fn run(&self, client: &Client, listener: &mut dyn Listener) -> Result<Ended, Error> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        let mut streams = AttachParams::default().stdin(self.input.is_some()).stdout(true).stderr(true);
        streams.container.clone_from(&self.container);
        let attached = pods.exec(&self.pod, self.command.clone(), &streams).await;
        let mut process = attached.map_err(|error| self.unreachable(&error))?;
        // Held to the end: a program may take the end of its input for the end of whoever started it.
        let mut stdin = process.stdin();
        if let (Some(input), Some(stdin)) = (&self.input, &mut stdin) {
            // One that is not there reads nothing; its status says so.
            let _ = stdin.write_all(input.as_bytes()).await;
            let _ = stdin.flush().await;
        }
        let (stdout, stderr, status) = (process.stdout(), process.stderr(), process.take_status());
        hear(stdout, stderr, listener).await?;
        let status = match status {
            Some(status) => status.await,
            None => None,
        };
        drop(stdin);
        let joined = process.join().await;
        match status {
            Some(status) => self.judge(&status),
            None => Err(self.unreachable(&joined.err().map_or("it ended without a status".into(), |e| e.to_string()))),
        }
    }

    fn judge(&self, status: &Status) -> Result<Ended, Error> {
        if status.status.as_deref() == Some("Success") {
            return Ok(Ended::Well);
        }
        if status.reason.as_deref() != Some("NonZeroExitCode") {
            let message = status.message.clone().unwrap_or_else(|| "no reason is given".into());
            return if could_not_start(&message) {
                Ok(Ended::Badly(NO_PROGRAM[0]))
            } else {
                Err(self.unreachable(&message))
            };
        }
        let causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
        let code =
            causes.filter(|cause| cause.reason.as_deref() == Some("ExitCode")).find_map(|cause| cause.message.clone());
        Ok(Ended::Badly(code.and_then(|code| code.parse().ok()).unwrap_or(1)))
    }
}

/// Whether a container runtime says that the container has no such program: it gives no exit code for that.
fn could_not_start(message: &str) -> bool {
    let message = message.to_lowercase();
    message.contains("oci runtime exec failed") && NOT_STARTED.iter().any(|words| message.contains(words))
}

async fn hear(
    mut stdout: Option<impl AsyncRead + Unpin>,
    mut stderr: Option<impl AsyncRead + Unpin>,
    listener: &mut dyn Listener,
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
    fn what_runtimes_say_about_a_program_that_is_not_there_is_told_from_other_trouble() {
        let runc = "error executing command in container: failed to exec in container: failed to start exec \"1\": OCI runtime exec \
                    failed: exec failed: unable to start container process: exec: \"plimsoll\": executable file not found in $PATH";
        let crun = "OCI runtime exec failed: exec failed: executable file `plimsoll` not found in $PATH: No such file or directory";
        assert!(could_not_start(runc) && could_not_start(crun));
        assert!(!could_not_start("error dialing backend: dial tcp 10.0.0.1:10250: connect: connection refused"));
        assert!(!could_not_start("OCI runtime exec failed: exec failed: cannot exec in a stopped container"));
    }
}
