//! A test that cannot run is listed by name and reason, and fails in CI.

use std::process::Command;

use plimsoll_testkit::{Unavailable, require};

/// Run by the other two tests in its own process, with their list and CI setting.
#[test]
#[ignore = "the two tests below run this one"]
fn requires_an_unavailable_program() {
    require!(Err::<(), _>(Unavailable::new("a unicorn", "they do not exist")));
    unreachable!("require! returned from the test before");
}

fn run_it(list: &std::path::Path, ci: &str) -> std::process::Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "skip::requires_an_unavailable_program", "--ignored"])
        .env("PLIMSOLL_SKIPPED", list)
        .env("CI", ci)
        .output()
        .unwrap()
}

#[test]
fn a_skipped_test_is_listed_with_its_name_and_reason() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("skipped");
    let output = run_it(&list, "");
    let line = "SKIPPED it::skip::requires_an_unavailable_program: a unicorn is not available: they do not exist\n";
    assert!(output.status.success());
    assert_eq!(std::fs::read_to_string(&list).unwrap(), line);
    assert!(String::from_utf8_lossy(&output.stderr).contains(line), "the harness must not swallow it");
}

#[test]
fn in_ci_a_skip_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_it(&folder.path().join("skipped"), "true");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("CI does not allow"));
}
