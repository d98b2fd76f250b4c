//! What to do about a subject: a pure function.

use crate::queue::QueueObstacle;

/// The state of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectState {
    /// Not started.
    New,
    /// Started by this process, or by one that is gone.
    InProgress,
    /// Ended, successfully or not.
    Ended,
    /// In a phase that is not ours to act on.
    Unmanaged,
}

/// The observed state of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other, not states")]
pub struct Observed {
    /// Its state.
    pub state: SubjectState,
    /// It is being deleted.
    pub deleted: bool,
    /// Our finalizer keeps it until its work has ended.
    pub finalizer: bool,
    /// It was changed since its last status was written.
    pub outdated: bool,
    /// This process is working on it.
    pub running_here: bool,
    /// Its user cancelled it.
    pub cancelled: bool,
    /// Its Operation has not ended.
    pub operation_open: bool,
    /// Defects of its spec.
    pub faults: Vec<String>,
    /// Others of the same kind go first.
    pub blocked: Option<QueueObstacle>,
    /// Required objects that do not exist yet.
    pub missing: Option<String>,
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    Ignore,
    /// Write its faults and end it.
    Reject(Vec<String>),
    /// Show the subjects it waits for.
    Queue(QueueObstacle),
    /// Show what it waits for and reconcile again soon.
    Wait(String),
    /// Start it, or take it over from a dead leader.
    Run,
    /// Cancel the running work.
    Stop,
    /// End it without having started it.
    CancelBeforeStart,
    /// Close the Operation and the journal that a dead leader left behind.
    CleanUp,
    /// It was changed after its end: state that this was seen and means no work.
    Acknowledge,
    /// Its work has ended or never started: remove the finalizer.
    RemoveFinalizer,
}

/// Decides what to do about a subject.
pub fn decide(observed: &Observed) -> Decision {
    match observed.state {
        SubjectState::Unmanaged => Decision::Ignore,
        _ if observed.running_here => {
            if observed.cancelled || observed.deleted {
                Decision::Stop
            } else {
                Decision::Ignore
            }
        }
        SubjectState::InProgress if observed.deleted && observed.finalizer => Decision::Run,
        SubjectState::Ended if observed.finalizer && observed.operation_open => Decision::CleanUp,
        SubjectState::Ended if observed.finalizer => Decision::RemoveFinalizer,
        SubjectState::New if observed.finalizer && observed.deleted => Decision::RemoveFinalizer,
        _ if observed.deleted => Decision::Ignore,
        SubjectState::Ended if observed.operation_open => Decision::CleanUp,
        SubjectState::Ended if observed.outdated => Decision::Acknowledge,
        SubjectState::Ended => Decision::Ignore,
        SubjectState::InProgress => Decision::Run,
        SubjectState::New if observed.cancelled => Decision::CancelBeforeStart,
        SubjectState::New if !observed.faults.is_empty() => Decision::Reject(observed.faults.clone()),
        SubjectState::New => match (&observed.blocked, &observed.missing) {
            (Some(blocked), _) => Decision::Queue(blocked.clone()),
            (None, Some(missing)) => Decision::Wait(missing.clone()),
            (None, None) => Decision::Run,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> Observed {
        Observed {
            state: SubjectState::New,
            deleted: false,
            finalizer: false,
            outdated: false,
            running_here: false,
            cancelled: false,
            operation_open: false,
            faults: vec![],
            blocked: None,
            missing: None,
        }
    }

    #[test]
    fn the_table() {
        let begun = Observed { state: SubjectState::InProgress, operation_open: true, ..new() };
        let ended = Observed { state: SubjectState::Ended, ..new() };
        let blocked = QueueObstacle { behind: vec!["a".to_owned()], position: 1, same_namespaces: false };
        let faults = vec!["spec.x: wrong".to_owned()];
        let cases = [
            ("a new one runs", new(), Decision::Run),
            ("a started one that no process runs is taken over", begun.clone(), Decision::Run),
            ("one that runs here is left alone", Observed { running_here: true, ..begun.clone() }, Decision::Ignore),
            ("cancel stops it", Observed { running_here: true, cancelled: true, ..begun.clone() }, Decision::Stop),
            ("deleting it stops it", Observed { running_here: true, deleted: true, ..begun.clone() }, Decision::Stop),
            (
                "a cancelled one whose leader died is taken over, to clean up",
                Observed { cancelled: true, ..begun.clone() },
                Decision::Run,
            ),
            (
                "faults are refused before queueing",
                Observed { faults: faults.clone(), blocked: Some(blocked.clone()), ..new() },
                Decision::Reject(faults.clone()),
            ),
            ("a begun one is not validated again", Observed { faults, ..begun.clone() }, Decision::Run),
            (
                "one behind another queues",
                Observed { blocked: Some(blocked.clone()), ..new() },
                Decision::Queue(blocked),
            ),
            (
                "one whose location is not checked yet waits",
                Observed { missing: Some("location default".into()), ..new() },
                Decision::Wait("location default".into()),
            ),
            ("cancelled before it began", Observed { cancelled: true, ..new() }, Decision::CancelBeforeStart),
            (
                "ended with an open operation is tidied",
                Observed { operation_open: true, ..ended.clone() },
                Decision::CleanUp,
            ),
            (
                "deleted while its leader was dead: taken over, to end it in order",
                Observed { deleted: true, finalizer: true, ..begun.clone() },
                Decision::Run,
            ),
            (
                "ended and still held is let go",
                Observed { finalizer: true, deleted: true, ..ended.clone() },
                Decision::RemoveFinalizer,
            ),
            (
                "held and never begun is let go",
                Observed { finalizer: true, deleted: true, ..new() },
                Decision::RemoveFinalizer,
            ),
            ("held and not deleted runs", Observed { finalizer: true, ..new() }, Decision::Run),
            (
                "ended and changed since is acknowledged",
                Observed { outdated: true, ..ended.clone() },
                Decision::Acknowledge,
            ),
            (
                "a change of one that has not ended is no end",
                Observed { outdated: true, ..begun.clone() },
                Decision::Run,
            ),
            ("ended is left alone", ended, Decision::Ignore),
            ("being deleted is left alone", Observed { deleted: true, ..begun }, Decision::Ignore),
        ];
        for (name, seen, expected) in cases {
            assert_eq!(decide(&seen), expected, "{name}");
        }
    }
}
