//! The journal entries that an earlier process wrote for a phase.

use std::collections::BTreeMap;

use plimsoll_blueprint::results::Outputs;
use plimsoll_engine::ports::{Effect, IntentId, JournalEntry};
use serde::{Deserialize, Serialize};

/// The journal entries of one phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PhaseJournal {
    /// The phase was started.
    pub intent: Option<IntentId>,
    result: Option<String>,
    /// The notes of its function.
    pub notes: BTreeMap<String, String>,
}

/// The result of a phase in the journal, until it is in the status.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordedResult {
    /// It is complete.
    Outputs(Outputs),
    /// It failed.
    Error(String),
}

impl RecordedResult {
    /// The text in the journal.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl PhaseJournal {
    /// The entries of a phase; those of the action itself have an empty phase name.
    pub fn read(entries: &[JournalEntry], action: usize, phase: &str) -> Self {
        let mut journal = Self::default();
        for entry in entries {
            match &entry.effect {
                Effect::Phase { action: a, phase: p } if *a == action && p == phase => {
                    journal.intent = Some(entry.id);
                    journal.result.clone_from(&entry.result);
                }
                Effect::Note { action: a, phase: p, key, value } if *a == action && p == phase => {
                    journal.notes.insert(key.clone(), value.clone());
                }
                _ => {}
            }
        }
        journal
    }

    /// The recorded result, if there is one.
    pub fn result(&self) -> Option<RecordedResult> {
        self.result.as_deref().and_then(|text| serde_json::from_str(text).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_has_only_its_own_entries() {
        let entry = |id, effect, result: Option<&str>| JournalEntry {
            id: IntentId(id),
            effect,
            result: result.map(str::to_owned),
        };
        let phase = |action, phase: &str| Effect::Phase { action, phase: phase.into() };
        let note =
            |action, value: &str| Effect::Note { action, phase: "p".into(), key: "k".into(), value: value.into() };
        let entries = [
            entry(0, phase(0, "p"), Some("done")),
            entry(1, phase(1, "p"), None),
            entry(2, note(1, "mine"), None),
            entry(3, note(0, "other"), None),
        ];
        let expected =
            PhaseJournal { intent: Some(IntentId(1)), result: None, notes: [("k".into(), "mine".into())].into() };
        assert_eq!(PhaseJournal::read(&entries, 1, "p"), expected);
        assert_eq!(PhaseJournal::read(&entries, 0, "p").result.as_deref(), Some("done"));
        assert_eq!(PhaseJournal::read(&entries, 0, "q"), PhaseJournal::default());
    }

    #[test]
    fn a_recorded_result_is_read_back() {
        let recorded = RecordedResult::Error("no space".into()).to_json();
        assert_eq!(recorded, r#"{"error":"no space"}"#);
        let journal = PhaseJournal { result: Some(recorded), ..PhaseJournal::default() };
        assert!(matches!(journal.result(), Some(RecordedResult::Error(error)) if error == "no space"));
    }
}
