//! Questions to item actions that run in processes of their own: one that takes long is a task that names the plugin.

use std::pin::pin;
use std::time::Duration;

use plimsoll_progress::Task;

use crate::ports::Supervised;

/// An answer that takes longer is waited for in a task of its own. Most are there at once, and there may be millions.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Waits for an answer about an item.
pub(crate) async fn asked<T, E: std::fmt::Display>(
    action: &str,
    item: &str,
    process: Option<&dyn Supervised>,
    task: &Task,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let Some(process) = process else { return answer.await };
    let mut answer = pin!(answer);
    if let Ok(answer) = tokio::time::timeout(AT_ONCE, &mut answer).await {
        return answer;
    }
    let task = task.child(format!("item action {action}"));
    task.quiet();
    task.say(item);
    let _attention = process.observe(&task);
    let answer = answer.await;
    match &answer {
        Ok(_) => task.finish(),
        Err(error) => task.fail(error.to_string()),
    }
    answer
}

#[cfg(test)]
mod tests {
    use plimsoll_progress::{Clock, Operation};

    use super::*;
    use crate::ports::Attention;

    struct Process;

    impl Supervised for Process {
        fn observe(&self, task: &Task) -> Attention {
            task.liveness_failed("no answer to its health check");
            Box::new(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_is_a_quiet_task_that_knows_how_its_process_is() {
        let tree = Operation::new("backup-b", Clock::system());
        let reading = tree.root().child("reading");
        let quick = async { Ok::<_, String>(1) };
        assert_eq!(asked("x.io/quick", "n/c", Some(&Process), &reading, quick).await, Ok(1));
        let slow = async {
            tokio::time::sleep(AT_ONCE * 2).await;
            let shown = tree.snapshot();
            let node = shown.nodes.iter().find(|node| &*node.name == "item action x.io/slow").expect("it is shown");
            assert!(node.quiet && node.item.as_deref() == Some("n/c"), "{node:?}");
            assert!(node.stall.is_some(), "its process does not answer: {node:?}");
            Ok::<_, String>(2)
        };
        assert_eq!(asked("x.io/slow", "n/c", Some(&Process), &reading, slow).await, Ok(2));
        assert!(!tree.snapshot().nodes.iter().any(|node| &*node.name == "item action x.io/quick"));
    }
}
