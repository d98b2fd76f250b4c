//! Jobs: removes the labels with the old uid.

use serde_json::Value;

use super::{ActionEffect, remove_keys};

const IDENTITY: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

pub(super) fn apply(item: &mut Value, _: &Value) -> ActionEffect {
    remove_keys(item, "/spec/selector", "matchLabels", &IDENTITY);
    remove_keys(item, "/spec/template/metadata", "labels", &IDENTITY);
    ActionEffect::default()
}

#[cfg(test)]
mod tests {
    use super::super::applied;
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_with_the_old_uid_are_removed() {
        let identity = json!({"controller-uid": "1", "batch.kubernetes.io/controller-uid": "1", "app": "x"});
        let job =
            json!({"spec": {"selector": {"matchLabels": identity}, "template": {"metadata": {"labels": identity}}}});
        let left = json!({"app": "x"});
        assert_eq!(
            applied(apply, job),
            json!({"spec": {"selector": {"matchLabels": left}, "template": {"metadata": {"labels": left}}}})
        );
    }

    #[test]
    fn a_job_without_selector_or_labels_is_not_changed() {
        for job in [json!({"spec": {"template": {}}}), json!({"spec": {"selector": null}}), json!({})] {
            assert_eq!(applied(apply, job.clone()), job);
        }
    }
}
