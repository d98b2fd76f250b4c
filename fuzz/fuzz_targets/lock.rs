//! Lock files of other programs: accepted input survives a round trip, and its holder can be shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_repository::{LockFile, LockHolder, machine};

fuzz_target!(|json: &[u8]| {
    if let Ok(file) = serde_json::from_slice::<LockFile>(json) {
        let _ = (LockHolder::parse(&file.hostname), machine(&file.hostname));
        let again = serde_json::to_vec(&file).and_then(|json| serde_json::from_slice::<LockFile>(&json));
        assert!(again.is_ok_and(|again| again == file));
    }
});
