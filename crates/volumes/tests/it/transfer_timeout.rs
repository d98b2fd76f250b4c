use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_api::labels::POD_VOLUME_TIMEOUT;
use plimsoll_volumes::fs_backup::transfer_timeout;

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
