//! The search for cuts with vector instructions: 32 stretches of the buffer side by side.
//!
//! Sliding the window is linear: what the byte at the top and the leaving byte contribute is the sum of what their halves
//! contribute, and half a byte has 16 values, which is what one shuffle looks up for 32 stretches at once. So each vector
//! holds one byte of the fingerprint of every stretch:
//!
//! ```text
//! print[0] = lowest byte of stretch 0, of stretch 1, … of stretch 31
//!    ⋮
//! print[6] = highest byte of stretch 0, of stretch 1, … of stretch 31
//! ```
//!
//! Fingerprints have 53 bits. They are kept moved up by three, to 56: then the byte that is reduced is a vector of its own,
//! and moving up by a byte is only another name for each vector.
//!
//! This only says in which stretch the first cut is. Where exactly is for [`Chunker`](super::chunker::Chunker) to find.

use processor::is_available;

use super::polynomial::DEGREE;
use super::vector_code;

/// Stretches that are searched side by side.
pub(super) const LANES: usize = 32;
/// A stretch is a multiple of this long: the window.
pub(super) const UNIT: usize = 64;

/// Bytes of a fingerprint.
const BYTES: usize = 7;
/// How far fingerprints are moved up.
const SCALE: u32 = 8 * 7 - DEGREE;

/// What the low half and the high half of a byte contribute to each byte of the fingerprint.
type Halves = [[[u8; 16]; 2]; BYTES];

/// The tables of a chunker, by halves of bytes.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only vector instructions read them"))]
pub(super) struct Wide {
    reducing: Halves,
    leaving: Halves,
}

impl Wide {
    /// From a chunker's tables; nothing where the processor or the polynomial is not made for this.
    pub(super) fn new(degree: u32, reducing: &[u64; 256], leaving: &[u64; 256]) -> Option<Self> {
        let usable = degree == DEGREE && is_available() && vector_code::is_enabled();
        usable.then(|| Self { reducing: halves(reducing), leaving: halves(leaving) })
    }

    /// The first stretch with a cut. `data` is one window and all stretches; the place after the window is not tested, all
    /// later ones are.
    pub(super) fn first_stretch_with_cut(&self, data: &[u8]) -> Option<usize> {
        let hits = self.stretches_with_cuts(data);
        (hits != 0).then(|| hits.trailing_zeros() as usize)
    }
}

/// Takes a table apart. What is above the fingerprint's bits falls off: the byte at the top is dropped anyway.
fn halves(table: &[u64; 256]) -> Halves {
    let entry = |byte: usize, value: usize| (table[value] << SCALE).to_le_bytes()[byte];
    std::array::from_fn(|byte| {
        [std::array::from_fn(|half| entry(byte, half)), std::array::from_fn(|half| entry(byte, half << 4))]
    })
}

#[cfg(not(target_arch = "x86_64"))]
mod processor {
    pub(super) fn is_available() -> bool {
        false
    }

    impl super::Wide {
        /// Never called.
        pub(super) fn stretches_with_cuts(&self, _data: &[u8]) -> u32 {
            0
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod processor {
    use std::arch::x86_64::{
        __m256i, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8, _mm256_movemask_epi8,
        _mm256_or_si256, _mm256_set_m128i, _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8,
        _mm256_slli_epi16, _mm256_srli_epi16, _mm256_unpackhi_epi8, _mm256_unpacklo_epi8, _mm256_xor_si256,
    };

    use zerocopy::transmute;

    use super::{BYTES, Halves, LANES, UNIT, Wide};

    /// Bytes of each stretch that are turned at a time.
    const TILE: usize = 16;

    type Print = [__m256i; BYTES];
    type Tables = [[__m256i; 2]; BYTES];

    pub(super) fn is_available() -> bool {
        std::arch::is_x86_feature_detected!("avx2")
    }

    impl Wide {
        /// A bit for each stretch that has a cut.
        pub(super) fn stretches_with_cuts(&self, data: &[u8]) -> u32 {
            assert!(is_available(), "there is a `Wide` only where these instructions are");
            #[expect(unsafe_code, reason = "the compiler cannot see that the processor has these instructions")]
            // SAFETY: the function requires AVX2 only, which was just checked.
            unsafe {
                search(self, data)
            }
        }
    }

    #[target_feature(enable = "avx2")]
    fn search(wide: &Wide, data: &[u8]) -> u32 {
        let stretch = (data.len() - UNIT) / LANES;
        let (pieces, _) = data.as_chunks();
        let (reducing, leaving) = (vectors(&wide.reducing), vectors(&wide.leaving));
        let mut print = [_mm256_setzero_si256(); BYTES];
        let mut hits = _mm256_setzero_si256();
        // The last bytes of every stretch, one place in each vector. Zeros that leave change nothing.
        let mut window = [_mm256_setzero_si256(); UNIT];
        for start in (0..stretch + UNIT).step_by(UNIT) {
            for (tile, window) in window.chunks_exact_mut(TILE).enumerate() {
                let entering = turned(load(pieces, stretch / TILE, start / TILE + tile));
                for (slot, entering) in window.iter_mut().zip(entering) {
                    print = slide(&print, entering, *slot, &reducing, &leaving);
                    *slot = entering;
                    hits = _mm256_or_si256(hits, cuts(&print));
                }
            }
            if start == 0 {
                // What was there before the window was full.
                hits = _mm256_setzero_si256();
            }
        }
        _mm256_movemask_epi8(hits).cast_unsigned()
    }

    /// The window moves on by one byte.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn slide(print: &Print, entering: __m256i, left: __m256i, reducing: &Tables, leaving: &Tables) -> Print {
        let (top, left) = (split(print[BYTES - 1]), split(left));
        let mut moved = *print;
        for byte in 0..BYTES {
            let changes = _mm256_xor_si256(product(&reducing[byte], top), product(&leaving[byte], left));
            moved[byte] = if byte == 0 { changes } else { _mm256_xor_si256(print[byte - 1], changes) };
        }
        // A vector has no shift of bytes: what comes over from the neighbour is masked.
        let low = _mm256_and_si256(_mm256_slli_epi16::<3>(entering), _mm256_set1_epi8(-8));
        let high = _mm256_and_si256(_mm256_srli_epi16::<5>(entering), _mm256_set1_epi8(7));
        moved[0] = _mm256_xor_si256(moved[0], low);
        moved[1] = _mm256_xor_si256(moved[1], high);
        moved
    }

    /// The low and the high half of each byte.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn split(bytes: __m256i) -> [__m256i; 2] {
        let mask = _mm256_set1_epi8(15);
        [_mm256_and_si256(bytes, mask), _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), mask)]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn product(table: &[__m256i; 2], halves: [__m256i; 2]) -> __m256i {
        _mm256_xor_si256(_mm256_shuffle_epi8(table[0], halves[0]), _mm256_shuffle_epi8(table[1], halves[1]))
    }

    /// All ones where the 20 lowest bits of the fingerprint, which lie three higher, are zero.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn cuts(print: &Print) -> __m256i {
        let rest = _mm256_and_si256(print[2], _mm256_set1_epi8(0x7f));
        let bits = _mm256_or_si256(_mm256_or_si256(print[0], print[1]), rest);
        _mm256_cmpeq_epi8(bits, _mm256_setzero_si256())
    }

    #[target_feature(enable = "avx2")]
    fn vectors(halves: &Halves) -> Tables {
        let mut tables = [[_mm256_setzero_si256(); 2]; BYTES];
        for (table, halves) in tables.iter_mut().flatten().zip(halves.iter().flatten()) {
            *table = _mm256_broadcastsi128_si256(transmute!(*halves));
        }
        tables
    }

    /// One piece of each stretch: vector n has those of stretch n and of stretch 16 + n.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(pieces: &[[u8; TILE]], stretch: usize, number: usize) -> [__m256i; TILE] {
        let mut tile = [_mm256_setzero_si256(); TILE];
        for (lane, vector) in tile.iter_mut().enumerate() {
            let (low, high) = (&pieces[lane * stretch + number], &pieces[(TILE + lane) * stretch + number]);
            *vector = _mm256_set_m128i(transmute!(*high), transmute!(*low));
        }
        tile
    }

    /// Rows become columns: vector n then has byte n of each stretch. To interleave both halves of a square with each other
    /// moves each bit of a byte's position on by one; the positions have eight, so four times exchange row and column.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn turned(mut tile: [__m256i; TILE]) -> [__m256i; TILE] {
        for _ in 0..4 {
            let before = tile;
            for half in 0..TILE / 2 {
                tile[2 * half] = _mm256_unpacklo_epi8(before[half], before[half + TILE / 2]);
                tile[2 * half + 1] = _mm256_unpackhi_epi8(before[half], before[half + TILE / 2]);
            }
        }
        tile
    }
}
