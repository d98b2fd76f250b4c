//! Lines of a mover: a frame, a result or an error, and a short one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_mover::parse_message;

fuzz_target!(|line: &[u8]| {
    if let Err(error) = parse_message(line) {
        assert!(error.to_string().len() < 2000, "{error}");
    }
});
