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
    /// Whether whoever looks is looked at.
    own: bool,
}

impl Traffic {
    /// Of this process.
    pub(crate) fn of_this_process() -> Self {
        Self::of("self", true)
    }

    /// Of a process that it started.
    pub(crate) fn of_process(process: u32) -> Self {
        Self::of(&process.to_string(), false)
    }

    fn of(process: &str, own: bool) -> Self {
        let mut traffic = Self { file: format!("/proc/{process}/io"), noticed: 0, own };
        traffic.noticed = traffic.look().map_or(0, |look| look.bytes.saturating_add(look.cost));
        traffic
    }

    /// Whether so much has moved since it was last noticed that there must be work behind it. Nobody knows on a system that
    /// does not tell.
    pub(crate) fn has_moved(&mut self) -> bool {
        let Some(Look { bytes, cost }) = self.look() else { return false };
        let moved = bytes >= self.noticed.saturating_add(NOTABLE);
        if moved {
            self.noticed = bytes;
        }
        self.noticed = self.noticed.saturating_add(cost);
        moved
    }

    /// So many of the bytes that will be seen are known to be talk: what is said every second would add up to work.
    pub(crate) fn ignore(&mut self, talk: usize) {
        self.noticed = self.noticed.saturating_add(talk as u64);
    }

    fn look(&self) -> Option<Look> {
        let text = std::fs::read_to_string(&self.file).ok()?;
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let bytes = field("rchar:")?.saturating_add(field("wchar:")?);
        Some(Look { bytes, cost: if self.own { text.len() as u64 } else { 0 } })
    }
}

/// What a look at a process has shown.
struct Look {
    /// Everything it has read and written so far, connections included.
    bytes: u64,
    /// What it has read by looking at itself, which shows from the next time on.
    cost: u64,
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
        let mut traffic = Traffic { file: file.path().display().to_string(), noticed: 5000, own: false };
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
        let mut traffic = Traffic { file: file.path().display().to_string(), noticed: 0, own: false };
        for second in 1..=3600_u64 {
            std::fs::write(file.path(), format!("rchar: 0\nwchar: {}\n", second * 1000)).expect("written");
            traffic.ignore(1000);
            assert!(!traffic.has_moved(), "after {second} s");
        }
    }

    #[test]
    fn looking_at_oneself_never_adds_up_to_work() {
        // Other tests run in this process, but not in this thread.
        let mut traffic = Traffic::of("thread-self", true);
        for look in 1..=10_000 {
            assert!(!traffic.has_moved(), "at look {look}");
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
