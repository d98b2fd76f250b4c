//! What to do about a Backup or a Restore: a pure function.

use crate::queue::Blocked;

/// Where a subject is, for our purposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nobody has begun.
    New,
    /// Somebody has begun: this process, or one that is gone.
    Begun,
    /// It has ended, well or not.
    Ended,
    /// A phase that is not ours to act on.
    Other,
}

/// What is known when a subject is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other, not states")]
pub struct Observed {
    /// Where it is.
    pub stage: Stage,
    /// It is being deleted.
    pub deleted: bool,
    /// A finalizer of ours keeps it until its work has ended.
    pub held: bool,
    /// This process is working on it.
    pub running_here: bool,
    /// Its user asked for its end.
    pub cancelled: bool,
    /// Its Operation has not ended.
    pub operation_open: bool,
    /// What is wrong with its spec.
    pub faults: Vec<String>,
    /// Others of the same verb go first.
    pub blocked: Option<Blocked>,
    /// What it needs and is not there yet, for a while.
    pub missing: Option<String>,
}

/// What to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    Leave,
    /// Say what is wrong and end it.
    Refuse(Vec<String>),
    /// Say whom it waits for.
    Queue(Blocked),
    /// Say what it waits for and look again soon.
    Wait(String),
    /// Begin, or go on with what a dead leader began.
    Run,
    /// Ask the work to stop.
    Stop,
    /// End it without having begun.
    CancelUnbegun,
    /// Close the Operation and the journal that a dead leader left behind.
    Tidy,
    /// Its work has ended, or never began: nothing keeps it any more.
    Release,
}

/// Decides.
pub fn decide(seen: &Observed) -> Decision {
    match seen.stage {
        Stage::Other => Decision::Leave,
        _ if seen.running_here => {
            if seen.cancelled || seen.deleted {
                Decision::Stop
            } else {
                Decision::Leave
            }
        }
        Stage::Begun if seen.deleted && seen.held => Decision::Run,
        Stage::Ended if seen.held && seen.operation_open => Decision::Tidy,
        Stage::Ended if seen.held => Decision::Release,
        Stage::New if seen.held && seen.deleted => Decision::Release,
        _ if seen.deleted => Decision::Leave,
        Stage::Ended if seen.operation_open => Decision::Tidy,
        Stage::Ended => Decision::Leave,
        Stage::Begun => Decision::Run,
        Stage::New if seen.cancelled => Decision::CancelUnbegun,
        Stage::New if !seen.faults.is_empty() => Decision::Refuse(seen.faults.clone()),
        Stage::New => match (&seen.blocked, &seen.missing) {
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
            stage: Stage::New,
            deleted: false,
            held: false,
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
        let begun = Observed { stage: Stage::Begun, operation_open: true, ..new() };
        let ended = Observed { stage: Stage::Ended, ..new() };
        let blocked = Blocked { behind: vec!["a".to_owned()], position: 1, same_namespaces: false };
        let faults = vec!["spec.x: wrong".to_owned()];
        let cases = [
            ("a new one runs", new(), Decision::Run),
            ("a begun one that nobody runs is taken over", begun.clone(), Decision::Run),
            ("one that runs here is left alone", Observed { running_here: true, ..begun.clone() }, Decision::Leave),
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
                Decision::Refuse(faults.clone()),
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
            ("cancelled before it began", Observed { cancelled: true, ..new() }, Decision::CancelUnbegun),
            (
                "ended with an open operation is tidied",
                Observed { operation_open: true, ..ended.clone() },
                Decision::Tidy,
            ),
            (
                "deleted while its leader was dead: taken over, to end it in order",
                Observed { deleted: true, held: true, ..begun.clone() },
                Decision::Run,
            ),
            (
                "ended and still held is let go",
                Observed { held: true, deleted: true, ..ended.clone() },
                Decision::Release,
            ),
            ("held and never begun is let go", Observed { held: true, deleted: true, ..new() }, Decision::Release),
            ("held and not deleted runs", Observed { held: true, ..new() }, Decision::Run),
            ("ended is left alone", ended, Decision::Leave),
            ("being deleted is left alone", Observed { deleted: true, ..begun }, Decision::Leave),
        ];
        for (name, seen, expected) in cases {
            assert_eq!(decide(&seen), expected, "{name}");
        }
    }
}
