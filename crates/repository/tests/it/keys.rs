//! Passwords: list, add, remove and replace, with restic as the other side.

use plimsoll_repository::{Cancel, OpenOptions, Repository, RepositoryError};

use crate::interop::each_restic;
use crate::testbed::{PASSWORD, Testbed, task};

#[expect(clippy::panic, reason = "a test fails by panicking")]
fn opens(testbed: &Testbed, password: &str) -> bool {
    let opened = Repository::open(
        testbed.store(),
        testbed.runtime.handle().clone(),
        password.as_bytes(),
        OpenOptions::default(),
    );
    match opened {
        Ok(_) => true,
        Err(RepositoryError::WrongPassword { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_password_is_added_replaced_and_removed_and_the_last_one_stays() {
    let testbed = Testbed::new();
    let (repository, task, cancel) = (testbed.init(), task("keys"), Cancel::default());
    let first = repository.keys().expect("lists")[0].clone();
    let added = repository.add_key(b"second", &task, &cancel).expect("adds");
    assert!(opens(&testbed, PASSWORD) && opens(&testbed, "second"));
    assert_eq!(repository.keys().expect("lists").len(), 2);

    let kept = repository.remove_key(added, b"second", &task, &cancel).expect_err("no other key has this password");
    assert!(kept.to_string().contains("the key is kept"), "{kept}");
    repository.remove_key(added, PASSWORD.as_bytes(), &task, &cancel).expect("removes");
    assert!(!opens(&testbed, "second"));
    repository.remove_key(first.id, PASSWORD.as_bytes(), &task, &cancel).expect_err("it is the only key");

    let changed = repository.change_password(PASSWORD.as_bytes(), b"new", &task, &cancel).expect("changes");
    assert!(opens(&testbed, "new") && !opens(&testbed, PASSWORD));
    assert_eq!(repository.keys().expect("lists").iter().map(|key| key.id).collect::<Vec<_>>(), [changed]);
    let wrong = repository.change_password(b"wrong", b"newer", &task, &cancel).expect_err("the old one is wrong");
    assert_eq!(wrong.reason(), "WrongRepositoryPassword");
    assert!(repository.add_key(b"", &task, &cancel).is_err(), "an empty password");
}

#[test]
fn restic_opens_a_repository_with_an_added_password() {
    each_restic(|testbed, restic| {
        let repository = testbed.init();
        repository.add_key(b"second", &task("keys"), &Cancel::default()).expect("adds");
        let listed = restic.run(&["key", "list"]);
        assert_eq!(listed.matches("plimsoll").count(), 2, "{listed}");
        restic.run(&["check"]);
    });
}
