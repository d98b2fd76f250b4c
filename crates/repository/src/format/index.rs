//! Index files: which blobs each pack holds.

use serde::{Deserialize, Serialize};

use super::blob::{BlobKind, PackedBlob};
use super::id::Id;

/// A pack and its blobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedPack {
    /// The pack.
    pub id: Id,
    /// All its blobs.
    pub blobs: Vec<PackedBlob>,
}

#[derive(Serialize, Deserialize)]
struct WireIndex {
    #[serde(default)]
    packs: Vec<WirePack>,
}

#[derive(Serialize, Deserialize)]
struct WirePack {
    id: Id,
    #[serde(default)]
    blobs: Vec<WireBlob>,
}

#[derive(Serialize, Deserialize)]
struct WireBlob {
    id: Id,
    #[serde(rename = "type")]
    kind: WireKind,
    offset: u32,
    length: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    uncompressed_length: u32,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WireKind {
    Data,
    Tree,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// The JSON of an index file.
pub fn encode(packs: &[IndexedPack]) -> Result<Vec<u8>, String> {
    let packs = packs.iter().map(|pack| WirePack { id: pack.id, blobs: pack.blobs.iter().map(to_wire).collect() });
    serde_json::to_vec(&WireIndex { packs: packs.collect() }).map_err(|error| error.to_string())
}

/// Reads the JSON of an index file.
pub fn parse(json: &[u8]) -> Result<Vec<IndexedPack>, String> {
    let wire: WireIndex = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let packs = wire.packs.into_iter();
    Ok(packs.map(|pack| IndexedPack { id: pack.id, blobs: pack.blobs.iter().map(from_wire).collect() }).collect())
}

fn to_wire(blob: &PackedBlob) -> WireBlob {
    let kind = match blob.kind {
        BlobKind::Data => WireKind::Data,
        BlobKind::Tree => WireKind::Tree,
    };
    let &PackedBlob { id, offset, length, uncompressed, .. } = blob;
    WireBlob { id, kind, offset, length, uncompressed_length: uncompressed }
}

fn from_wire(wire: &WireBlob) -> PackedBlob {
    let kind = match wire.kind {
        WireKind::Data => BlobKind::Data,
        WireKind::Tree => BlobKind::Tree,
    };
    let &WireBlob { id, offset, length, uncompressed_length, .. } = wire;
    PackedBlob { id, kind, offset, length, uncompressed: uncompressed_length }
}
