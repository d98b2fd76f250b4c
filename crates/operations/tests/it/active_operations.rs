use plimsoll_operations::ActiveOperations;

#[test]
fn the_limit_counts_the_operations_of_one_verb() {
    let active = ActiveOperations::default();
    assert!(active.begin("1", "backup", "a", 1).is_some());
    assert!(active.begin("1", "backup", "a", 2).is_none(), "it runs already");
    assert!(active.begin("2", "backup", "b", 1).is_none(), "the limit is reached");
    assert!(active.begin("3", "restore", "a", 1).is_some());
    active.end("1");
    assert!(active.begin("2", "backup", "b", 1).is_some());
}
