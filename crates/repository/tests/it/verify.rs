//! Verification of snapshots: damage is found and named with the snapshots that it affects.

use std::fs;
use std::path::PathBuf;

use plimsoll_repository::{Cancel, Id, ReadData, VerifyOutcome};

use crate::testbed::{Testbed, random_bytes, task};

fn packs(testbed: &Testbed) -> Vec<PathBuf> {
    let folders = fs::read_dir(testbed.path("repository").join("data")).expect("lists").flatten();
    let mut files: Vec<_> = folders
        .flat_map(|folder| fs::read_dir(folder.path()).expect("lists").flatten())
        .map(|file| file.path())
        .collect();
    files.sort_by_key(|file| std::cmp::Reverse(file.metadata().expect("is there").len()));
    files
}

fn verify(testbed: &Testbed, snapshots: &[Id], read: ReadData) -> VerifyOutcome {
    let names: Vec<_> = snapshots.iter().map(ToString::to_string).collect();
    testbed.open().verify(&names, read, &task("verify"), &Cancel::default()).expect("can be verified")
}

/// Three snapshots: `one` has the file a, `both` has a and b, `other` has c.
fn three_snapshots(testbed: &Testbed) -> [Id; 3] {
    let repository = testbed.init();
    testbed.write("a", random_bytes(1, 200_000));
    let one = testbed.backup(&repository).snapshot;
    testbed.write("b", random_bytes(2, 100_000));
    let both = testbed.backup(&repository).snapshot;
    fs::remove_file(testbed.source().join("a")).expect("removes");
    fs::remove_file(testbed.source().join("b")).expect("removes");
    testbed.write("c", random_bytes(3, 50_000));
    [one, both, testbed.backup(&repository).snapshot]
}

#[test]
fn an_intact_snapshot_has_no_damage_however_much_is_read() {
    let testbed = Testbed::new();
    let [one, both, other] = three_snapshots(&testbed);
    let structure = verify(&testbed, &[one, both, other], ReadData::Nothing);
    assert_eq!((structure.damage_count, structure.snapshots, structure.bytes_read), (0, 3, 0));
    let sample = verify(&testbed, &[both], ReadData::Sample(1));
    assert!(sample.damage_count == 0 && sample.bytes_read > 0, "a sample has at least one pack: {sample:?}");
    let full = verify(&testbed, &[other], ReadData::Everything);
    assert_eq!(full.damage_count, 0);
    assert!((50_000..100_000).contains(&full.bytes_read), "only what it uses: {full:?}");
    assert!(full.warnings.is_empty() && structure.packs > full.packs);
}

#[test]
fn a_flipped_bit_is_found_by_reading_and_named_with_all_snapshots_that_need_it() {
    let testbed = Testbed::new();
    let [one, both, other] = three_snapshots(&testbed);
    let pack = &packs(&testbed)[0];
    let mut content = fs::read(pack).expect("reads");
    content[120_000] ^= 1;
    fs::write(pack, content).expect("writes");
    assert_eq!(verify(&testbed, &[one], ReadData::Nothing).damage_count, 0, "the structure is intact");
    let found = verify(&testbed, &[one], ReadData::Everything);
    let blob = found.damage.iter().find(|damage| damage.text.contains("blob")).expect("named");
    let mut affected = blob.snapshots.clone();
    affected.sort();
    let mut expected = vec![one, both];
    expected.sort();
    assert_eq!(affected, expected, "{found:?}");
    assert_eq!(verify(&testbed, &[other], ReadData::Everything).damage_count, 0, "it does not use that pack");
}

#[test]
fn a_missing_or_truncated_pack_is_found_without_reading_data() {
    for truncate in [false, true] {
        let testbed = Testbed::new();
        let [one, both, other] = three_snapshots(&testbed);
        let pack = &packs(&testbed)[0];
        let name = pack.file_name().expect("a name").to_string_lossy().into_owned();
        if truncate {
            let content = fs::read(pack).expect("reads");
            fs::write(pack, &content[..content.len() - 1]).expect("writes");
        } else {
            fs::remove_file(pack).expect("removes");
        }
        let found = verify(&testbed, &[both], ReadData::Nothing);
        let expected = if truncate { "instead of" } else { "is missing" };
        assert_eq!(found.damage_count, 1, "{found:?}");
        assert!(found.damage[0].text.contains(&name) && found.damage[0].text.contains(expected), "{found:?}");
        assert!(found.damage[0].snapshots.contains(&one) && found.damage[0].snapshots.contains(&both));
        assert!(!found.damage[0].snapshots.contains(&other));
    }
}

#[test]
fn a_missing_snapshot_and_a_missing_tree_are_damage() {
    let testbed = Testbed::new();
    let [one, both, other] = three_snapshots(&testbed);
    fs::remove_file(testbed.path("repository").join("snapshots").join(one.to_string())).expect("removes");
    let found = verify(&testbed, &[one, other], ReadData::Nothing);
    assert_eq!(found.damage_count, 1);
    assert_eq!(
        (found.damage[0].text.as_str(), found.damage[0].snapshots.clone()),
        (&*format!("snapshot {one} is missing"), vec![one])
    );
    for pack in packs(&testbed).iter().skip(3) {
        // The small packs are those of trees.
        fs::remove_file(pack).expect("removes");
    }
    let found = verify(&testbed, &[both], ReadData::Nothing);
    assert!(found.damage.iter().any(|damage| damage.text.starts_with("tree ")), "{found:?}");
    assert!(found.damage.iter().all(|damage| damage.snapshots.contains(&both)), "{found:?}");
}

#[test]
fn a_damaged_index_file_is_a_warning_because_the_packs_replace_it() {
    let testbed = Testbed::new();
    let [one, ..] = three_snapshots(&testbed);
    let index =
        fs::read_dir(testbed.path("repository").join("index")).expect("lists").flatten().next().expect("a file");
    fs::write(index.path(), b"damaged").expect("writes");
    let found = verify(&testbed, &[one], ReadData::Everything);
    assert_eq!((found.damage_count, found.warnings.len()), (0, 1), "{found:?}");
}
