//! Gzip and JSON for the metadata files of a backup.

use std::cell::Cell;
use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::marker::PhantomData;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde::de::{Deserialize, DeserializeOwned, Deserializer as _, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::Error;
use crate::limited_decoder::{DecoderLimits, LimitExceeded, LimitedDecoder, stream_error};
use crate::memory_estimate::estimate_memory;

/// Maximum size of `velero-backup.json`. The API server accepts objects of 3 MiB.
pub const MAX_BACKUP_OBJECT_BYTES: u64 = 16 << 20;
/// Maximum packed size of a metadata file.
pub const MAX_PACKED_METADATA_BYTES: u64 = 64 << 20;
/// Maximum uncompressed size of a metadata file.
pub const MAX_METADATA_BYTES: u64 = 256 << 20;
/// Maximum compression ratio of a metadata file. Lists of objects reach 100; a decompression bomb about 1000.
const MAX_METADATA_RATIO: u64 = 300;
/// Maximum number of items of a list.
const MAX_LIST_ITEMS: usize = 100_000;
/// Maximum size of an item. The API server accepts objects of 3 MiB.
const MAX_ITEM_BYTES: u64 = 4 << 20;
/// Maximum memory of a parsed object, as estimated.
const MAX_OBJECT_MEMORY: u64 = 64 << 20;
/// Maximum memory of a parsed list, as estimated: about 20,000 PodVolumeBackups.
const MAX_LIST_MEMORY: u64 = 512 << 20;

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

/// Parses an object of which the text is in memory, unless it would become much larger.
pub fn parse_object<T: DeserializeOwned>(content: &[u8]) -> Result<T, Error> {
    check_memory(estimate_memory(content), MAX_OBJECT_MEMORY)?;
    serde_json::from_slice(content).map_err(|source| Error::Json { what: "metadata", source })
}

/// Reads a gzipped JSON document that is at most `limit` bytes long.
pub fn read_gzip_json<T: DeserializeOwned>(packed: impl Read, limit: u64) -> Result<T, Error> {
    parse_object(&gunzip(packed, limit)?)
}

/// Reads a gzipped JSON list; `null` is an empty list.
pub fn read_gzip_list<T: DeserializeOwned>(packed: impl Read) -> Result<Vec<T>, Error> {
    let (mut all, mut memory) = (Vec::new(), 0);
    visit_gzip_list(packed, |item: T, text_memory| {
        // A vector reserves up to twice its length.
        memory += text_memory + 2 * size_of::<T>() as u64;
        check_memory(memory, MAX_LIST_MEMORY)?;
        all.push(item);
        Ok(())
    })?;
    Ok(all)
}

/// Reads a gzipped JSON list; `null` is an empty list. Only one item is in memory at a time. `visit` gets each item and the estimated
/// memory of its values; its error ends the reading.
pub fn visit_gzip_list<T: DeserializeOwned>(
    packed: impl Read,
    visit: impl FnMut(T, u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let limits = DecoderLimits { bytes: MAX_METADATA_BYTES, ratio: MAX_METADATA_RATIO };
    let item_bytes = Cell::new(0);
    let stream = ItemReader { input: LimitedDecoder::new(packed, limits), item_bytes: &item_bytes };
    let mut input = serde_json::Deserializer::from_reader(BufReader::new(stream));
    let mut failure = None;
    let visitor = ListVisitor { visit, item_bytes: &item_bytes, failure: &mut failure, item: PhantomData };
    let read = input.deserialize_option(visitor);
    if let Some(error) = failure {
        return Err(error);
    }
    read.map_err(json_error)?;
    // The end of the stream has the checksum.
    input.end().map_err(json_error)
}

/// Reads a gzipped JSON document as a stream: for types that keep next to nothing of it.
pub fn stream_gzip_json<T: DeserializeOwned>(packed: impl Read) -> Result<T, Error> {
    let limits = DecoderLimits { bytes: MAX_METADATA_BYTES, ratio: MAX_METADATA_RATIO };
    let stream = BufReader::new(LimitedDecoder::new(packed, limits));
    serde_json::from_reader(stream).map_err(json_error)
}

fn check_memory(estimate: u64, limit: u64) -> Result<(), Error> {
    if estimate > limit { Err(Error::TooLarge { what: "bytes of memory", limit }) } else { Ok(()) }
}

/// Limits the bytes that are read for one item.
struct ItemReader<'a, R> {
    input: R,
    /// Bytes since the end of the last item.
    item_bytes: &'a Cell<u64>,
}

impl<R: Read> Read for ItemReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.item_bytes.set(self.item_bytes.get() + read as u64);
        if self.item_bytes.get() > MAX_ITEM_BYTES {
            return Err(LimitExceeded { what: "bytes in an item of a list", limit: MAX_ITEM_BYTES }.into());
        }
        Ok(read)
    }
}

struct ListVisitor<'a, T, F> {
    visit: F,
    item_bytes: &'a Cell<u64>,
    /// The error that ended the reading, unless it is one of the JSON.
    failure: &'a mut Option<Error>,
    item: PhantomData<T>,
}

impl<'de, T: DeserializeOwned, F: FnMut(T, u64) -> Result<(), Error>> Visitor<'de> for ListVisitor<'_, T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let mut count = 0;
        while let Some(item) = items.next_element::<Box<RawValue>>()? {
            self.item_bytes.set(0);
            count += 1;
            if let Err(error) = self.visit_item(item.get(), count) {
                *self.failure = Some(error);
                return Err(A::Error::custom("the reading has ended"));
            }
        }
        Ok(())
    }
}

impl<T: DeserializeOwned, F: FnMut(T, u64) -> Result<(), Error>> ListVisitor<'_, T, F> {
    fn visit_item(&mut self, text: &str, count: usize) -> Result<(), Error> {
        if count > MAX_LIST_ITEMS {
            return Err(Error::TooLarge { what: "items in a list", limit: MAX_LIST_ITEMS as u64 });
        }
        (self.visit)(parse_object(text.as_bytes())?, estimate_memory(text.as_bytes()))
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
