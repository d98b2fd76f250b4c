//! What an agent does about a transfer: pure.

use plimsoll_api::velero::v1::TransferPhase;

/// How often a transfer is taken up before somebody has to look at it.
pub(super) const MOST_ATTEMPTS: u32 = 5;

/// Whose transfer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// This node's.
    Here,
    /// Another node's.
    Elsewhere,
    /// Nobody can say yet: the pod is not on a node, or does not wait for its data yet.
    NotYet,
}

/// What is known about a transfer.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    pub phase: TransferPhase,
    pub place: Place,
    pub running_here: bool,
    pub cancelled: bool,
    pub deleted: bool,
    /// How often it was taken up in vain.
    pub attempts: u32,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing.
    Leave,
    /// Take it up, or take it up again.
    Run,
    /// Stop the process that works on it.
    Stop,
    /// End it: it was cancelled before anybody began, or after whoever had begun was gone.
    Cancel,
    /// End it: it has been tried often enough.
    GiveUp,
}

pub(super) fn decide(seen: &Observed) -> Decision {
    let over = seen.deleted || seen.phase.is_ended() || seen.place == Place::Elsewhere;
    match (over, seen.running_here, seen.cancelled) {
        (true, true, _) | (false, true, true) => Decision::Stop,
        (true, false, _) | (false, true, false) => Decision::Leave,
        // Also before anybody can say whose it is: whichever agent comes first ends it.
        (false, false, true) => Decision::Cancel,
        (false, false, _) if seen.place == Place::NotYet => Decision::Leave,
        (false, false, _) if seen.attempts >= MOST_ATTEMPTS => Decision::GiveUp,
        (false, false, _) => Decision::Run,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(phase: TransferPhase, place: Place) -> Observed {
        Observed { phase, place, running_here: false, cancelled: false, deleted: false, attempts: 0 }
    }

    #[test]
    fn a_transfer_of_this_node_is_taken_up_whoever_had_it_before() {
        use TransferPhase::{Accepted, Canceling, Completed, Failed, InProgress, New, Prepared};
        for phase in [New, Accepted, Prepared, InProgress, Canceling] {
            assert_eq!(decide(&seen(phase.clone(), Place::Here)), Decision::Run, "{phase:?}");
            assert_eq!(decide(&seen(phase.clone(), Place::Elsewhere)), Decision::Leave, "{phase:?}");
            assert_eq!(decide(&seen(phase, Place::NotYet)), Decision::Leave);
        }
        for phase in [Completed, Failed] {
            assert_eq!(decide(&seen(phase, Place::Here)), Decision::Leave);
        }
    }

    #[test]
    fn a_running_one_is_stopped_when_its_user_or_its_parent_no_longer_wants_it() {
        let running = Observed { running_here: true, ..seen(TransferPhase::InProgress, Place::Here) };
        assert_eq!(decide(&running), Decision::Leave);
        assert_eq!(decide(&Observed { cancelled: true, ..running.clone() }), Decision::Stop);
        assert_eq!(decide(&Observed { deleted: true, ..running.clone() }), Decision::Stop);
        assert_eq!(decide(&Observed { phase: TransferPhase::Failed, ..running }), Decision::Stop);
    }

    #[test]
    fn one_that_was_cancelled_while_nobody_worked_on_it_ends_without_work() {
        let left = Observed { cancelled: true, ..seen(TransferPhase::InProgress, Place::Here) };
        assert_eq!(decide(&left), Decision::Cancel);
        assert_eq!(decide(&Observed { place: Place::Elsewhere, ..left }), Decision::Leave);
        let waiting = Observed { cancelled: true, ..seen(TransferPhase::New, Place::NotYet) };
        assert_eq!(decide(&waiting), Decision::Cancel, "its pod may never wait for it");
    }

    #[test]
    fn one_that_was_tried_often_enough_is_given_up() {
        let tried = Observed { attempts: MOST_ATTEMPTS, ..seen(TransferPhase::InProgress, Place::Here) };
        assert_eq!(decide(&tried), Decision::GiveUp);
    }
}
