//! How a suite ended, as its output says.

use std::time::Duration;

use crate::suite::Suite;

/// How a suite ended.
#[derive(Debug)]
pub struct SuiteResult {
    pub suite: Suite,
    pub time: Duration,
    pub processor_time: Duration,
    pub succeeded: bool,
    pub tests: Vec<TestResult>,
    pub passed: usize,
    pub failed: usize,
    pub ignored: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TestResult {
    pub name: String,
    pub failed: bool,
    pub seconds: f64,
}

/// Reads `test module::name ... ok <1.234s>`; output of the test itself may stand before `ok`.
pub fn parse_test(line: &str) -> Option<TestResult> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (outcome, time) = rest.rsplit_once(" <")?;
    let seconds = time.strip_suffix("s>")?.parse().ok()?;
    Some(TestResult { name: name.to_owned(), failed: outcome.ends_with("FAILED"), seconds })
}

/// Reads `test result: ok. 12 passed; 0 failed; 1 ignored; …` as (passed, failed, ignored).
pub fn parse_summary(line: &str) -> Option<(usize, usize, usize)> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let count = |name: &str| counts.split("; ").find_map(|part| part.strip_suffix(name)?.trim().parse().ok());
    Some((count("passed")?, count("failed")?, count("ignored")?))
}

#[cfg(test)]
mod tests {
    use super::{TestResult, parse_summary, parse_test};

    #[test]
    fn a_test_line_gives_name_outcome_and_time() {
        let passed = TestResult { name: "a::b".to_owned(), failed: false, seconds: 1.25 };
        assert_eq!(parse_test("test a::b ... ok <1.250s>"), Some(passed.clone()));
        assert_eq!(parse_test("test a::b ... some output ok <1.250s>"), Some(passed.clone()));
        assert_eq!(parse_test("test a::b ... FAILED <1.250s>"), Some(TestResult { failed: true, ..passed }));
        for other in ["running 3 tests", "test a::b ... ignored", "test a::b has been running for over 60 seconds"] {
            assert_eq!(parse_test(other), None, "{other}");
        }
    }

    #[test]
    fn a_summary_gives_its_counts() {
        let line = "test result: FAILED. 12 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 3.21s";
        assert_eq!(parse_summary(line), Some((12, 2, 1)));
        assert_eq!(parse_summary("test result"), None);
    }
}
