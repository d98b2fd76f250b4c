//! Locks: who excludes whom, and what becomes of those that nobody holds any more.

use plimsoll_repository::{Lock, LockKind};

use crate::world::World;

#[test]
fn an_exclusive_lock_excludes_everybody_and_a_shared_one_only_the_exclusive() {
    let world = World::new();
    let repository = world.init();
    let shared = Lock::take(&repository, LockKind::Shared).expect("the first");
    let second = Lock::take(&repository, LockKind::Shared).expect("the second beside it");
    let error = Lock::take(&repository, LockKind::Exclusive).expect_err("excluded");
    assert_eq!((error.reason(), error.is_retryable()), ("RepositoryLocked", true));
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    drop((shared, second));
    let exclusive = Lock::take(&repository, LockKind::Exclusive).expect("alone");
    exclusive.check().expect("fresh");
    Lock::take(&repository, LockKind::Shared).expect_err("excluded");
    drop(exclusive);
    assert_eq!(std::fs::read_dir(world.path("repository/locks")).map_or(0, Iterator::count), 0);
}

#[test]
fn a_lock_whose_process_is_gone_is_removed_on_the_way() {
    let world = World::new();
    let repository = world.init();
    let left_behind = Lock::take(&repository, LockKind::Exclusive).expect("taken");
    assert_eq!(repository.unlock(false).expect("unlocks"), 0, "a lock that is held stays");
    assert_eq!(repository.unlock(true).expect("unlocks"), 1);
    drop(left_behind);
    Lock::take(&repository, LockKind::Exclusive).expect("free again");
}
