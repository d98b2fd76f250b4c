//! Frames of movers, pods and agents: accepted input survives a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_progress::Frame;

fuzz_target!(|line: &[u8]| {
    if let Ok(frame) = Frame::from_slice(line) {
        let _ = frame.snapshot();
        assert!(Frame::from_line(&frame.to_line()).is_ok());
    }
});
