//! The switch for our own vector code: SHA-256 of two streams, Poly1305 and the search for cuts.

use std::sync::OnceLock;

/// With this environment variable at `off`, libraries and portable code do the same work, for comparisons and in doubt.
const SWITCH: &str = "PLIMSOLL_VECTOR_CODE";

/// Whether our own vector code is used.
pub(super) fn is_enabled() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| std::env::var_os(SWITCH).is_none_or(|value| value != "off"))
}
