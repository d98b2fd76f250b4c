//! Handmade backups: an archive and its Backup.

use std::collections::BTreeMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::bed::{Bed, Home, phase};

/// An archive in the making.
#[derive(Default)]
pub struct Planted {
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    files: Vec<(String, Vec<u8>)>,
    labels: BTreeMap<String, String>,
}

impl Planted {
    /// An archive of the usual format version.
    pub fn new() -> Self {
        Self::default().file("metadata/version", b"1.1.0\n")
    }

    /// Adds an object, at the path it belongs to.
    pub fn object(self, group_resource: &str, object: &Value) -> Self {
        let name = object["metadata"]["name"].as_str().unwrap();
        let path = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => format!("resources/{group_resource}/namespaces/{namespace}/{name}.json"),
            None => format!("resources/{group_resource}/cluster/{name}.json"),
        };
        self.file(&path, object.to_string().as_bytes())
    }

    /// Adds a file.
    pub fn file(self, path: &str, content: &[u8]) -> Self {
        self.entry(path, tar::EntryType::Regular, content)
    }

    /// Adds an entry of any kind, at any path, however bad.
    pub fn entry(mut self, path: &str, kind: tar::EntryType, content: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_size(content.len() as u64);
        if kind == tar::EntryType::Symlink {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        self.entries.push((header.as_bytes().to_vec(), content.to_vec()));
        self
    }

    /// Adds a file beside the archive.
    pub fn beside(mut self, key: &str, value: &Value) -> Self {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(value.to_string().as_bytes()).unwrap();
        self.files.push((key.to_owned(), packed.finish().unwrap()));
        self
    }

    /// Labels the Backup.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The archive, packed.
    pub fn packed(&self) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        for (header, content) in &self.entries {
            packed.write_all(header).unwrap();
            packed.write_all(content).unwrap();
            packed.write_all(&vec![0; content.len().next_multiple_of(512) - content.len()]).unwrap();
        }
        packed.write_all(&[0; 1024]).unwrap();
        packed.finish().unwrap()
    }

    /// Puts it into the location of a home, as a backup of this name.
    pub async fn plant(self, home: &Home<'_>, name: &str) {
        let packed = self.packed();
        self.plant_bytes(home, name, &packed).await;
    }

    /// As [`Planted::plant`], with these bytes in place of the archive.
    pub async fn plant_bytes(self, home: &Home<'_>, name: &str, archive: &[u8]) {
        let directory = home.bucket.join(format!("backups/{name}"));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(format!("{name}.tar.gz")), archive).unwrap();
        for (key, content) in &self.files {
            std::fs::write(directory.join(format!("{name}-{key}")), content).unwrap();
        }
        let backup = json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
            "metadata": { "name": name, "labels": self.labels },
            "spec": { "storageLocation": "default" },
            "status": { "phase": "Completed", "version": 1, "formatVersion": "1.1.0",
                "startTimestamp": "2026-01-01T00:00:00Z", "completionTimestamp": "2026-01-01T00:00:01Z" } });
        std::fs::write(directory.join("velero-backup.json"), backup.to_string()).unwrap();
        home.create(backup).await.unwrap();
    }
}

/// Objects of any kind, in a namespace or in none.
pub fn objects(bed: &Bed, api_version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(bed.client.clone(), namespace, &resource),
        None => Api::all_with(bed.client.clone(), &resource),
    }
}

/// Creates an object in its namespace.
pub async fn create(bed: &Bed, object: &Value) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let api = objects(bed, text("/apiVersion").unwrap(), text("/kind").unwrap(), text("/metadata/namespace"));
    api.create(&PostParams::default(), &serde_json::from_value(object.clone()).unwrap()).await.unwrap();
}

/// Reads an object, if it is there.
pub async fn read(bed: &Bed, api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
    let found = objects(bed, api_version, kind, namespace).get_opt(name).await.unwrap();
    found.map(|found| serde_json::to_value(found).unwrap())
}

/// A ConfigMap with one value.
pub fn config_map(namespace: &str, name: &str, value: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": namespace }, "data": { "k": value } })
}

/// The counters of a Restore: total, restored, skipped, failed.
pub fn counts(restore: &Value) -> [u64; 4] {
    let field = |name: &str| restore["status"]["progress"][name].as_u64().unwrap_or(u64::MAX);
    let counts = ["totalItems", "itemsRestored", "itemsSkipped", "itemsFailed"].map(field);
    assert_eq!(counts[0], counts[1] + counts[2] + counts[3], "{restore:#}");
    counts
}

/// Asserts how a restore has ended. The failure shows its log.
pub fn assert_restored(home: &Home<'_>, restore: &Value, expected: (&str, [u64; 4])) {
    let name = restore["metadata"]["name"].as_str().unwrap();
    assert_eq!((phase(restore), counts(restore)), expected, "{restore:#}\n{}", restore_log(home, name));
}

/// A gzipped JSON file of a restore.
pub fn restored_file(home: &Home<'_>, restore: &str, file: &str) -> Value {
    let path = home.bucket.join(format!("restores/{restore}/restore-{restore}-{file}"));
    let content = std::process::Command::new("gzip").arg("-dc").arg(&path).output().unwrap();
    serde_json::from_slice(&content.stdout).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The log of a restore.
pub fn restore_log(home: &Home<'_>, restore: &str) -> String {
    let path = home.bucket.join(format!("restores/{restore}/restore-{restore}-logs.gz"));
    let content = std::process::Command::new("gzip").arg("-dc").arg(&path).output().unwrap();
    String::from_utf8(content.stdout).unwrap()
}
