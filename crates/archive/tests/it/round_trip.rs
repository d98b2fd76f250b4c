//! What is written is read back.

use plimsoll_archive::Error;
use plimsoll_archive::tarball::{Entry, ItemPath, Limits, Reader, Writer};

pub fn object(kind: &str, namespace: Option<&str>, name: &str, padding: usize) -> Vec<u8> {
    let namespace = namespace.map(|n| format!(",\"namespace\":\"{n}\"")).unwrap_or_default();
    let data = "x".repeat(padding);
    format!(r#"{{"apiVersion":"v1","kind":"{kind}","metadata":{{"name":"{name}"{namespace}}},"data":{{"d":"{data}"}}}}"#)
        .into_bytes()
}

pub fn read_all(bytes: &[u8], limits: Limits) -> Result<Vec<Entry>, Error> {
    let mut entries = Vec::new();
    Reader::new(bytes, limits).read(|entry| {
        entries.push(entry);
        Ok::<_, Error>(())
    })?;
    Ok(entries)
}

#[test]
fn every_object_is_read_back_once_with_its_bytes() {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let pod = object("Pod", Some("shop"), "web", 10);
    let volume = object("PersistentVolume", None, "pv-1", 10);
    writer.item("pods", "v1", Some("shop"), "web", &pod).unwrap();
    writer.item("persistentvolumes", "v1", None, "pv-1", &volume).unwrap();
    let entries = read_all(&writer.finish().unwrap(), Limits::default()).unwrap();
    let path = |group_resource: &str, namespace: Option<&str>, name: &str| ItemPath {
        group_resource: group_resource.into(),
        namespace: namespace.map(Into::into),
        name: name.into(),
    };
    assert_eq!(entries.len(), 2);
    assert_eq!((&entries[0].path, &entries[0].object), (&path("pods", Some("shop"), "web"), &pod));
    assert_eq!((&entries[1].path, &entries[1].object), (&path("persistentvolumes", None, "pv-1"), &volume));
    assert_eq!((entries[0].api_version.as_str(), entries[0].kind.as_str()), ("v1", "Pod"));
}

#[test]
fn names_longer_than_a_tar_header_survive() {
    let name = "n".repeat(253);
    let mut writer = Writer::new(Vec::new()).unwrap();
    writer.item("pods", "v1", Some("shop"), &name, &object("Pod", Some("shop"), &name, 1)).unwrap();
    let entries = read_all(&writer.finish().unwrap(), Limits::default()).unwrap();
    assert_eq!(entries[0].path.name, name);
}

#[test]
fn a_tarball_without_objects_is_a_backup_of_nothing() {
    let bytes = Writer::new(Vec::new()).unwrap().finish().unwrap();
    assert_eq!(read_all(&bytes, Limits::default()).unwrap(), []);
}

#[test]
fn the_system_s_tar_lists_both_places_and_the_version_first() {
    let mut writer = Writer::new(Vec::new()).unwrap();
    writer.item("pods", "v1", Some("shop"), "web", &object("Pod", Some("shop"), "web", 1)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("b.tar.gz");
    std::fs::write(&file, writer.finish().unwrap()).unwrap();
    let listing = std::process::Command::new("tar").arg("-tzf").arg(&file).output().unwrap();
    assert_eq!(
        String::from_utf8(listing.stdout).unwrap(),
        "metadata/version\nresources/pods/namespaces/shop/web.json\n\
         resources/pods/v1-preferredversion/namespaces/shop/web.json\n"
    );
}
