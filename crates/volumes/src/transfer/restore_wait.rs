//! The init container of a restored pod that waits for the data of its volumes: whether it waits, has waited, or cannot wait.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};

/// The name of the init container.
pub const RESTORE_WAIT: &str = "restore-wait";
/// A container that crashed before and was started again less than this ago may be about to crash again.
const RECENT_START_LIMIT: SignedDuration = SignedDuration::from_secs(5);

fn first_container(pod: &Pod) -> Option<&ContainerStatus> {
    let statuses = pod.status.as_ref()?.init_container_statuses.iter().flatten();
    statuses.into_iter().find(|status| status.name == RESTORE_WAIT)
}

/// Whether a pod's first container has seen all of its files and ended.
pub fn has_waited(pod: &Pod) -> bool {
    let ended = first_container(pod).and_then(|status| status.state.as_ref()?.terminated.as_ref());
    ended.is_some_and(|ended| ended.exit_code == 0)
}

/// Whether a pod waits no longer: its containers start, or it will never have any.
pub fn has_gone_on(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    has_waited(pod) || matches!(phase, Some("Running" | "Succeeded" | "Failed"))
}

/// Why a pod's first container does not do its waiting, if that does not pass by itself.
pub fn cannot_wait(pod: &Pod) -> Option<String> {
    let first = first_container(pod)?;
    let words = |reason: &Option<String>, message: &Option<String>| {
        let said = [reason, message].into_iter().flatten().filter(|text| !text.is_empty());
        said.cloned().collect::<Vec<_>>().join(": ")
    };
    let failed = |state: &Option<ContainerState>| {
        let ended = state.as_ref()?.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
        // The end of its log: the last line says why.
        let last = ended.message.as_deref().and_then(|message| message.trim_end().lines().last()).map(str::to_owned);
        Some(format!("exit code {}: {}", ended.exit_code, words(&ended.reason, &last)))
    };
    let state = first.state.as_ref();
    if let Some(running) = state.and_then(|state| state.running.as_ref()) {
        let since = running.started_at.as_ref().map(|started| Timestamp::now().duration_since(started.0));
        return failed(&first.last_state).filter(|_| since.is_some_and(|since| since < RECENT_START_LIMIT));
    }
    let Some(waiting) = state.and_then(|state| state.waiting.as_ref()) else {
        return failed(&first.state);
    };
    let passes = matches!(waiting.reason.as_deref(), None | Some("" | "PodInitializing" | "ContainerCreating"));
    let before = failed(&first.last_state).map(|before| format!(" ({before})")).unwrap_or_default();
    (!passes).then(|| words(&waiting.reason, &waiting.message) + &before)
}
