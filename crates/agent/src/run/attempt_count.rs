//! The attempts of a transfer, as its annotations count them.

use std::path::Path;

use kube::ResourceExt;
use plimsoll_api::labels;
use plimsoll_volumes::transfer::Transfer;

pub(super) fn number<T: Transfer>(object: &T, annotation: &str) -> u32 {
    object.annotations().get(annotation).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The number of attempts.
pub(super) fn attempts<T: Transfer>(object: &T) -> u32 {
    number(object, labels::ATTEMPTS)
}

/// The number of failed attempts. After the data has been moved there are none: the pod is signalled as often as it takes. An
/// attempt that another process's lock prevented does not count.
pub(crate) fn failed_attempts<T: Transfer>(object: &T) -> u32 {
    if object.annotations().contains_key(labels::DATA_MOVEMENT_RESULT) {
        return 0;
    }
    attempts(object).saturating_sub(number(object, labels::LOCKED_ATTEMPTS))
}

/// Whether only earlier attempts of the same transfer wrote into the volume, and all that they wrote is still there: a machine
/// that crashes loses what it had not flushed.
pub(super) fn is_resumed<T: Transfer>(object: &T, boot: Option<&str>) -> bool {
    let since = object.annotations().get(labels::RESTORE_BOOT_ID).map(String::as_str);
    attempts(object) > 1 && boot.is_some() && since == boot
}

/// Whether a volume has no data. `lost+found` of a new file system is none.
pub(super) fn is_empty(directory: &Path) -> bool {
    directory.read_dir().is_ok_and(|entries| entries.flatten().all(|entry| entry.file_name() == "lost+found"))
}

/// The ID of the current boot of the machine.
pub(super) fn boot_id() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use plimsoll_api::velero::v1::PodVolumeRestore;
    use serde_json::json;

    use super::*;

    fn restore(attempts: u32, since: Option<&str>) -> PodVolumeRestore {
        let mut annotations = json!({ labels::ATTEMPTS: attempts.to_string() });
        if let Some(since) = since {
            annotations[labels::RESTORE_BOOT_ID] = json!(since);
        }
        serde_json::from_value(json!({ "metadata": { "name": "x", "annotations": annotations }, "spec": {} })).unwrap()
    }

    #[test]
    fn only_a_later_attempt_at_the_same_boot_trusts_what_an_earlier_one_wrote() {
        assert!(is_resumed(&restore(2, Some("boot")), Some("boot")));
        assert!(!is_resumed(&restore(1, Some("boot")), Some("boot")), "nothing was written before");
        assert!(!is_resumed(&restore(3, Some("earlier boot")), Some("boot")), "files may be full of zeros");
        assert!(!is_resumed(&restore(2, None), Some("boot")), "the volume was not empty");
        assert!(!is_resumed(&restore(2, None), None));
    }

    #[test]
    fn a_transfer_whose_data_is_there_was_never_taken_up_in_vain() {
        let mut restore = restore(5, None);
        assert_eq!(failed_attempts(&restore), 5);
        restore.annotations_mut().insert(labels::DATA_MOVEMENT_RESULT.into(), "{}".into());
        assert_eq!(failed_attempts(&restore), 0);
    }

    #[test]
    fn waiting_for_another_process_lock_is_no_failed_attempt() {
        let mut restore = restore(9, None);
        restore.annotations_mut().insert(labels::LOCKED_ATTEMPTS.into(), "7".into());
        assert_eq!(failed_attempts(&restore), 2);
        restore.annotations_mut().insert(labels::LOCKED_ATTEMPTS.into(), "70".into());
        assert_eq!(failed_attempts(&restore), 0, "it was written by hand");
    }

    #[test]
    fn a_new_file_system_is_empty() {
        let volume = tempfile::tempdir().unwrap();
        std::fs::create_dir(volume.path().join("lost+found")).unwrap();
        assert!(is_empty(volume.path()));
        std::fs::write(volume.path().join("file"), "").unwrap();
        assert!(!is_empty(volume.path()));
    }
}
