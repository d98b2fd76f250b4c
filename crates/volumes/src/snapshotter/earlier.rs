//! Requests of earlier attempts to plugins.

use std::collections::HashMap;

use plimsoll_engine::ports::{Effect, IntentId, JournalEntry};

/// The result of an effect that gave something a name.
const NAMED_PREFIX: &str = "named ";

/// The journal result of a request whose ID is known.
pub(super) fn named(id: &str) -> String {
    format!("{NAMED_PREFIX}{id}")
}

/// A request of an earlier attempt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EarlierRequest {
    pub intent: IntentId,
    pub effect: Effect,
    /// Its name, if the answer is known.
    pub name: Option<String>,
}

/// By PersistentVolume: the last that has a name, and all whose answer is not known.
#[derive(Debug, Default)]
pub(super) struct EarlierRequests {
    named: HashMap<String, EarlierRequest>,
    open: HashMap<String, Vec<EarlierRequest>>,
}

impl EarlierRequests {
    pub fn of(known: &[JournalEntry]) -> Self {
        let mut earlier = Self::default();
        for known in known {
            let (Effect::Snapshot { volume, .. } | Effect::Volume { volume, .. }) = &known.effect else { continue };
            let name = known.result.as_deref().map(|result| result.strip_prefix(NAMED_PREFIX).map(str::to_owned));
            let request =
                EarlierRequest { intent: known.id, effect: known.effect.clone(), name: name.clone().flatten() };
            match name {
                Some(Some(_)) => {
                    earlier.named.insert(volume.clone(), request);
                }
                // It failed, or was dealt with already.
                Some(None) => {}
                None => earlier.open.entry(volume.clone()).or_default().push(request),
            }
        }
        earlier
    }

    /// The request whose ID is known; it is not repeated.
    pub fn take_named(&mut self, volume: &str) -> Option<EarlierRequest> {
        self.named.remove(volume)
    }

    /// The request without a result.
    pub fn take_open(&mut self, volume: &str) -> Vec<EarlierRequest> {
        self.open.remove(volume).unwrap_or_default()
    }

    /// The requests that were not repeated.
    pub fn take_remaining(&mut self) -> (Vec<EarlierRequest>, Vec<EarlierRequest>) {
        (
            self.named.drain().map(|(_, request)| request).collect(),
            self.open.drain().flat_map(|(_, open)| open).collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(id: u64, volume: &str, result: Option<&str>) -> JournalEntry {
        let effect = Effect::Volume { location: "l".into(), volume: volume.into(), snapshot: "s".into() };
        JournalEntry { id: IntentId(id), effect, result: result.map(str::to_owned) }
    }

    #[test]
    fn what_has_a_name_is_kept_what_failed_is_forgotten_and_the_rest_is_in_doubt() {
        let mut earlier = EarlierRequests::of(&[
            known(1, "a", Some("named x")),
            known(2, "b", None),
            known(3, "c", Some("failed: no")),
        ]);
        assert_eq!(earlier.take_named("a").and_then(|request| request.name).as_deref(), Some("x"));
        assert_eq!(earlier.take_open("b").len(), 1);
        assert!(earlier.take_named("c").is_none() && earlier.take_open("c").is_empty());
        let (named, open) = earlier.take_remaining();
        assert!(named.is_empty() && open.is_empty());
    }
}
