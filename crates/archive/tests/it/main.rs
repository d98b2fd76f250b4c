//! Tests of the storage format of backups.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

// The fuzz target imports its macro from this path; here the macro defines a function.
extern crate self as libfuzzer_sys;

#[path = "../../../../fuzz/fuzz_targets/archive.rs"]
#[expect(unused_attributes, reason = "the fuzz target is a program of its own")]
mod fuzz_target_of_archives;

#[path = "../../../../fuzz/fuzz_targets/codec.rs"]
#[expect(unused_attributes, reason = "the fuzz target is a program of its own")]
mod fuzz_target_of_metadata;

mod codec;
mod layout;
mod proof;
mod spool;
mod tarball;

macro_rules! fuzz_target {
    (|$input:ident: $kind:ty| $body:block) => {
        pub fn target($input: $kind) $body
    };
}
pub(crate) use fuzz_target;

#[test]
fn the_fuzz_targets_accept_typical_input() {
    for bytes in [&b""[..], b"no archive", b"[{}]", b"null", &[0; 2048]] {
        for packed in [false, true] {
            fuzz_target_of_archives::target((packed, bytes.to_vec()));
            fuzz_target_of_metadata::target((packed, bytes.to_vec()));
        }
    }
}
