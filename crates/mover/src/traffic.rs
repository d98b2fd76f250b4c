//! Signs of life that no counter shows.
//!
//! Every mover counts what it has read, and reads ahead of what it uploads: of a small volume everything, long before the
//! last byte is stored. What its process reads and writes meanwhile says that it is not hung.

/// Less than this is only talk: frames, status lines, keeping connections open.
const NOTABLE: u64 = 256 << 10;

/// What a process reads and writes, as far as it was noticed.
#[derive(Debug)]
pub(crate) struct Traffic {
    file: String,
    noticed: u64,
}

impl Traffic {
    /// Of this process.
    pub(crate) fn of_this_process() -> Self {
        Self::of("self")
    }

    /// Of a process that it started.
    pub(crate) fn of_process(process: u32) -> Self {
        Self::of(&process.to_string())
    }

    fn of(process: &str) -> Self {
        let mut traffic = Self { file: format!("/proc/{process}/io"), noticed: 0 };
        traffic.noticed = traffic.bytes().unwrap_or(0);
        traffic
    }

    /// Whether so much has moved since it was last noticed that there must be work behind it. Nobody knows on a system that
    /// does not tell.
    pub(crate) fn has_moved(&mut self) -> bool {
        let Some(bytes) = self.bytes().filter(|bytes| *bytes >= self.noticed.saturating_add(NOTABLE)) else {
            return false;
        };
        self.noticed = bytes;
        true
    }

    /// So many of the bytes that will be seen are known to be talk: what is said every second would add up to work.
    pub(crate) fn ignore(&mut self, talk: usize) {
        self.noticed = self.noticed.saturating_add(talk as u64);
    }

    /// Everything it has read and written so far, connections included.
    fn bytes(&self) -> Option<u64> {
        let text = std::fs::read_to_string(&self.file).ok()?;
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        Some(field("rchar:")?.saturating_add(field("wchar:")?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_noticed_once_and_talk_never() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let moved = |read: u64, written: u64| {
            std::fs::write(file.path(), format!("rchar: {read}\nwchar: {written}\nsyscr: 7\n")).expect("written");
        };
        let mut traffic = Traffic { file: file.path().display().to_string(), noticed: 5000 };
        moved(3000, 2000);
        assert!(!traffic.has_moved(), "nothing");
        moved(3000, 60_000);
        assert!(!traffic.has_moved(), "talk");
        moved(200_000, 70_000);
        assert!(traffic.has_moved(), "work, in small steps");
        assert!(!traffic.has_moved(), "no more of it");
    }

    #[test]
    fn talk_that_is_known_never_adds_up_to_work() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut traffic = Traffic { file: file.path().display().to_string(), noticed: 0 };
        for second in 1..=3600_u64 {
            std::fs::write(file.path(), format!("rchar: 0\nwchar: {}\n", second * 1000)).expect("written");
            traffic.ignore(1000);
            assert!(!traffic.has_moved(), "after {second} s");
        }
    }

    #[test]
    fn this_process_tells_what_it_reads() {
        let mut traffic = Traffic::of_this_process();
        std::io::copy(
            &mut std::io::Read::take(std::fs::File::open("/dev/zero").expect("zeros"), 1 << 20),
            &mut std::io::sink(),
        )
        .expect("read");
        assert!(traffic.has_moved());
    }
}
