//! Poly1305: a text as the coefficients of a polynomial modulo 2^130 - 5, at the secret point `r`.
//!
//! Numbers are kept in five limbs of 26 bits, so that products can be added up before anything is carried. With AVX2 four
//! blocks are multiplied side by side, and eight are added up for one carry. Nothing here branches on secrets.

use poly1305::universal_hash::KeyInit;
use zeroize::{Zeroize, Zeroizing};

use super::vector_code;

const BLOCK: usize = 16;
const LIMB: u32 = 26;
const MASK: u64 = (1 << LIMB) - 1;
/// The bit above a whole block, in the highest limb.
const WHOLE: u64 = 1 << (128 - 4 * LIMB);
/// Blocks that are worked on at a time.
const WIDE: usize = 8;

/// A number modulo 2^130 - 5, lowest limb first. Carried, but perhaps not below the modulus.
type Number = [u64; 5];

/// The secret point with its powers, which one key uses for all its texts.
#[derive(Clone)]
pub(super) struct Poly1305 {
    secret: [u8; BLOCK],
    /// r, r², … r⁸
    powers: [Number; WIDE],
}

impl Drop for Poly1305 {
    fn drop(&mut self) {
        let Self { secret, powers } = self;
        secret.zeroize();
        powers.zeroize();
    }
}

impl Poly1305 {
    /// For a secret of which 22 bits are ignored, as the standard has it.
    pub(super) fn new(secret: &[u8; BLOCK]) -> Self {
        let point = u128::from_le_bytes(*secret) & 0x0fff_fffc_0fff_fffc_0fff_fffc_0fff_ffff;
        let point = number(&point.to_le_bytes(), 0);
        let mut powers = [point; WIDE];
        for power in 1..WIDE {
            powers[power] = product(&powers[power - 1], &point);
        }
        Self { secret: *secret, powers }
    }

    /// The tag of a text, under a pad that is used only once.
    pub(super) fn tag(&self, pad: &[u8; BLOCK], text: &[u8]) -> [u8; BLOCK] {
        if vector_code::is_enabled() { self.own_tag(pad, text) } else { library_tag(&self.secret, pad, text) }
    }

    fn own_tag(&self, pad: &[u8; BLOCK], text: &[u8]) -> [u8; BLOCK] {
        let point = &self.powers[0];
        let (wide, rest) = text.as_chunks();
        let mut sum = processor::sum_of(wide, &self.powers);
        let (blocks, last) = rest.as_chunks();
        for block in blocks {
            sum = product(&added(sum, number(block, WHOLE)), point);
        }
        if !last.is_empty() {
            let mut block = [0; BLOCK];
            block[..last.len()].copy_from_slice(last);
            block[last.len()] = 1;
            sum = product(&added(sum, number(&block, 0)), point);
        }
        value(sum).wrapping_add(u128::from_le_bytes(*pad)).to_le_bytes()
    }
}

/// The same by the library.
fn library_tag(secret: &[u8; BLOCK], pad: &[u8; BLOCK], text: &[u8]) -> [u8; BLOCK] {
    let mut key = Zeroizing::new([0; 2 * BLOCK]);
    key[..BLOCK].copy_from_slice(secret);
    key[BLOCK..].copy_from_slice(pad);
    poly1305::Poly1305::new((&*key).into()).compute_unpadded(text).into()
}

fn number(block: &[u8; BLOCK], above: u64) -> Number {
    let block = u128::from_le_bytes(*block);
    #[expect(clippy::cast_possible_truncation, reason = "masked")]
    let limb = |place: u32| (block >> (place * LIMB)) as u64 & MASK;
    [limb(0), limb(1), limb(2), limb(3), limb(4) | above]
}

fn added(mut one: Number, other: Number) -> Number {
    one.iter_mut().zip(other).for_each(|(one, other)| *one += other);
    one
}

/// Adds up one block after the other.
fn sum_one_by_one(wide: &[[u8; WIDE * BLOCK]], point: &Number) -> Number {
    let blocks = wide.as_flattened().as_chunks().0;
    blocks.iter().fold([0; 5], |sum, block| product(&added(sum, number(block, WHOLE)), point))
}

/// What is above 2^130 counts five times at the bottom.
fn product(one: &Number, other: &Number) -> Number {
    let mut sums = [0; 5];
    for (place, one) in one.iter().enumerate() {
        for (offset, other) in other.iter().enumerate() {
            let place = place + offset;
            sums[place % 5] += one * other * if place < 5 { 1 } else { 5 };
        }
    }
    carried(sums)
}

/// Makes limbs small enough to be multiplied again.
fn carried(mut limbs: Number) -> Number {
    for place in [0, 1, 2, 3, 4, 0] {
        let above = limbs[place] >> LIMB;
        limbs[place] &= MASK;
        limbs[(place + 1) % 5] += above * if place < 4 { 1 } else { 5 };
    }
    limbs
}

/// The number below the modulus, without what is above 128 bits.
fn value(number: Number) -> u128 {
    let number = carried(carried(number));
    let mut less = number;
    less[0] += 5;
    for place in 0..4 {
        less[place + 1] += less[place] >> LIMB;
        less[place] &= MASK;
    }
    // All ones if five more reaches 2^130: then that, without its highest bit, is the number.
    let is_above = 0_u64.wrapping_sub(less[4] >> LIMB);
    let limbs = number.iter().zip(&less).map(|(number, less)| (number & !is_above) | (less & MASK & is_above));
    limbs.rev().fold(0, |value, limb| (value << LIMB) | u128::from(limb))
}

#[cfg(not(target_arch = "x86_64"))]
mod processor {
    use super::{BLOCK, Number, WIDE, sum_one_by_one};

    pub(super) fn sum_of(wide: &[[u8; WIDE * BLOCK]], powers: &[Number; WIDE]) -> Number {
        sum_one_by_one(wide, &powers[0])
    }
}

#[cfg(target_arch = "x86_64")]
mod processor {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_and_si256, _mm256_mul_epu32, _mm256_or_si256, _mm256_set_epi64x,
        _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_slli_epi64, _mm256_srli_epi64, _mm256_unpackhi_epi64,
        _mm256_unpacklo_epi64,
    };

    use zerocopy::transmute;

    use super::{BLOCK, LIMB, MASK, Number, WHOLE, WIDE, carried, sum_one_by_one};

    const SHIFT: i32 = LIMB.cast_signed();

    /// The sum of whole stretches, each block with its power of the point.
    pub(super) fn sum_of(wide: &[[u8; WIDE * BLOCK]], powers: &[Number; WIDE]) -> Number {
        if wide.is_empty() || !std::arch::is_x86_feature_detected!("avx2") {
            return sum_one_by_one(wide, &powers[0]);
        }
        #[expect(unsafe_code, reason = "the compiler cannot see that the processor has these instructions")]
        // SAFETY: the function requires AVX2 only, which was just checked.
        unsafe {
            sum(wide, powers)
        }
    }

    /// Four numbers side by side.
    type Four = [__m256i; 5];

    /// Four numbers to multiply with: their limbs, and these five times, for what goes beyond 2^130.
    struct Factor {
        limbs: Four,
        fivefold: Four,
    }

    #[target_feature(enable = "avx2")]
    fn sum(wide: &[[u8; WIDE * BLOCK]], powers: &[Number; WIDE]) -> Number {
        let Some((last, wide)) = wide.split_last() else { return [0; 5] };
        let step = [factor([&powers[7]; 4]), factor([&powers[3]; 4])];
        let mut sum = [_mm256_setzero_si256(); 5];
        for stretch in wide {
            sum = eight_more(sum, stretch, &step);
        }
        // Each block ends with a power of its own.
        let [r, r2, r3, r4, r5, r6, r7, r8] = powers;
        sum = eight_more(sum, last, &[factor([r8, r7, r6, r5]), factor([r4, r3, r2, r])]);
        carried(sum.map(|limbs| {
            let limbs: [u64; 4] = transmute!(limbs);
            limbs.iter().sum()
        }))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn eight_more(sum: Four, stretch: &[u8; WIDE * BLOCK], factors: &[Factor; 2]) -> Four {
        let [first, second]: [[u8; WIDE * BLOCK / 2]; 2] = transmute!(*stretch);
        let mut first = load(first);
        for (limb, sum) in first.iter_mut().zip(sum) {
            *limb = _mm256_add_epi64(*limb, sum);
        }
        let (first, second) = (product(&first, &factors[0]), product(&load(second), &factors[1]));
        let mut both = first;
        for (limb, second) in both.iter_mut().zip(second) {
            *limb = _mm256_add_epi64(*limb, second);
        }
        carry(both)
    }

    /// Four blocks by limbs. They lie in the order 0, 2, 1, 3, which takes no instruction.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(blocks: [u8; 4 * BLOCK]) -> Four {
        let [one, other]: [__m256i; 2] = transmute!(blocks);
        let (low, high) = (_mm256_unpacklo_epi64(one, other), _mm256_unpackhi_epi64(one, other));
        let mask = _mm256_set1_epi64x(MASK.cast_signed());
        let middle = _mm256_or_si256(_mm256_srli_epi64::<{ 2 * SHIFT }>(low), _mm256_slli_epi64::<12>(high));
        [
            _mm256_and_si256(low, mask),
            _mm256_and_si256(_mm256_srli_epi64::<SHIFT>(low), mask),
            _mm256_and_si256(middle, mask),
            _mm256_and_si256(_mm256_srli_epi64::<14>(high), mask),
            _mm256_or_si256(_mm256_srli_epi64::<40>(high), _mm256_set1_epi64x(WHOLE.cast_signed())),
        ]
    }

    /// For four blocks in their order.
    #[target_feature(enable = "avx2")]
    fn factor(numbers: [&Number; 4]) -> Factor {
        let limbs = std::array::from_fn(|limb| {
            let [first, second, third, fourth] = numbers.map(|number| number[limb].cast_signed());
            _mm256_set_epi64x(fourth, second, third, first)
        });
        let five = _mm256_set1_epi64x(5);
        Factor { limbs, fivefold: limbs.map(|limb| _mm256_mul_epu32(limb, five)) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn product(numbers: &Four, factor: &Factor) -> Four {
        let mut sums = [_mm256_setzero_si256(); 5];
        for (place, number) in numbers.iter().enumerate() {
            for offset in 0..5 {
                let (place, limbs) = if place + offset < 5 {
                    (place + offset, &factor.limbs)
                } else {
                    (place + offset - 5, &factor.fivefold)
                };
                sums[place] = _mm256_add_epi64(sums[place], _mm256_mul_epu32(*number, limbs[offset]));
            }
        }
        sums
    }

    /// Two chains that do not wait for each other.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn carry(mut limbs: Four) -> Four {
        let mask = _mm256_set1_epi64x(MASK.cast_signed());
        for place in [0, 3, 1, 4, 2, 0, 3] {
            let above = _mm256_srli_epi64::<SHIFT>(limbs[place]);
            limbs[place] = _mm256_and_si256(limbs[place], mask);
            let next = (place + 1) % 5;
            if place == 4 {
                limbs[next] = _mm256_add_epi64(limbs[next], _mm256_slli_epi64::<2>(above));
            }
            limbs[next] = _mm256_add_epi64(limbs[next], above);
        }
        limbs
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn random_texts_have_the_tag_of_the_library(
            secret: [u8; 16],
            pad: [u8; 16],
            text in proptest::collection::vec(any::<u8>(), 0..3000),
        ) {
            prop_assert_eq!(Poly1305::new(&secret).own_tag(&pad, &text), library_tag(&secret, &pad, &text));
        }
    }

    #[test]
    fn the_example_of_the_standard_has_its_tag() {
        let secret = [0x85, 0xd6, 0xbe, 0x78, 0x57, 0x55, 0x6d, 0x33, 0x7f, 0x44, 0x52, 0xfe, 0x42, 0xd5, 0x06, 0xa8];
        let pad = [0x01, 0x03, 0x80, 0x8a, 0xfb, 0x0d, 0xb2, 0xfd, 0x4a, 0xbf, 0xf6, 0xaf, 0x41, 0x49, 0xf5, 0x1b];
        let tag = [0xa8, 0x06, 0x1d, 0xc1, 0x30, 0x51, 0x36, 0xc6, 0xc2, 0x2b, 0x8b, 0xaf, 0x0c, 0x01, 0x27, 0xa9];
        let text = b"Cryptographic Forum Research Group";
        assert_eq!(Poly1305::new(&secret).own_tag(&pad, text), tag);
        assert_eq!(library_tag(&secret, &pad, text), tag, "with the switch off");
    }

    #[test]
    fn texts_of_any_length_match_another_implementation() {
        let mut text: Vec<u8> = (0..1200_u32).map(|place| place.wrapping_mul(0x9e37_79b1).to_be_bytes()[0]).collect();
        for length in 0..text.len() {
            let byte = text[length];
            let (secret, pad) = ([byte.wrapping_add(0x51); 16], [byte ^ 0x3c; 16]);
            let text = &text[..length];
            assert_eq!(Poly1305::new(&secret).own_tag(&pad, text), library_tag(&secret, &pad, text), "{length} bytes");
        }
        // Numbers close to the modulus, where every carry and the last subtraction matter.
        for secret in [[0; 16], [0xff; 16], [1; 16], [2; 16]] {
            for byte in [0, 1, 0xfb, 0xfc, 0xfe, 0xff] {
                text.fill(byte);
                for length in [16, 31, 128, 144, 255, 256, 1024, 1100] {
                    let text = &text[..length];
                    let (own, library) =
                        (Poly1305::new(&secret).own_tag(&[0xff; 16], text), library_tag(&secret, &[0xff; 16], text));
                    assert_eq!(own, library);
                }
            }
        }
    }

    #[test]
    fn the_vector_path_matches_the_scalar_path() {
        let poly = Poly1305::new(&[0xa7; 16]);
        let text: Vec<u8> = (0..128 * 40_u32).map(|place| (place * place).to_le_bytes()[1]).collect();
        let wide = text.as_chunks().0;
        for stretches in 0..wide.len() {
            let (fast, slow) = (
                processor::sum_of(&wide[..stretches], &poly.powers),
                sum_one_by_one(&wide[..stretches], &poly.powers[0]),
            );
            assert_eq!(value(fast), value(slow), "{stretches} stretches");
        }
    }
}
