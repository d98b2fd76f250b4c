//! Calls of item actions. A slow call to a plugin process is shown as a task with the name of the action.

use std::pin::pin;
use std::time::Duration;

use plimsoll_progress::Task;

use crate::ports::SupervisedProcess;

/// A call that takes longer becomes a task of its own. Most calls are quick, and there may be millions.
const SLOW_CALL_THRESHOLD: Duration = Duration::from_secs(2);

/// Waits for the result of an action on an item.
pub(crate) async fn call_action<T, E: std::fmt::Display>(
    action: &str,
    item: &str,
    process: Option<&dyn SupervisedProcess>,
    task: &Task,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let Some(process) = process else { return call.await };
    let mut call = pin!(call);
    if let Ok(result) = tokio::time::timeout(SLOW_CALL_THRESHOLD, &mut call).await {
        return result;
    }
    let task = task.child(format!("item action {action}"));
    task.quiet();
    task.say(item);
    let _observing = process.observe(&task);
    let result = call.await;
    match &result {
        Ok(_) => task.finish(),
        Err(error) => task.fail(error.to_string()),
    }
    result
}

#[cfg(test)]
mod tests {
    use plimsoll_progress::{Clock, Operation};

    use super::*;
    use crate::ports::ObservationGuard;

    struct Process;

    impl SupervisedProcess for Process {
        fn observe(&self, task: &Task) -> ObservationGuard {
            task.liveness_failed("no answer to its health check");
            Box::new(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_call_is_a_task_that_shows_the_health_of_its_process() {
        let tree = Operation::new("backup-b", Clock::system());
        let reading = tree.root().child("reading");
        let quick = async { Ok::<_, String>(1) };
        assert_eq!(call_action("x.io/quick", "n/c", Some(&Process), &reading, quick).await, Ok(1));
        let slow = async {
            tokio::time::sleep(SLOW_CALL_THRESHOLD * 2).await;
            let shown = tree.snapshot();
            let node =
                shown.nodes.iter().find(|node| &*node.name == "item action x.io/slow").expect("a slow call is a task");
            assert!(node.quiet && node.item.as_deref() == Some("n/c"), "{node:?}");
            assert!(node.stall.is_some(), "the health check of its process failed: {node:?}");
            Ok::<_, String>(2)
        };
        assert_eq!(call_action("x.io/slow", "n/c", Some(&Process), &reading, slow).await, Ok(2));
        assert!(!tree.snapshot().nodes.iter().any(|node| &*node.name == "item action x.io/quick"));
    }
}
