//! Backing up: files to chunks to blobs to packs, directories to trees, then the index, then the snapshot.
//!
//! ```text
//!  walkers ──batches of files──▶ workers (read, cut, hash, compress, seal) ──packs──▶ uploads
//!     │                             │ a directory whose entries are all done becomes a tree
//!     └──unchanged: parent's blobs──┘
//!  scanner: counts ahead for the total, if the walkers have to wait for the workers
//! ```

mod buffers;
mod directory;
mod files;
mod folders;
mod memory;
mod node;
mod options;
mod packer;
mod pool;
mod run;
mod scan;
mod source;
mod totals;
mod upload;
mod verify;
mod walk;

pub use options::{BackupOptions, Compression, DeviceIds, Parent, Target};
pub use run::{BackupOutcome, Problem};

#[cfg(test)]
mod tests {
    use super::buffers::Buffers;
    use super::packer::{Packer, Saver};
    use super::{BackupOptions, Compression, Target};
    use crate::format::blob::BlobKind;
    use crate::format::crypto::Key;
    use crate::format::id::Id;

    #[test]
    fn a_blob_that_is_not_what_its_name_says_gets_into_no_pack_unless_nobody_wants_proof() {
        assert!(BackupOptions::new(Target::Content("/".into())).verify, "proof is the default");
        let key = Key::random();
        let plain = b"the same words again ".repeat(5000);
        for compression in [Compression::Auto, Compression::Off] {
            let store = |verify, id| {
                let mut saver = Saver::new(compression, verify).expect("made");
                let mut packer = Packer::new(BlobKind::Data, 1 << 20, Buffers::new(2 << 20, 4 << 20));
                let mut plain = plain.clone();
                let mut blob = saver.seal(&key, BlobKind::Data, id, &mut plain)?;
                packer.append(&key, &mut blob, || false).map(drop)
            };
            store(true, Id::of(&plain)).expect("it is what its name says");
            let error = store(true, Id::of(b"another")).expect_err("it is not");
            assert_eq!(error.reason(), "RepositoryDamaged");
            store(false, Id::of(b"another")).expect("nobody looked");
        }
    }
}
