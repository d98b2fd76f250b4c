//! Pods: containers that run before the pod's own, because the pod or the Restore asks for them.

use serde_json::Value;

use super::super::hooks::RestoreHooks;
use super::{Said, map_at, text};

/// The container that waits for the data of volumes; it stays first.
const RESTORE_WAIT: &str = "restore-wait";

pub(super) fn act(item: &mut Value, hooks: &RestoreHooks) -> Result<Said, String> {
    let added = hooks.init_containers(item)?;
    if added.is_empty() {
        return Ok(Said::default());
    }
    if let Some(spec) = map_at(item, "/spec") {
        let mut containers = match spec.remove("initContainers") {
            Some(Value::Array(containers)) => containers,
            _ => Vec::new(),
        };
        let behind = usize::from(containers.first().is_some_and(|first| text(first, "/name") == RESTORE_WAIT));
        containers.splice(behind..behind, added);
        spec.insert("initContainers".into(), Value::Array(containers));
    }
    Ok(Said::default())
}
