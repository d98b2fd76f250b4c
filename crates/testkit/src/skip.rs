//! Tests that cannot run here say so, by name and reason, and never count as passed in silence.

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

/// Something that a test needs and this machine does not have.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what} is not available: {reason}")]
pub struct Unavailable {
    what: String,
    reason: String,
}

impl Unavailable {
    /// Says what is missing, and what somebody could do about it.
    pub fn new(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { what: what.into(), reason: reason.into() }
    }
}

/// Refuses what takes long while `PLIMSOLL_TEST_FAST` is set, as in `make test-fast`.
pub fn unless_fast(what: &str) -> Result<(), Unavailable> {
    if env::var_os("PLIMSOLL_TEST_FAST").is_none() {
        return Ok(());
    }
    Err(Unavailable::new(what, "PLIMSOLL_TEST_FAST leaves it out"))
}

/// Gives the value of a `Result<_, Unavailable>`, or ends the test as skipped.
///
/// Where `CI` is `true` a skip is a failure: there everything has been installed before.
#[macro_export]
macro_rules! require {
    ($what:expr) => {
        match $what {
            Ok(value) => value,
            Err(missing) => {
                fn here() {}
                $crate::skip::report($crate::skip::name_of(&here), &missing);
                return;
            }
        }
    };
}

/// The path of the test in which `require!` declared its marker function.
#[doc(hidden)]
pub fn name_of<F>(_marker: &F) -> &'static str {
    std::any::type_name::<F>().trim_end_matches("::here").trim_end_matches("::{{closure}}")
}

/// Where skipped tests are listed for whoever started them: one line each.
pub fn list() -> PathBuf {
    env::var_os("PLIMSOLL_SKIPPED").map_or_else(|| crate::cache::directory().join("skipped"), PathBuf::from)
}

/// Reports a skipped test on the terminal, past the test harness's capture, and in [`list`].
#[expect(clippy::panic, reason = "a skip in CI fails the test, and a test fails by panicking")]
pub fn report(test: &str, missing: &Unavailable) {
    assert_ne!(env::var("CI").as_deref(), Ok("true"), "{test} was skipped, which CI does not allow: {missing}");
    let line = format!("SKIPPED {test}: {missing}\n");
    // A list that cannot be written would turn the skip into a silent pass.
    let listed =
        OpenOptions::new().create(true).append(true).open(list()).and_then(|mut f| f.write_all(line.as_bytes()));
    if let Err(error) = listed {
        panic!("{test} was skipped ({missing}), and {} cannot be written: {error}", list().display());
    }
    let _ = std::io::stderr().write_all(line.as_bytes());
}
