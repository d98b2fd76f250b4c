//! Named points at which a test may kill this process.
//!
//! Crash safety is tested by dying for real: `PLIMSOLL_KILL_AT=<point>[:<n>]` makes a debug build send itself `SIGKILL` at the
//! n-th passage of a point, `PLIMSOLL_KILL_TRACE=<file>` appends the name of every point it passes, which is how a test
//! learns which points there are. Release builds contain none of this.

/// Marks a point before or after an effect.
#[cfg(not(debug_assertions))]
#[inline]
pub fn point(_name: &'static str) {}

/// Marks a point before or after an effect.
#[cfg(debug_assertions)]
pub fn point(name: &'static str) {
    armed::point(name);
}

#[cfg(debug_assertions)]
mod armed {
    use std::io::Write;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Target {
        point: String,
        passages: AtomicU64,
        nth: u64,
    }

    fn target() -> Option<&'static Target> {
        static TARGET: OnceLock<Option<Target>> = OnceLock::new();
        TARGET.get_or_init(|| std::env::var("PLIMSOLL_KILL_AT").ok().map(|text| parse(&text))).as_ref()
    }

    fn parse(text: &str) -> Target {
        let (point, nth) = match text.rsplit_once(':') {
            Some((point, nth)) if nth.parse::<u64>().is_ok() => (point, nth.parse().unwrap_or(1)),
            _ => (text, 1),
        };
        Target { point: point.to_owned(), passages: AtomicU64::new(0), nth }
    }

    pub fn point(name: &'static str) {
        trace(name);
        if let Some(target) = target()
            && target.point == name
            && target.passages.fetch_add(1, Ordering::SeqCst) + 1 == target.nth
        {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            loop {
                std::thread::park();
            }
        }
    }

    fn trace(name: &str) {
        static TRACE: OnceLock<Option<String>> = OnceLock::new();
        let Some(path) = TRACE.get_or_init(|| std::env::var("PLIMSOLL_KILL_TRACE").ok()) else { return };
        if let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path) {
            let _ = file.write_all(format!("{name}\n").as_bytes());
        }
    }
}
