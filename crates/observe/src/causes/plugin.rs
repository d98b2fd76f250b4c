//! Plugins' work on volumes: its progress, and since when there is no report.

use std::time::Duration;

use plimsoll_progress::view::{duration_text, size_text};

use super::{Cause, Certainty, server, transfer};
use crate::cluster_state::ClusterState;
use crate::evidence::{ServerProduct, sanitize, server_product, shorten};
use crate::kind::Kind;
use crate::object::Object;
use crate::transfer::Transfer;

/// A plugin that reports progress is stalled after this time without a report.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);
/// The server's default timeout for plugin operations.
const DEFAULT_TIMEOUT: Duration = Duration::from_hours(4);
/// Silence for this share of the timeout is no longer normal.
const TIMEOUT_SHARE: f64 = 0.9;

/// The timeout for the plugin operations of a backup or restore.
pub(super) fn limit(subject: Option<&Object>) -> Duration {
    let configured = subject.and_then(|subject| subject.duration("/spec/itemOperationTimeout"));
    configured.filter(|limit| !limit.is_zero()).unwrap_or(DEFAULT_TIMEOUT)
}

/// How likely silence is a problem, for a plugin that reports no progress.
pub(super) fn certainty_of_silence(silence: Duration, limit: Duration) -> Certainty {
    if silence >= limit.mul_f64(TIMEOUT_SHARE) { Certainty::Likely } else { Certainty::Possible }
}

/// The command that shows the plugin operations of a backup or restore.
pub(super) fn describe(subject: &Object, cluster: &ClusterState) -> String {
    let (kind, name, namespace) = (subject.kind().word(), subject.name(), subject.namespace());
    match server_product(cluster) {
        ServerProduct::Velero => format!("velero {kind} describe {name} --details -n {namespace}"),
        ServerProduct::Plimsoll => format!("plimsoll describe {kind}/{name} --details -n {namespace}"),
    }
}

/// A plugin's work on a volume that has not ended. Normal while it reports progress.
pub(super) fn cause(transfer: Transfer<'_>, cluster: &ClusterState) -> Cause {
    let (object, silence) = (transfer.object, transfer.silence(cluster));
    let parent = transfer.parent().and_then(|(kind, name)| cluster.find(kind, object.namespace(), name));
    let stalled = object.some_text("/status/plimsoll/stalled/message");
    let certainty = if stalled.is_some() || (transfer.reports_progress() && silence >= SILENCE_LIMIT) {
        Certainty::Likely
    } else {
        certainty_of_silence(silence, limit(parent))
    };
    let report = if silence < SILENCE_LIMIT { "last report" } else { "silent for" };
    let ago = if silence < SILENCE_LIMIT { " ago" } else { "" };
    let text = format!(
        "{}; {}, {report} {}{ago}",
        describe_transfer(transfer),
        progress_text(transfer),
        duration_text(silence)
    );
    let mut found = if silence < SILENCE_LIMIT && stalled.is_none() {
        Cause::new("PluginInProgress", Certainty::Likely, text).expected()
    } else {
        Cause::new("PluginOperationSilent", certainty, text)
    };
    let since = object.created().map(|then| duration_text(cluster.age(then))).unwrap_or_default();
    found = found.with_evidence(format!("{} has been {} for {since}", object.reference(), sanitize(object.phase())));
    found = found
        .with_optional_evidence(object.some_text("/status/message").map(|said| format!("plugin: {}", shorten(said))));
    found = found.with_optional_evidence(stalled.map(|words| format!("server: {}", shorten(words))));
    found = found.with_command(transfer::get_command(object));
    match parent.filter(|_| !found.expected) {
        Some(parent) => found
            .with_evidence(format!("the server gives up after {}", duration_text(limit(Some(parent)))))
            .with_command(format!("{} --since 1h | grep {}", server::logs_command(cluster), parent.name())),
        None => found,
    }
}

/// The plugin's action and its volume.
fn describe_transfer(transfer: Transfer<'_>) -> String {
    let object = transfer.object;
    let by = object.some_text("/spec/plugin").map_or("a plugin".to_owned(), |name| format!("plugin {}", shorten(name)));
    match object.kind() {
        Kind::VolumePluginRestore => {
            let from = object.some_text("/spec/snapshotID").map(|id| format!(" from snapshot {}", shorten(id)));
            format!("{by} creates volume {}{}", transfer.label(), from.unwrap_or_default())
        }
        _ => format!("{by} takes a snapshot of volume {}", transfer.label()),
    }
}

/// `60.00 %, 600 B of 1000 B`, or that it is unknown.
fn progress_text(transfer: Transfer<'_>) -> String {
    let (done, total) = transfer.bytes();
    match (transfer.percent(), total.value()) {
        (Some(percent), Some(known)) => {
            let about = if total.is_final() { "" } else { "~" };
            format!("{percent} %, {} of {about}{}", size_text(done.min(known)), size_text(known))
        }
        (Some(percent), None) => format!("{percent} %"),
        (None, _) if done > 0 => format!("{} so far", size_text(done)),
        (None, _) => "no progress reported".to_owned(),
    }
}
