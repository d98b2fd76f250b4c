//! The I/O of a process as a sign of progress that no meter shows.
//!
//! Every mover counts the bytes it has read, and reads ahead of its uploads: a small volume completely, long before the last
//! byte is stored. The I/O of its process shows that it does not hang.

/// Less I/O than this is overhead: frames, status lines, keep-alives.
const MIN_PROGRESS: u64 = 256 << 10;

/// What a process has read and written so far, from any file and socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IoCounters {
    pub read: u64,
    pub written: u64,
}

impl IoCounters {
    /// Those of a process. `None` without `/proc`.
    pub(crate) fn of(process: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{process}/io")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        Some(Self { read: field("rchar:")?, written: field("wchar:")? })
    }
}

/// The I/O of a process as a sign of progress.
#[derive(Debug)]
pub(crate) struct ProcessIo {
    file: String,
    counted: u64,
    /// Whether it is this process, whose reads of the counters count too.
    is_own: bool,
}

impl ProcessIo {
    /// The I/O of this process.
    pub(crate) fn of_this_process() -> Self {
        Self::of("self", true)
    }

    /// The I/O of another process.
    pub(crate) fn of_process(process: u32) -> Self {
        Self::of(&process.to_string(), false)
    }

    fn of(process: &str, is_own: bool) -> Self {
        let mut io = Self { file: format!("/proc/{process}/io"), counted: 0, is_own };
        io.counted = io.read().map_or(0, |sample| sample.bytes.saturating_add(sample.cost));
        io
    }

    /// The bytes that were read or written since the last progress, if they are more than overhead. Always `None` without `/proc`.
    pub(crate) fn take_progress(&mut self) -> Option<u64> {
        let Sample { bytes, cost } = self.read()?;
        let progress = bytes.checked_sub(self.counted).filter(|progress| *progress >= MIN_PROGRESS);
        if progress.is_some() {
            self.counted = bytes;
        }
        self.counted = self.counted.saturating_add(cost);
        progress
    }

    /// Excludes bytes that are known to be overhead: the frames of every second would add up to progress.
    pub(crate) fn ignore(&mut self, overhead: usize) {
        self.counted = self.counted.saturating_add(overhead as u64);
    }

    fn read(&self) -> Option<Sample> {
        let text = std::fs::read_to_string(&self.file).ok()?;
        let counters = IoCounters::parse(&text)?;
        let bytes = counters.read.saturating_add(counters.written);
        Some(Sample { bytes, cost: if self.is_own { text.len() as u64 } else { 0 } })
    }
}

struct Sample {
    /// All bytes read and written so far, including sockets.
    bytes: u64,
    /// The bytes that this sample itself reads, which the next sample includes.
    cost: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_once_and_overhead_never() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let set_counters = |read: u64, written: u64| {
            std::fs::write(file.path(), format!("rchar: {read}\nwchar: {written}\nsyscr: 7\n")).expect("written");
        };
        let mut io = ProcessIo { file: file.path().display().to_string(), counted: 5000, is_own: false };
        set_counters(3000, 2000);
        assert!(io.take_progress().is_none(), "nothing");
        set_counters(3000, 60_000);
        assert!(io.take_progress().is_none(), "overhead");
        set_counters(200_000, 70_000);
        assert!(io.take_progress().is_some(), "progress, in small steps");
        assert!(io.take_progress().is_none(), "no more progress");
    }

    #[test]
    fn ignored_bytes_never_add_up_to_progress() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut io = ProcessIo { file: file.path().display().to_string(), counted: 0, is_own: false };
        for second in 1..=3600_u64 {
            std::fs::write(file.path(), format!("rchar: 0\nwchar: {}\n", second * 1000)).expect("written");
            io.ignore(1000);
            assert!(io.take_progress().is_none(), "after {second} s");
        }
    }

    #[test]
    fn samples_of_the_own_process_never_add_up_to_progress() {
        // Other tests run in this process, but not in this thread.
        let mut io = ProcessIo::of("thread-self", true);
        for sample in 1..=10_000 {
            assert!(io.take_progress().is_none(), "at sample {sample}");
        }
    }

    #[test]
    fn reads_of_this_process_are_progress() {
        let mut io = ProcessIo::of_this_process();
        std::io::copy(
            &mut std::io::Read::take(std::fs::File::open("/dev/zero").expect("zeros"), 1 << 20),
            &mut std::io::sink(),
        )
        .expect("read");
        assert!(io.take_progress().is_some());
    }
}
