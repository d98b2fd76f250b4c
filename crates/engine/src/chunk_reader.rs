//! Hands the chunks of a download to a thread that reads them.

use std::io::{self, Read};

use bytes::{Buf, Bytes};
use plimsoll_progress::Meter;
use tokio::sync::mpsc;

/// The number of chunks that wait for the thread.
const MAX_WAITING_CHUNKS: usize = 4;

/// Reads from a channel of chunks. Its end is the end of the file.
pub(crate) struct ChunkReader {
    incoming: mpsc::Receiver<Bytes>,
    current: Bytes,
    bytes: Meter,
}

/// A channel to a reader that counts its bytes.
pub(crate) fn chunk_channel(bytes: Meter) -> (mpsc::Sender<Bytes>, ChunkReader) {
    let (chunks, incoming) = mpsc::channel(MAX_WAITING_CHUNKS);
    (chunks, ChunkReader { incoming, current: Bytes::new(), bytes })
}

impl Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.incoming.blocking_recv() {
                Some(chunk) => self.current = chunk,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..length]);
        self.bytes.add(length as u64);
        Ok(length)
    }
}
