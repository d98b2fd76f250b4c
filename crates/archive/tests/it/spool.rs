//! The plan of a restore, on disk.

use plimsoll_archive::spool::{Row, SpoolWriter};
use plimsoll_archive::tarball::{Entry, ItemPath};

use super::round_trip::object;

fn entry(group_resource: &str, namespace: Option<&str>, name: &str, padding: usize) -> Entry {
    Entry {
        path: ItemPath {
            group_resource: group_resource.into(),
            namespace: namespace.map(Into::into),
            name: name.into(),
        },
        api_version: "v1".into(),
        kind: "Thing".into(),
        object: object("Thing", namespace, name, padding),
    }
}

#[test]
fn a_row_is_small() {
    assert!(size_of::<Row>() <= 28);
}

#[test]
fn objects_come_back_in_run_order_across_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = SpoolWriter::create(&directory.path().join("spool"), 1 << 30).unwrap();
    for n in (0..200).rev() {
        writer.append(entry("pods", Some("shop"), &format!("p{n:03}"), n * 100)).unwrap();
        writer.append(entry("namespaces", None, &format!("n{n:03}"), 10)).unwrap();
    }
    let mut spool = writer.finish().unwrap();
    spool.sort_by_rank(|resource| usize::from(resource.group_resource != "namespaces"));
    let names: Vec<_> = spool.rows().iter().map(|row| spool.name(*row).to_owned()).collect();
    assert_eq!((names[0].as_str(), names[199].as_str(), names[200].as_str()), ("n000", "n199", "p000"));
    for row in spool.rows() {
        let name = spool.name(*row);
        let object: serde_json::Value = serde_json::from_slice(&spool.read(*row).unwrap()).unwrap();
        assert_eq!(object["metadata"]["name"], name);
        assert_eq!(spool.namespace(*row), object["metadata"]["namespace"].as_str());
    }
}

#[test]
fn a_plan_that_needs_too_much_room_is_refused_before_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("spool");
    let mut writer = SpoolWriter::create(&path, 10).unwrap();
    writer.append(entry("pods", Some("shop"), "web", 100)).unwrap();
    assert_eq!(writer.finish().err().unwrap().reason(), "ArchiveTooLarge");
    assert_eq!(std::fs::metadata(path).unwrap().len(), 0);
}
