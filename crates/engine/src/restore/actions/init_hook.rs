//! Pods: adds the init containers of restore hooks.

use serde_json::Value;

use super::super::hooks::RestoreHooks;
use super::{ActionEffect, map_at, text};

/// The init container that waits for volume data; it stays first.
const RESTORE_WAIT: &str = "restore-wait";

pub(super) fn apply(item: &mut Value, hooks: &RestoreHooks) -> Result<ActionEffect, String> {
    let added = hooks.init_containers(item)?;
    if added.is_empty() {
        return Ok(ActionEffect::default());
    }
    if let Some(spec) = map_at(item, "/spec") {
        let mut containers = match spec.remove("initContainers") {
            Some(Value::Array(containers)) => containers,
            _ => Vec::new(),
        };
        let position = usize::from(containers.first().is_some_and(|first| text(first, "/name") == RESTORE_WAIT));
        containers.splice(position..position, added);
        spec.insert("initContainers".into(), Value::Array(containers));
    }
    Ok(ActionEffect::default())
}
