//! Index files: accepted input survives a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_repository::format::index;

fuzz_target!(|json: &[u8]| {
    if let Ok(packs) = index::parse(json) {
        let again = index::encode(&packs).map(|json| index::parse(&json));
        assert_eq!(again, Ok(Ok(packs)));
    }
});
