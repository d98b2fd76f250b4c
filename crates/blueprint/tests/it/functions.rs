//! The table of functions is consistent.

use std::collections::BTreeSet;

use plimsoll_blueprint::functions::function_spec::{FUNCTIONS, POD_ARGUMENTS, ProgressKind, Support, find};

#[test]
fn functions_and_arguments_are_unique() {
    let names: BTreeSet<_> = FUNCTIONS.iter().map(|function| function.name).collect();
    assert_eq!(names.len(), FUNCTIONS.len());
    for function in FUNCTIONS {
        let groups = function.one_of.iter().flat_map(|group| group.iter());
        let of_pods: &[&str] = if function.creates_pods { &POD_ARGUMENTS } else { &[] };
        let all: Vec<_> = function.required.iter().chain(function.optional).chain(of_pods).chain(groups).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{}", function.name);
    }
}

#[test]
fn rds_functions_are_unsupported() {
    let unsupported = |name: &str| matches!(find(name).unwrap().support, Support::Unsupported(_));
    for name in ["CreateRDSSnapshot", "ExportRDSSnapshotToLocation", "RestoreRDSSnapshot", "DeleteRDSSnapshot"] {
        assert!(unsupported(name), "{name}");
    }
    let names = FUNCTIONS.iter().map(|function| function.name).filter(|name| unsupported(name));
    assert_eq!(names.count(), 4);
    assert_eq!(find("KubeTask").unwrap().support, Support::Full);
    assert!(find("NoSuchFunction").is_none());
}

#[test]
fn every_supported_function_has_its_progress_kind() {
    let bytes = [
        "BackupData",
        "BackupDataAll",
        "BackupDataUsingKopiaServer",
        "CopyVolumeData",
        "RestoreData",
        "RestoreDataAll",
        "RestoreDataUsingKopiaServer",
    ];
    let at_the_end = ["ScaleWorkload", "Wait", "WaitV2", "LocationDelete"];
    for function in FUNCTIONS.iter().filter(|function| !matches!(function.support, Support::Unsupported(_))) {
        let expected = match function.name {
            name if bytes.contains(&name) => ProgressKind::Bytes,
            name if at_the_end.contains(&name) || name.contains("CSISnapshot") => ProgressKind::OnCompletion,
            _ => ProgressKind::Steps,
        };
        assert_eq!(function.progress, expected, "{}", function.name);
        assert!(plimsoll_blueprint::functions::find(function.name).is_some(), "{} cannot be run", function.name);
    }
}
