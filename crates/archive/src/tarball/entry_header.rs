//! Tar headers of untrusted archives, including long-name and extended headers.
//!
//! Entries are not read with the iterator of the `tar` crate: it reads long names and extended headers of any size into memory.

use std::io::Read;

use tar::EntryType;

use crate::Error;
use crate::limited_decoder::stream_error;

pub(super) const BLOCK: usize = 512;

/// Maximum length of a path in a long-name header.
const MAX_NAME_LENGTH: u64 = 4 * 1024;
/// Maximum size of an extended header, which has a path, a size and times.
const MAX_EXTENSION_LENGTH: u64 = 64 * 1024;

/// The header of an entry.
#[derive(Debug)]
pub(super) struct EntryHeader {
    pub(super) path: Vec<u8>,
    pub(super) kind: EntryType,
    pub(super) size: u64,
}

/// Reads up to and including the header of the next entry. `None` at the end of the archive.
pub(super) fn read(input: &mut impl Read) -> Result<Option<EntryHeader>, Error> {
    let (mut long_path, mut long_size) = (None, None);
    loop {
        let Some(block) = read_block(input)? else { return Ok(None) };
        let raw = tar::Header::from_byte_slice(&block);
        verify_checksum(raw, &block)?;
        let size = raw.entry_size().map_err(|_| Error::Tar("size of an entry is not a number"))?;
        match raw.entry_type() {
            EntryType::GNULongName => {
                let mut name = read_extension(input, size, MAX_NAME_LENGTH)?;
                name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
                long_path = Some(name);
            }
            EntryType::XHeader => {
                let extension = read_extension(input, size, MAX_EXTENSION_LENGTH)?;
                let (path, size) = parse_extension(&extension)?;
                long_path = path.or(long_path);
                long_size = size.or(long_size);
            }
            EntryType::XGlobalHeader => drop(read_extension(input, size, MAX_EXTENSION_LENGTH)?),
            kind => {
                let path = long_path.unwrap_or_else(|| raw.path_bytes().into_owned());
                return Ok(Some(EntryHeader { path, kind, size: long_size.unwrap_or(size) }));
            }
        }
    }
}

/// The next block; `None` for the zeros at the end of an archive, and if the stream ends between entries.
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

fn verify_checksum(raw: &tar::Header, block: &[u8; BLOCK]) -> Result<(), Error> {
    let expected = raw.cksum().map_err(|_| Error::Tar("checksum of a header is not a number"))?;
    let blanks = 8 * u32::from(b' ');
    let sum = block[..148].iter().chain(&block[156..]).map(|byte| u32::from(*byte)).sum::<u32>() + blanks;
    if sum == expected { Ok(()) } else { Err(Error::Tar("checksum of a header is wrong")) }
}

fn read_extension(input: &mut impl Read, size: u64, limit: u64) -> Result<Vec<u8>, Error> {
    if size > limit {
        return Err(Error::TooLarge { what: "bytes in an extended header", limit });
    }
    read_content(input, size)
}

/// Reads the content of an entry and its padding. The caller has checked the size.
pub(super) fn read_content(input: &mut impl Read, size: u64) -> Result<Vec<u8>, Error> {
    let length = usize::try_from(size).map_err(|_| Error::Tar("an entry does not fit in memory"))?;
    let mut content = vec![0; length];
    input.read_exact(&mut content).map_err(stream_error)?;
    skip(input, padding(size))?;
    Ok(content)
}

/// Number of padding bytes up to a whole block.
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
        let (key, value, rest) = next_record(records).ok_or(Error::Tar("malformed extended header"))?;
        match key {
            b"path" => path = Some(value.to_vec()),
            b"size" => {
                let text = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                size = Some(text.ok_or(Error::Tar("size in an extended header is not a number"))?);
            }
            // The content of a sparse file is not its bytes.
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
