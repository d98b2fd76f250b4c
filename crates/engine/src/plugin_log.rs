//! Log lines of plugins, recorded in the log of the operation.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::log::Level;
use crate::outcome::{Recorder, Scope};

/// Lines that are kept while no recorder is attached. Further lines are dropped.
const MAX_PENDING_LINES: usize = 1000;

/// Accepts log lines of plugins before, while and after a recorder is attached. As in Velero, an error that a plugin logs is
/// an error of the operation, and a warning is a warning.
#[derive(Default)]
pub struct PluginLogSink(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    recorder: Weak<Recorder>,
    pending: Vec<(Level, String)>,
}

impl PluginLogSink {
    /// Records the pending lines and all further ones, until the recorder is dropped.
    pub fn attach(&self, recorder: &Arc<Recorder>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.recorder = Arc::downgrade(recorder);
        for (level, text) in inner.pending.drain(..) {
            record(recorder, level, text);
        }
    }

    /// Stops recording, so that the recorder can be closed.
    pub fn detach(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).recorder = Weak::new();
    }

    /// Records a line.
    pub fn line(&self, level: Level, text: String) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match inner.recorder.upgrade() {
            Some(recorder) => record(&recorder, level, text),
            None if inner.pending.len() < MAX_PENDING_LINES => inner.pending.push((level, text)),
            None => {}
        }
    }
}

fn record(recorder: &Recorder, level: Level, text: String) {
    match level {
        Level::Info => recorder.log().info(text),
        Level::Warning => recorder.warn(&Scope::Operation, text),
        Level::Error => recorder.error(&Scope::Operation, text),
    }
}
