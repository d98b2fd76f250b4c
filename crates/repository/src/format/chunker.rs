//! Content-defined chunking: a Rabin fingerprint over the last 64 bytes decides where files are split.
//!
//! The fingerprint at a place depends on 64 bytes only, so any place can be tested on its own. That is what makes this
//! fast: where the processor can, 32 stretches of the buffer are hashed side by side with vector instructions. Elsewhere
//! there are four in one loop, and a processor that would wait for one lookup works on the three others meanwhile.

use super::chunker_wide::{self as wide, Wide};
use super::polynomial::Polynomial;

/// The minimum size of a chunk, except for the last of a file.
pub const MIN_CHUNK_SIZE: usize = 512 * 1024;
/// The maximum size of a chunk.
pub const MAX_CHUNK_SIZE: usize = 8 * 1024 * 1024;

const WINDOW: usize = 64;
const MASK: u64 = (1 << 20) - 1;
const LANES: usize = 4;
/// Places one lane tests before the lanes are compared.
const STRETCH_SIZE: usize = 16 * 1024;
/// The same with vector instructions, at most. Not a power of two: all stretches would share the same few lines of the
/// processor's cache.
const WIDE_STRETCH_SIZE: usize = 65 * wide::UNIT;

/// Finds cuts. One for each repository: its tables come from the polynomial.
pub struct Chunker {
    /// What the byte that leaves the window contributes, already moved on by one byte.
    leaving: [u64; 256],
    /// Takes the eight bits above the degree away.
    reducing: [u64; 256],
    shift: u32,
    wide: Option<Wide>,
}

impl std::fmt::Debug for Chunker {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Chunker")
    }
}

impl Chunker {
    /// Builds the tables.
    pub fn new(polynomial: Polynomial) -> Self {
        let degree = polynomial.degree();
        let append_zero = |value: u64| polynomial.reduce(u128::from(value) << 8);
        let leaving = std::array::from_fn(|byte| (0..WINDOW).fold(byte as u64, |value, _| append_zero(value)));
        let reducing = std::array::from_fn(|byte| {
            let high = (byte as u128) << degree;
            polynomial.reduce(high) | (byte as u64) << degree
        });
        Self { wide: Wide::new(degree, &reducing, &leaving), leaving, reducing, shift: degree - 8 }
    }

    /// The length of the first chunk of `data`; `None` if more data is needed. `tested` is the length of `data` that an earlier call
    /// has tested without a boundary.
    pub fn cut(&self, data: &[u8], tested: usize) -> Option<usize> {
        let first = MIN_CHUNK_SIZE.max(tested + 1);
        let last = data.len().min(MAX_CHUNK_SIZE);
        if last >= first
            && let Some(found) = self.search(data, first, last)
        {
            return Some(found);
        }
        (last == MAX_CHUNK_SIZE).then_some(MAX_CHUNK_SIZE)
    }

    /// The first place in `first..=last` where a chunk may end.
    fn search(&self, data: &[u8], first: usize, last: usize) -> Option<usize> {
        let (mut first, last) = match &self.wide {
            Some(wide) => narrow(wide, data, first, last),
            None => (first, last),
        };
        while first + LANES * STRETCH_SIZE <= last + 1 {
            if let Some(found) = self.search_lanes(&data[first - WINDOW..first + LANES * STRETCH_SIZE - 1]) {
                return Some(first + found);
            }
            first += LANES * STRETCH_SIZE;
        }
        self.search_one(&data[first - WINDOW..last]).map(|found| first + found)
    }

    /// Tests the places after `data[..64]`, after `data[..65]`, and so on to the end of `data`.
    fn search_one(&self, data: &[u8]) -> Option<usize> {
        let mut print = self.fingerprint(data.get(..WINDOW)?);
        if print & MASK == 0 {
            return Some(0);
        }
        for (place, (&old, &new)) in data.iter().zip(&data[WINDOW..]).enumerate() {
            print = self.slide(print, old, new);
            if print & MASK == 0 {
                return Some(place + 1);
            }
        }
        None
    }

    /// The same with all lanes: `data` is one window and all stretches, less one byte.
    fn search_lanes(&self, data: &[u8]) -> Option<usize> {
        let lane = |number: usize| &data[number * STRETCH_SIZE..][..WINDOW + STRETCH_SIZE - 1];
        let lanes: [&[u8]; LANES] = std::array::from_fn(lane);
        let old = lanes.map(|bytes| &bytes[..STRETCH_SIZE - 1]);
        let new = lanes.map(|bytes| &bytes[WINDOW..][..STRETCH_SIZE - 1]);
        let mut prints = lanes.map(|bytes| self.fingerprint(&bytes[..WINDOW]));
        let mut found = [usize::MAX; LANES];
        note_hits(&prints, 0, &mut found);
        for place in 0..STRETCH_SIZE - 1 {
            for number in 0..LANES {
                prints[number] = self.slide(prints[number], old[number][place], new[number][place]);
            }
            if prints.iter().any(|print| print & MASK == 0) {
                note_hits(&prints, place + 1, &mut found);
            }
        }
        let (number, place) = found.into_iter().enumerate().find(|&(_, place)| place != usize::MAX)?;
        Some(number * STRETCH_SIZE + place)
    }

    fn fingerprint(&self, window: &[u8]) -> u64 {
        window.iter().fold(0, |print, &byte| self.append(print, byte))
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the eight bits below the degree are what is looked up")]
    fn append(&self, print: u64, byte: u8) -> u64 {
        let high = usize::from((print >> self.shift) as u8);
        (print << 8 | u64::from(byte)) ^ self.reducing[high]
    }

    #[inline]
    fn slide(&self, print: u64, old: u8, new: u8) -> u64 {
        self.append(print, new) ^ self.leaving[usize::from(old)]
    }
}

/// What is left of `first..=last` to be searched: a stretch that has the first cut, or what is too short for vectors.
fn narrow(wide: &Wide, data: &[u8], mut first: usize, last: usize) -> (usize, usize) {
    loop {
        let stretch = ((last + 1 - first) / wide::LANES / wide::UNIT * wide::UNIT).min(WIDE_STRETCH_SIZE);
        if stretch == 0 {
            return (first, last);
        }
        let after = first + wide::LANES * stretch;
        if let Some(number) = wide.first_stretch_with_cut(&data[first - WINDOW - 1..after - 1]) {
            first += number * stretch;
            return (first, first + stretch - 1);
        }
        first = after;
    }
}

#[cold]
fn note_hits(prints: &[u64; LANES], place: usize, found: &mut [usize; LANES]) {
    for (hit, print) in found.iter_mut().zip(prints) {
        if print & MASK == 0 {
            *hit = place.min(*hit);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::format::id::Id;

    /// Reproducible random bytes with known chunk boundaries.
    fn random_bytes(length: usize) -> Vec<u8> {
        let mut state = 42_u64;
        let mut next = || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ z >> 31
        };
        (0..length / 8).flat_map(|_| next().to_le_bytes()).collect()
    }

    fn chunker() -> Chunker {
        Chunker::new(Polynomial::new(0x3d_a335_8b4d_c173).expect("irreducible"))
    }

    /// Feeds the chunker piece by piece, as a file is read.
    fn cuts(data: &[u8], piece: usize) -> Vec<usize> {
        let (chunker, mut rest, mut lengths) = (chunker(), data, Vec::new());
        while !rest.is_empty() {
            let (mut known, mut tested) = (0, 0);
            let length = loop {
                known = (known + piece).min(rest.len());
                match chunker.cut(&rest[..known], tested) {
                    Some(length) => break length,
                    None if known == rest.len() => break known,
                    None => tested = known,
                }
            };
            lengths.push(length);
            rest = &rest[length..];
        }
        lengths
    }

    #[test]
    fn random_bytes_are_split_at_the_known_boundaries() {
        let data = random_bytes(64 * 1024 * 1024);
        assert_eq!(Id::of(&data).to_string(), "b03ae2fd2197ef26283e21ae4318713011c88491c0feb8cf2ea6b8e58ac0c2b6");
        let lengths = cuts(&data, MAX_CHUNK_SIZE);
        assert_eq!(lengths.len(), 43);
        assert_eq!(lengths[..5], [2_586_782, 633_802, 2_258_979, 1_712_431, 3_309_017]);
        let mut ids = Vec::new();
        let mut at = 0;
        for length in &lengths {
            ids.extend_from_slice(&Id::of(&data[at..at + length]).0);
            at += length;
        }
        assert_eq!(Id::of(&ids).to_string(), "9d99b998bc78c906c2fb9b52b36573f052d3e1e9aa9b0044c8e31285f3ab357e");
        assert_eq!(cuts(&data, 300_000), lengths, "the size of the reads does not matter");
    }

    #[test]
    fn vector_search_finds_the_same_first_boundary_as_scalar_search() {
        let mut random = StdRng::seed_from_u64(3);
        let mut found = 0;
        for round in 0..200 {
            let polynomial = Polynomial::random();
            let chunker = Chunker::new(polynomial);
            let plain = Chunker { wide: None, ..Chunker::new(polynomial) };
            let mut data = vec![0_u8; random.random_range(WINDOW + 1..600_000)];
            // From random bytes to a file of mostly zeros.
            let highest = [255, 1, 15][round % 3];
            for byte in &mut data {
                *byte = random.random_range(0..=highest);
            }
            if round % 2 == 0 {
                // A window of zeros is a cut for every polynomial.
                let zeros = random.random_range(0..data.len() - WINDOW);
                data[zeros..zeros + WINDOW].fill(0);
            }
            let first = random.random_range(WINDOW + 1..=data.len());
            let last = random.random_range(first..=data.len());
            let expected = plain.search(&data, first, last);
            assert_eq!(chunker.search(&data, first, last), expected, "{polynomial:?} {first} {last}");
            found += usize::from(expected.is_some());
        }
        assert!((20..180).contains(&found), "{found} cuts: a test of one answer proves little");
    }

    #[test]
    fn zeros_are_split_at_the_minimum_size() {
        assert_eq!(cuts(&vec![0; 2 * MIN_CHUNK_SIZE + 5], 100_000), [MIN_CHUNK_SIZE, MIN_CHUNK_SIZE, 5]);
        assert_eq!(
            Id::of(&vec![0; MIN_CHUNK_SIZE]).to_string(),
            "07854d2fef297a06ba81685e660c332de36d5d18d546927d30daad6d7fda1541"
        );
    }
}
