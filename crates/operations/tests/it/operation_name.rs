use plimsoll_operations::operation_name;

#[test]
fn a_long_subject_gets_a_short_unique_operation_name() {
    assert_eq!(operation_name("backup", "x"), "backup-x");
    let (one, other) = ("a".repeat(250), "a".repeat(249) + "b");
    let names = [operation_name("backup", &one), operation_name("backup", &other)];
    assert!(names.iter().all(|name| name.len() <= 240));
    assert_ne!(names[0], names[1]);
}
