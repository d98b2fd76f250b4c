//! The fuzz targets compile and accept typical input. `hack/fuzz` searches for failures.

#[path = "../../../../fuzz/fuzz_targets/index.rs"]
#[expect(unused_attributes, reason = "a program of its own elsewhere")]
mod index;

#[path = "../../../../fuzz/fuzz_targets/key.rs"]
#[expect(unused_attributes, reason = "a program of its own elsewhere")]
mod key;

#[path = "../../../../fuzz/fuzz_targets/lock.rs"]
#[expect(unused_attributes, reason = "a program of its own elsewhere")]
mod lock;

#[path = "../../../../fuzz/fuzz_targets/pack.rs"]
#[expect(unused_attributes, clippy::cast_possible_truncation, reason = "a program of its own elsewhere")]
mod pack;

#[path = "../../../../fuzz/fuzz_targets/snapshot.rs"]
#[expect(unused_attributes, reason = "a program of its own elsewhere")]
mod snapshot;

#[path = "../../../../fuzz/fuzz_targets/tree.rs"]
#[expect(unused_attributes, reason = "a program of its own elsewhere")]
mod tree;

const TREE: &str = include_str!("../data/tree.json");

#[test]
fn every_fuzz_target_accepts_typical_input() {
    let id = "ac08ce34ba4f8123618661bef2425f7028ffb9ac740578a3ee88684d2523fee8";
    let index = format!(
        r#"{{"packs":[{{"id":"{id}","blobs":[{{"id":"{id}","type":"data","offset":0,"length":38,"uncompressed_length":99}}]}}]}}"#
    );
    // A blob with 38 encrypted bytes and any ID: its pack has its header entry and 36 more bytes.
    let entry = [&[0, 38, 0, 0, 0][..], &[7; 32]].concat();
    pack::target((38 + entry.len() as u64 + 36, entry));
    for bytes in [&b""[..], b"{}", TREE.as_bytes(), index.as_bytes(), &[0; 100]] {
        index::target(bytes);
        key::target(bytes);
        lock::target(bytes);
        pack::target((bytes.len() as u64, bytes.to_vec()));
        snapshot::target(bytes);
        tree::target(bytes);
    }
}
