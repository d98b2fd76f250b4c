//! Index, snapshot and lock files: JSON, compressed from version 2 on, sealed as one.

use super::crypto::Key;

/// First byte of compressed content.
const ZSTD: u8 = 2;
/// Foreign input must not unpack into more than this.
const LARGEST: usize = 1 << 30;

/// The bytes to store for this JSON.
pub fn seal(json: &[u8], version: u32, key: &Key) -> std::io::Result<Vec<u8>> {
    let mut sealed = Vec::new();
    if version < 2 {
        key.seal(json, &mut sealed);
        return Ok(sealed);
    }
    let mut plain = vec![ZSTD];
    plain.extend_from_slice(&zstd::bulk::compress(json, 3)?);
    key.seal(&plain, &mut sealed);
    Ok(sealed)
}

/// The JSON of a stored file.
pub fn open(sealed: &[u8], key: &Key) -> Result<Vec<u8>, String> {
    let mut plain = Vec::new();
    key.open(sealed, &mut plain).map_err(|error| error.to_string())?;
    match plain.first() {
        Some(b'{' | b'[') => Ok(plain),
        Some(&ZSTD) => decompress(&plain[1..], LARGEST),
        _ => Err("neither JSON nor compressed".into()),
    }
}

/// Unpacks a frame whose size is not known beforehand, up to a limit.
pub fn decompress(frame: &[u8], limit: usize) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let mut decoder = zstd::stream::read::Decoder::with_buffer(frame).map_err(|error| error.to_string())?;
    decoder.window_log_max(29).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    let read = decoder.take(limit as u64 + 1).read_to_end(&mut out).map_err(|error| error.to_string())?;
    if read > limit { Err(format!("more than {limit} bytes")) } else { Ok(out) }
}
