//! MultiContainerRun: outputs of one container, progress of all of them.

use plimsoll_blueprint::kando::protocol::progress_line;
use plimsoll_blueprint::params::Params;
use plimsoll_progress::{Clock, Encoder, Operation, Unit};
use serde_json::json;

use crate::bed::Bed;

/// A command that reports so many bytes, as `kando location push` does.
fn push(path: &str, bytes: u64, then: &str) -> serde_json::Value {
    let operation = Operation::new(format!("push {path}"), Clock::system());
    operation.root().meter(Unit::Bytes).add(bytes);
    let line = progress_line(&Encoder::new(1).full(&operation.snapshot()));
    json!(["sh", "-c", format!("echo '{line}' >&2; {then}")])
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_of_the_init_and_background_containers_is_heard_and_outputs_of_output_only() {
    let bed = Bed::with_pods("/usr/sbin:/usr/bin:/sbin:/bin").await;
    let output = |value: &str| format!("echo '###Phase-output###: {{\"key\":\"who\",\"value\":\"{value}\"}}'");
    let call = bed.call(
        "MultiContainerRun",
        json!({ "initImage": "any", "initCommand": push("init", 100, &output("init")),
            "backgroundImage": "any", "backgroundCommand": push("background", 20, &output("background")),
            "outputImage": "any", "outputCommand": push("output", 3, &output("output")) }),
        Params::default(),
    );
    let outputs = call.run().await.unwrap_or_else(|error| panic!("{error}\n{}", call.host.log_text()));
    assert_eq!(outputs["who"], "output");
    assert_eq!(call.counts(Unit::Uploaded).map(|counts| counts.done), Some(123), "{}", call.host.log_text());
    bed.shut_down().await;
}
