//! Reads a tarball that nobody vouches for.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use tar::EntryType;

use super::header::{self, Header};
use super::path::{self, Entry, ItemPath};
use crate::Error;

/// How much a reader takes before it calls an archive hostile.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of one object. The API server takes 3 MiB at most; raised limits of aggregated APIs are rare and small.
    pub entry_bytes: u64,
    /// Bytes of the whole archive, unpacked.
    pub total_bytes: u64,
    /// Entries of all kinds.
    pub entries: u64,
    /// Unpacked bytes for each packed one. Objects reach 60, being stored twice; a bomb has about 1000.
    pub ratio: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entry_bytes: 16 << 20, total_bytes: 256 << 30, entries: 20_000_000, ratio: 300 }
    }
}

/// A ratio means nothing before this much has come out.
const RATIO_FLOOR: u64 = 16 << 20;

/// What the filters look at, read in the same pass that proves the content is JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Head {
    /// `v1`, `apps/v1`.
    pub api_version: String,
    /// `Pod`.
    pub kind: String,
    /// The object's metadata, as far as it matters.
    pub metadata: Metadata,
}

/// See [`Head`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// The name.
    pub name: String,
    /// The namespace, or nothing.
    pub namespace: Option<String>,
    /// The labels.
    pub labels: Option<BTreeMap<String, String>>,
}

/// An object of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// `pods`, `deployments.apps`.
    pub group_resource: String,
    /// None for what has no namespace.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
    /// What filters want to know.
    pub head: Head,
    /// The object, as it lies in the archive.
    pub json: Vec<u8>,
}

/// What went by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Objects handed out.
    pub items: u64,
    /// Objects that were lost to an error of their own.
    pub failed: u64,
    /// Objects below a version's directory, skipped.
    pub twins: u64,
    /// Files nobody knows, skipped.
    pub other: u64,
}

/// Walks an archive, object by object, in the order they lie there.
///
/// # Guarantees
/// Nothing is written anywhere. One entry at most is in memory, and eight bytes for each object seen. After an error
/// of one entry ([`Error::is_entry`]) the next call goes on behind it; after any other there is nothing more. The end
/// is reported only when the gzip stream ended well, its checksum included.
pub struct Reader<R: Read> {
    input: Metered<R>,
    limits: Limits,
    version: Option<String>,
    counts: Counts,
    entries: u64,
    seen: HashSet<u64>,
    hasher: RandomState,
    done: bool,
}

impl<R: Read> Reader<R> {
    /// A reader with the default limits.
    pub fn new(input: R) -> Self {
        Self::with_limits(input, Limits::default())
    }

    /// As [`Reader::new`].
    pub fn with_limits(input: R, limits: Limits) -> Self {
        Self {
            input: Metered::new(input, limits),
            limits,
            version: None,
            counts: Counts::default(),
            entries: 0,
            seen: HashSet::new(),
            hasher: RandomState::new(),
            done: false,
        }
    }

    /// The format's version; known once the first object has been read, because it lies in front.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// What went by so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes of the packed stream taken so far: how far a reader is.
    pub fn bytes_read(&self) -> u64 {
        self.input.packed()
    }

    /// The next object, or None at the end.
    pub fn next_item(&mut self) -> Result<Option<Item>, Error> {
        if self.done {
            return Ok(None);
        }
        let next = self.advance();
        match &next {
            Err(error) if error.is_entry() => self.counts.failed += 1,
            Ok(Some(_)) => self.counts.items += 1,
            _ => self.done = true,
        }
        next
    }

    fn advance(&mut self) -> Result<Option<Item>, Error> {
        while let Some(entry) = header::read(&mut self.input)? {
            self.entries += 1;
            if self.entries > self.limits.entries {
                return Err(Error::TooLarge { what: "entries", limit: self.limits.entries });
            }
            if let Some(item) = self.read_entry(&entry)? {
                return Ok(Some(item));
            }
        }
        // The checksum of the gzip stream lies behind the last block.
        io::copy(&mut self.input, &mut io::sink()).map_err(header::stream_error)?;
        Ok(None)
    }

    fn read_entry(&mut self, entry: &Header) -> Result<Option<Item>, Error> {
        let path = path::clean(&entry.path)?;
        check_kind(path, entry.kind)?;
        if entry.kind.is_dir() {
            return header::skip(&mut self.input, entry.size + header::padding(entry.size)).map(|()| None);
        }
        if entry.size > self.limits.entry_bytes {
            let limit = self.limits.entry_bytes;
            return Err(Error::EntryTooLarge { path: path.to_owned(), size: entry.size, limit });
        }
        match path::classify(path) {
            Entry::Item(item) => self.read_item(path, &item, entry.size).map(Some),
            Entry::Version => self.read_version(entry.size).map(|()| None),
            other => {
                let counter = if other == Entry::Twin { &mut self.counts.twins } else { &mut self.counts.other };
                *counter += 1;
                header::skip(&mut self.input, entry.size + header::padding(entry.size)).map(|()| None)
            }
        }
    }

    fn read_version(&mut self, size: u64) -> Result<(), Error> {
        let content = header::read_content(&mut self.input, size)?;
        let version = String::from_utf8_lossy(&content[..content.len().min(64)]).trim().to_owned();
        if version != "1" && !version.starts_with("1.") {
            return Err(Error::UnknownVersion(version));
        }
        self.version = Some(version);
        Ok(())
    }

    fn read_item(&mut self, path: &str, item: &ItemPath<'_>, size: u64) -> Result<Item, Error> {
        let json = header::read_content(&mut self.input, size)?;
        if !self.seen.insert(self.hasher.hash_one(path)) {
            return Err(Error::Duplicate { path: path.to_owned() });
        }
        let head = parse_head(path, &json)?;
        check_content(path, item, &head)?;
        Ok(Item {
            group_resource: item.group_resource.to_owned(),
            namespace: item.namespace.map(str::to_owned),
            name: item.name.to_owned(),
            head,
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

fn check_kind(path: &str, kind: EntryType) -> Result<(), Error> {
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

/// Reads the whole object, keeps little of it.
fn parse_head(path: &str, json: &[u8]) -> Result<Head, Error> {
    let invalid = |source| Error::InvalidJson { path: path.to_owned(), source };
    if json.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(invalid(serde::de::Error::custom("it is not an object")));
    }
    serde_json::from_slice(json).map_err(invalid)
}

fn check_content(path: &str, item: &ItemPath<'_>, head: &Head) -> Result<(), Error> {
    let differs = |field, found: &str| Error::Mismatch { path: path.to_owned(), field, found: found.to_owned() };
    if head.metadata.name != item.name {
        return Err(differs("metadata.name", &head.metadata.name));
    }
    let namespace = head.metadata.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    if namespace != item.namespace {
        return Err(differs("metadata.namespace", namespace.unwrap_or_default()));
    }
    let group = head.api_version.split_once('/').map_or("", |(group, _)| group);
    let expected = item.group_resource.split_once('.').map_or("", |(_, group)| group);
    if group != expected || head.api_version.is_empty() {
        return Err(differs("apiVersion", &head.api_version));
    }
    if head.kind.is_empty() {
        return Err(differs("kind", ""));
    }
    Ok(())
}

/// Said through an `io::Error` by a stream that would become too large.
#[derive(Debug, thiserror::Error)]
#[error("more than {limit} {what}")]
pub(super) struct OverLimit {
    pub(super) what: &'static str,
    pub(super) limit: u64,
}

/// The unpacked stream, with an eye on how much there is and out of how little.
struct Metered<R: Read> {
    gzip: MultiGzDecoder<Counted<R>>,
    unpacked: u64,
    limits: Limits,
}

impl<R: Read> Metered<R> {
    fn new(input: R, limits: Limits) -> Self {
        Self { gzip: MultiGzDecoder::new(Counted { input, bytes: 0 }), unpacked: 0, limits }
    }

    fn packed(&self) -> u64 {
        self.gzip.get_ref().bytes
    }

    fn check(&self) -> Result<(), OverLimit> {
        let Limits { total_bytes, ratio, .. } = self.limits;
        if self.unpacked > total_bytes {
            return Err(OverLimit { what: "bytes", limit: total_bytes });
        }
        if self.unpacked > RATIO_FLOOR && self.unpacked / self.packed().max(1) > ratio {
            return Err(OverLimit { what: "unpacked bytes for each packed one", limit: ratio });
        }
        Ok(())
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.gzip.read(buffer)?;
        self.unpacked += read as u64;
        self.check().map_err(io::Error::other)?;
        Ok(read)
    }
}

struct Counted<R> {
    input: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}
