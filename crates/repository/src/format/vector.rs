//! Loading vectors without pointers.

use std::arch::x86_64::{__m128i, _mm_set_epi64x};

/// 16 bytes as they lie in memory: one instruction.
#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn vector_of(bytes: &[u8; 16]) -> __m128i {
    let both = u128::from_le_bytes(*bytes);
    #[expect(clippy::cast_possible_truncation, reason = "these are the halves")]
    let (low, high) = (both as i64, (both >> 64) as i64);
    _mm_set_epi64x(high, low)
}
