//! Builds the object of a pod: labels, service account, overrides and our `kando`.

use k8s_openapi::api::core::v1::Pod;
use plimsoll_select::strategic_merge_patch::{self, PatchSchema};
use serde_json::{Value, json};

use super::{OWN_KANDO, PHASE_LABEL, PodHandle, PodRequest};
use crate::Error;
use crate::functions::call::Call;
use crate::functions::{pod_override, tools_container};

impl Call {
    /// Whether a pod gets our `kando`.
    pub(super) fn injects_kando(&self, request: &PodRequest) -> Result<bool, Error> {
        let own = self
            .arguments
            .map("podAnnotations")?
            .get(OWN_KANDO)
            .or(self.pod_settings.annotations.get(OWN_KANDO))
            .cloned();
        Ok(request.runs_a_command && self.pod_settings.tools_image.is_some() && own.as_deref() != Some("true"))
    }

    pub(super) fn build_pod(&self, request: &PodRequest, handle: &PodHandle) -> Result<Pod, Error> {
        let mut labels = self.pod_settings.labels.clone();
        labels.extend(self.arguments.map("podLabels")?);
        labels.insert("createdBy".into(), "kanister".into());
        labels.insert(PHASE_LABEL.into(), self.identity.clone());
        let mut annotations = self.pod_settings.annotations.clone();
        annotations.extend(self.arguments.map("podAnnotations")?);
        let injected = self.injects_kando(request)?;
        let mut spec = request.spec.clone();
        if request.namespace == self.server_namespace
            && spec["serviceAccountName"].is_null()
            && let Some(service_account) = &self.service_account
        {
            spec["serviceAccountName"] = json!(service_account);
        }
        if self.pod_settings.environment.secure_defaults {
            spec["automountServiceAccountToken"] = json!(false);
            spec["serviceAccountName"] = json!("default");
        }
        let containers = pod_override::container_names(&spec);
        for (argument, patch) in [
            ("podOverride", self.arguments.object("podOverride")?),
            (
                "podOverride of the action",
                self.pod_settings.pod_override.as_ref().map(|patch| pod_override::spread(patch, &spec)),
            ),
        ] {
            let Some(patch) = patch.filter(|patch| patch.as_object().is_some_and(|fields| !fields.is_empty())) else {
                continue;
            };
            spec = strategic_merge_patch::merge(&spec, &patch, PatchSchema::POD_SPEC)
                .map_err(|e| Error::argument(argument, e.to_string()))?;
        }
        // After the overrides: it has the security context and the resources that they give to the first container.
        if let Some(tools_image) = self.pod_settings.tools_image.as_ref().filter(|_| injected) {
            tools_container::inject(&mut spec, tools_image, &containers);
        }
        // An owner in another namespace is treated as missing: the pod would be garbage collected.
        let owners = if handle.namespace == self.server_namespace { json!([self.owner]) } else { Value::Null };
        let pod = json!({
            "metadata": { "name": handle.name, "namespace": handle.namespace, "labels": labels, "annotations": annotations, "ownerReferences": owners },
            "spec": spec,
        });
        serde_json::from_value(pod).map_err(|error| Error::argument("podOverride", error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use futures::future::BoxFuture;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use plimsoll_progress::{Clock, Operation};

    use super::super::CONTAINER;
    use super::*;
    use crate::functions::arguments::Arguments;
    use crate::functions::call::{Host, PodSettings, ToolsImage};
    use crate::functions::function_spec::ProgressKind;
    use crate::params::Params;

    struct NoopHost;

    impl Host for NoopHost {
        fn authorize_effect(&self) -> Result<(), Error> {
            Ok(())
        }

        fn kill_point(&self, _: &'static str) {}

        fn recall(&self, _: &str) -> Option<String> {
            None
        }

        fn remember<'a>(&'a self, _: &'a str, _: String) -> BoxFuture<'a, Result<(), Error>> {
            Box::pin(async { Ok(()) })
        }

        fn log(&self, _: &str) {}
    }

    /// A call of a server in the namespace `home` with the service account `boss` and a tools image.
    fn call(arguments: &Value, pod_settings: PodSettings) -> Call {
        let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = kube::Client::try_from(config).unwrap();
        let tools_image = Some(ToolsImage { image: "ours".into(), program: "/plimsoll".into() });
        let (arguments, pod_settings) =
            (Arguments::new(arguments.as_object().unwrap().clone()), PodSettings { tools_image, ..pod_settings });
        let (task, owner) = (Operation::new("set", Clock::system()).root().child("p"), OwnerReference::default());
        let (server_namespace, label, params) = ("home".to_owned(), "act/p".to_owned(), Params::default());
        let host = Arc::new(NoopHost);
        let mut call = Call::new(
            client,
            server_namespace,
            &["u"],
            label,
            arguments,
            params,
            pod_settings,
            owner,
            task,
            ProgressKind::Steps,
            host,
        );
        call.service_account = Some("boss".into());
        call
    }

    fn built_pod(call: &Call, request: &PodRequest) -> Value {
        let handle = PodHandle { namespace: request.namespace.clone(), name: "pod".into() };
        serde_json::to_value(call.build_pod(request, &handle).unwrap()).unwrap()
    }

    fn task(namespace: &str) -> PodRequest {
        PodRequest::task("kanister-job-", namespace.into(), "image", &["true".to_owned()])
    }

    #[tokio::test]
    async fn kando_is_injected_only_into_pods_that_run_a_command_of_the_blueprint() {
        let is_injected = |pod: &Value| pod["spec"]["initContainers"][0]["image"] == "ours";
        let call = call(&json!({}), PodSettings::default());
        let pod = built_pod(&call, &task("home"));
        assert!(is_injected(&pod), "{pod:#}");
        assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"], tools_container::KANDO_PATH);
        let helper = PodRequest::idle("restore-data-", "home".into(), "image", &BTreeMap::new());
        assert!(!is_injected(&built_pod(&call, &helper)), "it is not used there");
    }

    #[tokio::test]
    async fn an_annotation_keeps_the_kando_of_the_image() {
        let off = json!({ "podAnnotations": { OWN_KANDO: "true" } });
        let pod = built_pod(&call(&off, PodSettings::default()), &task("home"));
        assert_eq!(pod["spec"]["initContainers"], Value::Null);
    }

    #[tokio::test]
    async fn pods_in_the_servers_namespace_have_its_service_account_by_default() {
        let service_account =
            |call: &Call, request: &PodRequest| built_pod(call, request)["spec"]["serviceAccountName"].clone();
        let plain = call(&json!({}), PodSettings::default());
        assert_eq!(service_account(&plain, &task("home")), "boss");
        assert_eq!(service_account(&plain, &task("shop")), Value::Null);
        let named = call(&json!({ "podOverride": { "serviceAccountName": "mine" } }), PodSettings::default());
        assert_eq!(service_account(&named, &task("home")), "mine");
    }

    #[tokio::test]
    async fn the_pod_override_of_the_action_is_merged_over_that_of_the_blueprint() {
        let blueprint = json!({ "podOverride": {
            "nodeSelector": { "disk": "fast", "zone": "a" },
            "containers": [{ "name": CONTAINER, "env": [{ "name": "A", "value": "1" }, { "name": "B", "value": "1" }] }],
        } });
        let action = json!({
            "nodeSelector": { "zone": "b" },
            "containers": [{ "name": CONTAINER, "env": [{ "name": "B", "value": "2" }] }],
        });
        let pod_settings = PodSettings { pod_override: Some(action), ..PodSettings::default() };
        let pod = built_pod(&call(&blueprint, pod_settings), &task("home"));
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
