//! Foreign bytes: every decoder answers, whatever it is given, and what it accepts it can write again.

use plimsoll_repository::format::config::Config;
use plimsoll_repository::format::crypto::Key;
use plimsoll_repository::format::key::KeyFile;
use plimsoll_repository::format::snapshot::Snapshot;
use plimsoll_repository::format::tree::Tree;
use plimsoll_repository::format::{index, pack, unpacked};
use proptest::collection::vec;
use proptest::prelude::*;

const TREE: &str = include_str!("../data/tree.json");

fn key() -> Key {
    Key::new([1; 32], [2; 16], [3; 16]).expect("not zero")
}

/// The known tree with a few bytes replaced.
fn damaged_tree() -> impl Strategy<Value = Vec<u8>> {
    vec((0..TREE.len(), any::<u8>()), 1..6).prop_map(|changes| {
        let mut json = TREE.as_bytes().to_vec();
        for (at, byte) in changes {
            json[at] = byte;
        }
        json
    })
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in vec(any::<u8>(), 0..300), size in any::<u64>()) {
        let _ = Tree::parse(&bytes);
        let _ = Snapshot::parse(&bytes);
        let _ = Config::parse(&bytes);
        let _ = index::parse(&bytes);
        let _ = KeyFile::parse(&bytes);
        let _ = pack::header_size(&bytes, size);
        let _ = pack::parse_header(&bytes, size, &key());
        let _ = unpacked::open(&bytes, &key());
    }

    #[test]
    fn no_sealed_bytes_make_a_decoder_panic(plain in vec(any::<u8>(), 0..300), size in any::<u64>()) {
        let mut sealed = Vec::new();
        key().seal(&plain, &mut sealed);
        let _ = unpacked::open(&sealed, &key());
        let length = u32::try_from(sealed.len()).expect("small");
        sealed.extend_from_slice(&length.to_le_bytes());
        let _ = pack::parse_header(&sealed, size, &key());
    }

    #[test]
    fn a_damaged_tree_is_refused_or_written_again_as_it_was_read(json in damaged_tree()) {
        if let Ok(tree) = Tree::parse(&json) {
            prop_assert_eq!(Tree::parse(&tree.encode()), Ok(tree));
        }
    }
}
