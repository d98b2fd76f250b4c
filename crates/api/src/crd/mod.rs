//! The CustomResourceDefinitions: derived from the Rust types, then made compatible with the upstream definitions.
//!
//! ```text
//!   derive ──► normalize (structural, nullable) ──► upstream's required fields and columns ──► crds()
//! ```
//!
//! Every definition accepts every object that upstream's accepts. It adds optional fields and a `Progress` column, and
//! preserves unknown fields, so that a filter of a newer version is reported rather than dropped silently.

mod definitions;
mod schema;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionVersion,
    CustomResourceSubresourceStatus, CustomResourceSubresources, CustomResourceValidation,
};
use kube::CustomResourceExt;

use definitions::{Column, Definition};

/// Every CustomResourceDefinition Plimsoll installs, by name.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = definitions::all();
    crds.sort_by(|left, right| left.metadata.name.cmp(&right.metadata.name));
    crds
}

/// The file name a definition has in `deploy/crds`: `<group>_<plural>.yaml`.
pub fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}

/// The text of a definition's file in `deploy/crds`.
pub fn manifest(crd: &CustomResourceDefinition) -> Result<String, serde_saphyr::SerializeError> {
    let yaml = serde_saphyr::to_string(crd)?;
    Ok(format!("# Generated from crates/api: cargo run -p plimsoll-api --example crds -- deploy/crds\n{yaml}"))
}

fn define<K: CustomResourceExt>(definition: &Definition) -> CustomResourceDefinition {
    let mut crd = K::crd();
    let group = crd.spec.group.clone();
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    for version in &mut crd.spec.versions {
        complete_version(version, definition, &group);
    }
    crd
}

fn complete_version(version: &mut CustomResourceDefinitionVersion, definition: &Definition, group: &str) {
    version.additional_printer_columns = (!definition.columns.is_empty())
        .then(|| definition.columns.iter().copied().map(Column::to_definition).collect());
    version.subresources = definition.status_subresource.then(status_subresource);
    version.selectable_fields = None;
    if let Some(CustomResourceValidation { open_api_v3_schema: Some(schema) }) = &mut version.schema {
        schema::normalize(schema, definition, group);
    }
}

fn status_subresource() -> CustomResourceSubresources {
    CustomResourceSubresources { status: Some(CustomResourceSubresourceStatus(serde_json::json!({}))), scale: None }
}

impl Column {
    fn to_definition(self) -> CustomResourceColumnDefinition {
        CustomResourceColumnDefinition {
            name: self.name.to_owned(),
            type_: self.type_.to_owned(),
            format: self.format.map(str::to_owned),
            json_path: self.path.to_owned(),
            priority: self.priority,
            description: None,
        }
    }
}
