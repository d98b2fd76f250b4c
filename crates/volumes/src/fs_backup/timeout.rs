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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_goes_before_the_server_and_one_that_is_no_duration_is_named() {
        let servers = Duration::from_hours(4);
        let of = |text: &str| transfer_timeout(&[(POD_VOLUME_TIMEOUT.to_owned(), text.to_owned())].into(), servers);
        assert_eq!(transfer_timeout(&BTreeMap::new(), servers), (servers, None));
        assert_eq!(of(""), (servers, None));
        assert_eq!(of("36h0m30s"), (Duration::from_secs(36 * 3600 + 30), None));
        for wrong in ["soon", "30", "-1h", "0s"] {
            let (limit, warning) = of(wrong);
            let words = format!(
                "annotation velero.io/pod-volume-timeout: \"{wrong}\" is not a duration such as 4h30m: volumes have 4h0m0s"
            );
            assert_eq!((limit, warning), (servers, Some(words)));
        }
    }
}
