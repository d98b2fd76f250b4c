//! Trees: accepted input survives a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_repository::format::tree::Tree;

fuzz_target!(|json: &[u8]| {
    if let Ok(tree) = Tree::parse(json) {
        let again = Tree::parse(&tree.encode());
        assert_eq!(again.as_ref(), Ok(&tree));
    }
});
