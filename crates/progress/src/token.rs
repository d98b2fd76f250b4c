//! Which numbers these are. The token travels with a tree to every surface: where two surfaces show the same token, they show the same
//! numbers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::percent::Percent;
use crate::snapshot::Node;

/// The place of a tree in the order of all trees of an operation. Written `1795041231000-17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    /// Larger for each process that takes up the operation.
    pub epoch: u64,
    /// Grows when a number changes.
    pub sequence: u64,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.sequence)
    }
}

/// A text that is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a token such as 1795041231000-17")]
pub struct InvalidToken(String);

impl FromStr for Token {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts =
            text.split_once('-').and_then(|(epoch, sequence)| Some((epoch.parse().ok()?, sequence.parse().ok()?)));
        let (epoch, sequence) = parts.ok_or_else(|| InvalidToken(text.chars().take(48).collect()))?;
        Ok(Self { epoch, sequence })
    }
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// Counts how often the numbers of a tree have changed.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    number: u64,
    last: Option<u64>,
}

impl Sequence {
    /// The number of these nodes: that of the last ones, if no number differs from theirs.
    pub(crate) fn of(&mut self, nodes: &[Node]) -> u64 {
        let digest = nodes.iter().fold(Digest::default(), Digest::add_node).0;
        if self.last.replace(digest) != Some(digest) {
            self.number += 1;
        }
        self.number
    }
}

/// A digest of all that is shown as a number, without what only grows older.
#[derive(Default)]
struct Digest(u64);

impl Digest {
    fn add(self, value: u64) -> Self {
        Self((self.0.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95))
    }

    fn add_optional(self, value: Option<u64>) -> Self {
        match value {
            None => self.add(0),
            Some(value) => self.add(1).add(value),
        }
    }

    fn add_node(self, node: &Node) -> Self {
        let percent = node.percent.map(|percent| {
            let marks = u64::from(percent.is_approximate()) + 2 * u64::from(percent.is_held());
            u64::from(Percent::hundredths(percent)) << 2 | marks
        });
        let digest = self.add(node.path.len() as u64).add(node.state as u64).add_optional(percent);
        let digest = digest.add_optional(node.rate).add_optional(node.left.map(|left| left.low));
        let digest = digest.add_optional(node.left.map(|left| left.high)).add_optional(node.reported_left);
        node.meters.iter().fold(digest, |digest, counts| {
            let digest = digest.add(counts.unit as u64).add(counts.done).add(counts.skipped).add(counts.failed);
            digest.add_optional(counts.total.value()).add(u64::from(counts.total.is_final()))
        })
    }
}
