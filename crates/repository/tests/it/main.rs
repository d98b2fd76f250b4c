//! The public interface of the engine: round trips, compatibility with restic, crash safety, damage.

// The fuzz targets name their macro by this path; here it only makes functions of them.
extern crate self as libfuzzer_sys;

mod backup_progress;
mod browse;
mod cancel;
mod crash_safety;
mod damage;
mod faulty_store;
mod fuzz_targets;
mod interop;
mod interrupted;
mod keys;
mod locking;
mod memory;
mod overwrite;
mod prune;
mod prune_concurrency;
mod prune_crash_safety;
mod prune_over_time;
mod repair;
mod round_trip;
mod s3;
mod slow_connection;
mod source_walk;
mod symlink_races;
mod testbed;
mod untrusted_input;
mod verify;
mod walk_hooks;

macro_rules! fuzz_target {
    (|$input:ident: $kind:ty| $body:block) => {
        pub fn target($input: $kind) $body
    };
}
pub(crate) use fuzz_target;
