//! Restore hooks, from annotations of a pod or from the Restore. Annotations override the Restore.

mod annotations;
mod runner;

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_api::velero::v1::{ExecRestoreHook, HookErrorMode, RestoreResourceHookSpec, RestoreSpec};
use plimsoll_select::includes::IncludesExcludes;
use plimsoll_select::labels::Selector;
use serde_json::{Value, json};

pub use runner::{HookContext, HookCounts, RestoreHookRunner};

use crate::Error;

/// Default timeout of a command.
const DEFAULT_EXEC_TIMEOUT: Duration = Duration::from_secs(30);

/// The hooks of one Restore, compiled.
#[derive(Debug, Default)]
pub struct RestoreHooks {
    mapping: BTreeMap<String, String>,
    resources: Vec<ResourceHooks>,
}

#[derive(Debug)]
struct ResourceHooks {
    name: String,
    namespaces: IncludesExcludes,
    selector: Option<Selector>,
    init: Vec<Value>,
    exec: Vec<ExecRestoreHook>,
}

/// A command to run in a restored pod, with defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecHook {
    /// Name in messages.
    pub name: String,
    /// The container.
    pub container: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// `onError: Fail`: later hooks of the pod do not run.
    pub fails: bool,
    /// Timeout of the command.
    pub exec_timeout: Duration,
    /// Timeout of the wait for the container; `None` means the default of the restore.
    pub wait_timeout: Option<Duration>,
    /// Whether the container must be ready rather than running.
    pub wait_for_ready: bool,
}

impl RestoreHooks {
    /// Compiles the hooks of a spec.
    pub fn new(spec: &RestoreSpec) -> Result<Self, Error> {
        let specs = spec.hooks.as_ref().map_or(&[][..], |hooks| &hooks.resources);
        let resources = specs.iter().map(ResourceHooks::compile).collect::<Result<_, _>>()?;
        Ok(Self { mapping: spec.namespace_mapping.clone(), resources })
    }

    /// Init containers to add to a pod in its original namespace.
    pub fn init_containers(&self, pod: &Value) -> Result<Vec<Value>, String> {
        if let Some(container) = annotations::annotated_container(pod) {
            return Ok(vec![container]);
        }
        Ok(self.matching(pod).flat_map(|hooks| hooks.init.iter().cloned()).collect())
    }

    /// Commands to run in a pod, in order.
    pub fn commands(&self, pod: &Value) -> Vec<ExecHook> {
        let Some(first) = pod.pointer("/spec/containers/0/name").and_then(Value::as_str) else { return Vec::new() };
        if let Some(hook) = annotations::annotated_command(pod, first) {
            return vec![hook];
        }
        let named = |hooks: &ResourceHooks| -> Vec<ExecHook> {
            hooks.exec.iter().map(|hook| exec_hook(&hooks.name, hook, first)).collect()
        };
        self.matching(pod).flat_map(named).collect()
    }

    /// Hooks are matched by the target namespace.
    fn matching<'a>(&'a self, pod: &'a Value) -> impl Iterator<Item = &'a ResourceHooks> {
        let namespace = pod.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
        let namespace = self.mapping.get(namespace).map_or(namespace, String::as_str);
        let labels = pod.pointer("/metadata/labels").unwrap_or(&Value::Null);
        self.resources.iter().filter(move |hooks| {
            hooks.namespaces.includes(namespace)
                && hooks.selector.as_ref().is_none_or(|selector| selector.matches(labels))
        })
    }
}

impl ResourceHooks {
    fn compile(spec: &RestoreResourceHookSpec) -> Result<Self, Error> {
        let name = spec.name.clone().unwrap_or_default();
        let invalid = |error: String| Error::Selection(format!("spec.hooks.resources: hook {name:?}: {error}"));
        let namespaces = IncludesExcludes::new(&spec.included_namespaces, &spec.excluded_namespaces);
        let selector = spec.label_selector.as_ref().map(|selector| {
            let selector = serde_json::from_value(json!(selector)).map_err(|error| invalid(error.to_string()))?;
            Selector::new(&selector).map_err(|error| invalid(error.to_string()))
        });
        let init = spec.post_hooks.iter().filter_map(|hook| hook.init.as_ref());
        let init: Vec<Value> = init.flat_map(|init| init.init_containers.iter().cloned()).collect();
        init.iter().try_for_each(check_container).map_err(&invalid)?;
        let exec: Vec<ExecRestoreHook> = spec.post_hooks.iter().filter_map(|hook| hook.exec.clone()).collect();
        if exec.iter().any(|hook| hook.command.is_empty()) {
            return Err(invalid("an exec hook has no command".into()));
        }
        Ok(Self {
            namespaces: namespaces.map_err(|error| invalid(error.to_string()))?,
            selector: selector.transpose()?,
            init,
            exec,
            name,
        })
    }
}

fn check_container(container: &Value) -> Result<(), String> {
    let text = |field: &str| container.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    let command = container.get("command").and_then(Value::as_array).is_some_and(|command| !command.is_empty());
    match (text("name"), text("image"), command) {
        (true, true, true) => Ok(()),
        _ => Err("an init container needs name, image and command".into()),
    }
}

fn exec_hook(name: &str, hook: &ExecRestoreHook, first: &str) -> ExecHook {
    let timeout = |time: Option<&plimsoll_api::go::GoDuration>| {
        time.and_then(plimsoll_api::go::GoDuration::as_std).filter(|time| !time.is_zero())
    };
    ExecHook {
        name: name.to_owned(),
        container: hook.container.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| first.to_owned()),
        command: hook.command.clone(),
        fails: hook.on_error == Some(HookErrorMode::Fail),
        exec_timeout: timeout(hook.exec_timeout.as_ref()).unwrap_or(DEFAULT_EXEC_TIMEOUT),
        wait_timeout: timeout(hook.wait_timeout.as_ref()),
        wait_for_ready: hook.wait_for_ready == Some(true),
    }
}
