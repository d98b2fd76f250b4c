//! The workers: read files, split them into chunks, and store new chunks.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::buffers::Buffer;
use super::directory::{Directory, complete_entry};
use super::node::{AttributeSource, attributes};
use super::run::Run;
use super::source::Stat;
use super::totals::Amount;
use super::work_queue::{ChunkJob, FileJob, Work};
use crate::Result;
use crate::format::blob::BlobKind;
use crate::format::chunker::MIN_CHUNK_SIZE;
use crate::format::id::Id;
use crate::format::tree::Node;

/// The size of a read of a large file: bytes after a chunk boundary are copied.
const READ_SIZE: usize = 256 * 1024;

/// A file of several chunks, some of which other workers may store.
pub(super) struct OpenFile {
    directory: Arc<Directory>,
    progress: Mutex<FileProgress>,
    /// The number of chunks that are not stored yet, plus one for the reader.
    open: AtomicUsize,
}

struct FileProgress {
    node: Option<Node>,
    chunks: Vec<Id>,
}

/// A worker thread.
pub(super) struct Worker<'r, 'a> {
    run: &'r Run<'a>,
    /// The number of the open pack that this worker fills.
    number: usize,
    buffer: Option<Buffer>,
    /// Bytes after a chunk boundary.
    rest: Vec<u8>,
    /// A chunk that waits for the next one: two chunks are hashed in little more time than one.
    waiting: Option<ChunkJob>,
}

/// The result of reading a chunk.
enum ChunkRead {
    /// A chunk of this length; the remaining bytes belong to the next chunk.
    Chunk(usize),
    /// The end of the file.
    End,
}

impl<'r, 'a> Worker<'r, 'a> {
    pub(super) fn new(run: &'r Run<'a>, number: usize) -> Self {
        Self { run, number, buffer: None, rest: Vec::new(), waiting: None }
    }

    /// Runs until the queue is closed and empty.
    pub(super) fn run(mut self) {
        while let Some(work) = self.run.queue.take(|| self.run.stop.is_stopped()) {
            let done = match work {
                Work::Files(files) => files.into_iter().try_for_each(|file| self.save_file(&file)),
                Work::Chunk(chunk) => self.save_one(chunk),
            };
            if let Err(error) = done {
                self.run.stop.fail(error);
            }
            // A waiting worker needs no buffer.
            self.buffer = None;
            self.run.queue.done();
        }
    }

    fn take_buffer(&mut self) -> Result<Buffer> {
        if self.buffer.is_none() {
            self.buffer = self.run.chunk_buffers.try_take();
        }
        if self.buffer.is_none()
            && let Some(waiting) = self.waiting.take()
        {
            // It may hold the buffer that all others wait for.
            self.save_one(waiting)?;
        }
        match self.buffer.take() {
            Some(buffer) => Ok(buffer),
            None => self.run.chunk_buffers.take(|| self.run.stop.is_stopped()),
        }
    }

    fn save_file(&mut self, job: &FileJob) -> Result<()> {
        self.run.stop.check()?;
        let file = match job.source.file(&job.path) {
            Ok(file) => file,
            Err(error) => return self.skip_file(job, 0, &error),
        };
        let stat = match Stat::of(&file) {
            Ok(stat) if stat.is_file() => stat,
            Ok(_) => return self.skip_file(job, 0, &std::io::Error::other("no longer a regular file")),
            Err(error) => return self.skip_file(job, 0, &error),
        };
        let mut node = self.run.node_builder.build(&job.name, &stat);
        match attributes(&AttributeSource::Open(file.as_fd()), |problem| self.run.problem(&job.path, &problem)) {
            Ok(attributes) => node.attributes = attributes,
            Err(error) => self.run.problem(&job.path, &error),
        }
        self.save_content(job, &file, node, stat.size())
    }

    /// Skips a file. A file that was removed meanwhile is not a problem.
    fn skip_file(&mut self, job: &FileJob, read: u64, error: &std::io::Error) -> Result<()> {
        if error.kind() != std::io::ErrorKind::NotFound || read > 0 {
            self.run.problem(&job.path, error);
            self.run.count_failed(job.size);
        } else {
            self.run.count_removed(job.size);
        }
        complete_entry(self.run, job.directory.clone(), None)
    }

    fn save_content(&mut self, job: &FileJob, file: &File, mut node: Node, expected: u64) -> Result<()> {
        let mut buffer = self.take_buffer()?;
        let mut filled = 0;
        let content = match self.read_chunk(file, &mut buffer, &mut filled, expected) {
            Ok(ChunkRead::Chunk(length)) => return self.save_large(job, file, node, buffer, filled, length),
            Ok(ChunkRead::End) if filled == 0 => Vec::new(),
            Ok(ChunkRead::End) => {
                self.count_growth(job.size, filled as u64);
                let id = Id::of(&buffer[..filled]);
                self.save_chunk(id, &mut buffer[..filled])?;
                vec![id]
            }
            Err(error) => return self.skip_file(job, 1, &error),
        };
        self.buffer = Some(buffer);
        node.size = filled as u64;
        node.content = Some(content);
        self.run.count_file(job.is_in_parent, node.size);
        complete_entry(self.run, job.directory.clone(), Some(node))
    }

    /// Adds the growth of a file to the total of the walk.
    fn count_growth(&self, known: u64, size: u64) {
        if size > known {
            self.run.meters.walked(Amount { files: 0, bytes: size - known });
        }
    }

    /// Fills the buffer until it contains a complete chunk or the rest of the file.
    fn read_chunk(
        &self,
        mut file: &File,
        buffer: &mut [u8],
        filled: &mut usize,
        expected: u64,
    ) -> std::io::Result<ChunkRead> {
        let mut tested = 0;
        loop {
            if let Some(length) = self.run.chunker.cut(&buffer[..*filled], tested) {
                return Ok(ChunkRead::Chunk(length));
            }
            tested = *filled;
            // One byte more than expected: a short read then is the end, without another call.
            let rest = usize::try_from(expected).unwrap_or(usize::MAX).saturating_add(1).max(4096);
            let length = READ_SIZE.min(rest).min(buffer.len() - *filled);
            let read = file.read(&mut buffer[*filled..*filled + length])?;
            *filled += read;
            // At or above the minimum chunk size, the new bytes must be tested for a boundary.
            if read == 0 || (read < length && *filled as u64 == expected && *filled < MIN_CHUNK_SIZE) {
                return Ok(ChunkRead::End);
            }
            if self.run.stop.is_stopped() {
                return Err(std::io::ErrorKind::Interrupted.into());
            }
        }
    }

    fn save_large(
        &mut self,
        job: &FileJob,
        file: &File,
        node: Node,
        mut buffer: Buffer,
        mut filled: usize,
        mut length: usize,
    ) -> Result<()> {
        let progress = Mutex::new(FileProgress { node: Some(node), chunks: Vec::new() });
        let open = Arc::new(OpenFile { directory: job.directory.clone(), progress, open: AtomicUsize::new(1) });
        let mut size = 0;
        let mut failure = None;
        for position in 0.. {
            self.count_growth(job.size.max(size), size + length as u64);
            size += length as u64;
            // Saving a chunk overwrites its bytes: the bytes of the next chunk are copied first.
            self.rest.clear();
            self.rest.extend_from_slice(&buffer[length..filled]);
            self.dispatch_chunk(ChunkJob { file: open.clone(), position, buffer, length })?;
            buffer = self.take_buffer()?;
            filled = self.rest.len();
            buffer[..filled].copy_from_slice(&self.rest);
            match self.read_chunk(file, &mut buffer, &mut filled, u64::MAX) {
                Ok(ChunkRead::Chunk(next)) => length = next,
                Ok(ChunkRead::End) if filled > 0 => {
                    self.count_growth(job.size.max(size), size + filled as u64);
                    size += filled as u64;
                    let last = ChunkJob { file: open.clone(), position: position + 1, buffer, length: filled };
                    self.dispatch_chunk(last)?;
                    break;
                }
                Ok(ChunkRead::End) => break,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        self.run.stop.check()?;
        if let Some(last) = self.waiting.take() {
            self.save_one(last)?;
        }
        self.end_large(job, &open, size, failure)
    }

    fn end_large(
        &mut self,
        job: &FileJob,
        open: &Arc<OpenFile>,
        size: u64,
        failure: Option<std::io::Error>,
    ) -> Result<()> {
        {
            let mut progress = open.progress.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(error) = failure {
                self.run.problem(&job.path, &error);
                self.run.count_failed(job.size.saturating_sub(size));
                progress.node = None;
            } else {
                self.run.count_file(job.is_in_parent, size);
                if let Some(node) = &mut progress.node {
                    node.size = size;
                }
            }
        }
        self.close_file(open)
    }

    /// Passes a chunk to an idle worker, or saves it here together with the next one.
    fn dispatch_chunk(&mut self, chunk: ChunkJob) -> Result<()> {
        chunk.file.open.fetch_add(1, Ordering::Relaxed);
        let Some(chunk) = self.run.queue.offer_chunk(chunk) else { return Ok(()) };
        match self.waiting.take() {
            None => self.waiting = Some(chunk),
            Some(first) => {
                let (one, other) = Id::of_both(first.content(), chunk.content());
                self.save_chunk_job(first, one)?;
                self.save_chunk_job(chunk, other)?;
            }
        }
        Ok(())
    }

    fn save_one(&mut self, chunk: ChunkJob) -> Result<()> {
        let id = Id::of(chunk.content());
        self.save_chunk_job(chunk, id)
    }

    fn save_chunk_job(&mut self, chunk: ChunkJob, id: Id) -> Result<()> {
        let ChunkJob { file, position, mut buffer, length } = chunk;
        self.save_chunk(id, &mut buffer[..length])?;
        self.buffer = Some(buffer);
        {
            let mut progress = file.progress.lock().unwrap_or_else(PoisonError::into_inner);
            if progress.chunks.len() <= position {
                progress.chunks.resize(position + 1, Id::default());
            }
            progress.chunks[position] = id;
        }
        self.close_file(&file)
    }

    fn close_file(&mut self, file: &Arc<OpenFile>) -> Result<()> {
        if file.open.fetch_sub(1, Ordering::AcqRel) != 1 {
            return Ok(());
        }
        let node = {
            let mut progress = file.progress.lock().unwrap_or_else(PoisonError::into_inner);
            let chunks = std::mem::take(&mut progress.chunks);
            progress.node.take().map(|node| Node { content: Some(chunks), ..node })
        };
        complete_entry(self.run, file.directory.clone(), node)
    }

    /// Stores a chunk unless it is stored already. Overwrites its bytes. They count as done now if the chunk exists, otherwise when
    /// its pack is stored, which is much later on a slow connection.
    fn save_chunk(&mut self, id: Id, plain: &mut [u8]) -> Result<()> {
        if !self.run.claim(BlobKind::Data, id) {
            self.run.meters.bytes.add(plain.len() as u64);
            return Ok(());
        }
        self.run.store_blob(self.run.data_packer(self.number), BlobKind::Data, id, plain)
    }
}
