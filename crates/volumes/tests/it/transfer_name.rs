use plimsoll_volumes::fs_backup::transfer_name;

#[test]
fn the_same_work_has_the_same_name_and_other_work_another_one() {
    let name = |pod: &str, volume: &str| transfer_name("nightly", "uid", pod, volume);
    assert_eq!(name("a", "data"), name("a", "data"));
    assert_ne!(name("a", "data"), name("b", "data"));
    assert_ne!(name("a", "bdata"), name("ab", "data"));
    assert!(transfer_name(&"x".repeat(253), "uid", "a", "b").len() <= 253);
}
