//! The table of functions is consistent.

use std::collections::BTreeSet;

use plimsoll_blueprint::functions::table::{FUNCTIONS, Shown, Support, find};

#[test]
fn no_function_and_no_argument_stands_in_the_table_twice() {
    let names: BTreeSet<_> = FUNCTIONS.iter().map(|function| function.name).collect();
    assert_eq!(names.len(), FUNCTIONS.len());
    for function in FUNCTIONS {
        let groups = function.one_of.iter().flat_map(|group| group.iter());
        let all: Vec<_> = function.required.iter().chain(function.optional).chain(groups).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{}", function.name);
    }
}

#[test]
fn functions_of_rds_and_of_the_kopia_server_are_refused_by_name() {
    for name in ["CreateRDSSnapshot", "BackupDataUsingKopiaServer"] {
        assert!(matches!(find(name).unwrap().support, Support::Refused(_)), "{name}");
    }
    assert_eq!(find("KubeTask").unwrap().support, Support::Full);
    assert!(find("NoSuchFunction").is_none());
}

#[test]
fn every_function_that_can_be_run_shows_its_progress_as_decided() {
    let bytes = ["BackupData", "BackupDataAll", "CopyVolumeData", "RestoreData", "RestoreDataAll"];
    let at_the_end = ["ScaleWorkload", "Wait", "WaitV2", "LocationDelete"];
    for function in FUNCTIONS.iter().filter(|function| !matches!(function.support, Support::Refused(_))) {
        let expected = match function.name {
            name if bytes.contains(&name) => Shown::Bytes,
            name if at_the_end.contains(&name) || name.contains("CSISnapshot") => Shown::AtTheEnd,
            _ => Shown::Steps,
        };
        assert_eq!(function.shown, expected, "{}", function.name);
        assert!(plimsoll_blueprint::functions::find(function.name).is_some(), "{} cannot be run", function.name);
    }
}
