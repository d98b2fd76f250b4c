//! Functions that run a command of the blueprint in a new or an existing pod.

use futures::future::join_all;
use serde_json::{Value, json};

use super::call::Call;
use super::exec::{Exec, ExitResult, OutputListener};
use super::pod_io::PodOutput;
use super::pods::{CONTAINER, INIT_CONTAINER, PodRequest};
use crate::Error;
use crate::percent::Step;
use crate::results::Outputs;

/// Runs a pod to completion and returns the outputs of the first of these containers.
async fn run_pod(
    call: &Call,
    request: &PodRequest,
    containers: &[&'static str],
    must_succeed: bool,
) -> Result<Outputs, Error> {
    let handle = call.start_pod(request, false).await?;
    start_execution(call);
    call.wait_for_completion(&handle, containers, must_succeed).await
}

/// A command of the blueprint runs. It may be silent until it ends.
fn start_execution(call: &Call) {
    call.meters.reach(Step::Execution);
    call.task.quiet();
}

/// The namespace of a new pod.
fn namespace(call: &Call) -> Result<String, Error> {
    Ok(call.arguments.optional_text("namespace")?.unwrap_or_else(|| call.server_namespace.clone()))
}

/// Runs a command in a new pod.
pub async fn kube_task(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let (image, command) = (arguments.text("image")?, arguments.list("command")?);
    let request = PodRequest::task("kanister-job-", namespace(call)?, &image, &command);
    run_pod(call, &request, &[CONTAINER], true).await
}

/// Runs a command in a new pod that mounts the claims of a workload.
pub async fn prepare_data(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let mut claims = arguments.map("volumes")?;
    if claims.is_empty() {
        let known = call.params.workload.iter().flat_map(|workload| workload.persistent_volume_claims.values());
        claims = known
            .flat_map(|claims| claims.keys())
            .map(|claim| (claim.clone(), format!("/mnt/prepare_data/{claim}")))
            .collect();
    }
    if claims.is_empty() {
        return Err(Error::argument("volumes", "missing, and the object of the action has no volumes"));
    }
    let command = arguments.list("command")?;
    let mut request =
        PodRequest::task("prepare-data-job-", arguments.text("namespace")?, &arguments.text("image")?, &command);
    request.mount(&claims);
    if let Some(service_account) = arguments.optional_text("serviceaccount")? {
        request.spec["serviceAccountName"] = json!(service_account);
    }
    run_pod(call, &request, &[CONTAINER], arguments.flag("failOnError", false)?).await
}

/// Runs two commands in a new pod with a shared directory.
pub async fn multi_container_run(call: &Call) -> Result<Outputs, Error> {
    let request = PodRequest {
        prefix: "kanister-job-",
        namespace: namespace(call)?,
        spec: shared_pod(call)?,
        part: String::new(),
        runs_a_command: true,
    };
    run_pod(call, &request, &["output", "background"], true).await
}

fn shared_pod(call: &Call) -> Result<Value, Error> {
    let arguments = &call.arguments;
    let directory = arguments.optional_text("sharedVolumeDir")?.unwrap_or_else(|| "/tmp/".into());
    let container = |name: &str, image: String, command: Vec<String>| {
        json!({
            "name": name, "image": image, "imagePullPolicy": "IfNotPresent", "command": command,
            "volumeMounts": [{ "name": "shared", "mountPath": directory }],
        })
    };
    let mut volume = json!({ "name": "shared", "emptyDir": {} });
    if let Some(medium) = arguments.optional_text("sharedVolumeMedium")? {
        volume["emptyDir"]["medium"] = json!(medium);
    }
    if let Some(limit) = arguments.optional_text("sharedVolumeSizeLimit")? {
        volume["emptyDir"]["sizeLimit"] = json!(limit);
    }
    let mut spec = json!({
        "restartPolicy": "Never",
        "volumes": [volume],
        "containers": [
            container("output", arguments.text("outputImage")?, arguments.list("outputCommand")?),
            container("background", arguments.text("backgroundImage")?, arguments.list("backgroundCommand")?),
        ],
    });
    if arguments.has("initImage") {
        spec["initContainers"] =
            json!([container(INIT_CONTAINER, arguments.text("initImage")?, arguments.list("initCommand")?)]);
    }
    Ok(spec)
}

/// Reads both streams of a command; outputs are read from stdout only.
struct Streams<'a> {
    out: PodOutput<'a>,
    err: PodOutput<'a>,
}

impl OutputListener for Streams<'_> {
    fn stdout(&mut self, chunk: &[u8]) -> Result<(), Error> {
        self.out.push(chunk)
    }

    fn stderr(&mut self, chunk: &[u8]) -> Result<(), Error> {
        // An invalid output line on stderr is not an error.
        let _ = self.err.push(chunk);
        Ok(())
    }
}

async fn run_command(call: &Call, exec: &Exec, source: &str) -> Result<Outputs, Error> {
    call.host.authorize_effect()?;
    call.host.kill_point("phase.exec.before");
    let mut streams =
        Streams { out: PodOutput::new(call, source), err: PodOutput::new(call, format!("{source} stderr")) };
    let ended = exec.run(&call.client, &mut streams).await?;
    call.host.kill_point("phase.exec.after");
    let Streams { out, err } = streams;
    let tails = [err.output_tail(), out.output_tail()];
    // The rest of stderr may be a progress frame.
    let _ = err.finish();
    match ended {
        ExitResult::Success => out.finish(),
        ExitResult::ExitCode(code) => {
            Err(exec.failed(code, tails.iter().find(|tail| !tail.is_empty()).map_or("", String::as_str)))
        }
    }
}

/// Runs a command in an existing pod.
pub async fn kube_exec(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let (namespace, pod) = (arguments.text("namespace")?, arguments.text("pod")?);
    let container = arguments.optional_text("container")?;
    let exec = Exec::new(&namespace, &pod, container.as_deref(), arguments.list("command")?);
    exec.check(&call.client).await?;
    start_execution(call);
    run_command(call, &exec, &pod).await
}

/// Runs a command in several containers of several pods.
pub async fn kube_exec_all(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let (namespace, command) = (arguments.text("namespace")?, arguments.list("command")?);
    let containers = arguments.words("containers")?;
    let mut execs = Vec::new();
    for pod in arguments.words("pods")? {
        execs.extend(containers.iter().map(|container| Exec::new(&namespace, &pod, Some(container), command.clone())));
    }
    for exec in &execs {
        exec.check(&call.client).await?;
    }
    start_execution(call);
    let results = join_all(execs.iter().map(|exec| async move {
        let source = format!("{} {}", exec.pod, exec.container.as_deref().unwrap_or_default());
        run_command(call, exec, &source).await
    }))
    .await;
    call.meters.reach(Step::Cleanup);
    merge_outputs(results)
}

/// Merges the outputs of several commands, or their errors.
pub fn merge_outputs(results: Vec<Result<Outputs, Error>>) -> Result<Outputs, Error> {
    let (mut outputs, mut errors) = (Outputs::new(), Vec::new());
    for result in results {
        match result {
            Ok(more) => outputs.extend(more),
            Err(error) => errors.push(error),
        }
    }
    match errors.len() {
        0 => Ok(outputs),
        1 => Err(errors.swap_remove(0)),
        _ => Err(Error::Command {
            what: format!("{} commands", errors.len()),
            detail: errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        }),
    }
}
