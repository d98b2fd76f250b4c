//! What a sync reads of a backup: accepted input belongs to this location, has no hooks, and has ended.
#![no_main]

use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use plimsoll_archive::synced_backup::{
    BackupMetadata, ForeignRecord, backup, owners, pod_volume_backup, volume_plugin_backup,
};
use serde_json::Value;

fuzz_target!(|content: &[u8]| {
    if let BackupMetadata::Backup(found) = backup("b", content, "ours", Timestamp::UNIX_EPOCH) {
        assert_eq!(found["metadata"]["name"], "b");
        assert_eq!(found["spec"]["storageLocation"], "ours");
        assert!(found["spec"].get("hooks").is_none() && found["metadata"].get("finalizers").is_none());
        assert!(["Completed", "PartiallyFailed", "Failed"].iter().any(|phase| found["status"]["phase"] == *phase));
        let _ = owners(&found);
    }
    if let Ok(record) = serde_json::from_slice::<ForeignRecord>(content) {
        let record = Value::from(record);
        if let Some(transfer) = pod_volume_backup(&record, ("b", "u"), "ours") {
            assert_eq!(transfer["spec"]["backupStorageLocation"], "ours");
            assert!(["Completed", "Failed", "Canceled"].iter().any(|phase| transfer["status"]["phase"] == *phase));
        }
        let _ = volume_plugin_backup(&record, ("b", "u"));
    }
});
