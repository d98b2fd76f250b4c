//! The engine from outside: faithful, compatible with restic, safe when killed, honest about damage.

// The fuzz targets name their macro by this path; here it only makes functions of them.
extern crate self as libfuzzer_sys;

mod browsing;
mod cancelling;
mod crashing;
mod damage;
mod faithful;
mod fault;
mod fuzz_targets;
mod hostile;
mod interop;
mod locking;
mod memory;
mod overwriting;
mod s3;
mod slow_line;
mod swapping;
mod world;

macro_rules! fuzz_target {
    (|$input:ident: $kind:ty| $body:block) => {
        pub fn target($input: $kind) $body
    };
}
pub(crate) use fuzz_target;
