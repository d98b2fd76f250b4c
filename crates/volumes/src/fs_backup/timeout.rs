//! Timeout of a transfer from the annotations of a Backup or Restore.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_api::go::GoDuration;
use plimsoll_api::labels::POD_VOLUME_TIMEOUT;

/// From the annotations of a Backup or Restore, or else the server's; and a warning where an annotation cannot be followed.
pub fn transfer_timeout(annotations: &BTreeMap<String, String>, servers: Duration) -> (Duration, Option<String>) {
    let Some(text) = annotations.get(POD_VOLUME_TIMEOUT).filter(|text| !text.is_empty()) else {
        return (servers, None);
    };
    let said = text.parse::<GoDuration>().ok().and_then(|said| said.as_std()).filter(|said| !said.is_zero());
    if let Some(said) = said {
        return (said, None);
    }
    let why = format!("annotation {POD_VOLUME_TIMEOUT}: {text:?} is not a duration such as 4h30m");
    (servers, Some(format!("{why}: volumes have {}", GoDuration::from(servers))))
}
