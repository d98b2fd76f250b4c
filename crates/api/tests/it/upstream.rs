//! The definitions cover upstream's, compared with a committed list of upstream's fields.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};

const UPSTREAM: &str = include_str!("upstream-fields.txt");

/// The listed properties of one upstream kind.
struct UpstreamKind<'a> {
    names: Vec<&'a str>,
    columns: Vec<&'a str>,
    fields: Vec<(&'a str, &'a str)>,
}

fn upstream() -> Vec<UpstreamKind<'static>> {
    let mut kinds: Vec<UpstreamKind> = Vec::new();
    for line in UPSTREAM.lines().filter(|line| !line.starts_with('#')) {
        let (what, rest) = line.split_once(' ').unwrap();
        if what == "kind" {
            kinds.push(UpstreamKind { names: rest.split(' ').collect(), columns: Vec::new(), fields: Vec::new() });
            continue;
        }
        let kind = kinds.last_mut().unwrap();
        match what {
            "column" => kind.columns.push(rest),
            "field" => kind.fields.push(rest.split_once(' ').unwrap()),
            other => panic!("unknown property: {other}"),
        }
    }
    kinds
}

fn our_definition(kind: &UpstreamKind) -> CustomResourceDefinition {
    plimsoll_api::crds().into_iter().find(|crd| crd.spec.names.kind == kind.names[0]).unwrap()
}

#[test]
fn the_list_has_the_sixteen_upstream_kinds() {
    let kinds = upstream();
    assert_eq!(kinds.len(), 16);
    assert!(kinds.iter().all(|kind| !kind.fields.is_empty()));
}

#[test]
fn names_scope_and_version_equal_upstreams() {
    for kind in upstream() {
        let crd = our_definition(&kind);
        let names = &crd.spec.names;
        let api_version = format!("{}/{}", crd.spec.group, crd.spec.versions[0].name);
        let mut found = vec![
            names.kind.as_str(),
            api_version.as_str(),
            names.plural.as_str(),
            names.singular.as_deref().unwrap(),
            crd.spec.scope.as_str(),
        ];
        found.extend(names.short_names.iter().flatten().map(String::as_str));
        assert_eq!(found, kind.names);
        assert_eq!(names.list_kind, Some(format!("{}List", names.kind)));
        assert_eq!(names.categories.as_deref().unwrap_or_default(), &[] as &[String]);
    }
}

#[test]
fn upstreams_columns_come_first_and_unchanged() {
    for kind in upstream() {
        let crd = our_definition(&kind);
        let columns = crd.spec.versions[0].additional_printer_columns.iter().flatten();
        let found: Vec<String> = columns.map(column_line).collect();
        assert!(found.len() >= kind.columns.len(), "{}", kind.names[0]);
        assert_eq!(found[..kind.columns.len()], kind.columns, "{}", kind.names[0]);
    }
}

fn column_line(column: &CustomResourceColumnDefinition) -> String {
    let format = column.format.as_deref().unwrap_or_default();
    let priority = column.priority.map(|priority| priority.to_string()).unwrap_or_default();
    format!("{}|{}|{format}|{}|{priority}", column.name, column.type_, column.json_path)
}

#[test]
fn every_upstream_field_is_defined_with_its_type() {
    let mut missing = Vec::new();
    for kind in upstream() {
        let crd = our_definition(&kind);
        let root = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
        let mut found = BTreeMap::new();
        collect("", root, &mut found);
        for (path, facts) in &kind.fields {
            match found.get(*path) {
                Some(schema) => {
                    missing.extend(differences(facts, schema).map(|what| format!("{} {path}: {what}", kind.names[0])));
                }
                None => missing.push(format!("{} {path}: absent", kind.names[0])),
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

fn collect<'a>(path: &str, schema: &'a JSONSchemaProps, found: &mut BTreeMap<String, &'a JSONSchemaProps>) {
    found.insert(path.to_owned(), schema);
    for (name, property) in schema.properties.iter().flatten() {
        let child = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        collect(&child, property, found);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        collect(&format!("{path}[]"), items, found);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        collect(&format!("{path}{{}}"), values, found);
    }
}

/// Where our schema is stricter than upstream's. Ours may accept more, so only upstream's `?` and `preserve` count.
fn differences<'a>(facts: &'a str, schema: &'a JSONSchemaProps) -> impl Iterator<Item = String> {
    let mut facts = facts.split(' ');
    let type_ = facts.next().unwrap();
    let mut wrong = Vec::new();
    let format = schema.format.as_ref().map(|format| format!(":{format}")).unwrap_or_default();
    let found = format!("{}{format}", schema.type_.as_deref().unwrap());
    if found != type_.trim_end_matches('?') {
        wrong.push(format!("type {found}, upstream {type_}"));
    }
    if type_.ends_with('?') && schema.nullable != Some(true) {
        wrong.push("not nullable".to_owned());
    }
    let (mut values, mut required) = (BTreeSet::new(), BTreeSet::new());
    for fact in facts {
        match fact.split_once('=').unwrap_or((fact, "")) {
            ("enum", list) => values.extend(list.split('|').map(str::to_owned)),
            ("required", list) => required.extend(list.split(',').map(str::to_owned)),
            ("min", least) => assert_eq!(schema.min_items.unwrap().to_string(), least),
            ("preserve", _) if schema.x_kubernetes_preserve_unknown_fields != Some(true) => {
                wrong.push("drops unknown fields".to_owned());
            }
            ("atomic", _) if schema.x_kubernetes_map_type.is_none() && schema.x_kubernetes_list_type.is_none() => {
                wrong.push("not atomic".to_owned());
            }
            ("preserve" | "atomic", _) => {}
            other => panic!("unknown property: {other:?}"),
        }
    }
    let our_values: BTreeSet<String> =
        schema.enum_.iter().flatten().map(|value| value.0.as_str().unwrap().to_owned()).collect();
    if our_values != values {
        wrong.push(format!("values {our_values:?}, upstream {values:?}"));
    }
    let our_required: BTreeSet<String> = schema.required.iter().flatten().cloned().collect();
    if our_required != required {
        wrong.push(format!("requires {our_required:?}, upstream {required:?}"));
    }
    wrong.into_iter()
}
