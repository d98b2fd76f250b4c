//! The result of a maintenance as text.

use plimsoll_mover::MaintenanceOutcome;
use plimsoll_progress::view::size_text;

/// What a maintenance did, in one line.
pub fn maintenance_text(outcome: &MaintenanceOutcome) -> String {
    let mut text = match (&outcome.mode, &outcome.usage) {
        (Some(mode), _) => format!("kopia maintenance ({mode}) completed"),
        (None, Some(usage)) => {
            let freed = size_text(outcome.freed.unwrap_or(0));
            format!("freed {freed} of {}; snapshots use {}", size_text(usage.stored), size_text(usage.used))
        }
        (None, None) => "completed".into(),
    };
    if outcome.denied > 0 {
        let size = size_text(outcome.denied_bytes);
        text += &format!("; the store does not allow the deletion of {} packs ({size}) yet", outcome.denied);
    }
    for warning in &outcome.warnings {
        text += &format!("; {warning}");
    }
    text
}

#[cfg(test)]
mod tests {
    use plimsoll_mover::RepositoryUsage;

    use super::*;

    #[test]
    fn the_text_says_what_was_freed_and_what_the_store_kept() {
        let usage = Some(RepositoryUsage { stored: 3 << 30, used: 2 << 30, ..RepositoryUsage::default() });
        let freed = MaintenanceOutcome { usage, freed: Some(1 << 30), ..MaintenanceOutcome::default() };
        assert_eq!(maintenance_text(&freed), "freed 1.0 GiB of 3.0 GiB; snapshots use 2.0 GiB");
        let denied = MaintenanceOutcome { denied: 2, denied_bytes: 2048, ..freed };
        assert!(maintenance_text(&denied).ends_with("does not allow the deletion of 2 packs (2.0 KiB) yet"));
        let kopia = MaintenanceOutcome { mode: Some("full".into()), ..MaintenanceOutcome::default() };
        assert_eq!(maintenance_text(&kopia), "kopia maintenance (full) completed");
    }
}
