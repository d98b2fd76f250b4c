//! Skipped tests are reported with name and reason, and never count as passed.

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

/// A requirement of a test that this machine does not have.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what} is not available: {reason}")]
pub struct Unavailable {
    what: String,
    reason: String,
}

impl Unavailable {
    /// `what` is missing; `reason` says why and how to get it.
    pub fn new(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { what: what.into(), reason: reason.into() }
    }
}

/// Skips slow tests while `PLIMSOLL_TEST_FAST` is set, as in `make test-fast`.
pub fn unless_fast(what: &str) -> Result<(), Unavailable> {
    if env::var_os("PLIMSOLL_TEST_FAST").is_none() {
        return Ok(());
    }
    Err(Unavailable::new(what, "PLIMSOLL_TEST_FAST leaves it out"))
}

/// Returns the value of a `Result<_, Unavailable>`, or skips the test.
///
/// With `CI=true` a skip is a failure: everything is installed there.
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

/// The file that lists skipped tests, one line each.
pub fn report_file() -> PathBuf {
    env::var_os("PLIMSOLL_SKIPPED").map_or_else(|| crate::cache::directory().join("skipped"), PathBuf::from)
}

/// Reports a skipped test on the terminal, past the test harness's capture, and in [`report_file`].
#[expect(clippy::panic, reason = "a skip in CI fails the test, and a test fails by panicking")]
pub fn report(test: &str, missing: &Unavailable) {
    assert_ne!(env::var("CI").as_deref(), Ok("true"), "{test} was skipped, which CI does not allow: {missing}");
    let line = format!("SKIPPED {test}: {missing}\n");
    // Without the list the skip would count as a pass.
    let listed =
        OpenOptions::new().create(true).append(true).open(report_file()).and_then(|mut f| f.write_all(line.as_bytes()));
    if let Err(error) = listed {
        panic!("{test} was skipped ({missing}), and {} cannot be written: {error}", report_file().display());
    }
    let _ = std::io::stderr().write_all(line.as_bytes());
}
