//! The output artifacts of an action.

use std::collections::BTreeMap;

use plimsoll_api::kanister::v1alpha1::Artifact;
use plimsoll_blueprint::Error;
use plimsoll_blueprint::params::Params;
use plimsoll_blueprint::template::Template;

/// Renders the artifacts of a complete action.
pub fn render(artifacts: &BTreeMap<String, Artifact>, params: &Params) -> Result<BTreeMap<String, Artifact>, Error> {
    let mut rendered = BTreeMap::new();
    for (name, artifact) in artifacts {
        let fill = |key: &str, text: &str| Template::parse(&format!("{name}.{key}"), text)?.render(params.tree());
        let mut artifact = artifact.clone();
        for (key, value) in &mut artifact.key_value {
            *value = fill(key, value)?;
        }
        if let Some(snapshot) = &mut artifact.kopia_snapshot {
            *snapshot = fill("kopiaSnapshot", snapshot)?;
        }
        rendered.insert(name.clone(), artifact);
    }
    Ok(rendered)
}
