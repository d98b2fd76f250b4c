//! The committed definitions, and the API server's rules for them.

use std::fs;
use std::path::PathBuf;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

fn deploy_crds() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")
}

#[test]
fn the_committed_definitions_are_the_generated_ones() {
    const REGENERATE: &str = "cargo run -p plimsoll-api --example crds -- deploy/crds";
    let mut generated = Vec::new();
    for crd in plimsoll_api::crds() {
        let name = plimsoll_api::file_name(&crd);
        let committed = fs::read_to_string(deploy_crds().join(&name)).unwrap_or_default();
        assert!(committed == plimsoll_api::manifest(&crd).unwrap(), "deploy/crds/{name} has drifted: {REGENERATE}");
        generated.push(name);
    }
    let mut present: Vec<String> =
        fs::read_dir(deploy_crds()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    present.sort();
    generated.sort();
    assert_eq!(present, generated, "deploy/crds has a file that is not generated");
}

#[test]
fn a_committed_definition_reads_back_as_the_one_it_was_written_from() {
    for crd in plimsoll_api::crds() {
        let text = plimsoll_api::manifest(&crd).unwrap();
        let read: CustomResourceDefinition = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, crd);
    }
}

#[test]
fn every_kind_is_defined_once() {
    let names: Vec<String> = plimsoll_api::crds().into_iter().filter_map(|crd| crd.metadata.name).collect();
    insta::assert_snapshot!(names.join("\n"));
}

#[test]
fn only_plimsoll_kinds_have_a_status_subresource() {
    for crd in plimsoll_api::crds() {
        for version in &crd.spec.versions {
            let has_status = version.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some());
            assert_eq!(has_status, crd.spec.group == "plimsoll.dev", "{:?}", crd.metadata.name);
        }
    }
}

#[test]
fn spec_and_status_preserve_unknown_fields() {
    for crd in plimsoll_api::crds() {
        let schema = root(&crd);
        let properties = schema.properties.as_ref().unwrap();
        let preserves = |schema: &JSONSchemaProps| schema.x_kubernetes_preserve_unknown_fields == Some(true);
        match (properties.get("spec"), properties.get("status")) {
            (Some(spec), Some(status)) => assert!(preserves(spec) && preserves(status), "{:?}", crd.metadata.name),
            _ => assert!(preserves(schema), "{:?}", crd.metadata.name),
        }
    }
}

#[test]
fn every_kind_that_makes_progress_shows_it() {
    let shown: Vec<String> = plimsoll_api::crds().iter().filter_map(progress_column).collect();
    insta::assert_snapshot!(shown.join("\n"));
}

fn progress_column(crd: &CustomResourceDefinition) -> Option<String> {
    let columns = crd.spec.versions[0].additional_printer_columns.as_ref()?;
    let column = columns.iter().find(|column| column.name == "Progress")?;
    Some(format!("{} {}", crd.spec.names.kind, column.json_path))
}

#[test]
fn every_schema_is_structural() {
    for crd in plimsoll_api::crds() {
        assert_structural(crd.spec.names.kind.as_str(), root(&crd));
    }
}

fn root(crd: &CustomResourceDefinition) -> &JSONSchemaProps {
    crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()
}

/// Asserts what the API server rejects a definition for, as far as a derive can produce it.
fn assert_structural(path: &str, schema: &JSONSchemaProps) {
    assert!(schema.ref_path.is_none() && schema.schema.is_none(), "{path} refers to another schema");
    assert!(schema.any_of.is_none() && schema.one_of.is_none() && schema.all_of.is_none(), "{path} is a choice");
    assert!(schema.definitions.is_none() && schema.not.is_none() && schema.pattern_properties.is_none(), "{path}");
    assert!(schema.type_.is_some(), "{path} has no type");
    assert!(schema.properties.is_none() || schema.additional_properties.is_none(), "{path} is struct and map");
    assert!(schema.unique_items != Some(true), "{path} has unique items");
    let nulls = schema.enum_.iter().flatten().filter(|value| value.0.is_null()).count();
    assert!(nulls == 0 && (schema.enum_.is_none() || schema.nullable.is_none()), "{path} is an enum that may be null");
    for (name, property) in schema.properties.iter().flatten() {
        assert_structural(&format!("{path}.{name}"), property);
    }
    for name in schema.required.iter().flatten() {
        let property = &schema.properties.as_ref().unwrap()[name];
        assert!(property.nullable.is_none(), "{path}.{name} is required and may be null");
    }
    match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => assert_structural(&format!("{path}[]"), items),
        Some(JSONSchemaPropsOrArray::Schemas(_)) => panic!("{path} has a schema for each item"),
        None => assert_ne!(schema.type_.as_deref(), Some("array"), "{path} is a list without items"),
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        assert_structural(&format!("{path}{{}}"), values);
    }
}
