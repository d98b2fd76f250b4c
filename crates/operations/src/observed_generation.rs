//! `status.observedGeneration` of a subject that has ended.
//!
//! The kinds of Velero and Kanister have no status subresource, so that each write of a status is a new generation. Tools that follow
//! kstatus, and `kubectl wait`, compare it with `status.observedGeneration`. The write that sets this field therefore states the
//! generation that it makes itself, and only succeeds if no other write came first. While an operation runs the field is absent.

use plimsoll_engine::Error;
use serde_json::{Value, json};

use crate::leader_client::LeaderClient;
use crate::subject::Subject;

const FIELD: &str = "observedGeneration";
/// So many other writes may come first.
const MAX_CONFLICTS: u32 = 20;

/// The last status of a subject, with the generation that writing it to `object` makes.
pub(crate) fn with_observed_generation(mut status: Value, object: &Value) -> Value {
    if let Some(generation) = generation(object) {
        status[FIELD] = json!(generation + 1);
    }
    status
}

/// Whether a subject that has ended was changed since.
pub(crate) fn is_outdated(object: &Value) -> bool {
    let observed = object.pointer("/status/observedGeneration").and_then(Value::as_i64);
    observed.is_some() && observed != generation(object)
}

fn generation(object: &Value) -> Option<i64> {
    object.pointer("/metadata/generation").and_then(Value::as_i64)
}

/// Writes the last status of a subject. A subject that no longer exists is a success.
pub(crate) async fn write_final_status(leader: &LeaderClient, id: &Subject, status: &Value) -> Result<(), Error> {
    let mut conflicts = 0;
    loop {
        let Some(found) = leader.cluster.get(&id.path()).await? else { return Ok(()) };
        let object: Value = serde_json::from_slice(&found).unwrap_or_default();
        let patch = json!({
            "metadata": { "resourceVersion": object["metadata"]["resourceVersion"] },
            "status": with_observed_generation(status.clone(), &object),
        });
        leader.fence.check()?;
        match leader.cluster.merge(&id.path(), patch.to_string().into_bytes()).await {
            Err(error) if error.code() == Some(404) => return Ok(()),
            Err(error) if error.code() == Some(409) && conflicts < MAX_CONFLICTS => conflicts += 1,
            answer => return answer.map(|_| ()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_states_the_generation_that_its_write_makes() {
        let object = json!({ "metadata": { "generation": 7 } });
        assert_eq!(with_observed_generation(json!({ "phase": "Completed" }), &object)[FIELD], 8);
        assert!(with_observed_generation(json!({}), &json!({ "metadata": {} })).get(FIELD).is_none());
    }

    #[test]
    fn only_a_stated_generation_can_be_outdated() {
        let object = |observed: Value| json!({ "metadata": { "generation": 7 }, "status": observed });
        assert!(is_outdated(&object(json!({ FIELD: 6 }))));
        assert!(!is_outdated(&object(json!({ FIELD: 7 }))));
        assert!(!is_outdated(&object(json!({ "phase": "Completed" }))));
    }
}
