//! Tests of the public interface of the volumes, most of them on the embedded API.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod csi_backup;
mod csi_restore;
mod fs_backup;
mod fs_restore;
mod maintenance;
mod repositories;
mod repository_key;
mod repository_requests;
mod restore_wait;
mod snapshot_driver;
mod test_bed;
mod transfer;
mod transfer_name;
mod transfer_timeout;
mod verify;
