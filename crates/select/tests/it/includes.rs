use plimsoll_select::glob::Glob;
use plimsoll_select::includes::{
    IncludesExcludes, validate_includes_excludes, validate_namespace, validate_namespace_includes_excludes,
    validate_scoped_includes_excludes,
};
use proptest::prelude::*;

#[test]
fn patterns_match() {
    for (pattern, name, expected) in [
        ("*", "anything", true),
        ("", "", true),
        ("", "a", false),
        ("web", "web", true),
        ("web", "web-1", false),
        ("web*", "web-1", true),
        ("*web", "my-web", true),
        ("w*b", "wb", true),
        ("w*b", "wbx", false),
        ("w?b", "web", true),
        ("w?b", "wb", false),
        ("[abc]x", "bx", true),
        ("[!abc]x", "bx", false),
        ("[a-c]x", "cx", true),
        ("[a-c]x", "-x", false),
        ("{foo,ba*}", "bar", true),
        ("{foo,ba*}", "fo", false),
        ("a.b", "axb", false),
        ("a+*", "a+b", true),
        ("\\*", "*", true),
        ("\\*", "x", false),
    ] {
        assert_eq!(Glob::new(pattern).unwrap().matches(name), expected, "{pattern} {name}");
    }
    for (pattern, name, expected) in [
        ("*", "pods", true),
        ("*", "deployments.apps", false),
        ("**", "deployments.apps", true),
        ("*.apps", "deployments.apps", true),
        ("deployments.*", "deployments.apps", true),
        ("*.apps", "x.y.apps", false),
    ] {
        assert_eq!(Glob::with_separator(pattern, Some('.')).unwrap().matches(name), expected, "{pattern} {name}");
    }
    for pattern in ["[a", "{a,b", "[]", "a\\"] {
        assert_eq!(Glob::new(pattern).unwrap_err().reason(), "InvalidPattern", "{pattern}");
    }
}

#[test]
fn excludes_take_precedence_and_no_includes_means_everything() {
    for (includes, excludes, name, expected) in [
        (&[][..], &[][..], "foo", true),
        (&["*"], &[], "foo", true),
        (&["foo", "bar", "baz"], &[], "bar", true),
        (&["foo", "baz"], &[], "bar", false),
        (&["*"], &["foo"], "foo", false),
        (&["*"], &["foo"], "bar", true),
        (&["*.bar"], &[], "foo.bar", true),
        (&["*.bar"], &["foo.*"], "foo.bar", false),
        (&["prod-*"], &[], "prod-1", true),
        (&["prod-*"], &["prod-1"], "prod-1", false),
    ] {
        let filter = IncludesExcludes::new(includes, excludes).unwrap();
        assert_eq!(filter.includes(name), expected, "{includes:?} {excludes:?} {name}");
    }
}

#[test]
fn everything_is_included_if_nothing_is_excluded() {
    let cluster = ["app1".to_owned(), "app2".to_owned()];
    for (includes, excludes, everything, of_cluster) in [
        (&[][..], &[][..], true, true),
        (&["*"], &[], true, true),
        (&["*"], &["app1"], false, false),
        (&[], &["zzz*"], false, false),
        (&["app*"], &[], false, true),
        (&["app1", "app2"], &[], false, true),
        (&["app1"], &[], false, false),
        (&["app*", "gone"], &[], false, false),
        (&["app*"], &["x*"], false, true),
        (&["app*"], &["app1"], false, false),
    ] {
        let filter = IncludesExcludes::new(includes, excludes).unwrap();
        assert_eq!(filter.includes_everything(), everything, "{includes:?} {excludes:?}");
        assert_eq!(filter.includes_all_of(&cluster), of_cluster, "{includes:?} {excludes:?}");
    }
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn contradictory_lists_are_errors() {
    for (includes, excludes, old, scoped) in [
        (&["*"][..], &[][..], 0, 0),
        (&["foo", "*"], &[], 1, 1),
        (&[], &["*"], 1, 0),
        (&["foo"], &["*"], 1, 1),
        (&[], &["foo", "*"], 1, 1),
        (&["foo", "bar"], &["bar"], 1, 1),
        (&["foo", "*"], &["*"], 3, 3),
    ] {
        let (includes, excludes) = (strings(includes), strings(excludes));
        assert_eq!(validate_includes_excludes(&includes, &excludes).len(), old, "{includes:?} {excludes:?}");
        assert_eq!(validate_scoped_includes_excludes(&includes, &excludes).len(), scoped, "{includes:?} {excludes:?}");
    }
    assert_eq!(
        validate_includes_excludes(&strings(&["bar"]), &strings(&["bar"])),
        ["excludes list cannot contain an item in the includes list: bar"]
    );
    assert_eq!(validate_namespace_includes_excludes(&strings(&["Bad"]), &[]).len(), 1);
}

#[test]
fn namespace_names_and_patterns_are_validated() {
    for good in ["", "*", "prod", "prod-*", "prod-?", "app-[123]", "app-[a-c]", "a*b*c"] {
        assert_eq!(validate_namespace(good), Ok(()), "{good}");
    }
    let long = "a".repeat(64);
    for bad in
        ["a|b", "a(b", "!a", "{a}", "a,b", "a**", "a[b", "a[]", "ab]", "Upper", "-a", "a-", "a_b", "a.b", long.as_str()]
    {
        assert!(validate_namespace(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn a_literal_pattern_matches_itself_alone(name in "[a-z0-9.-]{1,20}", other in "[a-z0-9.-]{1,20}") {
        let glob = Glob::new(&name).unwrap();
        prop_assert!(glob.matches(&name));
        prop_assert_eq!(glob.matches(&other), name == other);
    }

    #[test]
    fn any_text_is_a_pattern_or_an_error(pattern in ".{0,30}", name in ".{0,30}") {
        if let Ok(glob) = Glob::new(&pattern) {
            let _ = glob.matches(&name);
        }
    }

    #[test]
    fn an_excluded_name_is_never_included(includes in prop::collection::vec("[a-c*]{1,3}", 0..4), excludes in prop::collection::vec("[a-c*]{1,3}", 0..4), name in "[a-c]{1,3}") {
        let filter = IncludesExcludes::new(&includes, &excludes).unwrap();
        prop_assert!(!(filter.includes(&name) && filter.excludes.matches(&name)));
        prop_assert!(!filter.includes_everything() || filter.includes(&name));
    }
}
