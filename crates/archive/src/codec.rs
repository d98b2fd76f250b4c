//! Gzip and JSON for the metadata files of a backup.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde::de::{Deserialize, DeserializeOwned};

use crate::Error;

/// Maximum uncompressed size of a metadata file.
pub const MAX_METADATA_BYTES: u64 = 1 << 30;

/// Encodes a value as gzipped JSON. An empty list may be written as `null`: readers accept both.
pub fn gzip_json<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    serde_json::to_writer(&mut encoder, value).map_err(|source| Error::Json { what: "metadata", source })?;
    Ok(encoder.finish()?)
}

/// Compresses with gzip.
pub fn gzip(content: &[u8]) -> Result<Vec<u8>, Error> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content)?;
    Ok(encoder.finish()?)
}

/// A gzip stream, for files that grow during an operation, such as logs.
pub fn gzip_writer<W: Write>(out: W) -> GzEncoder<W> {
    GzEncoder::new(out, Compression::fast())
}

/// Decompresses untrusted gzip, up to a limit.
pub fn gunzip(packed: impl Read, limit: u64) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    let mut input = MultiGzDecoder::new(packed).take(limit.saturating_add(1));
    input.read_to_end(&mut content).map_err(gzip_error)?;
    if content.len() as u64 > limit {
        return Err(Error::TooLarge { what: "bytes in a metadata file", limit });
    }
    Ok(content)
}

/// Reads a gzipped JSON document.
pub fn read_gzip_json<T: DeserializeOwned>(packed: impl Read) -> Result<T, Error> {
    let content = gunzip(packed, MAX_METADATA_BYTES)?;
    serde_json::from_slice(&content).map_err(|source| Error::Json { what: "metadata", source })
}

/// Reads a gzipped JSON list; `null` is an empty list.
pub fn read_gzip_list<T: DeserializeOwned>(packed: impl Read) -> Result<Vec<T>, Error> {
    read_gzip_json::<Option<Vec<T>>>(packed).map(Option::unwrap_or_default)
}

/// Encodes a value as `velero-backup.json` is: indented by two spaces, with a final newline.
pub fn pretty_json<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    let mut text =
        serde_json::to_vec_pretty(value).map_err(|source| Error::Json { what: "velero-backup.json", source })?;
    text.push(b'\n');
    Ok(text)
}

/// Deserializes `null` as the default.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn gzip_error(error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::Truncated,
        _ => Error::Gzip(error),
    }
}
