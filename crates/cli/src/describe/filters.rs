//! What a spec selects, under Velero's headings.

use serde_json::Value;

use super::page::{Page, Section};
use crate::selectors::selector_text;

const NONE: &str = "<none>";

/// A field of a spec as text.
pub struct Spec<'a>(pub &'a Value);

impl Spec<'_> {
    /// A list; `none` if it is empty.
    pub fn list(&self, name: &str, none: &str) -> String {
        let items = self.0.get(name).and_then(Value::as_array).into_iter().flatten();
        let items: Vec<_> = items.filter_map(Value::as_str).collect();
        if items.is_empty() { none.to_owned() } else { items.join(", ") }
    }

    /// A text; `none` if there is none.
    pub fn text(&self, name: &str, none: &str) -> String {
        self.0.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).unwrap_or(none).to_owned()
    }

    /// true, false or auto.
    pub fn choice(&self, name: &str) -> String {
        self.0.get(name).and_then(Value::as_bool).map_or_else(|| "auto".to_owned(), |value| value.to_string())
    }

    /// The name of an object that is referred to.
    pub fn named(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.get("name")?.as_str()
    }

    fn has(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_array).is_some_and(|list| !list.is_empty())
    }

    fn is_scoped(&self) -> bool {
        [
            "includedClusterScopedResources",
            "excludedClusterScopedResources",
            "includedNamespaceScopedResources",
            "excludedNamespaceScopedResources",
        ]
        .iter()
        .any(|name| self.has(name))
    }
}

/// Namespaces, resources and labels.
pub fn selection(page: &mut Page, spec: &Spec<'_>, every_namespace: &str) {
    page.section(|section| {
        section.line_at(0, "Namespaces:");
        let included = spec.list("includedNamespaces", "*");
        section.field_at(1, "Included", if included == "*" { every_namespace } else { &included });
        section.field_at(1, "Excluded", spec.list("excludedNamespaces", NONE));
    });
    page.section(|section| {
        section.line_at(0, "Resources:");
        if spec.is_scoped() {
            section.field_at(1, "Included cluster-scoped", spec.list("includedClusterScopedResources", NONE));
            section.field_at(1, "Excluded cluster-scoped", spec.list("excludedClusterScopedResources", NONE));
            section.field_at(1, "Included namespace-scoped", spec.list("includedNamespaceScopedResources", "*"));
            section.field_at(1, "Excluded namespace-scoped", spec.list("excludedNamespaceScopedResources", NONE));
        } else {
            section.field_at(1, "Included", spec.list("includedResources", "*"));
            section.field_at(1, "Excluded", spec.list("excludedResources", NONE));
            section.field_at(
                1,
                "Cluster-scoped",
                match spec.choice("includeClusterResources").as_str() {
                    "true" => "included",
                    "false" => "excluded",
                    _ => "auto",
                },
            );
        }
    });
    page.section(|section| section.field("Label selector", selector_text(Some(spec.0))));
    page.section(|section| section.some("Resource policies", spec.named("resourcePolicy")));
}

/// How a backup is made.
pub fn backup_settings(page: &mut Page, spec: &Spec<'_>) {
    page.section(|section| section.field("Storage Location", spec.text("storageLocation", "<default>")));
    page.section(|section| {
        section.field("Velero-Native Snapshot PVs", spec.choice("snapshotVolumes"));
        section.field("Snapshot Move Data", spec.choice("snapshotMoveData"));
        section.field("Data Mover", spec.text("datamover", "velero"));
        section.field("File System Backup (Default)", spec.choice("defaultVolumesToFsBackup"));
    });
    page.section(|section| section.field("TTL", spec.text("ttl", "<default>")));
    page.section(|section| {
        section.field("CSISnapshotTimeout", spec.text("csiSnapshotTimeout", "<default>"));
        section.field("ItemOperationTimeout", spec.text("itemOperationTimeout", "<default>"));
    });
    page.section(|section| hooks(section, spec));
    page.section(|section| {
        let ordered = spec.0.get("orderedResources").and_then(Value::as_object).into_iter().flatten();
        let lines = ordered.map(|(kind, names)| format!("{kind}: {}", names.as_str().unwrap_or_default()));
        section.block("OrderedResources", lines);
    });
}

/// The hooks of a backup or restore, by name.
pub fn hooks(section: &mut Section, spec: &Spec<'_>) {
    let resources = spec.0.pointer("/hooks/resources").and_then(Value::as_array).filter(|list| !list.is_empty());
    let Some(resources) = resources else { return section.field("Hooks", NONE) };
    section.line_at(0, "Hooks:");
    for hook in resources {
        let count = |name: &str| hook.get(name).and_then(Value::as_array).map_or(0, Vec::len);
        let name = hook.get("name").and_then(Value::as_str).unwrap_or("<unnamed>");
        let parts = [("pre", "before"), ("post", "after"), ("postHooks", "after")];
        let parts: Vec<_> = parts
            .iter()
            .filter(|(field, _)| count(field) > 0)
            .map(|(field, word)| format!("{} {word}", count(field)))
            .collect();
        section.field_at(1, name, parts.join(", "));
    }
}
