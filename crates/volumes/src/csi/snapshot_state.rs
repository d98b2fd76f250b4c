//! The state of a CSI snapshot, from its VolumeSnapshot and VolumeSnapshotContent.

use serde_json::Value;

use super::text;

/// The state of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SnapshotState {
    /// Not taken yet, with the last error of the driver.
    Pending(Option<String>),
    /// Taken by the driver.
    Taken(SnapshotDetails),
    /// Failed permanently.
    Failed(String),
}

/// A snapshot that the driver has taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SnapshotDetails {
    pub content: String,
    pub handle: String,
    pub driver: String,
    pub policy: String,
    /// Bytes; zero while unknown.
    pub size: i64,
    pub ready: bool,
    /// The last error of the driver, which retries.
    pub last_error: Option<String>,
}

/// gRPC codes that a retry does not change.
const PERMANENT_CODES: [&str; 5] = ["InvalidArgument", "NotFound", "PermissionDenied", "Unimplemented", "OutOfRange"];

/// Whether an error of a driver is permanent.
pub fn is_permanent(message: &str) -> bool {
    PERMANENT_CODES.iter().any(|code| message.contains(&format!("code = {code}")))
        || message.contains("does not support")
}

/// The error of a snapshot that failed permanently.
pub fn permanent_error(snapshot: &Value, content: Option<&Value>) -> Option<String> {
    match snapshot_state(snapshot, content) {
        SnapshotState::Failed(why) => Some(why),
        SnapshotState::Pending(_) | SnapshotState::Taken(_) => None,
    }
}

/// Computes the state from a VolumeSnapshot and its content, if it has one.
pub(super) fn snapshot_state(snapshot: &Value, content: Option<&Value>) -> SnapshotState {
    let owned = |value: &Value, place: &str| text(value, place).to_owned();
    // The text comes from another program.
    let message_of = |object: &Value| plimsoll_plugin::sanitize(text(object, "/status/error/message"));
    let mut errors = [Some(snapshot), content].into_iter().flatten().map(message_of);
    let last_error = errors.rfind(|message| !message.is_empty());
    if let Some(message) = last_error.as_ref().filter(|message| is_permanent(message)) {
        return SnapshotState::Failed(message.clone());
    }
    let Some(content) = content.filter(|content| !text(content, "/status/snapshotHandle").is_empty()) else {
        return SnapshotState::Pending(last_error);
    };
    let ready = |object: &Value| object.pointer("/status/readyToUse").and_then(Value::as_bool).unwrap_or(false);
    SnapshotState::Taken(SnapshotDetails {
        content: owned(content, "/metadata/name"),
        handle: owned(content, "/status/snapshotHandle"),
        driver: owned(content, "/spec/driver"),
        policy: owned(content, "/spec/deletionPolicy"),
        size: content.pointer("/status/restoreSize").and_then(Value::as_i64).unwrap_or(0),
        ready: ready(snapshot),
        last_error,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_permanent_errors_fail_a_snapshot() {
        let failing = |message: &str| json!({ "status": { "error": { "message": message } } });
        let broken = "rpc error: code = InvalidArgument desc = no such volume";
        assert_eq!(snapshot_state(&failing(broken), None), SnapshotState::Failed(broken.into()));
        let busy = "rpc error: code = Unavailable desc = later";
        assert_eq!(snapshot_state(&failing(busy), None), SnapshotState::Pending(Some(busy.into())));
        assert_eq!(snapshot_state(&json!({}), None), SnapshotState::Pending(None));
    }

    #[test]
    fn a_snapshot_with_a_handle_is_taken() {
        let content = json!({ "metadata": { "name": "c" }, "spec": { "driver": "d", "deletionPolicy": "Delete" },
            "status": { "snapshotHandle": "h", "restoreSize": 7 } });
        let SnapshotState::Taken(taken) = snapshot_state(&json!({}), Some(&content)) else { panic!("it has a handle") };
        assert_eq!((taken.handle.as_str(), taken.size, taken.ready), ("h", 7, false));
        let SnapshotState::Taken(taken) = snapshot_state(&json!({ "status": { "readyToUse": true } }), Some(&content))
        else {
            panic!()
        };
        assert!(taken.ready);
    }
}
