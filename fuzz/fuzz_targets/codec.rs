//! The files beside a tarball: reading terminates within its limits, and what was read can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_archive::codec::{gzip, gzip_json, read_gzip_json, read_gzip_list};
use plimsoll_archive::item_operations::BackupItemOperation;
use plimsoll_archive::proof::BackupProof;
use plimsoll_archive::results::Results;
use plimsoll_archive::volume_info::{BackupVolumeInfo, VolumeSnapshot};

fuzz_target!(|input: (bool, Vec<u8>)| {
    let (is_packed, bytes) = input;
    // Random bytes are rarely a gzip stream: compress them unless told otherwise.
    let file = if is_packed { bytes } else { gzip(&bytes).unwrap_or_default() };
    if let Ok(list) = read_gzip_list::<VolumeSnapshot>(file.as_slice()) {
        let again = gzip_json(&list).and_then(|file| read_gzip_list::<VolumeSnapshot>(file.as_slice()));
        assert!(again.is_ok_and(|again| again == list));
    }
    let _ = read_gzip_list::<BackupVolumeInfo>(file.as_slice());
    let _ = read_gzip_list::<BackupItemOperation>(file.as_slice());
    let _ = read_gzip_json::<Results>(file.as_slice(), 1 << 20);
    let _ = read_gzip_json::<BackupProof>(file.as_slice(), 1 << 20);
});
