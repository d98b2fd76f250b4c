//! `docs/reference/fields.md` has a row for every field of every spec, and names tests that exist.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// A row of the page.
struct Row {
    field: String,
    /// `honoured`, `refused` or `not used`.
    treatment: String,
    /// The test, or the reason.
    proof: String,
}

impl Row {
    /// Whether it is about a field. `a.*` stands for all fields below `a`.
    fn covers(&self, field: &str) -> bool {
        match self.field.strip_suffix('*') {
            Some(prefix) => field.starts_with(prefix),
            None => self.field == field,
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The rows of the page, by kind.
fn page() -> BTreeMap<String, Vec<Row>> {
    let text = fs::read_to_string(root().join("docs/reference/fields.md")).unwrap();
    let mut rows: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    let mut kind = String::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut kind);
        }
        let cells: Vec<&str> = line.split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect();
        if let [field, treatment, proof] = cells[..]
            && let Some(field) = field.strip_prefix('`').and_then(|field| field.strip_suffix('`'))
        {
            let (field, treatment, proof) = (field.to_owned(), treatment.to_owned(), proof.to_owned());
            rows.entry(kind.clone()).or_default().push(Row { field, treatment, proof });
        }
    }
    rows
}

/// The fields of the spec of a kind. Kinds of Kanister without a spec have them at the top.
fn fields(crd: &CustomResourceDefinition) -> Vec<String> {
    let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
    let properties = schema.properties.as_ref().unwrap();
    let mut found = Vec::new();
    if let Some(spec) = properties.get("spec") {
        collect("", spec, &mut found);
    } else {
        let own = properties.iter().filter(|(name, _)| !["apiVersion", "kind", "metadata"].contains(&name.as_str()));
        own.for_each(|(name, property)| collect(name, property, &mut found));
    }
    found.retain(|field| !field.is_empty());
    found
}

fn collect(path: &str, schema: &JSONSchemaProps, found: &mut Vec<String>) {
    if let Some(properties) = &schema.properties {
        for (name, property) in properties {
            let child = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            collect(&child, property, found);
        }
        return;
    }
    match (&schema.items, &schema.additional_properties) {
        (Some(JSONSchemaPropsOrArray::Schema(items)), _) if items.properties.is_some() => {
            collect(&format!("{path}[]"), items, found);
        }
        (_, Some(JSONSchemaPropsOrBool::Schema(values))) if values.properties.is_some() => {
            collect(&format!("{path}{{}}"), values, found);
        }
        _ => found.push(path.to_owned()),
    }
}

#[test]
fn every_field_of_every_spec_has_a_row() {
    let page = page();
    let mut missing = Vec::new();
    for crd in plimsoll_api::crds() {
        let kind = &crd.spec.names.kind;
        let rows = page.get(kind).map_or(&[][..], Vec::as_slice);
        for field in fields(&crd) {
            if !rows.iter().any(|row| row.covers(&field)) {
                missing.push(format!("{kind}: {field}"));
            }
        }
    }
    assert!(missing.is_empty(), "docs/reference/fields.md has no row for\n{}", missing.join("\n"));
}

#[test]
fn every_row_is_about_a_field_of_its_kind() {
    let kinds = plimsoll_api::crds();
    for (kind, rows) in page() {
        let crd = kinds.iter().find(|crd| crd.spec.names.kind == kind);
        let fields = fields(crd.unwrap_or_else(|| panic!("{kind} is no kind")));
        for row in rows {
            assert!(fields.iter().any(|field| row.covers(field)), "{kind} has no field {}", row.field);
        }
    }
}

#[test]
fn an_honoured_field_names_a_test_and_every_other_a_reason() {
    for (kind, rows) in page() {
        for Row { field, treatment, proof } in rows {
            let test = proof.strip_prefix('`').and_then(|proof| proof.strip_suffix('`')?.split_once("::"));
            match treatment.as_str() {
                "honoured" => {
                    let (file, name) = test.unwrap_or_else(|| panic!("{kind} {field}: {proof} is no test"));
                    assert!(has_function(&root().join("crates").join(file), name), "{kind} {field}: no test {proof}");
                }
                "refused" | "not used" => {
                    assert!(test.is_none() && proof.len() > 10, "{kind} {field}: {proof} is no reason");
                }
                other => panic!("{kind} {field}: {other:?}"),
            }
        }
    }
}

fn has_function(file: &Path, name: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.contains(&format!("fn {name}(")))
}
