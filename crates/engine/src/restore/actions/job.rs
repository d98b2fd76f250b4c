//! Jobs: the labels that tie the pods of a job to its old identity.

use serde_json::Value;

use super::{Said, remove_keys};

const IDENTITY: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

pub(super) fn act(item: &mut Value, _: &Value) -> Said {
    remove_keys(item, "/spec/selector", "matchLabels", &IDENTITY);
    remove_keys(item, "/spec/template/metadata", "labels", &IDENTITY);
    Said::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn acted(mut item: Value) -> Value {
        act(&mut item, &Value::Null);
        item
    }

    #[test]
    fn the_old_identity_goes_and_other_labels_stay() {
        let identity = json!({"controller-uid": "1", "batch.kubernetes.io/controller-uid": "1", "app": "x"});
        let job =
            json!({"spec": {"selector": {"matchLabels": identity}, "template": {"metadata": {"labels": identity}}}});
        let left = json!({"app": "x"});
        assert_eq!(
            acted(job),
            json!({"spec": {"selector": {"matchLabels": left}, "template": {"metadata": {"labels": left}}}})
        );
    }

    #[test]
    fn a_job_without_selector_or_labels_is_left_as_it_is() {
        for job in [json!({"spec": {"template": {}}}), json!({"spec": {"selector": null}}), json!({})] {
            assert_eq!(acted(job.clone()), job);
        }
    }
}
