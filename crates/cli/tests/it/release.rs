//! The files of a release: the scripts that write them give the same bytes for the same input, and what they name exists.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sha2::{Digest, Sha256};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a script of `hack` and gives what it prints.
fn script(name: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(workspace().join("hack").join(name));
    let output = command.args(arguments).env("SOURCE_DATE_EPOCH", "1700000000").output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The content of a file of a tar archive.
fn file_of(archive: &[u8], name: &str) -> Vec<u8> {
    let mut archive = tar::Archive::new(archive);
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.path().unwrap() == Path::new(name) {
            let mut content = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
            return content;
        }
    }
    panic!("{name} is not in the archive");
}

#[test]
fn an_image_is_the_same_bytes_twice_and_its_digests_are_true() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    // A small file in the place of the binary, which has hundreds of megabytes in a debug build.
    std::fs::write(path("binary"), "#!/bin/sh\n").unwrap();
    std::fs::write(path("restic"), "restic").unwrap();
    for output in ["a.tar", "b.tar"] {
        script("oci-image", &[&path(output), "plimsoll:1.2.3-movers", "arm64", &path("binary"), &path("restic")]);
    }
    let image = std::fs::read(path("a.tar")).unwrap();
    assert_eq!(image, std::fs::read(path("b.tar")).unwrap());
    let blob = |described: &Value| {
        let digest = described["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let content = file_of(&image, &format!("blobs/sha256/{digest}"));
        assert_eq!((sha256(&content).as_str(), Some(content.len() as u64)), (digest, described["size"].as_u64()));
        content
    };
    let index: Value = serde_json::from_slice(&file_of(&image, "index.json")).unwrap();
    assert_eq!(index["manifests"][0]["platform"]["architecture"], "arm64");
    let manifest: Value = serde_json::from_slice(&blob(&index["manifests"][0])).unwrap();
    let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
    assert_eq!(config["config"]["Entrypoint"][0], "/plimsoll");
    let mut layer = Vec::new();
    let packed = blob(&manifest["layers"][0]);
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed[..]), &mut layer).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256(&layer)));
    assert_eq!(file_of(&layer, "plimsoll"), b"#!/bin/sh\n");
    assert_eq!(file_of(&layer, "usr/bin/restic"), b"restic");
    assert!(!file_of(&layer, "etc/ssl/certs/ca-certificates.crt").is_empty(), "object storage needs certificates");
}

#[test]
fn the_manifests_of_krew_and_homebrew_name_the_archives_with_their_checksums() {
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("plimsoll-1.2.3-linux-aarch64.tar.gz");
    std::fs::write(&archive, "an archive").unwrap();
    let dist = directory.path().to_str().unwrap();
    script("release-manifests", &[dist, "1.2.3"]);
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let krew: Value = serde_saphyr::from_str(&read("plimsoll.yaml")).unwrap();
    assert_eq!((&krew["kind"], &krew["spec"]["version"]), (&"Plugin".into(), &"v1.2.3".into()));
    let [platform] = &krew["spec"]["platforms"].as_array().unwrap()[..] else { panic!("{krew}") };
    assert_eq!(platform["selector"]["matchLabels"]["arch"], "arm64");
    assert_eq!(platform["sha256"], sha256(b"an archive"));
    let uri = platform["uri"].as_str().unwrap();
    assert!(uri.ends_with("/v1.2.3/plimsoll-1.2.3-linux-aarch64.tar.gz"), "{uri}");
    let formula = read("plimsoll.rb");
    assert!(formula.contains("on_arm do") && !formula.contains("on_intel"), "{formula}");
    assert!(formula.contains(&sha256(b"an archive")) && formula.contains("version \"1.2.3\""), "{formula}");
}
