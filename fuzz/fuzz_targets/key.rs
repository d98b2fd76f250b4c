//! Key files and configs. Only key files with a low cost are unlocked here.
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
