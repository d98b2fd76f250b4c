//! The stages of an operation.

use std::time::Duration;

use plimsoll_progress::Task;

/// The stages of an operation, planned from the start: what has not started counts in the percentage too.
pub struct Stages(Vec<(&'static str, Task)>);

impl Stages {
    /// Plans the stages below `root`, each with its expected duration: its weight.
    pub fn plan(root: &Task, stages: &[(&'static str, Duration)]) -> Self {
        let plan = |(name, expected): &(&'static str, Duration)| {
            let task = root.planned(name);
            task.expect_duration(*expected);
            (*name, task)
        };
        Self(stages.iter().map(plan).collect())
    }

    /// A stage that the caller starts.
    pub fn planned(&self, name: &str) -> Task {
        let task = self.0.iter().find(|(known, _)| *known == name).map(|(_, task)| task.clone());
        task.expect("a stage is requested by a name of the list it was planned from")
    }

    /// Starts a stage.
    pub fn start(&self, name: &str) -> Task {
        let task = self.planned(name);
        task.start();
        task
    }
}
