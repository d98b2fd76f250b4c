//! What others say during an operation, taken down with it: the log lines of plugins.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::log::Level;
use crate::outcome::{Recorder, Scope};

/// No more is kept while nobody takes it down.
const MOST_PENDING: usize = 1000;

/// Takes lines before, while and after there is a recorder. As with Velero, an error that a plugin logs is an error of the
/// operation, and a warning a warning.
#[derive(Default)]
pub struct Heard(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    recorder: Weak<Recorder>,
    pending: Vec<(Level, String)>,
}

impl Heard {
    /// Takes down what was said so far and what will be said, until the recorder is gone.
    pub fn attach(&self, recorder: &Arc<Recorder>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.recorder = Arc::downgrade(recorder);
        for (level, text) in inner.pending.drain(..) {
            take_down(recorder, level, text);
        }
    }

    /// Nothing more is taken down: the recorder can be closed.
    pub fn detach(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).recorder = Weak::new();
    }

    /// Takes a line.
    pub fn line(&self, level: Level, text: String) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match inner.recorder.upgrade() {
            Some(recorder) => take_down(&recorder, level, text),
            None if inner.pending.len() < MOST_PENDING => inner.pending.push((level, text)),
            None => {}
        }
    }
}

fn take_down(recorder: &Recorder, level: Level, text: String) {
    match level {
        Level::Info => recorder.log().info(text),
        Level::Warning => recorder.warn(&Scope::Operation, text),
        Level::Error => recorder.error(&Scope::Operation, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_count_like_our_own_whenever_they_come() {
        let (scratch, heard) = (tempfile::tempdir().unwrap(), Heard::default());
        heard.line(Level::Warning, "early".to_owned());
        let recorder = Arc::new(Recorder::create(scratch.path()).unwrap());
        heard.attach(&recorder);
        heard.line(Level::Error, "bad".to_owned());
        heard.line(Level::Info, "said".to_owned());
        assert_eq!(recorder.counts(), (1, 1));
        heard.detach();
        heard.line(Level::Error, "late".to_owned());
        assert!(Arc::into_inner(recorder).is_some(), "a recorder can be closed although others still talk");
    }
}
