//! Texts that came from outside, and numbers for people.

use std::sync::Arc;
use std::time::Duration;

/// A text longer than this is cut: one log line must not fill a frame.
const MAX_LENGTH: usize = 512;

/// A text that is safe to show and to send: no control characters (a log line may carry terminal escapes), not endless.
pub(crate) fn clean(text: &str) -> Arc<str> {
    let mut cleaned: String =
        text.trim().chars().take(MAX_LENGTH).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.trim().chars().nth(MAX_LENGTH).is_some() {
        cleaned.pop();
        cleaned.push('…');
    }
    cleaned.into()
}

/// A task's name: like any text, but never empty.
pub(crate) fn clean_name(text: &str) -> Arc<str> {
    let name = clean(text);
    if name.is_empty() { "unnamed".into() } else { name }
}

/// A reason: like any text, but never empty. Nothing waits or fails in silence.
pub(crate) fn clean_reason(text: &str) -> Arc<str> {
    let reason = clean(text);
    if reason.is_empty() { "no reason was given".into() } else { reason }
}

/// Milliseconds, saturating.
pub(crate) fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Ages on the wire: whole milliseconds.
pub(crate) mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(age: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(super::as_millis(*age))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }

    /// The same for an age that may be absent.
    pub(crate) mod optional {
        use std::time::Duration;

        use serde::{Deserialize, Deserializer, Serializer};

        #[expect(clippy::ref_option, reason = "the signature serde asks for")]
        pub(crate) fn serialize<S: Serializer>(age: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
            match age {
                Some(age) => serializer.serialize_u64(crate::text::as_millis(*age)),
                None => serializer.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
            Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
        }
    }
}
