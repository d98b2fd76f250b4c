//! Decides what an agent does about a transfer: pure.

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use plimsoll_api::velero::v1::TransferPhase;
use plimsoll_volumes::transfer::Transfer;

/// The number of failed attempts after which a transfer fails.
pub(crate) const MAX_ATTEMPTS: u32 = 5;

/// The node of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// This node.
    Here,
    /// Another node.
    Elsewhere,
    /// Not known yet: the pod is not on a node, or does not wait for its data yet.
    Unknown,
}

/// The observed state of a transfer.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub phase: TransferPhase,
    pub place: Placement,
    pub running_here: bool,
    pub cancelled: bool,
    pub deleted: bool,
    /// The number of failed attempts.
    pub attempts: u32,
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing.
    Leave,
    /// Start or resume it.
    Run,
    /// Stop the process that works on it.
    Stop,
    /// End it: it was cancelled before it started, or after its agent was gone.
    Cancel,
    /// End it: it has been tried often enough.
    GiveUp,
}

pub(crate) fn decide(seen: &Observed) -> Decision {
    let over = seen.deleted || seen.phase.is_ended() || seen.place == Placement::Elsewhere;
    match (over, seen.running_here, seen.cancelled) {
        (true, true, _) | (false, true, true) => Decision::Stop,
        (true, false, _) | (false, true, false) => Decision::Leave,
        // Also before its node is known: the first agent ends it.
        (false, false, true) => Decision::Cancel,
        (false, false, _) if seen.place == Placement::Unknown => Decision::Leave,
        (false, false, _) if seen.attempts >= MAX_ATTEMPTS => Decision::GiveUp,
        (false, false, _) => Decision::Run,
    }
}

/// The node of a transfer, as far as its pod shows it.
pub(crate) fn placement<T: Transfer>(pod: Option<&Pod>, wanted: &ObjectReference, node: &str) -> Placement {
    let same = |pod: &&Pod| wanted.uid.as_deref().is_none_or(|uid| pod.metadata.uid.as_deref() == Some(uid));
    let Some(pod) = pod.filter(same) else { return Placement::Unknown };
    match pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
        None | Some("") => Placement::Unknown,
        Some(name) if name != node => Placement::Elsewhere,
        Some(_) if T::is_pod_ready(pod) => Placement::Here,
        Some(_) => Placement::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_api::velero::v1::PodVolumeRestore;
    use serde_json::{Value, json};

    use super::*;

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    fn observed(phase: TransferPhase, place: Placement) -> Observed {
        Observed { phase, place, running_here: false, cancelled: false, deleted: false, attempts: 0 }
    }

    #[test]
    fn a_transfer_of_this_node_runs_here_whichever_agent_had_it_before() {
        use TransferPhase::{Accepted, Canceling, Completed, Failed, InProgress, New, Prepared};
        for phase in [New, Accepted, Prepared, InProgress, Canceling] {
            assert_eq!(decide(&observed(phase.clone(), Placement::Here)), Decision::Run, "{phase:?}");
            assert_eq!(decide(&observed(phase.clone(), Placement::Elsewhere)), Decision::Leave, "{phase:?}");
            assert_eq!(decide(&observed(phase, Placement::Unknown)), Decision::Leave);
        }
        for phase in [Completed, Failed] {
            assert_eq!(decide(&observed(phase, Placement::Here)), Decision::Leave);
        }
    }

    #[test]
    fn a_running_one_is_stopped_when_its_user_or_its_parent_no_longer_wants_it() {
        let running = Observed { running_here: true, ..observed(TransferPhase::InProgress, Placement::Here) };
        assert_eq!(decide(&running), Decision::Leave);
        assert_eq!(decide(&Observed { cancelled: true, ..running.clone() }), Decision::Stop);
        assert_eq!(decide(&Observed { deleted: true, ..running.clone() }), Decision::Stop);
        assert_eq!(decide(&Observed { phase: TransferPhase::Failed, ..running }), Decision::Stop);
    }

    #[test]
    fn one_that_was_cancelled_while_it_did_not_run_ends_without_work() {
        let left = Observed { cancelled: true, ..observed(TransferPhase::InProgress, Placement::Here) };
        assert_eq!(decide(&left), Decision::Cancel);
        assert_eq!(decide(&Observed { place: Placement::Elsewhere, ..left }), Decision::Leave);
        let waiting = Observed { cancelled: true, ..observed(TransferPhase::New, Placement::Unknown) };
        assert_eq!(decide(&waiting), Decision::Cancel, "its pod may never wait for it");
    }

    #[test]
    fn one_that_was_tried_often_enough_is_given_up() {
        let tried = Observed { attempts: MAX_ATTEMPTS, ..observed(TransferPhase::InProgress, Placement::Here) };
        assert_eq!(decide(&tried), Decision::GiveUp);
    }

    #[test]
    fn a_restore_begins_on_its_pods_node_once_the_pod_waits_for_it() {
        let wanted = ObjectReference { uid: Some("u".into()), ..ObjectReference::default() };
        let of = |node: Value, state: Value, uid: &str| {
            let status = json!({"initContainerStatuses": [{"name": "restore-wait", "state": state, "ready": false,
                "image": "", "imageID": "", "restartCount": 0}]});
            let pod =
                pod(json!({"metadata": {"uid": uid}, "spec": {"nodeName": node, "containers": []}, "status": status}));
            placement::<PodVolumeRestore>(Some(&pod), &wanted, "here")
        };
        let running = json!({"running": {}});
        assert_eq!(of(json!("here"), running.clone(), "u"), Placement::Here);
        assert_eq!(of(json!("there"), running.clone(), "u"), Placement::Elsewhere);
        assert_eq!(of(json!(null), running.clone(), "u"), Placement::Unknown);
        assert_eq!(of(json!("here"), json!({"waiting": {}}), "u"), Placement::Unknown);
        assert_eq!(of(json!("here"), running, "another pod of that name"), Placement::Unknown);
        assert_eq!(placement::<PodVolumeRestore>(None, &wanted, "here"), Placement::Unknown);
    }
}
