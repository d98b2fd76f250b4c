use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use plimsoll_volumes::transfer::restore_wait::{cannot_wait, has_waited};
use serde_json::{Value, json};

#[test]
fn a_pod_has_waited_once_its_first_container_has_ended_well() {
    let waited = |state: Value| {
        let status = json!({"initContainerStatuses": [{"name": "restore-wait", "state": state, "ready": false, "image": "",
            "imageID": "", "restartCount": 0}]});
        has_waited(&serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap())
    };
    assert!(waited(json!({"terminated": {"exitCode": 0}})));
    assert!(!waited(json!({"terminated": {"exitCode": 137}})) && !waited(json!({"running": {}})));
    assert!(!has_waited(&Pod::default()));
}

#[test]
fn a_container_that_was_only_just_started_again_may_not_wait_for_long() {
    let crashed = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
    let running = |ago: i64| json!({"running": {"startedAt": Timestamp::now() - SignedDuration::from_secs(ago)}});
    let why = |state: Value, last: Value| {
        let status = json!({"initContainerStatuses": [{"name": "restore-wait", "state": state, "lastState": last,
            "ready": false, "image": "", "imageID": "", "restartCount": 1}]});
        cannot_wait(&serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap())
    };
    assert_eq!(why(running(1), crashed.clone()).as_deref(), Some("exit code 1: Error"));
    assert_eq!(why(running(10), crashed.clone()), None);
    assert_eq!(why(running(1), json!({})), None);
    assert_eq!(why(crashed, json!({})).as_deref(), Some("exit code 1: Error"));
    let talkative = json!({"terminated": {"exitCode": 1, "reason": "Error", "message": "waiting\nit is closed\n"}});
    assert_eq!(why(talkative, json!({})).as_deref(), Some("exit code 1: Error: it is closed"));
}
