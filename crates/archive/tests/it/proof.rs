use plimsoll_archive::proof::{ProofKey, ProvenFiles, digest};

fn key(byte: u8) -> ProofKey {
    ProofKey::new(vec![byte; ProofKey::LENGTH]).unwrap()
}

#[test]
fn a_proof_holds_for_its_own_files_key_and_backup_only() {
    let (metadata, contents, snapshots, other) = (digest(b"m"), digest(b"c"), digest(b"s"), digest(b"x"));
    let proof = key(1).prove(&ProvenFiles {
        metadata: ("b/m", &metadata),
        contents: ("b/c", &contents),
        volume_snapshots: ("b/s", &snapshots),
    });
    let holds = |key: &ProofKey, tag: &str, metadata, file| key.verifies(tag, metadata, file);
    assert!(holds(&key(1), &proof.contents, ("b/m", &metadata), ("b/c", &contents)));
    assert!(holds(&key(1), &proof.volume_snapshots, ("b/m", &metadata), ("b/s", &snapshots)));
    assert!(!holds(&key(2), &proof.contents, ("b/m", &metadata), ("b/c", &contents)), "another cluster");
    assert!(!holds(&key(1), &proof.contents, ("b/m", &metadata), ("b/c", &other)), "another tarball");
    assert!(!holds(&key(1), &proof.contents, ("b/m", &other), ("b/c", &contents)), "another expiration");
    assert!(!holds(&key(1), &proof.contents, ("b/m", &metadata), ("a/c", &contents)), "another backup");
    assert!(!holds(&key(1), &proof.contents, ("b/m", &metadata), ("b/s", &snapshots)), "another file");
    for tag in ["", "zz", &proof.contents[2..], &proof.contents[1..]] {
        assert!(!holds(&key(1), tag, ("b/m", &metadata), ("b/c", &contents)), "{tag:?}");
    }
}

#[test]
fn a_short_key_is_none() {
    assert!(ProofKey::new(vec![0; ProofKey::LENGTH - 1]).is_none());
}
