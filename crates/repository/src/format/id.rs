//! IDs: SHA-256 hashes.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// A SHA-256 hash: the ID of a blob, pack, index, snapshot or lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Id(pub [u8; 32]);

impl Id {
    /// The ID of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The IDs of two, in little more time than that of the longer one.
    pub(crate) fn of_both(one: &[u8], other: &[u8]) -> (Self, Self) {
        let (mut hash, mut other_hash) = (super::hash::Hash::default(), super::hash::Hash::default());
        hash.update_both(one, &mut other_hash, other);
        (hash.finish(), other_hash.finish())
    }

    /// A random ID.
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// From exactly 64 lower-case hex digits; anything else is no ID.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut id = [0; 32];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (hex_digit(pair[0])? << 4) | hex_digit(pair[1])?;
        }
        Some(Self(id))
    }

    /// The first eight digits, for messages.
    pub fn short(&self) -> String {
        self.to_string()[..8].to_owned()
    }

    /// The first bytes as a number: already as random as a hash.
    pub(crate) fn head(&self) -> usize {
        self.0.first_chunk().map_or(0, |head| usize::from_le_bytes(*head))
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Appends bytes as hex digits.
pub(crate) fn push_hex(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

impl fmt::Display for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = Vec::with_capacity(64);
        push_hex(&self.0, &mut digits);
        out.write_str(&String::from_utf8_lossy(&digits))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.short())
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Id;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("64 lower-case hex digits")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Id, E> {
                Id::parse(text).ok_or_else(|| E::custom("an ID has 64 lower-case hex digits"))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}
