//! Tar headers, read with suspicion: names and sizes from long-name and extended headers included.
//!
//! The entries are walked here rather than by a library's iterator, because that one reads long names and extended
//! headers into memory whatever size they claim.

use std::io::Read;

use tar::EntryType;

use crate::Error;

pub(super) const BLOCK: usize = 512;

/// A path longer than this is no path of a Kubernetes object.
const LONGEST_NAME: u64 = 4 * 1024;
/// Extended headers hold a path, a size and times.
const LONGEST_EXTENSION: u64 = 64 * 1024;

/// An entry about to be read.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) path: Vec<u8>,
    pub(super) kind: EntryType,
    pub(super) size: u64,
}

/// Reads up to and including the next entry's own header. None at the end of the archive.
pub(super) fn read(input: &mut impl Read) -> Result<Option<Header>, Error> {
    let (mut long_path, mut long_size) = (None, None);
    loop {
        let Some(block) = read_block(input)? else { return Ok(None) };
        let raw = tar::Header::from_byte_slice(&block);
        check_sum(raw, &block)?;
        let size = raw.entry_size().map_err(|_| Error::Tar("an entry's size is not a number"))?;
        match raw.entry_type() {
            EntryType::GNULongName => {
                let mut name = read_extension(input, size, LONGEST_NAME)?;
                name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
                long_path = Some(name);
            }
            EntryType::XHeader => {
                let extension = read_extension(input, size, LONGEST_EXTENSION)?;
                let (path, size) = parse_extension(&extension)?;
                long_path = path.or(long_path);
                long_size = size.or(long_size);
            }
            EntryType::XGlobalHeader => drop(read_extension(input, size, LONGEST_EXTENSION)?),
            kind => {
                let path = long_path.unwrap_or_else(|| raw.path_bytes().into_owned());
                return Ok(Some(Header { path, kind, size: long_size.unwrap_or(size) }));
            }
        }
    }
}

/// The next block; None for the zeros that end an archive, and where the stream ends between entries.
fn read_block(input: &mut impl Read) -> Result<Option<[u8; BLOCK]>, Error> {
    let mut block = [0; BLOCK];
    let mut filled = 0;
    while filled < BLOCK {
        match input.read(&mut block[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(Error::Truncated),
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(stream_error(error)),
        }
    }
    Ok(if block.iter().all(|byte| *byte == 0) { None } else { Some(block) })
}

fn check_sum(raw: &tar::Header, block: &[u8; BLOCK]) -> Result<(), Error> {
    let claimed = raw.cksum().map_err(|_| Error::Tar("a header's checksum is not a number"))?;
    let blanks = 8 * u32::from(b' ');
    let sum = block[..148].iter().chain(&block[156..]).map(|byte| u32::from(*byte)).sum::<u32>() + blanks;
    if sum == claimed { Ok(()) } else { Err(Error::Tar("a header's checksum is wrong")) }
}

fn read_extension(input: &mut impl Read, size: u64, limit: u64) -> Result<Vec<u8>, Error> {
    if size > limit {
        return Err(Error::TooLarge { what: "bytes in an extended header", limit });
    }
    read_content(input, size)
}

/// The content of an entry and the padding behind it. The caller has checked the size.
pub(super) fn read_content(input: &mut impl Read, size: u64) -> Result<Vec<u8>, Error> {
    let length = usize::try_from(size).map_err(|_| Error::Tar("an entry does not fit into memory"))?;
    let mut content = vec![0; length];
    input.read_exact(&mut content).map_err(stream_error)?;
    skip(input, padding(size))?;
    Ok(content)
}

/// What fills an entry up to whole blocks.
pub(super) fn padding(size: u64) -> u64 {
    size.next_multiple_of(BLOCK as u64) - size
}

pub(super) fn skip(input: &mut impl Read, bytes: u64) -> Result<(), Error> {
    let skipped = std::io::copy(&mut input.take(bytes), &mut std::io::sink()).map_err(stream_error)?;
    if skipped == bytes { Ok(()) } else { Err(Error::Truncated) }
}

/// Path and size from records of the form `<length> <key>=<value>\n`.
fn parse_extension(mut records: &[u8]) -> Result<(Option<Vec<u8>>, Option<u64>), Error> {
    let (mut path, mut size) = (None, None);
    while !records.is_empty() {
        let (key, value, rest) = next_record(records).ok_or(Error::Tar("an extended header is malformed"))?;
        match key {
            b"path" => path = Some(value.to_vec()),
            b"size" => {
                let text = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                size = Some(text.ok_or(Error::Tar("an extended header's size is not a number"))?);
            }
            // A sparse file's content is not its bytes.
            key if key.starts_with(b"GNU.sparse.") => return Err(Error::Tar("sparse entries are not supported")),
            _ => {}
        }
        records = rest;
    }
    Ok((path, size))
}

type Record<'a> = (&'a [u8], &'a [u8], &'a [u8]);

fn next_record(records: &[u8]) -> Option<Record<'_>> {
    let space = records.iter().position(|byte| *byte == b' ')?;
    let length: usize = str::from_utf8(&records[..space]).ok()?.parse().ok()?;
    if length <= space + 1 || length > records.len() || records[length - 1] != b'\n' {
        return None;
    }
    let record = &records[space + 1..length - 1];
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..], &records[length..]))
}

/// Tells a stream that broke off from one that is no gzip at all.
pub(super) fn stream_error(error: std::io::Error) -> Error {
    use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    if let Some(limit) = error.get_ref().and_then(|inner| inner.downcast_ref::<super::reader::OverLimit>()) {
        return Error::TooLarge { what: limit.what, limit: limit.limit };
    }
    match error.kind() {
        UnexpectedEof => Error::Truncated,
        InvalidData | InvalidInput => Error::Gzip(error),
        _ => Error::Io(error),
    }
}
