//! Pods that a phase starts: made under a name that a second server finds again, watched with a reason, removed at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use plimsoll_select::strategic::{self, Hint};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::call::{Call, Tools};
use super::log::{Heard, each_piece};
use super::talk::Talk;
use crate::Error;
use crate::board::Outputs;

/// How long a pod may take to start.
const START_LIMIT: Duration = Duration::from_mins(15);
/// How often a pod is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// Annotation on an ActionSet's pods or in a blueprint's `podAnnotations`: leave the image's own `kando` alone.
pub const OWN_KANDO: &str = "plimsoll.dev/own-kando";
/// Label: which phase a pod belongs to.
const PHASE: &str = "plimsoll.dev/phase";
/// Where Kanister's images have it.
const KANDO: &str = "/usr/local/bin/kando";
/// The name of the container that Kanister's pods have.
pub const CONTAINER: &str = "container";

/// A pod to be.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What its name begins with.
    pub prefix: &'static str,
    /// Where it runs.
    pub namespace: String,
    /// Its spec.
    pub spec: Value,
    /// To tell several pods of one phase apart.
    pub part: String,
    /// Whether it runs a command of the blueprint, which may call `kando`.
    pub runs_a_command: bool,
}

impl Wanted {
    /// A pod with one container.
    pub fn task(prefix: &'static str, namespace: String, image: &str, command: &[String]) -> Self {
        let spec = json!({
            "restartPolicy": "Never",
            "containers": [{
                "name": CONTAINER, "image": image, "imagePullPolicy": "IfNotPresent", "command": command,
            }],
        });
        Self { prefix, namespace, spec, part: String::new(), runs_a_command: true }
    }

    /// A pod that does nothing but be there, with claims where they belong.
    pub fn idle(prefix: &'static str, namespace: String, image: &str, claims: &BTreeMap<String, String>) -> Self {
        let command = ["sh", "-c", "tail -f /dev/null"].map(str::to_owned);
        let mut wanted = Self { runs_a_command: false, ..Self::task(prefix, namespace, image, &command) };
        wanted.mount(claims);
        wanted
    }

    /// Mounts claims in its containers.
    pub fn mount(&mut self, claims: &BTreeMap<String, String>) {
        let name = |index: usize| format!("vol-{index}");
        let volumes: Vec<_> = claims
            .keys()
            .enumerate()
            .map(|(index, claim)| json!({ "name": name(index), "persistentVolumeClaim": { "claimName": claim } }))
            .collect();
        let mounts: Vec<_> = claims
            .values()
            .enumerate()
            .map(|(index, path)| json!({ "name": name(index), "mountPath": path }))
            .collect();
        self.spec["volumes"] = json!(volumes);
        for container in self.spec["containers"].as_array_mut().into_iter().flatten() {
            container["volumeMounts"] = json!(mounts);
        }
    }
}

/// A pod that is there.
#[derive(Clone, Debug)]
pub struct Made {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Made {
    /// `namespace/name`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn failed(&self, detail: impl Into<String>) -> Error {
        Error::Pod { pod: self.path(), detail: detail.into() }
    }
}

impl Call {
    fn pods_of(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Makes a pod, or finds the one that an earlier process made. One that was made and is gone is never made again, unless
    /// the function may be repeated anyway.
    pub async fn make(&self, wanted: &Wanted, repeats: bool) -> Result<Made, Error> {
        let mut name = format!("{}{}", wanted.prefix, self.identity);
        if !wanted.part.is_empty() {
            name += &format!("-{}", wanted.part);
        }
        let made = Made { namespace: wanted.namespace.clone(), name };
        self.pods
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push((made.namespace.clone(), made.name.clone()));
        let api = self.pods_of(&made.namespace);
        let key = format!("pod/{}", made.name);
        let known = self.host.recall(&key).is_some();
        if known && self.find(&api, &made).await?.is_some() {
            self.log(&format!("pod {} is taken up again", made.path()));
            return Ok(made);
        }
        if known && !repeats {
            return Err(Error::Interrupted(format!("its pod {} is gone", made.path())));
        }
        self.host.effect()?;
        self.host.point("phase.pod.before");
        let pod = self.dress(wanted, &made)?;
        match api.create(&PostParams::default(), &pod).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(Error::api(format!("create pod {}", made.path()), error)),
        }
        self.host.point("phase.pod.after");
        self.host.remember(&key, made.namespace.clone()).await?;
        Ok(made)
    }

    async fn find(&self, api: &Api<Pod>, made: &Made) -> Result<Option<Pod>, Error> {
        api.get_opt(&made.name).await.map_err(|e| Error::api(format!("read pod {}", made.path()), e))
    }

    fn dress(&self, wanted: &Wanted, made: &Made) -> Result<Pod, Error> {
        let mut labels = self.style.labels.clone();
        labels.extend(self.arguments.map("podLabels")?);
        labels.insert("createdBy".into(), "kanister".into());
        labels.insert(PHASE.into(), self.identity.clone());
        let mut annotations = self.style.annotations.clone();
        annotations.extend(self.arguments.map("podAnnotations")?);
        let mut spec = wanted.spec.clone();
        if wanted.namespace == self.home
            && spec["serviceAccountName"].is_null()
            && let Some(account) = &self.account
        {
            spec["serviceAccountName"] = json!(account);
        }
        let lent = wanted.runs_a_command && annotations.get(OWN_KANDO).map(String::as_str) != Some("true");
        if let Some(tools) = self.style.tools.as_ref().filter(|_| lent) {
            lend(&mut spec, tools);
        }
        for (argument, patch) in [
            ("podOverride", self.arguments.object("podOverride")?),
            ("podOverride of the action", self.style.overriding.clone()),
        ] {
            let Some(patch) = patch.filter(|patch| patch.as_object().is_some_and(|fields| !fields.is_empty())) else {
                continue;
            };
            spec = strategic::merge(&spec, &patch, Hint::POD_SPEC)
                .map_err(|e| Error::argument(argument, e.to_string()))?;
        }
        // In another namespace an owner would be taken for a missing one, and the pod for garbage.
        let owners = if made.namespace == self.home { json!([self.owner]) } else { Value::Null };
        let pod = json!({
            "metadata": { "name": made.name, "namespace": made.namespace, "labels": labels, "annotations": annotations, "ownerReferences": owners },
            "spec": spec,
        });
        serde_json::from_value(pod).map_err(|error| Error::argument("podOverride", error.to_string()))
    }

    /// Waits until a pod has started.
    pub async fn started(&self, made: &Made) -> Result<Pod, Error> {
        let api = self.pods_of(&made.namespace);
        let deadline = Instant::now() + START_LIMIT;
        let mut waiting: Option<(String, plimsoll_progress::Wait)> = None;
        loop {
            let pod = self.look(&api, made).await?;
            let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
            if !phase.is_empty() && phase != "Pending" {
                return Ok(pod);
            }
            let reason = format!("waiting for pod {} to start: {}", made.path(), hindrance(&pod));
            if waiting.as_ref().is_none_or(|(known, _)| *known != reason) {
                self.task.hint(&reason);
                // The old wait ends first: otherwise both would be shown for a moment.
                drop(waiting.take());
                waiting = Some((reason.clone(), self.task.wait(&reason)));
            }
            if Instant::now() >= deadline {
                return Err(made.failed(format!("did not start within {START_LIMIT:?}: {}", hindrance(&pod))));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Looks at a pod; an API server that does not answer is asked again.
    async fn look(&self, api: &Api<Pod>, made: &Made) -> Result<Pod, Error> {
        let mut pause = LOOK;
        loop {
            match self.find(api, made).await {
                Ok(Some(pod)) => return Ok(pod),
                Ok(None) => return Err(made.failed("was deleted while the phase ran")),
                Err(error) if error.is_retryable() && pause < Duration::from_mins(2) => {
                    let _waiting = self.task.wait(format!("trying again: {error}"));
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Listens to a container until its pod has ended. An end that is not a good one is an error, unless it does not matter.
    pub async fn listen(&self, made: &Made, container: &str, must_succeed: bool) -> Result<Outputs, Error> {
        let api = self.pods_of(&made.namespace);
        let mut talk = Talk::new(self, container);
        let mut heard = Heard::default();
        let pod = loop {
            let before = self.look(&api, made).await?;
            self.follow(&api, made, container, &mut heard, &mut talk).await?;
            // What was printed before the end has been heard only if the stream was opened after it.
            if has_ended(&before) {
                break before;
            }
            tokio::time::sleep(LOOK).await;
        };
        if must_succeed && let Some(detail) = bad_end(&pod) {
            let words = talk.last_words();
            let words = if words.is_empty() { words } else { format!(": {words}") };
            return Err(made.failed(format!("{detail}{words}")));
        }
        talk.finish()
    }

    /// Reads the log from where it was left, to its end for now.
    async fn follow(
        &self,
        api: &Api<Pod>,
        made: &Made,
        container: &str,
        heard: &mut Heard,
        talk: &mut Talk<'_>,
    ) -> Result<(), Error> {
        // The container has not started yet, or the node does not answer: the pod is looked at again.
        let Ok(stream) = api.log_stream(&made.name, &heard.parameters(container)).await else { return Ok(()) };
        let mut lines = heard.open();
        each_piece(stream, |piece| {
            let news = lines.take(piece);
            if news.afresh {
                talk.forget_line();
            }
            talk.take(&news.text)
        })
        .await
    }

    /// Removes the pods of this call. What cannot be removed is named in the log: a phase does not fail for that.
    pub async fn clean_up(&self) {
        if let Some(movers) = &self.movers {
            movers.clean_up(self).await;
        }
        let pods = std::mem::take(&mut *self.pods.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        for (namespace, name) in pods {
            if self.host.effect().is_err() {
                return;
            }
            self.host.point("phase.cleanup.before");
            let at_once = DeleteParams::default().grace_period(0);
            match self.pods_of(&namespace).delete(&name, &at_once).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => self.log(&format!("cannot remove pod {namespace}/{name}: {error}")),
            }
            self.host.point("phase.cleanup.after");
        }
    }

    /// Looks for the pods that an earlier process made for this phase, so that they are removed too. By their label and in all
    /// namespaces: that process may have died before it could remember where it made them.
    pub async fn find_pods(&self) {
        match pods_of_phase(&self.client, &self.identity).await {
            Ok(found) => self.pods.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(found),
            Err(error) => self.log(&format!("pods that an earlier server made cannot be looked for: {error}")),
        }
    }
}

/// The pods of a phase, each with its namespace. An API server that does not answer is asked again.
async fn pods_of_phase(client: &Client, identity: &str) -> Result<Vec<(String, String)>, Error> {
    let ours = ListParams::default().labels(&format!("{PHASE}={identity}"));
    let mut pause = LOOK;
    loop {
        let listed = Api::<Pod>::all(client.clone()).list_metadata(&ours).await;
        match listed.map_err(|error| Error::api(format!("list pods with the label {PHASE}={identity}"), error)) {
            Ok(found) => {
                return Ok(found.iter().map(|pod| (pod.namespace().unwrap_or_default(), pod.name_any())).collect());
            }
            Err(error) if error.is_retryable() && pause < Duration::from_secs(30) => tokio::time::sleep(pause).await,
            Err(error) => return Err(error),
        }
        pause *= 2;
    }
}

/// Removes whatever pods a phase has left. The first that cannot be removed is the error; the others are gone.
pub async fn remove_pods(client: &Client, identity: &str) -> Result<(), Error> {
    let mut answer = Ok(());
    for (namespace, name) in pods_of_phase(client, identity).await? {
        let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        match api.delete(&name, &DeleteParams::default().grace_period(0)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => answer = answer.and(Err(Error::api(format!("delete pod {namespace}/{name}"), error))),
        }
    }
    answer
}

/// Puts our program where Kanister's images have theirs.
fn lend(spec: &mut Value, tools: &Tools) {
    const VOLUME: &str = "plimsoll-tools";
    let push = |list: &mut Value, item: Value| match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    };
    push(&mut spec["volumes"], json!({ "name": VOLUME, "emptyDir": {} }));
    let init = json!({
        "name": VOLUME, "image": tools.image, "imagePullPolicy": "IfNotPresent",
        "command": [tools.program, "kando-install", "/plimsoll-tools"],
        "volumeMounts": [{ "name": VOLUME, "mountPath": "/plimsoll-tools" }],
    });
    let mut inits = vec![init];
    inits.extend(spec["initContainers"].as_array().cloned().unwrap_or_default());
    spec["initContainers"] = json!(inits);
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        push(
            &mut container["volumeMounts"],
            json!({ "name": VOLUME, "mountPath": KANDO, "subPath": "kando", "readOnly": true }),
        );
    }
}

/// Why a pod has not started, as far as it says.
fn hindrance(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let unscheduled = conditions.iter().find(|one| one.type_ == "PodScheduled" && one.status == "False");
    if let Some(message) = unscheduled.and_then(|one| one.message.clone()) {
        return message;
    }
    let all =
        status.init_container_statuses.into_iter().flatten().chain(status.container_statuses.into_iter().flatten());
    let mut waits = all.filter_map(|one| one.state?.waiting).map(|waiting| {
        let message = waiting.message.map(|message| format!(": {message}")).unwrap_or_default();
        format!("{}{message}", waiting.reason.unwrap_or_default())
    });
    waits.next().unwrap_or_else(|| "it is not scheduled yet".into())
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// How a pod failed, if it did.
fn bad_end(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    if status.phase.as_deref() == Some("Succeeded") {
        return None;
    }
    let all = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    let codes: Vec<_> = all
        .filter_map(|one| Some((one.name.clone(), one.state.as_ref()?.terminated.as_ref()?.clone())))
        .filter(|(_, ended)| ended.exit_code != 0)
        .map(|(name, ended)| {
            format!(
                "container {name} ended with exit code {}{}",
                ended.exit_code,
                ended.reason.filter(|r| r != "Error").map(|r| format!(" ({r})")).unwrap_or_default()
            )
        })
        .collect();
    let message = status.message.clone().or_else(|| status.reason.clone());
    Some(format!(
        "failed: {}",
        if codes.is_empty() { message.unwrap_or_else(|| "no reason is given".into()) } else { codes.join(", ") }
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::future::BoxFuture;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use plimsoll_progress::{Clock, Operation};

    use super::super::arguments::Arguments;
    use super::super::call::{Host, PodStyle};
    use super::super::table::Shown;
    use super::*;
    use crate::params::Params;

    struct Nobody;

    impl Host for Nobody {
        fn effect(&self) -> Result<(), Error> {
            Ok(())
        }

        fn point(&self, _: &'static str) {}

        fn recall(&self, _: &str) -> Option<String> {
            None
        }

        fn remember<'a>(&'a self, _: &'a str, _: String) -> BoxFuture<'a, Result<(), Error>> {
            Box::pin(async { Ok(()) })
        }

        fn log(&self, _: &str) {}
    }

    /// The call of a phase of the server in namespace `home`, which runs as `boss` and lends its `kando`.
    fn call(arguments: &Value, style: PodStyle) -> Call {
        let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let tools = Some(Tools { image: "ours".into(), program: "/plimsoll".into() });
        let (arguments, style) = (Arguments::new(arguments.as_object().unwrap().clone()), PodStyle { tools, ..style });
        let (task, owner) = (Operation::new("set", Clock::system()).root().child("p"), OwnerReference::default());
        let (home, label, params) = ("home".to_owned(), "act/p".to_owned(), Params::default());
        let host = Arc::new(Nobody);
        let mut call =
            Call::new(client, home, &["u"], label, arguments, params, style, owner, task, Shown::Steps, host);
        call.account = Some("boss".into());
        call
    }

    fn dressed(call: &Call, wanted: &Wanted) -> Value {
        let made = Made { namespace: wanted.namespace.clone(), name: "pod".into() };
        serde_json::to_value(call.dress(wanted, &made).unwrap()).unwrap()
    }

    fn task(namespace: &str) -> Wanted {
        Wanted::task("kanister-job-", namespace.into(), "image", &["true".to_owned()])
    }

    #[tokio::test]
    async fn our_kando_is_lent_to_the_commands_of_blueprints_and_to_nobody_else() {
        let lent = |pod: &Value| pod["spec"]["initContainers"][0]["image"] == "ours";
        let call = call(&json!({}), PodStyle::default());
        let pod = dressed(&call, &task("home"));
        assert!(lent(&pod), "{pod:#}");
        assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"], KANDO);
        let helper = Wanted::idle("restore-data-", "home".into(), "image", &BTreeMap::new());
        assert!(!lent(&dressed(&call, &helper)), "nobody calls it there");
    }

    #[tokio::test]
    async fn an_annotation_keeps_the_image_s_own_kando() {
        let off = json!({ "podAnnotations": { OWN_KANDO: "true" } });
        let pod = dressed(&call(&off, PodStyle::default()), &task("home"));
        assert_eq!(pod["spec"]["initContainers"], Value::Null);
    }

    #[tokio::test]
    async fn pods_beside_the_server_have_its_account_unless_they_name_one() {
        let account = |call: &Call, wanted: &Wanted| dressed(call, wanted)["spec"]["serviceAccountName"].clone();
        let plain = call(&json!({}), PodStyle::default());
        assert_eq!(account(&plain, &task("home")), "boss");
        assert_eq!(account(&plain, &task("shop")), Value::Null);
        let named = call(&json!({ "podOverride": { "serviceAccountName": "mine" } }), PodStyle::default());
        assert_eq!(account(&named, &task("home")), "mine");
    }

    #[tokio::test]
    async fn what_the_action_says_about_its_pods_is_merged_over_what_the_blueprint_says() {
        let blueprint = json!({ "podOverride": {
            "nodeSelector": { "disk": "fast", "zone": "a" },
            "containers": [{ "name": CONTAINER, "env": [{ "name": "A", "value": "1" }, { "name": "B", "value": "1" }] }],
        } });
        let action = json!({
            "nodeSelector": { "zone": "b" },
            "containers": [{ "name": CONTAINER, "env": [{ "name": "B", "value": "2" }] }],
        });
        let style = PodStyle { overriding: Some(action), ..PodStyle::default() };
        let pod = dressed(&call(&blueprint, style), &task("home"));
        assert_eq!(pod["spec"]["nodeSelector"], json!({ "disk": "fast", "zone": "b" }));
        let containers = pod["spec"]["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 1);
        let value = |name: &str| {
            let all = containers[0]["env"].as_array().unwrap();
            all.iter().find(|one| one["name"] == name).map(|one| one["value"].clone())
        };
        assert_eq!((value("A"), value("B")), (Some(json!("1")), Some(json!("2"))));
        assert_eq!(containers[0]["image"], "image");
    }
}
