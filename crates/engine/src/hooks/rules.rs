//! The hooks of a pod, from its annotations or from the spec of the backup.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_api::go::GoDuration;
use plimsoll_api::velero::v1::{BackupHooks, BackupResourceHook, BackupResourceHookSpec, ExecHook, HookErrorMode};
use plimsoll_select::includes::IncludesExcludes;
use plimsoll_select::labels::Selector;
use plimsoll_select::resources::ResourceMapper;
use serde_json::Value;

use crate::Error;
use crate::exec::Command;

const PRE: &str = "pre.hook.backup.velero.io/";
const POST: &str = "post.hook.backup.velero.io/";
/// Prefix of pre-hooks in the first versions of Velero.
const OLD_PRE: &str = "hook.backup.velero.io/";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const PODS: &str = "pods";

/// A hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// The name in the spec, or `annotation`.
    pub name: String,
    /// The command.
    pub command: Command,
    /// Whether the pod is not backed up if the hook fails.
    pub fails_pod: bool,
}

/// The hooks of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodHooks {
    /// Pre-hooks.
    pub pre: Vec<Hook>,
    /// Post-hooks.
    pub post: Vec<Hook>,
    /// Invalid settings.
    pub warnings: Vec<String>,
}

impl PodHooks {
    /// Whether there are no hooks.
    pub fn is_empty(&self) -> bool {
        self.pre.is_empty() && self.post.is_empty()
    }
}

struct Rule {
    name: String,
    namespaces: IncludesExcludes,
    resources: IncludesExcludes,
    selector: Option<Selector>,
    pre: Vec<ExecHook>,
    post: Vec<ExecHook>,
}

/// The hooks of a backup's spec, compiled.
#[derive(Default)]
pub struct HookRules(Vec<Rule>);

impl HookRules {
    /// Compiles the hooks; `mapper` resolves the names of resources.
    pub fn compile(hooks: Option<&BackupHooks>, mapper: &(impl ResourceMapper + ?Sized)) -> Result<Self, Error> {
        let specs = hooks.map_or(&[][..], |hooks| &hooks.resources);
        specs.iter().map(|spec| Rule::compile(spec, mapper)).collect::<Result<_, _>>().map(Self)
    }

    /// The hooks of a pod. Pre-hooks and post-hooks of its annotations replace those of the spec.
    pub fn for_pod(&self, pod: &Value) -> PodHooks {
        let pod = PodView::of(pod);
        let mut found = PodHooks::default();
        found.pre = match pod
            .annotation_hook(PRE, &mut found.warnings)
            .or_else(|| pod.annotation_hook(OLD_PRE, &mut found.warnings))
        {
            Some(hook) => vec![hook],
            None => self.spec_hooks(&pod, |rule| &rule.pre),
        };
        found.post = match pod.annotation_hook(POST, &mut found.warnings) {
            Some(hook) => vec![hook],
            None => self.spec_hooks(&pod, |rule| &rule.post),
        };
        found
    }

    fn spec_hooks(&self, pod: &PodView<'_>, side: impl Fn(&Rule) -> &Vec<ExecHook>) -> Vec<Hook> {
        let rules = self.0.iter().filter(|rule| rule.matches(pod));
        rules.flat_map(|rule| side(rule).iter().map(|hook| pod.hook(&rule.name, hook))).collect()
    }
}

impl Rule {
    fn compile(spec: &BackupResourceHookSpec, mapper: &(impl ResourceMapper + ?Sized)) -> Result<Self, Error> {
        let name = spec.name.clone().unwrap_or_default();
        let invalid = |error: plimsoll_select::Error| Error::Selection(format!("spec.hooks.resources {name}: {error}"));
        let resolve = |names: &[String]| -> Vec<String> {
            names.iter().map(|n| mapper.resolve(n).map_or_else(|| n.clone(), |found| found.group_resource)).collect()
        };
        let execs = |hooks: &[BackupResourceHook]| hooks.iter().filter_map(|hook| hook.exec.clone()).collect();
        Ok(Self {
            namespaces: IncludesExcludes::new(&spec.included_namespaces, &spec.excluded_namespaces).map_err(invalid)?,
            resources: IncludesExcludes::new(&resolve(&spec.included_resources), &resolve(&spec.excluded_resources))
                .map_err(invalid)?,
            selector: spec.label_selector.as_ref().map(compile_selector).transpose().map_err(invalid)?,
            pre: execs(&spec.pre),
            post: execs(&spec.post),
            name,
        })
    }

    fn matches(&self, pod: &PodView<'_>) -> bool {
        self.namespaces.includes(pod.namespace)
            && self.resources.includes(PODS)
            && self.selector.as_ref().is_none_or(|selector| selector.matches(&pod.labels))
    }
}

/// Both selector types have the same JSON form.
fn compile_selector(selector: &impl serde::Serialize) -> Result<Selector, plimsoll_select::Error> {
    let selector = serde_json::to_value(selector).and_then(serde_json::from_value).unwrap_or_default();
    Selector::new(&selector)
}

struct PodView<'a> {
    namespace: &'a str,
    name: &'a str,
    annotations: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    first_container: &'a str,
}

impl<'a> PodView<'a> {
    fn of(pod: &'a Value) -> Self {
        let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let map =
            |path: &str| pod.pointer(path).and_then(|map| serde_json::from_value(map.clone()).ok()).unwrap_or_default();
        Self {
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            annotations: map("/metadata/annotations"),
            labels: map("/metadata/labels"),
            first_container: text("/spec/containers/0/name"),
        }
    }

    /// The hook of the annotations with this prefix, if they have a command.
    fn annotation_hook(&self, prefix: &str, warnings: &mut Vec<String>) -> Option<Hook> {
        let value = |key: &str| self.annotations.get(&format!("{prefix}{key}")).filter(|text| !text.is_empty());
        let command = parse_command(value("command")?);
        let timeout = value("timeout").map(|text| text.parse::<GoDuration>());
        if let Some(Err(error)) = &timeout {
            warnings.push(format!("annotation {prefix}timeout: {error}; using the default of 30 seconds"));
        }
        let hook = ExecHook {
            container: value("container").cloned(),
            command,
            on_error: value("on-error").map(|text| HookErrorMode::from(text.as_str())),
            timeout: timeout.and_then(Result::ok),
            ..ExecHook::default()
        };
        Some(self.hook("annotation", &hook))
    }

    fn hook(&self, name: &str, hook: &ExecHook) -> Hook {
        let timeout = hook.timeout.as_ref().and_then(GoDuration::as_std).filter(|limit| !limit.is_zero());
        Hook {
            name: name.to_owned(),
            command: Command {
                namespace: self.namespace.to_owned(),
                pod: self.name.to_owned(),
                container: hook
                    .container
                    .clone()
                    .filter(|name| !name.is_empty())
                    .unwrap_or(self.first_container.into()),
                command: hook.command.clone(),
                timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
            },
            fails_pod: hook.on_error != Some(HookErrorMode::Continue),
        }
    }
}

/// A JSON array of strings, or a single word; there is no shell.
fn parse_command(text: &str) -> Vec<String> {
    let array = text.starts_with('[').then(|| serde_json::from_str(text).ok()).flatten();
    array.unwrap_or_else(|| vec![text.to_owned()])
}
