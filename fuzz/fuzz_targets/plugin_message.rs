//! Messages of plugins: what is decoded survives a round trip, and text for people has no control characters.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_plugin::{sanitize, wire};
use prost::Message;

fn round_trip<M: Message + Default + PartialEq>(bytes: &[u8]) {
    if let Ok(message) = M::decode(bytes) {
        assert!(M::decode(message.encode_to_vec().as_slice()).is_ok_and(|again| again == message));
    }
}

fuzz_target!(|bytes: &[u8]| {
    round_trip::<wire::AppliesToResponse>(bytes);
    round_trip::<wire::BackupExecuteResponse>(bytes);
    round_trip::<wire::CreateSnapshotResponse>(bytes);
    round_trip::<wire::GetVolumeInfoResponse>(bytes);
    round_trip::<wire::HealthCheckResponse>(bytes);
    round_trip::<wire::ItemsReadyResponse>(bytes);
    round_trip::<wire::ListObjectsResponse>(bytes);
    round_trip::<wire::ListPluginsResponse>(bytes);
    round_trip::<wire::ProgressResponse>(bytes);
    round_trip::<wire::RelatedItemsResponse>(bytes);
    round_trip::<wire::RestoreExecuteResponse>(bytes);
    round_trip::<wire::SnapshotProgressResponse>(bytes);
    round_trip::<wire::StdioData>(bytes);
    let text = sanitize(&String::from_utf8_lossy(bytes));
    assert!(!text.chars().any(char::is_control), "{text:?}");
});
