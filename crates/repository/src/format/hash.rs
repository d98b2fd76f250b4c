//! SHA-256 of one stream, or of two side by side.
//!
//! Every round of SHA-256 waits for the one before it, so a processor with instructions for it idles for half of the time.
//! Rounds of a second stream fit in there: two streams take little longer than one.

use sha2::block_api::compress256;

use super::id::Id;
#[cfg(target_arch = "x86_64")]
use super::vector_code;

const BLOCK: usize = 64;

/// A stream that is being hashed.
#[derive(Clone)]
pub struct Hash {
    state: [u32; 8],
    /// The beginning of the next block.
    partial: [u8; BLOCK],
    /// Bytes so far.
    length: u64,
}

impl Default for Hash {
    fn default() -> Self {
        let state =
            [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];
        Self { state, partial: [0; BLOCK], length: 0 }
    }
}

impl Hash {
    /// Goes on with these bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        let blocks = self.take(bytes);
        compress256(&mut self.state, blocks);
    }

    /// Goes on with `bytes`, and `other` with `other_bytes`.
    pub fn update_both(&mut self, bytes: &[u8], other: &mut Self, other_bytes: &[u8]) {
        let (blocks, other_blocks) = (self.take(bytes), other.take(other_bytes));
        let common = blocks.len().min(other_blocks.len());
        let (blocks, rest) = blocks.split_at(common);
        let (other_blocks, other_rest) = other_blocks.split_at(common);
        processor::compress_both([&mut self.state, &mut other.state], [blocks, other_blocks]);
        compress256(&mut self.state, rest);
        compress256(&mut other.state, other_rest);
    }

    /// Completes the partial block and starts the next one. Returns the whole blocks in between.
    fn take<'b>(&mut self, bytes: &'b [u8]) -> &'b [[u8; BLOCK]] {
        let partial_length = self.partial_length();
        self.length += bytes.len() as u64;
        let missing = if partial_length == 0 { 0 } else { BLOCK - partial_length };
        let (first, rest) = bytes.split_at(missing.min(bytes.len()));
        self.partial[partial_length..partial_length + first.len()].copy_from_slice(first);
        if first.len() < missing {
            return &[];
        }
        if missing > 0 {
            compress256(&mut self.state, &[self.partial]);
        }
        let (blocks, last) = rest.as_chunks();
        self.partial[..last.len()].copy_from_slice(last);
        blocks
    }

    /// How much of the next block there is.
    #[expect(clippy::cast_possible_truncation, reason = "smaller than a block")]
    fn partial_length(&self) -> usize {
        (self.length % BLOCK as u64) as usize
    }

    /// The hash of all bytes.
    pub fn finish(mut self) -> Id {
        const LENGTH: usize = size_of::<u64>();
        let bits = self.length.wrapping_mul(8).to_be_bytes();
        // A one, zeros, and the length where a block ends.
        let mut padding = [0; BLOCK + LENGTH];
        padding[0] = 0x80;
        let end = match BLOCK - self.partial_length() {
            room if room > LENGTH => room,
            room => room + BLOCK,
        };
        padding[end - LENGTH..end].copy_from_slice(&bits);
        self.update(&padding[..end]);
        let mut id = Id::default();
        for (bytes, word) in id.0.chunks_exact_mut(4).zip(self.state) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        id
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod processor {
    use super::{BLOCK, compress256};

    pub(super) fn compress_both([one, other]: [&mut [u32; 8]; 2], blocks: [&[[u8; BLOCK]]; 2]) {
        compress256(one, blocks[0]);
        compress256(other, blocks[1]);
    }
}

#[cfg(target_arch = "x86_64")]
mod processor {
    use std::arch::x86_64::{
        __m128i, _mm_add_epi32, _mm_alignr_epi8, _mm_extract_epi32, _mm_set_epi32, _mm_set_epi64x,
        _mm_sha256msg1_epu32, _mm_sha256msg2_epu32, _mm_sha256rnds2_epu32, _mm_shuffle_epi8, _mm_shuffle_epi32,
    };

    use zerocopy::transmute;

    use super::{BLOCK, compress256, vector_code};

    /// As many blocks of one stream as of the other.
    pub(super) fn compress_both([one, other]: [&mut [u32; 8]; 2], blocks: [&[[u8; BLOCK]]; 2]) {
        let is_available = std::arch::is_x86_feature_detected!("sha") && std::arch::is_x86_feature_detected!("sse4.1");
        if !(is_available && vector_code::is_enabled()) {
            compress256(one, blocks[0]);
            compress256(other, blocks[1]);
            return;
        }
        #[expect(unsafe_code, reason = "the compiler cannot see that the processor has these instructions")]
        // SAFETY: the function requires the SHA extensions and SSE 4.1 only, which were just checked.
        unsafe {
            compress([one, other], blocks);
        }
    }

    /// The halves of a state as the instructions want them: words a, b, e, f and words c, d, g, h.
    type Halves = [__m128i; 2];

    #[target_feature(enable = "sha,sse4.1")]
    fn compress(states: [&mut [u32; 8]; 2], blocks: [&[[u8; BLOCK]]; 2]) {
        let mut halves = [pack(states[0]), pack(states[1])];
        for (one, other) in blocks[0].iter().zip(blocks[1]) {
            let before = halves;
            let mut words = [load(one), load(other)];
            for quarter in 0..4 {
                sixteen_rounds(quarter, &mut halves, &mut words);
            }
            for (half, before) in halves.iter_mut().flatten().zip(before.iter().flatten()) {
                *half = _mm_add_epi32(*half, *before);
            }
        }
        for (state, halves) in states.into_iter().zip(halves) {
            *state = unpack(halves);
        }
    }

    /// What is next to each other here does not wait for each other: that is the gain.
    #[inline]
    #[target_feature(enable = "sha,sse4.1")]
    fn sixteen_rounds(quarter: usize, halves: &mut [Halves; 2], words: &mut [[__m128i; 4]; 2]) {
        for four in 0..4 {
            let constants = &CONSTANTS[4 * quarter + four];
            let constants = _mm_set_epi32(constants[3], constants[2], constants[1], constants[0]);
            for (halves, words) in halves.iter_mut().zip(words.iter_mut()) {
                if quarter > 0 {
                    words[four] = next_words(words, four);
                }
                let sum = _mm_add_epi32(words[four], constants);
                halves[1] = _mm_sha256rnds2_epu32(halves[1], halves[0], sum);
                halves[0] = _mm_sha256rnds2_epu32(halves[0], halves[1], _mm_shuffle_epi32::<0x0e>(sum));
            }
        }
    }

    /// Four words of the schedule from the sixteen before them.
    #[inline]
    #[target_feature(enable = "sha,sse4.1")]
    fn next_words(words: &[__m128i; 4], four: usize) -> __m128i {
        let [oldest, second, third, last] = [0, 1, 2, 3].map(|place| words[(four + place) % 4]);
        let sum = _mm_add_epi32(_mm_sha256msg1_epu32(oldest, second), _mm_alignr_epi8::<4>(last, third));
        _mm_sha256msg2_epu32(sum, last)
    }

    #[inline]
    #[target_feature(enable = "sse4.1")]
    fn load(block: &[u8; BLOCK]) -> [__m128i; 4] {
        let big_endian = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
        let words: [__m128i; 4] = transmute!(*block);
        words.map(|words| _mm_shuffle_epi8(words, big_endian))
    }

    #[expect(clippy::many_single_char_names, reason = "the words have these names in the standard")]
    #[target_feature(enable = "sse4.1")]
    fn pack(state: &[u32; 8]) -> Halves {
        let [a, b, c, d, e, f, g, h] = state.map(u32::cast_signed);
        [_mm_set_epi32(a, b, e, f), _mm_set_epi32(c, d, g, h)]
    }

    #[expect(clippy::many_single_char_names, reason = "the words have these names in the standard")]
    #[target_feature(enable = "sse4.1")]
    fn unpack(halves: Halves) -> [u32; 8] {
        let [[a, b, e, f], [c, d, g, h]] = [words_of(halves[0]), words_of(halves[1])];
        [a, b, c, d, e, f, g, h]
    }

    /// The highest first.
    #[target_feature(enable = "sse4.1")]
    fn words_of(half: __m128i) -> [u32; 4] {
        let words = [
            _mm_extract_epi32::<3>(half),
            _mm_extract_epi32::<2>(half),
            _mm_extract_epi32::<1>(half),
            _mm_extract_epi32::<0>(half),
        ];
        words.map(i32::cast_unsigned)
    }

    /// The round constants, four for four rounds.
    const CONSTANTS: [[i32; 4]; 16] = [
        signed([0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5]),
        signed([0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5]),
        signed([0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3]),
        signed([0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174]),
        signed([0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc]),
        signed([0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da]),
        signed([0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7]),
        signed([0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967]),
        signed([0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13]),
        signed([0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85]),
        signed([0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3]),
        signed([0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070]),
        signed([0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5]),
        signed([0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3]),
        signed([0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208]),
        signed([0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2]),
    ];

    const fn signed([first, second, third, fourth]: [u32; 4]) -> [i32; 4] {
        [first.cast_signed(), second.cast_signed(), third.cast_signed(), fourth.cast_signed()]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn random_pairs_of_streams_have_the_hashes_of_the_library(
            parts in proptest::collection::vec(
                (proptest::collection::vec(any::<u8>(), 0..700), proptest::collection::vec(any::<u8>(), 0..700)),
                0..6,
            ),
        ) {
            let (mut one, mut other) = (Hash::default(), Hash::default());
            for (bytes, other_bytes) in &parts {
                one.update_both(bytes, &mut other, other_bytes);
            }
            let (all, all_other): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
            prop_assert_eq!(one.finish(), Id::of(&all.concat()));
            prop_assert_eq!(other.finish(), Id::of(&all_other.concat()));
        }
    }

    /// Bytes of which no two neighbourhoods are the same.
    fn bytes(length: u32, salt: u32) -> Vec<u8> {
        (0..length).map(|place| (place ^ salt).wrapping_mul(0x9e37_79b1).to_be_bytes()[0]).collect()
    }

    #[test]
    fn a_stream_of_any_length_and_chunks_has_the_known_hash() {
        let data = bytes(400, 1);
        for length in 0..data.len() {
            for piece in [1, 7, 63, 64, 65, 200, 400] {
                let mut hash = Hash::default();
                data[..length].chunks(piece).for_each(|piece| hash.update(piece));
                assert_eq!(hash.finish(), Id::of(&data[..length]), "{length} bytes in pieces of {piece}");
            }
        }
    }

    #[test]
    fn two_parallel_streams_have_their_own_hashes() {
        let (one, other) = (bytes(1000, 1), bytes(1000, 77));
        for step in 0..20_000 {
            // Numbers without a common factor: all sorts of lengths and beginnings meet.
            let [before, length, other_before, other_length] = [step % 67, step % 311, step % 71, step % 331];
            let (mut first, mut second) = (Hash::default(), Hash::default());
            first.update(&one[..before]);
            second.update(&other[..other_before]);
            first.update_both(&one[before..before + length], &mut second, &other[other_before..][..other_length]);
            assert_eq!(first.finish(), Id::of(&one[..before + length]));
            assert_eq!(second.finish(), Id::of(&other[..other_before + other_length]));
        }
    }
}
