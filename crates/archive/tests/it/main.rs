//! Tests of the backup on disk.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

// The fuzz target names its macro by this path; here it only makes a function of it.
extern crate self as libfuzzer_sys;

#[path = "../../../../fuzz/fuzz_targets/archive.rs"]
#[allow(unused_attributes, reason = "a program of its own elsewhere")]
mod fuzz_target_of_archives;

mod codec;
mod layout;
mod spool;
mod tarball;

macro_rules! fuzz_target {
    (|$input:ident: $kind:ty| $body:block) => {
        pub fn target($input: $kind) $body
    };
}
pub(crate) use fuzz_target;

#[test]
fn the_fuzz_target_stands_what_it_is_most_likely_to_meet() {
    for bytes in [&b""[..], b"no archive", &[0; 2048]] {
        for packed in [false, true] {
            fuzz_target_of_archives::target((packed, bytes.to_vec()));
        }
    }
}
