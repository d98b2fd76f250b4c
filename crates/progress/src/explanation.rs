//! Where the time left comes from, in words: what remains, how fast it goes, how long earlier runs took, and what the end waits for.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::counts::Unit;
use crate::snapshot::{Node, Snapshot, parent_path};
use crate::view::{duration_text, rate_text, size_text};
use crate::work::Source;

/// Why the time left is what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Where the number comes from.
    pub from: Source,
    /// `3 of 12 volumes left, 214.0 GiB at 61.0 MiB/s on node b; last 5 runs 41m00s to 55m00s`.
    pub text: String,
    /// The path of the task that the end waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Arc<str>>,
}

impl Snapshot {
    /// Why the time left of the whole is what it is. Nothing while no time left is known.
    pub fn explanation(&self) -> Option<Explanation> {
        if let Some(whole) = &self.whole {
            return whole.explanation.clone();
        }
        let root = self.root().filter(|root| root.state.is_open() && root.left.is_some() && self.stall.is_none())?;
        let last = root.waits_for.as_deref().and_then(|path| self.node(path));
        let mut parts: Vec<String> = last.and_then(|last| self.remaining(last)).into_iter().collect();
        parts.extend(root.earlier.as_deref().map(|earlier| {
            let [low, high] =
                [earlier.low, earlier.high].map(|seconds| duration_text(std::time::Duration::from_secs(seconds)));
            match earlier.runs {
                1 => format!("the last run took {low}"),
                runs => format!("last {runs} runs {low} to {high}"),
            }
        }));
        Some(Explanation { from: root.from?, text: parts.join("; "), waits_for: root.waits_for.clone() })
    }

    /// What remains of the tasks that are worked on beside this one.
    fn remaining(&self, last: &Node) -> Option<String> {
        let parent = parent_path(&last.path, &last.name).filter(|parent| !parent.is_empty())?;
        let beside = || self.nodes.iter().filter(|node| parent_path(&node.path, &node.name) == Some(parent));
        let open = || beside().filter(|node| node.state.is_open());
        let all = beside().count();
        let name = self.node(parent).map(|parent| parent.name.to_string()).filter(|_| all > 1);
        let count = name.map(|name| format!("{} of {all} {name} left", open().count()));
        let left: u64 = open().filter_map(|node| node.counts(Unit::Bytes)?.remaining()).sum();
        let here = || open().filter(|node| node.runs_on == last.runs_on);
        let rate: u64 = here()
            .filter(|node| node.primary().is_some_and(|counts| counts.unit == Unit::Bytes))
            .filter_map(|node| node.rate)
            .sum();
        let mut bytes = (left > 0).then(|| size_text(left));
        if let Some(bytes) = bytes.as_mut().filter(|_| rate > 0) {
            bytes.push_str(&format!(" at {}", rate_text(rate, Unit::Bytes)));
            if let Some(node) = &last.runs_on {
                bytes.push_str(&format!(" on node {node}"));
            }
        }
        let parts: Vec<String> = count.into_iter().chain(bytes).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}
