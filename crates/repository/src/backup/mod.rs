//! Backup: files become chunks, blobs and packs; directories become trees; then the index and the snapshot are written.
//!
//! ```text
//!  walkers ──batches of files──▶ workers (read, chunk, hash, compress, encrypt) ──packs──▶ uploads
//!     │                             │ a directory becomes a tree when all its entries are done
//!     └──unchanged: parent's blobs──┘
//!  scanner: counts ahead for the total, if the walkers wait for the workers
//! ```

pub(crate) mod buffers;
mod directory;
mod directory_queue;
mod encoders;
mod memory_plan;
mod node;
mod options;
pub(crate) mod packer;
mod run;
mod scan;
mod source;
mod totals;
mod unfinished;
mod unindexed;
mod upload;
mod upload_limit;
mod verify;
mod walk;
mod work_queue;
mod worker;

pub use options::{BackupOptions, Compression, DeviceIds, Parent, Target};
pub use run::{BackupOutcome, Problem};

#[cfg(test)]
mod tests {
    use super::buffers::Buffers;
    use super::packer::{BlobEncoder, Packer};
    use super::{BackupOptions, Compression, Target};
    use crate::format::blob::BlobKind;
    use crate::format::crypto::Key;
    use crate::format::id::Id;

    #[test]
    fn a_blob_that_does_not_match_its_id_is_rejected_unless_verification_is_off() {
        assert!(BackupOptions::new(Target::Content("/".into())).verify, "verification is the default");
        let key = Key::random();
        let plain = b"the same words again ".repeat(5000);
        for compression in [Compression::Auto, Compression::Off] {
            let store = |verify, id| {
                let mut encoder = BlobEncoder::new(compression, verify).expect("created");
                let mut packer = Packer::new(BlobKind::Data, 1 << 20, Buffers::new(2 << 20, 4 << 20));
                let mut plain = plain.clone();
                let blob = encoder.encrypt(&key, BlobKind::Data, id, &mut plain)?;
                assert!(packer.append(&blob, || false)?.is_none(), "the pack is not full");
                let pack = packer.take().expect("a pack");
                pack.finish(&key, &mut encoder).map(|pack| assert_eq!(pack.id, Id::of(&pack.content)))
            };
            store(true, Id::of(&plain)).expect("it matches its ID");
            let error = store(true, Id::of(b"another")).expect_err("it does not match its ID");
            assert_eq!(error.reason(), "RepositoryDamaged");
            store(false, Id::of(b"another")).expect("not verified");
        }
    }
}
