//! Webhook configurations: version 1 refuses side effects that older versions took.

use serde_json::{Value, json};

use super::{Said, list_at, text};

pub(super) fn act(item: &mut Value, _: &Value) -> Said {
    if text(item, "/apiVersion") != "admissionregistration.k8s.io/v1" {
        return Said::default();
    }
    for webhook in list_at(item, "/webhooks").iter_mut().filter(|webhook| webhook.is_object()) {
        if !["None", "NoneOnDryRun"].contains(&text(webhook, "/sideEffects")) {
            webhook["sideEffects"] = json!("None");
        }
    }
    Said::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects(version: &str) -> Vec<Value> {
        let webhooks: Vec<Value> = ["None", "NoneOnDryRun", "Some", "Unknown"]
            .map(|effect| json!({"name": "x", "sideEffects": effect}))
            .into();
        let mut item = json!({"apiVersion": format!("admissionregistration.k8s.io/{version}"), "webhooks": webhooks});
        act(&mut item, &Value::Null);
        item["webhooks"].as_array().unwrap().iter().map(|webhook| webhook["sideEffects"].clone()).collect()
    }

    #[test]
    fn what_version_1_refuses_becomes_none() {
        assert_eq!(effects("v1"), ["None", "NoneOnDryRun", "None", "None"]);
    }

    #[test]
    fn older_versions_are_left_as_they_are() {
        assert_eq!(effects("v1beta1"), ["None", "NoneOnDryRun", "Some", "Unknown"]);
    }
}
