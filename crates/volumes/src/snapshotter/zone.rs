//! The availability zone of a volume.

use serde_json::Value;

/// Labels that name a zone, the older one first.
const LABELS: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];
/// Its keys in node affinities, by platform.
const TOPOLOGIES: [&str; 5] = [
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.ebs.csi.aws.com/zone",
    "topology.disk.csi.azure.com/zone",
    "topology.gke.io/zone",
];
/// A regional disk of GKE is in several zones.
const REGIONAL: &str = "topology.gke.io/zone";

/// The availability zone of a PersistentVolume; empty if nothing names one.
pub(super) fn of(volume: &Value) -> String {
    let labels = volume.pointer("/metadata/labels");
    let labelled = LABELS.iter().find_map(|key| labels?.get(key)?.as_str());
    labelled.map_or_else(|| by_affinity(volume).unwrap_or_default(), str::to_owned)
}

fn by_affinity(volume: &Value) -> Option<String> {
    let terms = volume.pointer("/spec/nodeAffinity/required/nodeSelectorTerms").and_then(Value::as_array)?;
    let expressions: Vec<&Value> =
        terms.iter().filter_map(|term| term["matchExpressions"].as_array()).flatten().collect();
    TOPOLOGIES.iter().find_map(|topology| {
        let meant = expressions.iter().filter(|expression| expression["key"] == *topology);
        let zones: Vec<&str> = meant
            .filter_map(|expression| expression["values"].as_array())
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        match (zones.first(), *topology) {
            (None, _) => None,
            (Some(_), REGIONAL) => Some(zones.join("__")),
            (Some(first), _) => Some((*first).to_owned()),
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn placed(key: &str, zones: &[&str]) -> Value {
        let term = json!({ "matchExpressions": [{ "key": key, "operator": "In", "values": zones }] });
        json!({ "spec": { "nodeAffinity": { "required": { "nodeSelectorTerms": [term] } } } })
    }

    #[test]
    fn a_label_names_the_zone_and_else_the_affinity_does() {
        let labelled = |key: &str| json!({ "metadata": { "labels": { key: "a" } } });
        for (volume, zone) in [
            (labelled("topology.kubernetes.io/zone"), "a"),
            (labelled("failure-domain.beta.kubernetes.io/zone"), "a"),
            (placed("topology.ebs.csi.aws.com/zone", &["b"]), "b"),
            (placed("topology.gke.io/zone", &["c", "d"]), "c__d"),
            (placed("kubernetes.io/hostname", &["node"]), ""),
            (json!({}), ""),
        ] {
            assert_eq!(of(&volume), zone, "{volume}");
        }
    }
}
