//! Blobs: the pieces of files and the directories, as packs and indexes describe them.

use super::id::Id;

/// What a blob holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlobKind {
    /// A piece of a file.
    Data,
    /// A directory.
    Tree,
}

/// A blob and its place in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedBlob {
    /// SHA-256 of the plain bytes.
    pub id: Id,
    /// What it holds.
    pub kind: BlobKind,
    /// Where its sealed bytes start.
    pub offset: u32,
    /// How many sealed bytes there are.
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
