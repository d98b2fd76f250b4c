//! Create and update.

use crate::{
    Core, admission,
    database::Draft,
    definition,
    key::Key,
    kind::Kind,
    object::{finalizers, is_removal_blocked, is_terminating, metadata, now, text},
    request::{Query, Validation},
    response::ApiResponse,
    status_error::{StatusCause, StatusDetails, StatusError},
};
use plimsoll_select::names;
use serde_json::{Value, json};
use std::sync::Arc;

/// Computes the new object of an update from the current one, in the version of the request.
pub(crate) type Change = Box<dyn FnOnce(&Value) -> Result<Value, StatusError> + Send>;

/// The part of an object that an update may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdateScope {
    /// All but the status, if that is a subresource.
    Main,
    Status,
    /// The finalizers in a namespace's spec.
    Finalize,
}

impl Core {
    pub async fn create(
        &self,
        kind: Arc<Kind>,
        namespace: Option<&str>,
        body: &[u8],
        query: &Query,
    ) -> Result<ApiResponse, StatusError> {
        let mut object = decode(&kind, body)?;
        set_namespace(&kind, namespace, &mut object)?;
        // Some clients send 0 for an unset resource version.
        if !["", "0"].contains(&text(&object, "/metadata/resourceVersion")) {
            return Err(StatusError::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        let generated = initialize(&kind, &mut object);
        let mut warnings = Vec::new();
        let valid = admit(&kind, &mut object, query.validation, &mut warnings, true);
        let key = kind.key(namespace.unwrap_or_default(), text(&object, "/metadata/name"));
        let dry_run = query.dry_run;
        let current = Arc::clone(&self.registry);
        let job = move |draft: &mut Draft<'_>| {
            check_namespace(draft, &kind, &key)?;
            valid?;
            check_definition(&current, &kind)?;
            if let Some(existing) = draft.get(&key)? {
                let mut error = StatusError::already_exists(kind.details_for(&key.name), is_terminating(&existing));
                if generated {
                    error.message.push_str(", the server was not able to generate a unique name for the object");
                }
                return Err(error);
            }
            kind.convert_to_storage(&mut object);
            let stored = draft.put(&key, &mut object)?;
            if dry_run {
                draft.discard();
            }
            Ok(ApiResponse { code: 201, bytes: kind.encode_version(&stored)?, warnings })
        };
        self.database.write(job).await
    }

    /// Replaces or patches an object.
    pub async fn update(
        &self,
        kind: Arc<Kind>,
        key: Key,
        scope: UpdateScope,
        change: Change,
        query: &Query,
    ) -> Result<ApiResponse, StatusError> {
        let (dry_run, validation) = (query.dry_run, query.validation);
        let job = move |draft: &mut Draft<'_>| {
            let stored = draft.get(&key)?.ok_or_else(|| StatusError::not_found(kind.details_for(&key.name)))?;
            let mut old = stored.clone();
            kind.convert_to_version(&mut old);
            let mut new = change(&old)?;
            check_identity(&kind, &old, &new)?;
            let mut warnings = Vec::new();
            preserve_protected_fields(&kind, &old, &mut new, scope);
            admit(&kind, &mut new, validation, &mut warnings, false)?;
            check_finalizers(&kind, &old, &new)?;
            increment_generation(&kind, &old, &mut new);
            kind.convert_to_storage(&mut new);
            let bytes = store(draft, &key, &stored, new)?;
            if dry_run {
                draft.discard();
            }
            Ok(ApiResponse { code: 200, bytes: kind.encode_version(&bytes)?, warnings })
        };
        self.database.write(job).await
    }
}

/// Writes a changed object, removes one without finalizers that is being deleted, and does not write an unchanged one.
pub(crate) fn store(
    draft: &mut Draft<'_>,
    key: &Key,
    old: &Value,
    mut new: Value,
) -> Result<bytes::Bytes, StatusError> {
    metadata(&mut new).insert("resourceVersion".to_owned(), old["metadata"]["resourceVersion"].clone());
    if is_terminating(&new) && !is_removal_blocked(&new) {
        return draft.remove(key, &mut new);
    }
    if new == *old {
        return Ok(serde_json::to_vec(&new)?.into());
    }
    draft.put(key, &mut new)
}

/// Reads a body as an object of this kind.
pub(crate) fn decode(kind: &Kind, body: &[u8]) -> Result<Value, StatusError> {
    let mut object: Value = serde_json::from_slice(body).map_err(|error| {
        let expected = format!("{}.{}", kind.kind, kind.api_version());
        StatusError::bad_request(format!(
            "the object provided is unrecognized or cannot be read as {expected}: {error}"
        ))
    })?;
    if !object.is_object() {
        return Err(StatusError::bad_request("the body of the request is not a JSON object"));
    }
    for (field, expected) in [("apiVersion", kind.api_version()), ("kind", kind.kind.clone())] {
        match object[field].as_str().unwrap_or_default() {
            "" if kind.is_custom() => {
                return Err(StatusError::bad_request(format!(
                    "Object '{field}' is missing in the body of the request"
                )));
            }
            "" => object[field] = json!(expected),
            given if given != expected => {
                let message = format!("{field} in the data ({given}) does not match the expected {field} ({expected})");
                return Err(StatusError::bad_request(message));
            }
            _ => {}
        }
    }
    names::check_metadata_types(&object)
        .map_err(|cause| StatusError::bad_request(format!("{} cannot be handled: {cause}", kind.kind)))?;
    Ok(object)
}

/// Sets the namespace of an object to that of the request.
pub(crate) fn set_namespace(kind: &Kind, namespace: Option<&str>, object: &mut Value) -> Result<(), StatusError> {
    let given = text(object, "/metadata/namespace");
    match namespace.filter(|_| kind.namespaced) {
        Some(namespace) if given.is_empty() || given == namespace => {
            metadata(object).insert("namespace".to_owned(), json!(namespace));
            Ok(())
        }
        None if given.is_empty() => Ok(()),
        None if !kind.namespaced => {
            metadata(object).remove("namespace");
            Ok(())
        }
        _ => Err(StatusError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}

/// Sets the metadata that the server decides. Returns whether the name was generated.
fn initialize(kind: &Kind, object: &mut Value) -> bool {
    let prefix = text(object, "/metadata/generateName").to_owned();
    let generated = text(object, "/metadata/name").is_empty() && !prefix.is_empty();
    let metadata = metadata(object);
    if generated {
        metadata.insert("name".to_owned(), json!(generate_name(&prefix)));
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink", "managedFields"] {
        metadata.remove(field);
    }
    metadata.retain(|_, value| !value.is_null());
    metadata.insert("uid".to_owned(), json!(uuid::Uuid::new_v4().to_string()));
    metadata.insert("creationTimestamp".to_owned(), json!(now()));
    if kind.generation {
        metadata.insert("generation".to_owned(), json!(1));
    }
    generated
}

/// The prefix, shortened if necessary, and five characters without vowels.
fn generate_name(prefix: &str) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut random = uuid::Uuid::new_v4().as_u128();
    let mut suffix = String::new();
    for _ in 0..5 {
        suffix.push(char::from(ALPHABET[usize::try_from(random % 27).unwrap_or_default()]));
        random /= 27;
    }
    let kept: String = prefix.chars().take(58).collect();
    format!("{kept}{suffix}")
}

/// Prunes, sets defaults and validates.
fn admit(
    kind: &Kind,
    object: &mut Value,
    validation: Validation,
    warnings: &mut Vec<String>,
    is_new: bool,
) -> Result<(), StatusError> {
    if let Some(schema) = kind.schema() {
        let unknown = schema.prune(object);
        report_unknown_fields(&unknown, validation, warnings)?;
        schema.default(object);
    }
    if is_new {
        admission::on_create(kind, object);
    } else {
        admission::on_update(kind, object);
    }
    let mut causes = names::validate_metadata(object, kind.name_rule);
    causes.extend(admission::validate(kind, object));
    if causes.is_empty() {
        return Ok(());
    }
    Err(StatusError::invalid(kind.details_for_kind(text(object, "/metadata/name")), &causes))
}

fn report_unknown_fields(
    unknown: &[String],
    validation: Validation,
    warnings: &mut Vec<String>,
) -> Result<(), StatusError> {
    let texts: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    match validation {
        Validation::Strict if !texts.is_empty() => {
            Err(StatusError::bad_request(format!("strict decoding error: {}", texts.join(", "))))
        }
        Validation::Warn => {
            warnings.extend(texts);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn check_namespace(draft: &Draft<'_>, kind: &Kind, key: &Key) -> Result<(), StatusError> {
    if !kind.namespaced {
        return Ok(());
    }
    let missing = || StatusError::not_found(StatusDetails { group: "", kind: "namespaces", name: &key.namespace });
    let namespace = draft.get(&Key::namespace_object(&key.namespace))?.ok_or_else(missing)?;
    if is_terminating(&namespace) {
        return Err(StatusError::namespace_terminating(kind.details_for(&key.name), &key.namespace));
    }
    Ok(())
}

/// The definition may have been deleted between the start of the request and its job.
fn check_definition(registry: &std::sync::RwLock<crate::registry::Registry>, kind: &Kind) -> Result<(), StatusError> {
    if !kind.is_custom() {
        return Ok(());
    }
    let registry = registry.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    let current = registry.find(&kind.group, &kind.version, &kind.plural).ok_or_else(StatusError::unknown_path)?;
    if current.custom.as_ref().is_some_and(|custom| custom.terminating) {
        let message =
            format!("create not allowed while custom resource definition {} is terminating", kind.group_resource());
        return Err(StatusError::new(405, "MethodNotAllowed", message));
    }
    Ok(())
}

/// Checks name, uid and resource version of an update against the stored object.
fn check_identity(kind: &Kind, old: &Value, new: &Value) -> Result<(), StatusError> {
    let name = text(old, "/metadata/name");
    names::check_metadata_types(new)
        .map_err(|cause| StatusError::bad_request(format!("{} cannot be handled: {cause}", kind.kind)))?;
    for field in ["name", "namespace"] {
        let pointer = format!("/metadata/{field}");
        let (was, is) = (text(old, &pointer), text(new, &pointer));
        if !is.is_empty() && was != is {
            let message = format!("the {field} of the object ({is}) does not match the {field} on the URL ({was})");
            return Err(StatusError::bad_request(message));
        }
    }
    let (was, is) = (text(old, "/metadata/uid"), text(new, "/metadata/uid"));
    if !is.is_empty() && was != is {
        let cause = format!("Precondition failed: UID in precondition: {is}, UID in object meta: {was}");
        return Err(StatusError::conflict(kind.details_for(name), cause));
    }
    match text(new, "/metadata/resourceVersion") {
        "" if kind.is_custom() || kind.is(definition::RESOURCE) => {
            let cause = StatusCause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            Err(StatusError::invalid(kind.details_for_kind(name), &[cause]))
        }
        "" => Ok(()),
        seen if seen == text(old, "/metadata/resourceVersion") => Ok(()),
        _ => {
            let cause = "the object has been modified; please apply your changes to the latest version and try again";
            Err(StatusError::conflict(kind.details_for(name), cause))
        }
    }
}

/// Restores the fields that this request may not change.
fn preserve_protected_fields(kind: &Kind, old: &Value, new: &mut Value, scope: UpdateScope) {
    match scope {
        UpdateScope::Main => {
            for field in [
                "name",
                "namespace",
                "uid",
                "creationTimestamp",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "generation",
            ] {
                set_or_remove(&old["metadata"][field], metadata(new), field);
            }
            for field in ["selfLink", "managedFields"] {
                metadata(new).remove(field);
            }
            metadata(new).retain(|_, value| !value.is_null());
            if kind.status {
                set_or_remove(&old["status"], new.as_object_mut().expect("decoded as an object"), "status");
            }
            if kind.is("namespaces") {
                new["spec"] = old["spec"].clone();
            }
        }
        UpdateScope::Status => {
            let status = new["status"].take();
            *new = old.clone();
            set_or_remove(&status, new.as_object_mut().expect("stored as an object"), "status");
        }
        UpdateScope::Finalize => {
            let finalizers = new["spec"]["finalizers"].take();
            *new = old.clone();
            set_or_remove(&finalizers, crate::object::field(new, "spec"), "finalizers");
        }
    }
    metadata(new).insert("resourceVersion".to_owned(), old["metadata"]["resourceVersion"].clone());
}

fn set_or_remove(value: &Value, fields: &mut serde_json::Map<String, Value>, name: &str) {
    if value.is_null() {
        fields.remove(name);
    } else {
        fields.insert(name.to_owned(), value.clone());
    }
}

fn check_finalizers(kind: &Kind, old: &Value, new: &Value) -> Result<(), StatusError> {
    let before = finalizers(old);
    let added: Vec<&str> = finalizers(new).into_iter().filter(|finalizer| !before.contains(finalizer)).collect();
    if !is_terminating(old) || added.is_empty() {
        return Ok(());
    }
    let cause =
        format!("no new finalizers can be added if the object is being deleted, found new finalizers {added:?}");
    let cause = StatusCause::forbidden("metadata.finalizers", cause);
    Err(StatusError::invalid(kind.details_for_kind(text(old, "/metadata/name")), &[cause]))
}

/// The generation counts changes of everything but metadata and, where it is a subresource, status.
fn increment_generation(kind: &Kind, old: &Value, new: &mut Value) {
    if !kind.generation {
        return;
    }
    let without_metadata = |object: &Value| {
        let mut fields = object.as_object().cloned().unwrap_or_default();
        fields.remove("metadata");
        if kind.status {
            fields.remove("status");
        }
        fields
    };
    if without_metadata(old) != without_metadata(new) {
        let generation = old["metadata"]["generation"].as_u64().unwrap_or_default() + 1;
        metadata(new).insert("generation".to_owned(), json!(generation));
    }
}
