//! What the status of a pod says.

use k8s_openapi::api::core::v1::Pod;

/// Why a pod is pending, from its status.
pub(super) fn pending_reason(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let unscheduled = conditions.iter().find(|one| one.type_ == "PodScheduled" && one.status == "False");
    if let Some(message) = unscheduled.and_then(|one| one.message.clone()) {
        return message;
    }
    let all =
        status.init_container_statuses.into_iter().flatten().chain(status.container_statuses.into_iter().flatten());
    let mut waits = all.filter_map(|one| one.state?.waiting).map(|waiting| {
        let message = waiting.message.map(|message| format!(": {message}")).unwrap_or_default();
        format!("{}{message}", waiting.reason.unwrap_or_default())
    });
    waits.next().unwrap_or_else(|| "not scheduled yet".into())
}

pub(super) fn has_completed(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Why a pod failed; `None` if it succeeded.
pub(super) fn failure_detail(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    if status.phase.as_deref() == Some("Succeeded") {
        return None;
    }
    let all = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    let codes: Vec<_> = all
        .filter_map(|one| Some((one.name.clone(), one.state.as_ref()?.terminated.as_ref()?.clone())))
        .filter(|(_, ended)| ended.exit_code != 0)
        .map(|(name, ended)| {
            format!(
                "container {name} exited with code {}{}",
                ended.exit_code,
                ended.reason.filter(|r| r != "Error").map(|r| format!(" ({r})")).unwrap_or_default()
            )
        })
        .collect();
    let message = status.message.clone().or_else(|| status.reason.clone());
    Some(format!(
        "failed: {}",
        if codes.is_empty() { message.unwrap_or_else(|| "no reason reported".into()) } else { codes.join(", ") }
    ))
}
