//! Blobs: chunks of files and trees, as described by packs and indexes.

use super::id::Id;

/// The kind of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlobKind {
    /// A chunk of a file.
    Data,
    /// A tree.
    Tree,
}

/// A blob and its position in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedBlob {
    /// SHA-256 of the plain bytes.
    pub id: Id,
    /// Its kind.
    pub kind: BlobKind,
    /// The offset of its encrypted bytes.
    pub offset: u32,
    /// The length of its encrypted bytes.
    pub length: u32,
    /// Length of the plain bytes if they are compressed, else 0.
    pub uncompressed: u32,
}

impl PackedBlob {
    /// Length of the plain bytes.
    pub fn plain_length(&self) -> u32 {
        let overhead = u32::try_from(super::crypto::OVERHEAD).unwrap_or(u32::MAX);
        if self.uncompressed > 0 { self.uncompressed } else { self.length.saturating_sub(overhead) }
    }
}
