//! AES-256 in counter mode: the keystream that encrypts and decrypts.
//!
//! With vector instructions for AES two blocks take the time of one. The library for AES uses them only beside AVX-512, which
//! many processors that have them lack.

use aes::Aes256;
use aes::cipher::{InnerIvInit, KeyInit, StreamCipher};
use ctr::{Ctr128BE, CtrCore};

use super::crypto::IV_SIZE;

const BLOCK: usize = 16;

/// A key, ready to make keystreams.
#[derive(Clone)]
pub(super) struct Cipher {
    any: Aes256,
    wide: Option<wide::RoundKeys>,
}

impl Cipher {
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        Self { any: Aes256::new(secret.into()), wide: wide::RoundKeys::new(secret) }
    }

    /// The stream that starts with this counter.
    pub(super) fn keystream(&self, iv: &[u8; IV_SIZE]) -> Keystream<'_> {
        Keystream { cipher: self, counter: u128::from_be_bytes(*iv) }
    }
}

/// Where in a stream one is.
pub(super) struct Keystream<'c> {
    cipher: &'c Cipher,
    counter: u128,
}

impl Keystream<'_> {
    /// Encrypts or decrypts. All but the last part of a text must be whole blocks.
    pub(super) fn apply(&mut self, text: &mut [u8]) {
        let blocks = text.len().div_ceil(BLOCK) as u64;
        match &self.cipher.wide {
            // Only the lower half is counted up there. Hardly ever is that not enough.
            Some(keys) if low_half(self.counter).checked_add(blocks).is_some() => keys.apply(self.counter, text),
            _ => {
                let core = CtrCore::inner_iv_init(self.cipher.any.clone(), &self.counter.to_be_bytes().into());
                Ctr128BE::from_core(core).apply_keystream(text);
            }
        }
        self.counter = self.counter.wrapping_add(u128::from(blocks));
    }
}

#[expect(clippy::cast_possible_truncation, reason = "only the lower half is needed")]
fn low_half(counter: u128) -> u64 {
    counter as u64
}

#[cfg(not(target_arch = "x86_64"))]
mod wide {
    /// There are none.
    #[derive(Clone)]
    pub(super) enum RoundKeys {}

    impl RoundKeys {
        pub(super) fn new(_secret: &[u8; 32]) -> Option<Self> {
            None
        }

        pub(super) fn apply(&self, _counter: u128, _text: &mut [u8]) {
            match *self {}
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_aeskeygenassist_si128, _mm_shuffle_epi32, _mm_slli_si128, _mm_xor_si128,
        _mm256_add_epi64, _mm256_aesenc_epi128, _mm256_aesenclast_epi128, _mm256_broadcastsi128_si256,
        _mm256_set_epi64x, _mm256_shuffle_epi8, _mm256_xor_si256,
    };

    use zerocopy::{transmute, transmute_mut};

    use super::{BLOCK, low_half};

    const ROUNDS: usize = 14;
    /// The number of vectors of two blocks in the pipeline at a time.
    const VECTORS: usize = 8;
    const STRETCH: usize = 2 * BLOCK * VECTORS;

    /// A key for every round, and one before them. Only where the processor has what they are for.
    #[derive(Clone)]
    pub(super) struct RoundKeys([__m128i; ROUNDS + 1]);

    impl RoundKeys {
        pub(super) fn new(secret: &[u8; 32]) -> Option<Self> {
            let has_aes = std::arch::is_x86_feature_detected!("aes");
            if !(has_aes && std::arch::is_x86_feature_detected!("vaes") && std::arch::is_x86_feature_detected!("avx2"))
            {
                return None;
            }
            #[expect(unsafe_code, reason = "the compiler cannot see that the processor has these instructions")]
            // SAFETY: the function requires AES only, which was just checked.
            Some(Self(unsafe { expand(secret) }))
        }

        /// `counter` must have room for the whole text in its lower half.
        pub(super) fn apply(&self, counter: u128, text: &mut [u8]) {
            #[expect(unsafe_code, reason = "the compiler cannot see that the processor has these instructions")]
            // SAFETY: the function requires VAES and AVX2 only, without which there are no keys.
            unsafe {
                apply(&self.0, counter, text);
            }
        }
    }

    #[target_feature(enable = "vaes,avx2")]
    fn apply(keys: &[__m128i; ROUNDS + 1], counter: u128, text: &mut [u8]) {
        let keys = keys.map(|key| _mm256_broadcastsi128_si256(key));
        let (low, high) = (low_half(counter), low_half(counter >> 64).cast_signed());
        let mut counters = _mm256_set_epi64x(high, low.wrapping_add(1).cast_signed(), high, low.cast_signed());
        let (stretches, rest) = text.as_chunks_mut();
        for stretch in stretches {
            encrypt(&keys, &mut counters, stretch);
        }
        if !rest.is_empty() {
            let mut stretch = [0; STRETCH];
            stretch[..rest.len()].copy_from_slice(rest);
            encrypt(&keys, &mut counters, &mut stretch);
            rest.copy_from_slice(&stretch[..rest.len()]);
        }
    }

    #[inline]
    #[target_feature(enable = "vaes,avx2")]
    fn encrypt(keys: &[__m256i; ROUNDS + 1], counters: &mut __m256i, stretch: &mut [u8; STRETCH]) {
        let two_more = _mm256_set_epi64x(0, 2, 0, 2);
        let big_endian = _mm256_broadcastsi128_si256(transmute!(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f_u128));
        let mut blocks = [*counters; VECTORS];
        for block in &mut blocks {
            *block = _mm256_xor_si256(_mm256_shuffle_epi8(*counters, big_endian), keys[0]);
            *counters = _mm256_add_epi64(*counters, two_more);
        }
        for key in &keys[1..ROUNDS] {
            for block in &mut blocks {
                *block = _mm256_aesenc_epi128(*block, *key);
            }
        }
        let stretch: &mut [[u8; 32]; VECTORS] = transmute_mut!(stretch);
        for (bytes, block) in stretch.iter_mut().zip(blocks) {
            let block = _mm256_aesenclast_epi128(block, keys[ROUNDS]);
            *bytes = transmute!(_mm256_xor_si256(transmute!(*bytes), block));
        }
    }

    #[target_feature(enable = "aes")]
    fn expand(secret: &[u8; 32]) -> [__m128i; ROUNDS + 1] {
        let [low, high]: [__m128i; 2] = transmute!(*secret);
        let mut keys = [low; ROUNDS + 1];
        keys[1] = high;
        two_more::<0x01>(&mut keys, 2);
        two_more::<0x02>(&mut keys, 4);
        two_more::<0x04>(&mut keys, 6);
        two_more::<0x08>(&mut keys, 8);
        two_more::<0x10>(&mut keys, 10);
        two_more::<0x20>(&mut keys, 12);
        two_more::<0x40>(&mut keys, 14);
        keys
    }

    /// The keys from `place` on, as far as there is room, from the two before it.
    #[target_feature(enable = "aes")]
    fn two_more<const ROUND: i32>(keys: &mut [__m128i; ROUNDS + 1], place: usize) {
        let turned = _mm_shuffle_epi32::<0xff>(_mm_aeskeygenassist_si128::<ROUND>(keys[place - 1]));
        keys[place] = _mm_xor_si128(spread(keys[place - 2]), turned);
        if place < ROUNDS {
            let turned = _mm_shuffle_epi32::<0xaa>(_mm_aeskeygenassist_si128::<0>(keys[place]));
            keys[place + 1] = _mm_xor_si128(spread(keys[place - 1]), turned);
        }
    }

    /// Each word with all words below it.
    #[target_feature(enable = "sse2")]
    fn spread(key: __m128i) -> __m128i {
        let key = _mm_xor_si128(key, _mm_slli_si128::<4>(key));
        _mm_xor_si128(key, _mm_slli_si128::<8>(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference_keystream(secret: &[u8; 32], iv: &[u8; IV_SIZE], text: &mut [u8]) {
        let core = CtrCore::inner_iv_init(Aes256::new(secret.into()), iv.into());
        Ctr128BE::from_core(core).apply_keystream(text);
    }

    #[test]
    fn texts_of_any_length_match_the_library() {
        for length in 0..1200 {
            let secret = std::array::from_fn(|place| (place * length).to_le_bytes()[0] ^ 0x5a);
            let iv = std::array::from_fn(|place| (place + length).to_le_bytes()[0]);
            let (mut ours, mut other) = (vec![7; length], vec![7; length]);
            Cipher::new(&secret).keystream(&iv).apply(&mut ours);
            reference_keystream(&secret, &iv, &mut other);
            assert_eq!(ours, other, "{length} bytes");
        }
    }

    #[test]
    fn the_counter_carries_and_wraps() {
        let secret = [3; 32];
        for iv in [u128::MAX, u128::MAX - 5, u128::from(u64::MAX), u128::from(u64::MAX) - 40] {
            let (mut ours, mut other) = (vec![7; 1000], vec![7; 1000]);
            let cipher = Cipher::new(&secret);
            let mut keystream = cipher.keystream(&iv.to_be_bytes());
            // In two pieces, the first of which reaches the end or not.
            let (first, second) = ours.split_at_mut(64);
            keystream.apply(first);
            keystream.apply(second);
            reference_keystream(&secret, &iv.to_be_bytes(), &mut other);
            assert_eq!(ours, other, "{iv:x}");
        }
    }
}
