//! Where a snapshot stands: pure.

use serde_json::Value;

use super::text;

/// What is known of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing yet; what is known about why.
    Pending(Option<String>),
    /// The driver has it.
    Taken(SnapshotDetails),
    /// It will not be.
    Failed(String),
}

/// A snapshot that the driver has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SnapshotDetails {
    pub content: String,
    pub handle: String,
    pub driver: String,
    pub policy: String,
    /// Bytes; zero while unknown.
    pub size: i64,
    pub ready: bool,
    /// What the driver says is wrong, and tries again.
    pub trouble: Option<String>,
}

/// Codes of drivers that do not go away by trying again.
const PERMANENT: [&str; 5] = ["InvalidArgument", "NotFound", "PermissionDenied", "Unimplemented", "OutOfRange"];

/// Whether what a driver says is wrong stays wrong, however often it is asked.
pub fn is_permanent(message: &str) -> bool {
    PERMANENT.iter().any(|code| message.contains(&format!("code = {code}"))) || message.contains("does not support")
}

/// What a driver says about a snapshot that will never be ready.
pub fn refusal(snapshot: &Value, content: Option<&Value>) -> Option<String> {
    match of(snapshot, content) {
        State::Failed(why) => Some(why),
        State::Pending(_) | State::Taken(_) => None,
    }
}

/// From a VolumeSnapshot and, once it has one, its content.
pub(super) fn of(snapshot: &Value, content: Option<&Value>) -> State {
    let owned = |value: &Value, place: &str| text(value, place).to_owned();
    // Text of another program.
    let said = |object: &Value| plimsoll_plugin::sanitize(text(object, "/status/error/message"));
    let mut errors = [Some(snapshot), content].into_iter().flatten().map(said);
    let trouble = errors.rfind(|message| !message.is_empty());
    if let Some(message) = trouble.as_ref().filter(|message| is_permanent(message)) {
        return State::Failed(message.clone());
    }
    let Some(content) = content.filter(|content| !text(content, "/status/snapshotHandle").is_empty()) else {
        return State::Pending(trouble);
    };
    let ready = |object: &Value| object.pointer("/status/readyToUse").and_then(Value::as_bool).unwrap_or(false);
    State::Taken(SnapshotDetails {
        content: owned(content, "/metadata/name"),
        handle: owned(content, "/status/snapshotHandle"),
        driver: owned(content, "/spec/driver"),
        policy: owned(content, "/spec/deletionPolicy"),
        size: content.pointer("/status/restoreSize").and_then(Value::as_i64).unwrap_or(0),
        ready: ready(snapshot),
        trouble,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_permanent_error_is_the_end_and_another_one_is_a_reason_to_wait() {
        let failing = |message: &str| json!({ "status": { "error": { "message": message } } });
        let broken = "rpc error: code = InvalidArgument desc = no such volume";
        assert_eq!(of(&failing(broken), None), State::Failed(broken.into()));
        let busy = "rpc error: code = Unavailable desc = later";
        assert_eq!(of(&failing(busy), None), State::Pending(Some(busy.into())));
        assert_eq!(of(&json!({}), None), State::Pending(None));
    }

    #[test]
    fn a_handle_makes_it_a_snapshot_and_ready_it_may_be_later() {
        let content = json!({ "metadata": { "name": "c" }, "spec": { "driver": "d", "deletionPolicy": "Delete" },
            "status": { "snapshotHandle": "h", "restoreSize": 7 } });
        let State::Taken(taken) = of(&json!({}), Some(&content)) else { panic!("it has a handle") };
        assert_eq!((taken.handle.as_str(), taken.size, taken.ready), ("h", 7, false));
        let State::Taken(taken) = of(&json!({ "status": { "readyToUse": true } }), Some(&content)) else { panic!() };
        assert!(taken.ready);
    }
}
