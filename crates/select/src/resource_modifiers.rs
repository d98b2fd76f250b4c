//! Resource modifiers: patches that a restore applies to the objects it is about to create.
//!
//! They are YAML in a ConfigMap. Every rule is compiled when the ConfigMap is read: an invalid pattern fails the validation
//! of the restore rather than each of its items.

use std::collections::BTreeMap;

use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Error;
use crate::config_map::{require_version_1, single_document};
use crate::glob::Glob;
use crate::includes::Globs;
use crate::labels::{LabelSelector, Selector};
use crate::{merge_patch, strategic_merge_patch};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    #[serde(default)]
    version: String,
    #[serde(default)]
    resource_modifier_rules: Option<Vec<RawRule>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawRule {
    conditions: RawConditions,
    #[serde(default)]
    patches: Option<Vec<RawPatch>>,
    #[serde(default)]
    merge_patches: Option<Vec<PatchData>>,
    #[serde(default)]
    strategic_patches: Option<Vec<PatchData>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawConditions {
    #[serde(default)]
    namespaces: Option<Vec<String>>,
    #[serde(default)]
    group_resource: String,
    #[serde(default)]
    resource_name_regex: Option<String>,
    #[serde(default)]
    label_selector: Option<LabelSelector>,
    #[serde(default)]
    matches: Option<Vec<RawMatch>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMatch {
    #[serde(default)]
    path: String,
    #[serde(default)]
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPatch {
    #[serde(default)]
    operation: String,
    #[serde(default)]
    from: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PatchData {
    #[serde(default)]
    patch_data: String,
}

/// Compiled resource modifier rules.
#[derive(Debug, Clone)]
pub struct ResourceModifiers {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone)]
struct Rule {
    namespaces: Globs,
    group_resource: Glob,
    name: Option<Regex>,
    selector: Option<Selector>,
    matches: Vec<(String, Value)>,
    patch: Patch,
}

#[derive(Debug, Clone)]
enum Patch {
    Json(json_patch::Patch),
    Merge(Vec<Value>),
    Strategic(Vec<Value>),
}

impl ResourceModifiers {
    /// Parses the data of a ConfigMap, which must have exactly one key.
    pub fn from_config_map(data: &BTreeMap<String, String>) -> Result<Self, Error> {
        single_document(data).map_err(Error::ResourceModifiers).and_then(Self::parse)
    }

    /// Parses the YAML document.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let document: Document =
            serde_saphyr::from_str(text).map_err(|error| Error::ResourceModifiers(error.to_string()))?;
        // Velero accepts "V1" here, but not in resource policies.
        require_version_1(&document.version.to_ascii_lowercase()).map_err(Error::ResourceModifiers)?;
        let rules = document.resource_modifier_rules.unwrap_or_default();
        if rules.is_empty() {
            return Err(Error::ResourceModifiers("resourceModifierRules cannot be empty".to_owned()));
        }
        let compile = |(index, rule): (usize, RawRule)| {
            Rule::compile(rule).map_err(|problem| Error::ResourceModifiers(format!("rule {}: {problem}", index + 1)))
        };
        Ok(Self { rules: rules.into_iter().enumerate().map(compile).collect::<Result<_, _>>()? })
    }

    /// Applies every rule that matches the original object. A rule that fails leaves the result of the previous rules
    /// unchanged.
    pub fn apply(&self, object: &mut Value, group_resource: &str) -> Vec<Error> {
        let matching: Vec<(usize, &Rule)> =
            (1..).zip(&self.rules).filter(|(_, rule)| rule.matches(object, group_resource)).collect();
        let mut errors = Vec::new();
        for (rule, matched) in matching {
            match matched.patch.apply(object) {
                Ok(patched) => *object = patched,
                Err(problem) => errors.push(Error::Modifier { rule, object: object_name(object), problem }),
            }
        }
        errors
    }
}

impl Rule {
    fn compile(raw: RawRule) -> Result<Self, String> {
        let RawRule { conditions, patches, merge_patches, strategic_patches } = raw;
        if conditions.group_resource.is_empty() {
            return Err("groupResource cannot be empty".to_owned());
        }
        let text = |error: Error| error.to_string();
        let name = conditions.resource_name_regex.filter(|pattern| !pattern.is_empty());
        Ok(Self {
            namespaces: Globs::new(conditions.namespaces.unwrap_or_default()).map_err(text)?,
            group_resource: Glob::with_separator(&conditions.group_resource, Some('.')).map_err(text)?,
            name: name.map(|pattern| Regex::new(&pattern)).transpose().map_err(|error| error.to_string())?,
            selector: conditions.label_selector.as_ref().map(Selector::new).transpose().map_err(text)?,
            matches: compile_matches(conditions.matches.unwrap_or_default())?,
            patch: Patch::compile(patches, merge_patches, strategic_patches)?,
        })
    }

    fn matches(&self, object: &Value, group_resource: &str) -> bool {
        let metadata = &object["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let namespace = text("namespace");
        (namespace.is_empty() || self.namespaces.is_empty() || self.namespaces.matches(namespace))
            && self.group_resource.matches(group_resource)
            && self.name.as_ref().is_none_or(|name| name.is_match(text("name")))
            && self.selector.as_ref().is_none_or(|selector| selector.matches(&metadata["labels"]))
            && self.matches.iter().all(|(path, expected)| object.pointer(path).unwrap_or(&Value::Null) == expected)
    }
}

fn compile_matches(matches: Vec<RawMatch>) -> Result<Vec<(String, Value)>, String> {
    matches
        .into_iter()
        .map(|RawMatch { path, value }| {
            if path.is_empty() {
                Err("path is required in matches".to_owned())
            } else {
                Ok((path, parse_typed_value(&value)?))
            }
        })
        .collect()
}

impl Patch {
    fn compile(
        patches: Option<Vec<RawPatch>>,
        merges: Option<Vec<PatchData>>,
        strategic: Option<Vec<PatchData>>,
    ) -> Result<Self, String> {
        let non_empty = |list: Option<Vec<PatchData>>| list.filter(|list| !list.is_empty());
        match (patches.filter(|list| !list.is_empty()), non_empty(merges), non_empty(strategic)) {
            (Some(patches), None, None) => compile_json_patch(&patches).map(Self::Json),
            (None, Some(merges), None) => parse_patch_documents(&merges).map(Self::Merge),
            (None, None, Some(strategic)) => parse_patch_documents(&strategic).map(Self::Strategic),
            (None, None, None) => Err("one of patches, mergePatches and strategicPatches is required".to_owned()),
            _ => Err("only one of patches, mergePatches and strategicPatches is allowed".to_owned()),
        }
    }

    fn apply(&self, object: &Value) -> Result<Value, String> {
        match self {
            Self::Json(patch) => apply_json_patch(object, patch),
            Self::Merge(patches) => {
                let mut patched = object.clone();
                for patch in patches {
                    merge_patch::apply_in_place(&mut patched, patch);
                }
                Ok(patched)
            }
            Self::Strategic(patches) => {
                let hint = strategic_merge_patch::PatchSchema::of(object)
                    .ok_or("strategic patches only apply to built-in kinds")?;
                patches.iter().try_fold(object.clone(), |target, patch| {
                    strategic_merge_patch::merge(&target, patch, hint).map_err(|error| error.to_string())
                })
            }
        }
    }
}

fn parse_patch_documents(patches: &[PatchData]) -> Result<Vec<Value>, String> {
    patches
        .iter()
        .map(|patch| serde_saphyr::from_str(&patch.patch_data).map_err(|error| format!("patchData: {error}")))
        .collect()
}

fn compile_json_patch(patches: &[RawPatch]) -> Result<json_patch::Patch, String> {
    let operations = patches.iter().map(json_patch_operation).collect::<Result<Vec<_>, _>>()?;
    serde_json::from_value(Value::Array(operations)).map_err(|error| format!("patches: {error}"))
}

fn json_patch_operation(patch: &RawPatch) -> Result<Value, String> {
    let name = patch.operation.to_ascii_lowercase();
    if patch.path.is_empty() {
        return Err("path cannot be empty".to_owned());
    }
    match name.as_str() {
        "add" | "replace" | "test" => {
            Ok(json!({"op": name, "path": patch.path, "value": parse_typed_value(&patch.value)?}))
        }
        "remove" => Ok(json!({"op": name, "path": patch.path})),
        "move" | "copy" => Ok(json!({"op": name, "from": patch.from, "path": patch.path})),
        "" => Err("operation cannot be empty".to_owned()),
        _ => Err(format!("unsupported operation {:?}", patch.operation)),
    }
}

/// A failed `test` operation means that the patch does not apply to this object: it stays unchanged, without an error.
fn apply_json_patch(object: &Value, patch: &json_patch::Patch) -> Result<Value, String> {
    let mut patched = object.clone();
    match json_patch::patch(&mut patched, patch) {
        Ok(()) => Ok(patched),
        Err(error) => {
            let failed = patch.0.get(error.operation);
            if matches!(failed, Some(json_patch::PatchOperation::Test(_))) {
                return Ok(object.clone());
            }
            Err(error.to_string())
        }
    }
}

/// Parses a value: unquoted text that looks like a number, a boolean, null, a list or a map is one.
fn parse_typed_value(text: &str) -> Result<Value, String> {
    let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    if let Some(inner) = quoted {
        return Ok(parse_string(inner));
    }
    if text == "null" {
        return Ok(Value::Null);
    }
    if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") {
        return Ok(Value::Bool(text.eq_ignore_ascii_case("true")));
    }
    if text.starts_with(['{', '[']) {
        return serde_json::from_str(text).map_err(|error| format!("value {text:?}: {error}"));
    }
    match serde_json::from_str(text) {
        Ok(Value::Number(number)) => Ok(Value::Number(number)),
        _ => Ok(parse_string(text)),
    }
}

/// A string with JSON escapes.
fn parse_string(text: &str) -> Value {
    serde_json::from_str(&format!("\"{text}\"")).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn object_name(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, metadata) = (text(&object["kind"]), &object["metadata"]);
    match text(&metadata["namespace"]) {
        namespace if namespace.is_empty() => format!("{kind} {}", text(&metadata["name"])),
        namespace => format!("{kind} {namespace}/{}", text(&metadata["name"])),
    }
}
