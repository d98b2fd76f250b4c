use plimsoll_api::velero::v1::{PodVolumeBackup, PodVolumeRestore};
use plimsoll_mover::{BackupOutcome, Outcome, Problem, Problems, RestoreOutcome};
use plimsoll_volumes::transfer::{Transfer, TransferMessage, transfer_message};
use serde_json::json;

/// The message of a completed transfer of an empty volume.
const EMPTY: &str = "volume was empty so no snapshot was taken";

#[test]
fn what_is_not_complete_is_a_problem_and_anything_else_that_an_ended_transfer_says_a_warning() {
    let ended = |phase: &str, message: &str| -> PodVolumeBackup {
        serde_json::from_value(json!({ "metadata": {}, "spec": {}, "status": { "phase": phase, "message": message } }))
            .unwrap()
    };
    let says = |phase: &str, message: &str| transfer_message(&ended(phase, message), "cancelled");
    assert_eq!(says("Completed", ""), TransferMessage::None);
    assert_eq!(says("Completed", EMPTY), TransferMessage::None);
    assert_eq!(says("Completed", "no lock file was kept"), TransferMessage::Warning("no lock file was kept".into()));
    assert_eq!(says("Completed", "Incomplete: 1 files"), TransferMessage::Problem("Incomplete: 1 files".into()));
    assert_eq!(says("Failed", "why"), TransferMessage::Problem("why".into()));
    assert_eq!(says("Canceled", "x"), TransferMessage::Problem("cancelled".into()));
}

#[test]
fn an_empty_volume_ends_at_nothing_of_nothing_and_says_so() {
    let ended = PodVolumeBackup::ended(&Outcome::Backup(BackupOutcome::default()));
    assert_eq!(ended["progress"], json!({"totalBytes": 0, "bytesDone": 0}));
    assert_eq!(ended["message"], EMPTY);
}

#[test]
fn what_the_owner_of_the_repository_should_know_is_said_after_how_it_ended() {
    let warnings = vec!["no lock file was kept".to_owned()];
    let snapshot = Some("0123".to_owned());
    let good = BackupOutcome { snapshot, warnings: warnings.clone(), ..Default::default() };
    let ended = PodVolumeBackup::ended(&Outcome::Backup(good));
    assert_eq!(ended["message"], "no lock file was kept");
    let problems = Problems { named: vec![Problem { path: "a".into(), cause: "gone".into() }], count: 1 };
    let bad = RestoreOutcome { problems, warnings, ..Default::default() };
    let message = PodVolumeRestore::ended(&Outcome::Restore(bad))["message"].to_string();
    assert!(
        message.starts_with("\"Incomplete: 1 files") && message.ends_with("; no lock file was kept\""),
        "{message}"
    );
    let message = &PodVolumeRestore::ended(&Outcome::Restore(RestoreOutcome::default()))["message"];
    assert!(message.is_null(), "{message}");
}
