//! Pack files: encrypted blobs, an encrypted header that lists them, and the header's length.

use super::blob::{BlobKind, PackedBlob};
use super::crypto::{Key, OVERHEAD};
use super::id::Id;

/// Bytes of the length field at the end.
pub const LENGTH_FIELD: usize = 4;
/// A header entry of a plain blob, and of a compressed one.
const PLAIN_ENTRY: usize = 37;
const ZSTD_ENTRY: usize = 41;
/// The maximum length of a header.
const MAX_HEADER_LENGTH: usize = 16 * 1024 * 1024;
/// The maximum number of blobs in a pack, because of its header.
pub const MAX_BLOBS: usize = 400_000;

/// The size of the first read from the end of a pack: enough for most headers.
pub const FIRST_READ: u64 = (15 * ZSTD_ENTRY + OVERHEAD + LENGTH_FIELD) as u64;

/// The maximum length of header and length field for this many blobs.
pub fn header_length(blobs: usize) -> usize {
    blobs * ZSTD_ENTRY + OVERHEAD + LENGTH_FIELD
}

/// The encrypted header and its length, to be appended to the blobs.
pub fn encode_header(blobs: &[PackedBlob], key: &Key) -> Vec<u8> {
    let mut plain = Vec::with_capacity(blobs.len() * ZSTD_ENTRY);
    for blob in blobs {
        push_entry(blob, &mut plain);
    }
    let mut encrypted = Vec::new();
    key.encrypt(&plain, &mut encrypted);
    let length = u32::try_from(encrypted.len()).unwrap_or(u32::MAX);
    encrypted.extend_from_slice(&length.to_le_bytes());
    encrypted
}

fn push_entry(blob: &PackedBlob, out: &mut Vec<u8>) {
    let tree = u8::from(blob.kind == BlobKind::Tree);
    let compressed = blob.uncompressed > 0;
    out.push(tree + 2 * u8::from(compressed));
    out.extend_from_slice(&blob.length.to_le_bytes());
    if compressed {
        out.extend_from_slice(&blob.uncompressed.to_le_bytes());
    }
    out.extend_from_slice(&blob.id.0);
}

/// The length of header and length field of a pack of this size; `end` is the content of its end.
pub fn header_size(end: &[u8], file_size: u64) -> Result<usize, String> {
    let length = end.last_chunk::<LENGTH_FIELD>().ok_or("too short for a pack")?;
    let length = u32::from_le_bytes(*length) as usize;
    let fits = (length + LENGTH_FIELD) as u64 <= file_size;
    if !(OVERHEAD..=MAX_HEADER_LENGTH).contains(&length) || !fits {
        return Err(format!("header length {length} in a pack of {file_size} bytes"));
    }
    Ok(length + LENGTH_FIELD)
}

/// Parses a header: `tail` is exactly header and length field. Rejects packs whose size does not match their header.
pub fn parse_header(tail: &[u8], file_size: u64, key: &Key) -> Result<Vec<PackedBlob>, String> {
    if header_size(tail, file_size)? != tail.len() {
        return Err("incomplete header".into());
    }
    let mut plain = Vec::new();
    key.decrypt(&tail[..tail.len() - LENGTH_FIELD], &mut plain).map_err(|error| error.to_string())?;
    let blobs = parse_entries(&plain)?;
    let expected = file_size_of(&blobs);
    if expected != file_size {
        return Err(format!("{file_size} bytes instead of the {expected} bytes of the header"));
    }
    Ok(blobs)
}

fn parse_entries(mut plain: &[u8]) -> Result<Vec<PackedBlob>, String> {
    let mut blobs = Vec::with_capacity(plain.len() / PLAIN_ENTRY);
    let mut offset = 0_u32;
    while let Some((&kind, rest)) = plain.split_first() {
        let (blob, rest) = parse_entry(kind, rest, offset).ok_or("a header entry is not complete or not known")?;
        offset = offset.checked_add(blob.length).ok_or("a pack of more than 4 GiB")?;
        blobs.push(blob);
        plain = rest;
    }
    Ok(blobs)
}

fn parse_entry(kind: u8, rest: &[u8], offset: u32) -> Option<(PackedBlob, &[u8])> {
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (uncompressed, rest) = match kind {
        0 | 1 => (0, rest),
        2 | 3 => rest.split_first_chunk::<4>().map(|(value, rest)| (u32::from_le_bytes(*value), rest))?,
        _ => return None,
    };
    let (id, rest) = rest.split_first_chunk::<32>()?;
    let kind = if kind & 1 == 1 { BlobKind::Tree } else { BlobKind::Data };
    Some((PackedBlob { id: Id(*id), kind, offset, length: u32::from_le_bytes(*length), uncompressed }, rest))
}

/// The size of a pack with these blobs.
pub fn file_size_of(blobs: &[PackedBlob]) -> u64 {
    blobs.iter().map(|blob| stored_size(blob.length, blob.uncompressed > 0)).sum::<u64>() + EMPTY_SIZE
}

/// The size of a pack without blobs.
pub const EMPTY_SIZE: u64 = (OVERHEAD + LENGTH_FIELD) as u64;

/// The bytes that a blob of this encrypted length takes in a pack: itself and its header entry.
pub fn stored_size(length: u32, is_compressed: bool) -> u64 {
    let entry = if is_compressed { ZSTD_ENTRY } else { PLAIN_ENTRY };
    u64::from(length) + entry as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::crypto::tests::{fixed_key, hex};

    fn two_blobs() -> [PackedBlob; 2] {
        let blob = |word: &[u8], offset, length, uncompressed| PackedBlob {
            id: Id::of(word),
            kind: BlobKind::Data,
            offset,
            length,
            uncompressed,
        };
        [blob(b"hello", 0, 37, 0), blob(b"world", 37, 50, 1000)]
    }

    #[test]
    fn a_header_has_the_known_bytes_and_reads_back() {
        let tail = encode_header(&two_blobs(), &fixed_key());
        assert_eq!(hex(&tail[tail.len() - 4..]), "6e000000");
        assert_eq!(file_size_of(&two_blobs()), 201);
        assert_eq!(parse_header(&tail, 201, &fixed_key()).expect("reads"), two_blobs());
        let mut plain = Vec::new();
        fixed_key().decrypt(&tail[..tail.len() - 4], &mut plain).expect("opens");
        assert_eq!(
            hex(&plain),
            "00250000002cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b98240232000000e8030000486ea46224d1bb4fb680f34f7c9ad96a8f24ec88be73ea8e5a6c65260e9cb8a7"
        );
    }

    #[test]
    fn a_header_that_does_not_match_its_file_is_rejected() {
        let tail = encode_header(&two_blobs(), &fixed_key());
        assert!(parse_header(&tail, 200, &fixed_key()).is_err());
        assert!(parse_header(&tail[1..], 201, &fixed_key()).is_err());
        assert!(header_size(&[0xff; 4], 1 << 40).is_err());
        assert!(header_size(&[0, 0], 10).is_err());
    }
}
