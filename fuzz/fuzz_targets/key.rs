//! Key files and configs. A key file must not be able to make us pay an unbounded cost, so only those that are cheap by
//! their own words are unlocked here.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_repository::format::config::Config;
use plimsoll_repository::format::key::KeyFile;

fuzz_target!(|bytes: &[u8]| {
    let _ = Config::parse(bytes);
    if let Ok(file) = KeyFile::parse(bytes)
        && file.cost_in_bytes().is_none_or(|cost| cost < 1 << 20)
    {
        let _ = file.unlock(b"password");
    }
});
