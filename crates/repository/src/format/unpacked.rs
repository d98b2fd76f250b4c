//! Unpacked files (index, snapshot, lock): JSON, compressed since version 2, encrypted.

use super::crypto::Key;

/// First byte of compressed content.
const ZSTD: u8 = 2;
/// The maximum size after decompression: the input is not trusted.
const MAX_SIZE: usize = 1 << 30;

/// Compresses and encrypts JSON.
pub fn encode(json: &[u8], version: u32, key: &Key) -> std::io::Result<Vec<u8>> {
    let mut encrypted = Vec::new();
    if version < 2 {
        key.encrypt(json, &mut encrypted);
        return Ok(encrypted);
    }
    let mut plain = vec![ZSTD];
    plain.extend_from_slice(&zstd::bulk::compress(json, 3)?);
    key.encrypt(&plain, &mut encrypted);
    Ok(encrypted)
}

/// Decrypts and decompresses a stored file to JSON.
pub fn decode(encrypted: &[u8], key: &Key) -> Result<Vec<u8>, String> {
    let mut plain = Vec::new();
    key.decrypt(encrypted, &mut plain).map_err(|error| error.to_string())?;
    match plain.first() {
        Some(b'{' | b'[') => Ok(plain),
        Some(&ZSTD) => decompress(&plain[1..], MAX_SIZE),
        _ => Err("neither JSON nor compressed".into()),
    }
}

/// Decompresses a frame of unknown size, up to a limit.
pub fn decompress(frame: &[u8], limit: usize) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let mut decoder = zstd::stream::read::Decoder::with_buffer(frame).map_err(|error| error.to_string())?;
    decoder.window_log_max(29).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    let read = decoder.take(limit as u64 + 1).read_to_end(&mut out).map_err(|error| error.to_string())?;
    if read > limit { Err(format!("more than {limit} bytes")) } else { Ok(out) }
}
