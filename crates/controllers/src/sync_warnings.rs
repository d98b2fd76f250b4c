//! Warnings of the sync, by location.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Warnings by location, for `status.message`.
#[derive(Default)]
pub struct SyncWarnings(Mutex<BTreeMap<String, String>>);

impl SyncWarnings {
    /// The warning about a location.
    pub fn of(&self, location: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(location).cloned()
    }

    /// Sets it, and returns whether it is new.
    pub fn set(&self, location: &str, warning: Option<&str>) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match warning {
            Some(text) => all.insert(location.to_owned(), text.to_owned()),
            None => all.remove(location),
        };
        known.as_deref() != warning
    }
}
