//! The message of an ended transfer.

use plimsoll_api::velero::v1::TransferPhase;
use plimsoll_mover::Problems;

use super::Transfer;

/// The message of an empty volume, as Velero words it.
pub(super) const EMPTY: &str = "volume was empty so no snapshot was taken";

/// The first word of the message of a transfer that completed without some files.
pub const INCOMPLETE: &str = "Incomplete";

/// What an ended transfer reports to its Backup or Restore.
#[derive(Debug, PartialEq, Eq)]
pub enum TransferMessage {
    /// Nothing.
    None,
    /// Everything was moved, with a caveat.
    Warning(String),
    /// Not everything was moved.
    Problem(String),
}

/// The report of an ended transfer. An incomplete one is a problem too.
pub fn transfer_message<T: Transfer>(ended: &T, cancelled: &str) -> TransferMessage {
    let message = ended.message().unwrap_or_default();
    match ended.phase() {
        TransferPhase::Completed if message.is_empty() || message == EMPTY => TransferMessage::None,
        TransferPhase::Completed if !message.starts_with(INCOMPLETE) => TransferMessage::Warning(message.into()),
        TransferPhase::Canceled => TransferMessage::Problem(cancelled.into()),
        _ => TransferMessage::Problem(message.into()),
    }
}

/// The message of a transfer that could not move some files.
pub(super) fn incomplete(problems: &Problems, what: &str) -> Option<String> {
    let first = problems.named.first()?;
    Some(format!("{INCOMPLETE}: {} files {what}, among them {}: {}", problems.count, first.path, first.cause))
}

/// The message with the warnings after it.
pub(super) fn with_warnings(message: Option<String>, warnings: &[String]) -> Option<String> {
    let parts: Vec<_> = message.into_iter().chain(warnings.iter().cloned()).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
