//! Every rule of the progress model, as a property or a story.

// The fuzz target imports its macro from this path; here the macro defines a function.
extern crate self as libfuzzer_sys;

mod estimator;
mod frames;
mod gains;
mod handles;
mod history;
mod invariants;
mod machine;
mod percent;
mod plans;
mod rates;
mod rows;
mod shapes;
mod stalls;
mod stress;
mod takeover;
mod whole_operations;

#[path = "../../../../fuzz/fuzz_targets/frame.rs"]
#[expect(unused_attributes, reason = "the fuzz target is a program of its own")]
mod fuzz_target_of_frames;

#[path = "../grade/mod.rs"]
mod grade;

#[path = "../trees/mod.rs"]
#[expect(dead_code, reason = "benches/trees.rs prints what is only counted here")]
mod trees;

macro_rules! fuzz_target {
    (|$input:ident: $kind:ty| $body:block) => {
        pub fn target($input: $kind) $body
    };
}
pub(crate) use fuzz_target;

#[test]
fn the_fuzz_target_accepts_typical_input() {
    for line in ["", "{}", r#"{"version":1,"operation":"o","epoch":1,"sequence":1,"full":true,"nodes":[]}"#] {
        fuzz_target_of_frames::target(line.as_bytes());
    }
}
