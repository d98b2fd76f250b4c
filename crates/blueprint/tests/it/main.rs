//! What the crate promises.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::needless_pass_by_value, reason = "what json! makes is given away")]

// The fuzz target imports its macro from this path; here the macro defines a function.
extern crate self as libfuzzer_sys;

mod action_set_status;
mod arguments;
mod bed;
mod corpus;
mod functions;
mod golden;
mod hostile;
mod kando;
mod kopia_server;
mod movers;
mod output;
mod own_kando;
mod params;
mod percent;
mod profile;
mod shared_pod;
mod validate;

#[path = "../../../../fuzz/fuzz_targets/template.rs"]
#[expect(unused_attributes, reason = "the fuzz target is a program of its own")]
mod fuzz_target_of_templates;

macro_rules! fuzz_target {
    (|$input:ident: $kind:ty| $body:block) => {
        pub fn target($input: $kind) $body
    };
}
pub(crate) use fuzz_target;

#[test]
fn the_fuzz_target_accepts_typical_input() {
    for source in
        ["", "{{ .Name }}", "{{ range .List }}{{ . | toString | upper }}{{ end }}", "{{", "{{ .Missing.Field }}"]
    {
        fuzz_target_of_templates::target(source.as_bytes());
    }
}
