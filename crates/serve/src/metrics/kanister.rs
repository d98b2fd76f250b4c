//! Kanister's metric, `kanister_…`, with its name and labels. Kanister counts actions; most ActionSets have one.

use plimsoll_observe::Kind;

use super::exposition::{Exposition, to_sample};
use super::totals::Totals;

/// A value of the label `resolution`, and the outcomes that it counts.
const RESOLUTIONS: [(&str, &[&str]); 2] =
    [("success", &["succeeded"]), ("failure", &["failed", "cancelled", "refused"])];

/// Writes it, with zeros: a rate needs one to begin with.
pub fn write(exposition: &mut Exposition, totals: &Totals) {
    let help = "Total number of action set resolutions";
    let mut family = exposition.family("kanister_action_set_resolutions_total", "counter", help);
    for (resolution, outcomes) in RESOLUTIONS {
        let ended = totals
            .ended
            .iter()
            .filter(|((kind, _, outcome), _)| *kind == Kind::ActionSet && outcomes.contains(outcome));
        family.add(&[("resolution", resolution)], to_sample(ended.map(|(_, number)| *number).sum()));
    }
}
