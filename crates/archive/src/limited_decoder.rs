//! Decompresses untrusted gzip up to a limit.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;

use crate::Error;

/// The compression ratio is not checked before this many bytes.
const MIN_BYTES_FOR_RATIO: u64 = 16 << 20;

/// Limits of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecoderLimits {
    /// Uncompressed bytes.
    pub bytes: u64,
    /// Uncompressed bytes for each compressed byte.
    pub ratio: u64,
}

/// The uncompressed stream; enforces the limits.
pub(crate) struct LimitedDecoder<R: Read> {
    gzip: MultiGzDecoder<CountingReader<R>>,
    uncompressed: u64,
    limits: DecoderLimits,
}

impl<R: Read> LimitedDecoder<R> {
    pub fn new(input: R, limits: DecoderLimits) -> Self {
        Self { gzip: MultiGzDecoder::new(CountingReader { input, bytes: 0 }), uncompressed: 0, limits }
    }

    pub fn compressed_bytes(&self) -> u64 {
        self.gzip.get_ref().bytes
    }

    fn check(&self) -> Result<(), LimitExceeded> {
        let DecoderLimits { bytes, ratio } = self.limits;
        if self.uncompressed > bytes {
            return Err(LimitExceeded { what: "bytes", limit: bytes });
        }
        if self.uncompressed > MIN_BYTES_FOR_RATIO && self.uncompressed / self.compressed_bytes().max(1) > ratio {
            return Err(LimitExceeded { what: "uncompressed bytes per compressed byte", limit: ratio });
        }
        Ok(())
    }
}

impl<R: Read> Read for LimitedDecoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.gzip.read(buffer)?;
        self.uncompressed += read as u64;
        self.check()?;
        Ok(read)
    }
}

/// Wrapped in an `io::Error` when a stream exceeds a limit.
#[derive(Debug, thiserror::Error)]
#[error("more than {limit} {what}")]
pub(crate) struct LimitExceeded {
    pub what: &'static str,
    pub limit: u64,
}

impl From<LimitExceeded> for io::Error {
    fn from(exceeded: LimitExceeded) -> Self {
        Self::other(exceeded)
    }
}

/// Distinguishes a truncated stream from one that is not gzip and from one that exceeds a limit.
pub(crate) fn stream_error(error: io::Error) -> Error {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    if let Some(limit) = error.get_ref().and_then(|inner| inner.downcast_ref::<LimitExceeded>()) {
        return Error::TooLarge { what: limit.what, limit: limit.limit };
    }
    match error.kind() {
        UnexpectedEof => Error::Truncated,
        InvalidData | InvalidInput => Error::Gzip(error),
        _ => Error::Io(error),
    }
}

struct CountingReader<R> {
    input: R,
    bytes: u64,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}
