//! Functions that run a command of the blueprint: in a pod of their own, or in one that is there.

use futures::future::{BoxFuture, join_all};
use serde_json::{Value, json};

use super::call::{Again, Call, Function};
use super::exec::{Ended, Exec, Listener};
use super::pods::{CONTAINER, Wanted};
use super::talk::Talk;
use crate::Error;
use crate::board::Outputs;
use crate::percent::Step;

/// A command in a pod of its own.
pub struct KubeTask;
/// A command in a pod that is there.
pub struct KubeExec;
/// The same command in several containers of several pods.
pub struct KubeExecAll;
/// A command in a pod that has the claims of a workload.
pub struct PrepareData;
/// Two commands beside each other that share a directory.
pub struct MultiContainerRun;

/// Runs a pod to its end and returns what one of its containers output.
async fn run_pod(call: &Call, wanted: &Wanted, container: &str, must_succeed: bool) -> Result<Outputs, Error> {
    let made = call.make(wanted, false).await?;
    call.started(&made).await?;
    call.gauge.reach(Step::Execution);
    call.task.quiet();
    let outputs = call.listen(&made, container, must_succeed).await?;
    call.gauge.reach(Step::Cleanup);
    Ok(outputs)
}

impl Function for KubeTask {
    fn again(&self) -> Again {
        Again::TakeUp
    }

    fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Outputs, Error>> {
        Box::pin(async move {
            let arguments = &call.arguments;
            let namespace = arguments.optional_text("namespace")?.unwrap_or_else(|| call.home.clone());
            let wanted =
                Wanted::task("kanister-job-", namespace, &arguments.text("image")?, &arguments.list("command")?);
            run_pod(call, &wanted, CONTAINER, true).await
        })
    }
}

impl Function for PrepareData {
    fn again(&self) -> Again {
        Again::TakeUp
    }

    fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Outputs, Error>> {
        Box::pin(async move {
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
                return Err(Error::argument("volumes", "is missing, and the object of the action has no volumes"));
            }
            let command = arguments.list("command")?;
            let mut wanted =
                Wanted::task("prepare-data-job-", arguments.text("namespace")?, &arguments.text("image")?, &command);
            wanted.mount(&claims);
            if let Some(account) = arguments.optional_text("serviceaccount")? {
                wanted.spec["serviceAccountName"] = json!(account);
            }
            run_pod(call, &wanted, CONTAINER, arguments.flag("failOnError", false)?).await
        })
    }
}

impl Function for MultiContainerRun {
    fn again(&self) -> Again {
        Again::TakeUp
    }

    fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Outputs, Error>> {
        Box::pin(async move {
            let arguments = &call.arguments;
            let namespace = arguments.optional_text("namespace")?.unwrap_or_else(|| call.home.clone());
            let wanted = Wanted {
                prefix: "kanister-job-",
                namespace,
                spec: shared_pod(call)?,
                part: String::new(),
                runs_a_command: true,
            };
            run_pod(call, &wanted, "output", true).await
        })
    }
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
            json!([container("init", arguments.text("initImage")?, arguments.list("initCommand")?)]);
    }
    Ok(spec)
}

/// Hears both streams of a command; outputs count on the standard output only.
struct Streams<'a> {
    out: Talk<'a>,
    err: Talk<'a>,
}

impl Listener for Streams<'_> {
    fn stdout(&mut self, piece: &[u8]) -> Result<(), Error> {
        self.out.take(piece)
    }

    fn stderr(&mut self, piece: &[u8]) -> Result<(), Error> {
        // Somebody else's error text may look like an output of ours.
        let _ = self.err.take(piece);
        Ok(())
    }
}

async fn run_command(call: &Call, exec: &Exec, who: &str) -> Result<Outputs, Error> {
    call.host.effect()?;
    call.host.point("phase.exec.before");
    let mut streams = Streams { out: Talk::new(call, who), err: Talk::new(call, format!("{who} stderr")) };
    let ended = exec.run(&call.client, &mut streams).await?;
    call.host.point("phase.exec.after");
    let Streams { out, err } = streams;
    let words = [err.last_words(), out.last_words()];
    // What is left in the buffer of the error stream may be a frame.
    let _ = err.finish();
    match ended {
        Ended::Well => out.finish(),
        Ended::Badly(code) => {
            Err(exec.failed(code, words.iter().find(|words| !words.is_empty()).map_or("", String::as_str)))
        }
    }
}

impl Function for KubeExec {
    fn again(&self) -> Again {
        Again::Never
    }

    fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Outputs, Error>> {
        Box::pin(async move {
            let arguments = &call.arguments;
            let (namespace, pod) = (arguments.text("namespace")?, arguments.text("pod")?);
            let container = arguments.optional_text("container")?;
            let exec = Exec::new(&namespace, &pod, container.as_deref(), arguments.list("command")?);
            exec.check(&call.client).await?;
            call.gauge.reach(Step::Execution);
            call.task.quiet();
            let outputs = run_command(call, &exec, &pod).await?;
            call.gauge.reach(Step::Cleanup);
            Ok(outputs)
        })
    }
}

impl Function for KubeExecAll {
    fn again(&self) -> Again {
        Again::Never
    }

    fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Outputs, Error>> {
        Box::pin(async move {
            let arguments = &call.arguments;
            let (namespace, command) = (arguments.text("namespace")?, arguments.list("command")?);
            let containers = arguments.words("containers")?;
            let mut execs = Vec::new();
            for pod in arguments.words("pods")? {
                execs.extend(
                    containers.iter().map(|container| Exec::new(&namespace, &pod, Some(container), command.clone())),
                );
            }
            for exec in &execs {
                exec.check(&call.client).await?;
            }
            call.gauge.reach(Step::Execution);
            call.task.quiet();
            let answers = join_all(execs.iter().map(|exec| async move {
                let who = format!("{} {}", exec.pod, exec.container.as_deref().unwrap_or_default());
                run_command(call, exec, &who).await
            }))
            .await;
            call.gauge.reach(Step::Cleanup);
            together(answers)
        })
    }
}

/// All outputs, or all errors.
pub fn together(answers: Vec<Result<Outputs, Error>>) -> Result<Outputs, Error> {
    let (mut outputs, mut errors) = (Outputs::new(), Vec::new());
    for answer in answers {
        match answer {
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
