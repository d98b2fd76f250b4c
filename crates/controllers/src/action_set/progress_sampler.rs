//! The functions that run now, and how far they say they are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_blueprint::board::{PhaseRef, Sample};
use plimsoll_blueprint::functions::{Call, Function};
use plimsoll_progress::Snapshot;
use tracing::warn;

/// A function that runs now.
#[derive(Clone)]
pub struct Running {
    pub function: &'static dyn Function,
    pub call: Arc<Call>,
}

struct Watched {
    running: Running,
    /// It could not say how far it is, and that was logged.
    silent: bool,
}

/// Polls the progress of functions.
#[derive(Default)]
pub struct Sampler {
    watched: Mutex<BTreeMap<PhaseRef, Watched>>,
}

impl Sampler {
    fn watched(&self) -> MutexGuard<'_, BTreeMap<PhaseRef, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A function runs from now on.
    pub fn watch(&self, place: PhaseRef, running: Running) {
        self.watched().insert(place, Watched { running, silent: false });
    }

    /// The call of a phase that runs now.
    pub fn call_of(&self, place: PhaseRef) -> Option<Arc<Call>> {
        self.watched().get(&place).map(|watched| Arc::clone(&watched.running.call))
    }

    /// It has ended.
    pub fn forget(&self, place: PhaseRef) {
        self.watched().remove(&place);
    }

    /// What every function says. One that cannot say how far it is fails nothing: what was shown of it stays, and its trouble
    /// is logged once.
    pub fn ask(&self, tree: Option<&Snapshot>) -> Vec<(PhaseRef, Sample)> {
        let mut samples = Vec::new();
        for (place, watched) in self.watched().iter_mut() {
            let Running { function, call } = &watched.running;
            match function.progress(call) {
                Ok(sample) => samples.push((*place, with_time_left(sample, call, tree))),
                Err(error) if !watched.silent => {
                    watched.silent = true;
                    warn!("{}: how far it is cannot be told: {error}", call.label);
                    call.log(&format!("how far it is cannot be told: {error}"));
                }
                Err(_) => {}
            }
        }
        samples
    }
}

/// The time left as our own tree has it, where bytes are what counts and no mover of ours has said it already.
fn with_time_left(mut sample: Sample, call: &Call, tree: Option<&Snapshot>) -> Sample {
    let known = sample.upload_total.or(sample.download_total).is_some() && call.gauge.is_measured_in_bytes();
    let node = tree.and_then(|tree| tree.node(call.task.path())).filter(|_| known);
    sample.seconds_left = sample.seconds_left.or_else(|| Some(node?.left?.high));
    sample
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use plimsoll_api::kanister::v1alpha1::{ActionSpec, BlueprintAction};
    use plimsoll_blueprint::Error;
    use plimsoll_blueprint::board::{Board, Outputs, PhaseIndex};
    use plimsoll_blueprint::functions::arguments::Arguments;
    use plimsoll_blueprint::functions::function_spec::ProgressKind;
    use plimsoll_blueprint::functions::{Direction, Host, PodSettings, ResumePolicy, TransferProgress};
    use plimsoll_blueprint::params::Params;
    use plimsoll_progress::{Clock, Operation, Task, VirtualClock};
    use serde_json::json;

    use super::*;

    /// Works, and cannot say how far it is.
    struct Speechless;

    impl Function for Speechless {
        fn resume_policy(&self) -> ResumePolicy {
            ResumePolicy::Repeat
        }

        fn run<'a>(&'a self, _: &'a Call) -> BoxFuture<'a, Result<Outputs, Error>> {
            Box::pin(async { Ok(Outputs::new()) })
        }

        fn progress(&self, _: &Call) -> Result<Sample, Error> {
            Err(Error::Missing("its meter is broken".into()))
        }
    }

    /// Works, and says what its gauge says.
    struct Speaking;

    impl Function for Speaking {
        fn resume_policy(&self) -> ResumePolicy {
            ResumePolicy::Repeat
        }

        fn run<'a>(&'a self, _: &'a Call) -> BoxFuture<'a, Result<Outputs, Error>> {
            Box::pin(async { Ok(Outputs::new()) })
        }
    }

    #[derive(Default)]
    struct Notebook(Mutex<Vec<String>>);

    impl Host for Notebook {
        fn authorize_effect(&self) -> Result<(), Error> {
            Ok(())
        }

        fn failpoint(&self, _: &'static str) {}

        fn recall(&self, _: &str) -> Option<String> {
            None
        }

        fn remember<'a>(&'a self, _: &'a str, _: String) -> BoxFuture<'a, Result<(), Error>> {
            Box::pin(async { Ok(()) })
        }

        fn log(&self, line: &str) {
            self.0.lock().unwrap().push(line.to_owned());
        }
    }

    fn call(task: Task, host: Arc<Notebook>) -> Arc<Call> {
        let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = kube::Client::try_from(config).unwrap();
        let (arguments, params, style) = (Arguments::default(), Params::default(), PodSettings::default());
        let owner = OwnerReference::default();
        let (home, label) = ("home".to_owned(), "act/p".to_owned());
        Arc::new(Call::new(
            client,
            home,
            &["u"],
            label,
            arguments,
            params,
            style,
            owner,
            task,
            ProgressKind::Bytes,
            host,
        ))
    }

    fn board() -> Board {
        let action: BlueprintAction =
            serde_json::from_value(json!({ "phases": [{ "func": "f", "name": "p" }] })).unwrap();
        Board::new([(&ActionSpec::default(), &action)])
    }

    const PLACE: PhaseRef = PhaseRef { action: 0, phase: PhaseIndex::Core(0) };

    #[tokio::test]
    async fn a_function_that_cannot_say_how_far_it_is_is_logged_once_and_its_phase_ends_complete() {
        let (operation, notebook, mut board) =
            (Operation::new("set", Clock::system()), Arc::new(Notebook::default()), board());
        let call = call(operation.root().child("p"), Arc::clone(&notebook));
        let sampler = Sampler::default();
        board.start();
        board.begin(PLACE, jiff::Timestamp::now());
        sampler.watch(PLACE, Running { function: &Speechless, call: Arc::clone(&call) });
        for _ in 0..3 {
            assert!(sampler.ask(Some(&operation.snapshot())).is_empty());
        }
        let said = notebook.0.lock().unwrap().clone();
        assert_eq!(said, ["act/p: how far it is cannot be told: its meter is broken"]);
        assert_eq!(board.state_of(PLACE).unwrap().as_str(), "running");
        let outputs = Speechless.run(&call).await.unwrap();
        sampler.forget(PLACE);
        board.complete(PLACE, outputs, jiff::Timestamp::now());
        let status = board.status(jiff::Timestamp::now());
        let progress = status.actions[0].phases[0].progress.clone().unwrap();
        assert_eq!(progress.progress_percent.as_deref(), Some("100.00"));
        assert_eq!(status.error.unwrap().message.as_deref(), Some(""));
    }

    #[tokio::test]
    async fn the_time_left_is_the_upper_end_of_our_own_range_and_absent_while_unknown() {
        let clock = VirtualClock::new();
        let operation = Operation::new("set", clock.clock());
        let call = call(operation.root().child("p"), Arc::default());
        let sampler = Sampler::default();
        sampler.watch(PLACE, Running { function: &Speaking, call: Arc::clone(&call) });
        call.task.start();
        let mut left = Vec::new();
        for second in 0..30_u64 {
            call.gauge.moved(
                "m",
                TransferProgress {
                    direction: Direction::Upload,
                    read: second * 10,
                    total: Some(1000),
                    ..TransferProgress::default()
                },
            );
            let tree = operation.snapshot();
            let samples = sampler.ask(Some(&tree));
            let node = tree.node(call.task.path()).unwrap();
            assert_eq!(samples[0].1.seconds_left, node.left.map(|left| left.high));
            left.push(samples[0].1.seconds_left);
            clock.advance(std::time::Duration::from_secs(1));
        }
        assert_eq!(left[0], None, "nothing is known at the start");
        let last = left[29].unwrap();
        assert!((71..=114).contains(&last), "71 s are left at this speed, at most {last}");
    }
}
