//! Reader for untrusted tarballs.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};

use serde::Deserialize;
use tar::EntryType;

use super::entry_header::{self, EntryHeader};
use super::item_path::{self, Entry, ItemPath};
use crate::Error;
use crate::limited_decoder::{DecoderLimits, LimitedDecoder, stream_error};

/// Limits that protect the reader against malicious archives.
#[derive(Debug, Clone, Copy)]
pub struct ReaderLimits {
    /// Bytes of one object. The API server accepts at most 3 MiB; aggregated APIs with higher limits are rare.
    pub entry_bytes: u64,
    /// Uncompressed bytes of the whole archive.
    pub total_bytes: u64,
    /// Number of entries.
    pub entries: u64,
    /// Compression ratio. Objects, which are stored twice, reach 60; a decompression bomb about 1000.
    pub ratio: u64,
}

impl Default for ReaderLimits {
    fn default() -> Self {
        Self { entry_bytes: 16 << 20, total_bytes: 256 << 30, entries: 20_000_000, ratio: 300 }
    }
}

/// The fields of an object that filters need, parsed in the same pass that validates the JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectHeader {
    /// `v1`, `apps/v1`.
    pub api_version: String,
    /// `Pod`.
    pub kind: String,
    /// Part of the metadata.
    pub metadata: Metadata,
}

/// See [`ObjectHeader`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// The name.
    pub name: String,
    /// The namespace; `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The labels.
    pub labels: Option<BTreeMap<String, String>>,
}

/// An object of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// `pods`, `deployments.apps`.
    pub group_resource: String,
    /// `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The name of the object.
    pub name: String,
    /// The fields that filters need.
    pub header: ObjectHeader,
    /// The object, as stored in the archive.
    pub json: Vec<u8>,
}

/// Counts of what was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Objects returned.
    pub items: u64,
    /// Objects with an error.
    pub failed: u64,
    /// Copies of objects under a version directory, skipped.
    pub preferred_version_copies: u64,
    /// Unknown files, skipped.
    pub other: u64,
}

/// Reads the objects of an archive in order.
///
/// # Guarantees
/// Writes nothing. At most one entry is in memory, plus eight bytes for each object read. After an error of one entry
/// ([`Error::is_entry_error`]) the next call continues with the next entry; any other error ends the iteration. The end is
/// reported only after the checksum of the gzip stream has been verified.
pub struct Reader<R: Read> {
    input: LimitedDecoder<R>,
    limits: ReaderLimits,
    version: Option<String>,
    counts: ReadCounts,
    entries: u64,
    seen: HashSet<u64>,
    hasher: RandomState,
    done: bool,
}

impl<R: Read> Reader<R> {
    /// A reader with the default limits.
    pub fn new(input: R) -> Self {
        Self::with_limits(input, ReaderLimits::default())
    }

    /// As [`Reader::new`].
    pub fn with_limits(input: R, limits: ReaderLimits) -> Self {
        Self {
            input: LimitedDecoder::new(input, DecoderLimits { bytes: limits.total_bytes, ratio: limits.ratio }),
            limits,
            version: None,
            counts: ReadCounts::default(),
            entries: 0,
            seen: HashSet::new(),
            hasher: RandomState::new(),
            done: false,
        }
    }

    /// The format version; known once the first object has been read, because its entry comes first.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Counts so far.
    pub fn counts(&self) -> ReadCounts {
        self.counts
    }

    /// Compressed bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.input.compressed_bytes()
    }

    /// The next object; `None` at the end.
    pub fn next_item(&mut self) -> Result<Option<Item>, Error> {
        if self.done {
            return Ok(None);
        }
        let next = self.advance();
        match &next {
            Err(error) if error.is_entry_error() => self.counts.failed += 1,
            Ok(Some(_)) => self.counts.items += 1,
            _ => self.done = true,
        }
        next
    }

    fn advance(&mut self) -> Result<Option<Item>, Error> {
        while let Some(entry) = entry_header::read(&mut self.input)? {
            self.entries += 1;
            if self.entries > self.limits.entries {
                return Err(Error::TooLarge { what: "entries", limit: self.limits.entries });
            }
            if let Some(item) = self.read_entry(&entry)? {
                return Ok(Some(item));
            }
        }
        // The checksum of the gzip stream follows the last block.
        io::copy(&mut self.input, &mut io::sink()).map_err(stream_error)?;
        Ok(None)
    }

    fn read_entry(&mut self, entry: &EntryHeader) -> Result<Option<Item>, Error> {
        let path = item_path::validate_path(&entry.path)?;
        check_entry_type(path, entry.kind)?;
        if entry.kind.is_dir() {
            return entry_header::skip(&mut self.input, entry.size + entry_header::padding(entry.size)).map(|()| None);
        }
        if entry.size > self.limits.entry_bytes {
            let limit = self.limits.entry_bytes;
            return Err(Error::EntryTooLarge { path: path.to_owned(), size: entry.size, limit });
        }
        match item_path::classify(path) {
            Entry::Item(item) => self.read_item(path, &item, entry.size).map(Some),
            Entry::Version => self.read_version(entry.size).map(|()| None),
            other => {
                let counter = if other == Entry::PreferredVersionCopy {
                    &mut self.counts.preferred_version_copies
                } else {
                    &mut self.counts.other
                };
                *counter += 1;
                entry_header::skip(&mut self.input, entry.size + entry_header::padding(entry.size)).map(|()| None)
            }
        }
    }

    fn read_version(&mut self, size: u64) -> Result<(), Error> {
        let content = entry_header::read_content(&mut self.input, size)?;
        let version = String::from_utf8_lossy(&content[..content.len().min(64)]).trim().to_owned();
        if version != "1" && !version.starts_with("1.") {
            return Err(Error::UnknownVersion(version));
        }
        self.version = Some(version);
        Ok(())
    }

    fn read_item(&mut self, path: &str, item: &ItemPath<'_>, size: u64) -> Result<Item, Error> {
        let json = entry_header::read_content(&mut self.input, size)?;
        if !self.seen.insert(self.hasher.hash_one(path)) {
            return Err(Error::Duplicate { path: path.to_owned() });
        }
        let header = parse_object_header(path, &json)?;
        check_content(path, item, &header)?;
        Ok(Item {
            group_resource: item.group_resource.to_owned(),
            namespace: item.namespace.map(str::to_owned),
            name: item.name.to_owned(),
            header,
            json,
        })
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Item, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_item().transpose()
    }
}

impl<R: Read> std::fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("counts", &self.counts).field("done", &self.done).finish_non_exhaustive()
    }
}

fn check_entry_type(path: &str, kind: EntryType) -> Result<(), Error> {
    let kind = match kind {
        EntryType::Regular | EntryType::Continuous | EntryType::Directory => return Ok(()),
        EntryType::Link => "hard link",
        EntryType::Symlink | EntryType::GNULongLink => "symbolic link",
        EntryType::Char | EntryType::Block => "device",
        EntryType::Fifo => "named pipe",
        EntryType::GNUSparse => "sparse file",
        _ => "entry of unknown type",
    };
    Err(Error::NotAFile { path: path.to_owned(), kind })
}

/// Parses the whole object, keeps the header.
fn parse_object_header(path: &str, json: &[u8]) -> Result<ObjectHeader, Error> {
    let invalid = |source| Error::InvalidJson { path: path.to_owned(), source };
    if json.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(invalid(serde::de::Error::custom("not an object")));
    }
    serde_json::from_slice(json).map_err(invalid)
}

fn check_content(path: &str, item: &ItemPath<'_>, header: &ObjectHeader) -> Result<(), Error> {
    let mismatch = |field, found: &str| Error::Mismatch { path: path.to_owned(), field, found: found.to_owned() };
    if header.metadata.name != item.name {
        return Err(mismatch("metadata.name", &header.metadata.name));
    }
    let namespace = header.metadata.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    if namespace != item.namespace {
        return Err(mismatch("metadata.namespace", namespace.unwrap_or_default()));
    }
    let group = header.api_version.split_once('/').map_or("", |(group, _)| group);
    let expected = item.group_resource.split_once('.').map_or("", |(_, group)| group);
    if group != expected || header.api_version.is_empty() {
        return Err(mismatch("apiVersion", &header.api_version));
    }
    if header.kind.is_empty() {
        return Err(mismatch("kind", ""));
    }
    Ok(())
}
