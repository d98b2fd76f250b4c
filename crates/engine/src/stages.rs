//! The stages of an operation.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_progress::{Task, Work};

/// The stages of an operation, planned from the start: what has not started counts in the percentage too.
pub struct Stages {
    root: Task,
    planned: Vec<(&'static str, Stage)>,
    operations: Mutex<Option<Stage>>,
}

/// The stage in which the operations of item actions are waited for. It is planned once it is known that there will be any.
const OPERATIONS: &str = "operations";

impl Stages {
    /// Plans the stages below `root`, each with its expected work: its weight.
    pub fn plan(root: &Task, stages: &[(&'static str, Work)]) -> Self {
        let plan = |(name, work): &(&'static str, Work)| {
            let task = root.planned(name);
            task.plan(*work);
            (*name, Stage::new(task))
        };
        Self { root: root.clone(), planned: stages.iter().map(plan).collect(), operations: Mutex::default() }
    }

    /// A stage.
    pub fn stage(&self, name: &str) -> Stage {
        let stage = self.planned.iter().find(|(known, _)| *known == name).map(|(_, stage)| stage.clone());
        stage.expect("a stage is requested by a name of the list it was planned from")
    }

    /// A stage that the caller starts.
    pub fn planned(&self, name: &str) -> Task {
        self.stage(name).task
    }

    /// Starts a stage.
    pub fn start(&self, name: &str) -> Task {
        let task = self.planned(name);
        task.start();
        task
    }

    /// The stage of item operations, planned now unless it is already.
    pub fn operations(&self) -> Stage {
        let mut operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
        operations.get_or_insert_with(|| Stage::new(self.root.planned(OPERATIONS))).clone()
    }

    /// There are no item operations: what was planned for them is not needed.
    pub fn skip_operations(&self) {
        let operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stage) = &*operations {
            stage.skip_rest("it has no item operations");
            stage.task.skip("it has no item operations");
        }
    }
}

/// A stage and the work that is planned below it before it begins.
#[derive(Clone)]
pub struct Stage {
    /// Its task.
    pub task: Task,
    planned: Arc<Mutex<HashMap<String, Task>>>,
}

impl Stage {
    fn new(task: Task) -> Self {
        Self { task, planned: Arc::default() }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Task>> {
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans a task below it, and on which node of the cluster it will run.
    pub fn plan(&self, name: &str, work: Work, node: Option<&str>) {
        let mut planned = self.all();
        let task = planned.entry(name.to_owned()).or_insert_with(|| self.task.planned(name));
        task.plan(work);
        if let Some(node) = node {
            task.runs_on(node);
        }
    }

    /// The task that was planned under this name, or a new one. The caller starts it.
    pub fn take(&self, name: &str) -> Task {
        self.all().remove(name).unwrap_or_else(|| self.task.planned(name))
    }

    /// What was planned and not taken was not needed.
    pub fn skip_rest(&self, reason: &str) {
        for task in std::mem::take(&mut *self.all()).into_values() {
            task.skip(reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_progress::{Clock, Operation, State};

    use super::*;

    #[test]
    fn planned_work_is_taken_once_and_what_nobody_needed_is_skipped() {
        let operation = Operation::new("backup-x", Clock::system());
        let stages = Stages::plan(&operation.root(), &[("volumes", Work::fixed(Duration::from_secs(1)))]);
        let stage = stages.stage("volumes");
        for name in ["a", "b"] {
            stage.plan(name, Work::fixed(Duration::from_secs(5)), Some("node-a"));
        }
        let (first, second, new) = (stage.take("a"), stage.take("a"), stage.take("c"));
        stage.skip_rest("not selected");
        let states: Vec<_> =
            operation.snapshot().nodes.iter().map(|node| (node.path.to_string(), node.state)).collect();
        let expected = [
            ("", State::Running),
            ("volumes", State::Pending),
            ("volumes/a", State::Pending),
            ("volumes/b", State::Skipped),
            ("volumes/a#2", State::Pending),
            ("volumes/c", State::Pending),
        ];
        assert_eq!(states, expected.map(|(path, state)| (path.to_owned(), state)));
        drop((first, second, new));
    }
}
