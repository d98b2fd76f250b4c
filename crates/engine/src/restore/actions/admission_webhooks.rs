//! Webhook configurations: v1 rejects values of `sideEffects` that older versions accepted.

use serde_json::{Value, json};

use super::{ActionEffect, list_at, text};

pub(super) fn apply(item: &mut Value, _: &Value) -> ActionEffect {
    if text(item, "/apiVersion") != "admissionregistration.k8s.io/v1" {
        return ActionEffect::default();
    }
    for webhook in list_at(item, "/webhooks").iter_mut().filter(|webhook| webhook.is_object()) {
        if !["None", "NoneOnDryRun"].contains(&text(webhook, "/sideEffects")) {
            webhook["sideEffects"] = json!("None");
        }
    }
    ActionEffect::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects(version: &str) -> Vec<Value> {
        let webhooks: Vec<Value> = ["None", "NoneOnDryRun", "Some", "Unknown"]
            .map(|effect| json!({"name": "x", "sideEffects": effect}))
            .into();
        let mut item = json!({"apiVersion": format!("admissionregistration.k8s.io/{version}"), "webhooks": webhooks});
        apply(&mut item, &Value::Null);
        item["webhooks"].as_array().unwrap().iter().map(|webhook| webhook["sideEffects"].clone()).collect()
    }

    #[test]
    fn values_that_v1_rejects_become_none() {
        assert_eq!(effects("v1"), ["None", "NoneOnDryRun", "None", "None"]);
    }

    #[test]
    fn older_versions_are_not_changed() {
        assert_eq!(effects("v1beta1"), ["None", "NoneOnDryRun", "Some", "Unknown"]);
    }
}
