//! Reading files: cut, hashed, and their chunks stored if nobody has them yet.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::buffers::Buffer;
use super::directory::{Directory, settle};
use super::node::{Carrier, attributes};
use super::packer::Saver;
use super::pool::{ChunkJob, FileJob, Work};
use super::run::Run;
use super::source::Stat;
use super::totals::Amount;
use crate::Result;
use crate::format::blob::BlobKind;
use crate::format::chunker::SHORTEST;
use crate::format::id::Id;
use crate::format::tree::Node;

/// How much is read at a time once a file is known to be large: what lies beyond a cut is copied.
const READ_SIZE: usize = 256 * 1024;

/// A file of several chunks, some of which other workers may hold.
pub(super) struct OpenFile {
    directory: Arc<Directory>,
    progress: Mutex<FileProgress>,
    /// Chunks not stored yet, and one for the reader.
    open: AtomicUsize,
}

struct FileProgress {
    node: Option<Node>,
    chunks: Vec<Id>,
}

/// One thread that saves files.
pub(super) struct Worker<'r, 'a> {
    run: &'r Run<'a>,
    saver: Saver,
    /// Which of the open packs this one fills.
    number: usize,
    buffer: Option<Buffer>,
    /// What was read beyond a cut.
    rest: Vec<u8>,
    /// A chunk that waits for the next one: two are hashed in little more time than one.
    waiting: Option<ChunkJob>,
}

/// What reading a chunk ended with.
enum Piece {
    /// A chunk of this length; the rest of what is filled belongs to the next.
    Cut(usize),
    /// The file ends with what is filled.
    End,
}

impl<'r, 'a> Worker<'r, 'a> {
    pub(super) fn new(run: &'r Run<'a>, number: usize) -> Result<Self> {
        Ok(Self { run, saver: run.saver()?, number, buffer: None, rest: Vec::new(), waiting: None })
    }

    /// Works until there is nothing left to do.
    pub(super) fn work(mut self) {
        while let Some(work) = self.run.pool.take(|| self.run.is_stopped()) {
            let done = match work {
                Work::Files(files) => files.into_iter().try_for_each(|file| self.save_file(&file)),
                Work::Chunk(chunk) => self.save_one(chunk),
            };
            if let Err(error) = done {
                self.run.fail(error);
            }
            // Whoever waits for work needs no buffer.
            self.buffer = None;
            self.run.pool.done();
        }
    }

    fn take_buffer(&mut self) -> Result<Buffer> {
        match self.buffer.take() {
            Some(buffer) => Ok(buffer),
            None => self.run.chunk_buffers.take(|| self.run.is_stopped()),
        }
    }

    fn save_file(&mut self, job: &FileJob) -> Result<()> {
        self.run.check()?;
        let file = match job.source.file(&job.path) {
            Ok(file) => file,
            Err(error) => return self.give_up(job, 0, &error),
        };
        let stat = match Stat::of(&file) {
            Ok(stat) if stat.is_file() => stat,
            Ok(_) => return self.give_up(job, 0, &std::io::Error::other("it is no longer a regular file")),
            Err(error) => return self.give_up(job, 0, &error),
        };
        let mut node = self.run.maker.make(&job.name, &stat);
        match attributes(&Carrier::Open(file.as_fd()), |problem| self.run.problem(&job.path, &problem)) {
            Ok(found) => node.attributes = found,
            Err(error) => self.run.problem(&job.path, &error),
        }
        self.save_content(job, &file, node, stat.size())
    }

    /// Leaves a file out: gone in the meantime is no problem, anything else is one.
    fn give_up(&mut self, job: &FileJob, read: u64, error: &std::io::Error) -> Result<()> {
        if error.kind() != std::io::ErrorKind::NotFound || read > 0 {
            self.run.problem(&job.path, error);
            self.run.count_failed(job.size);
        } else {
            self.run.count_gone(job.size);
        }
        settle(self.run, &mut self.saver, job.directory.clone(), None)
    }

    fn save_content(&mut self, job: &FileJob, file: &File, mut node: Node, expected: u64) -> Result<()> {
        let mut buffer = self.take_buffer()?;
        let mut filled = 0;
        let content = match self.read_chunk(file, &mut buffer, &mut filled, expected) {
            Ok(Piece::Cut(length)) => return self.save_large(job, file, node, buffer, filled, length),
            Ok(Piece::End) if filled == 0 => Vec::new(),
            Ok(Piece::End) => {
                self.count_growth(job.size, filled as u64);
                let id = Id::of(&buffer[..filled]);
                self.save_chunk(id, &mut buffer[..filled])?;
                vec![id]
            }
            Err(error) => return self.give_up(job, 1, &error),
        };
        self.buffer = Some(buffer);
        node.size = filled as u64;
        node.content = Some(content);
        self.run.count_file(job.known, node.size);
        settle(self.run, &mut self.saver, job.directory.clone(), Some(node))
    }

    /// A file that grows is more than the walk has found.
    fn count_growth(&self, known: u64, size: u64) {
        if size > known {
            self.run.meters.walked(Amount { files: 0, bytes: size - known });
        }
    }

    /// Fills the buffer until it holds a whole chunk or the rest of the file.
    fn read_chunk(
        &self,
        mut file: &File,
        buffer: &mut [u8],
        filled: &mut usize,
        expected: u64,
    ) -> std::io::Result<Piece> {
        let mut tested = 0;
        loop {
            if let Some(length) = self.run.chunker.cut(&buffer[..*filled], tested) {
                return Ok(Piece::Cut(length));
            }
            tested = *filled;
            // One byte more than expected: a short answer then says that this is the end, without another call.
            let rest = usize::try_from(expected).unwrap_or(usize::MAX).saturating_add(1).max(4096);
            let wanted = READ_SIZE.min(rest).min(buffer.len() - *filled);
            let read = file.read(&mut buffer[*filled..*filled + wanted])?;
            *filled += read;
            // Where a cut is possible the new bytes are still to be tested.
            if read == 0 || (read < wanted && *filled as u64 == expected && *filled < SHORTEST) {
                return Ok(Piece::End);
            }
            if self.run.is_stopped() {
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
            // Saving a chunk uses up its bytes: what belongs to the next goes aside first.
            self.rest.clear();
            self.rest.extend_from_slice(&buffer[length..filled]);
            self.hand_over(ChunkJob { file: open.clone(), position, buffer, length })?;
            buffer = self.take_buffer()?;
            filled = self.rest.len();
            buffer[..filled].copy_from_slice(&self.rest);
            match self.read_chunk(file, &mut buffer, &mut filled, u64::MAX) {
                Ok(Piece::Cut(found)) => length = found,
                Ok(Piece::End) if filled > 0 => {
                    self.count_growth(job.size.max(size), size + filled as u64);
                    size += filled as u64;
                    let last = ChunkJob { file: open.clone(), position: position + 1, buffer, length: filled };
                    self.hand_over(last)?;
                    break;
                }
                Ok(Piece::End) => break,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        self.run.check()?;
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
                self.run.count_file(job.known, size);
                if let Some(node) = &mut progress.node {
                    node.size = size;
                }
            }
        }
        self.close_file(open)
    }

    /// Gives a chunk to an idle worker if there is one, else saves it here together with the next one.
    fn hand_over(&mut self, chunk: ChunkJob) -> Result<()> {
        chunk.file.open.fetch_add(1, Ordering::Relaxed);
        let Some(chunk) = self.run.pool.offer_chunk(chunk) else { return Ok(()) };
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
        settle(self.run, &mut self.saver, file.directory.clone(), node)
    }

    /// Stores a chunk unless it is stored already; its bytes are used up. They count as done now if somebody has them, else
    /// with the pack they come into: on a slow line that is much later.
    fn save_chunk(&mut self, id: Id, plain: &mut [u8]) -> Result<()> {
        if !self.run.claim(BlobKind::Data, id) {
            self.run.meters.bytes.add(plain.len() as u64);
            return Ok(());
        }
        self.run.store_blob(&mut self.saver, self.run.data_packer(self.number), BlobKind::Data, id, plain)
    }
}
