//! Gzip and JSON for the metadata files of a backup.

use std::fmt;
use std::io::{BufReader, Read, Write};
use std::marker::PhantomData;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde::de::{Deserialize, DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::Error;
use crate::limited_decoder::{DecoderLimits, LimitedDecoder, stream_error};

/// Maximum size of `velero-backup.json`. The API server accepts objects of 3 MiB.
pub const MAX_BACKUP_OBJECT_BYTES: u64 = 16 << 20;
/// Maximum packed size of a metadata file.
pub const MAX_PACKED_METADATA_BYTES: u64 = 64 << 20;
/// Maximum uncompressed size of a metadata file.
pub const MAX_METADATA_BYTES: u64 = 256 << 20;
/// Maximum compression ratio of a metadata file. Lists of objects reach 100; a decompression bomb about 1000.
const MAX_METADATA_RATIO: u64 = 300;
/// Maximum number of items of a list.
const MAX_LIST_ITEMS: usize = 500_000;
/// Maximum size of an item. The API server accepts objects of 3 MiB.
const MAX_ITEM_BYTES: usize = 4 << 20;

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
    let mut input = LimitedDecoder::new(packed, DecoderLimits { bytes: limit, ratio: u64::MAX });
    input.read_to_end(&mut content).map_err(stream_error)?;
    Ok(content)
}

/// Reads a gzipped JSON document, as a stream.
pub fn read_gzip_json<T: DeserializeOwned>(packed: impl Read) -> Result<T, Error> {
    let limits = DecoderLimits { bytes: MAX_METADATA_BYTES, ratio: MAX_METADATA_RATIO };
    let mut input = serde_json::Deserializer::from_reader(BufReader::new(LimitedDecoder::new(packed, limits)));
    let value = T::deserialize(&mut input).map_err(json_error)?;
    // The end of the stream has the checksum.
    input.end().map_err(json_error)?;
    Ok(value)
}

/// Reads a gzipped JSON list; `null` is an empty list. Of each item no more than its text is in memory while it is read, so
/// that a small file cannot become large values.
pub fn read_gzip_list<T: DeserializeOwned>(packed: impl Read) -> Result<Vec<T>, Error> {
    read_gzip_json::<BoundedList<T>>(packed).map(|list| list.0)
}

struct BoundedList<T>(Vec<T>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for BoundedList<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(BoundedListVisitor(PhantomData)).map(Self)
    }
}

struct BoundedListVisitor<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for BoundedListVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_none<E>(self) -> Result<Vec<T>, E> {
        Ok(Vec::new())
    }

    fn visit_some<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Vec<T>, D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element::<Box<RawValue>>()? {
            if item.get().len() > MAX_ITEM_BYTES {
                return Err(A::Error::custom(format!(
                    "item {} exceeds the limit of {MAX_ITEM_BYTES} bytes",
                    all.len()
                )));
            }
            if all.len() == MAX_LIST_ITEMS {
                return Err(A::Error::custom(format!("the list exceeds the limit of {MAX_LIST_ITEMS} items")));
            }
            all.push(serde_json::from_str(item.get()).map_err(A::Error::custom)?);
        }
        Ok(all)
    }
}

/// An error of the stream is not one of the JSON.
fn json_error(error: serde_json::Error) -> Error {
    if error.is_io() { stream_error(error.into()) } else { Error::Json { what: "metadata", source: error } }
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
