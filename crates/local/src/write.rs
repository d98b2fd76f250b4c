//! Creating and updating.

use crate::{
    Core, admission,
    answer::Answer,
    database::Draft,
    definition,
    failure::{About, Failure, StatusCause},
    key::Key,
    kind::Kind,
    object::{finalizers, is_held, is_terminating, metadata, now, text},
    target::{Query, Validation},
};
use plimsoll_select::names;
use serde_json::{Value, json};
use std::sync::Arc;

/// How an update comes to its new object. The current one is given in the version of the request.
pub(crate) type Change = Box<dyn FnOnce(&Value) -> Result<Value, Failure> + Send>;

/// The part of an object that an update may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All but the status, where that is a subresource.
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
    ) -> Result<Answer, Failure> {
        let mut object = decode(&kind, body)?;
        place(&kind, namespace, &mut object)?;
        // Zero is what some clients write for none.
        if !["", "0"].contains(&text(&object, "/metadata/resourceVersion")) {
            return Err(Failure::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        let generated = initialize(&kind, &mut object);
        let mut warnings = Vec::new();
        let valid = accept(&kind, &mut object, query.validation, &mut warnings, true);
        let key = kind.key(namespace.unwrap_or_default(), text(&object, "/metadata/name"));
        let dry_run = query.dry_run;
        let current = Arc::clone(&self.registry);
        let job = move |draft: &mut Draft<'_>| {
            check_namespace(draft, &kind, &key)?;
            valid?;
            check_definition(&current, &kind)?;
            if let Some(existing) = draft.get(&key)? {
                let mut refused = Failure::already_exists(kind.about(&key.name), is_terminating(&existing));
                if generated {
                    refused.message.push_str(", the server was not able to generate a unique name for the object");
                }
                return Err(refused);
            }
            kind.hide(&mut object);
            let stored = draft.put(&key, &mut object)?;
            if dry_run {
                draft.discard();
            }
            Ok(Answer { code: 201, bytes: kind.present(&stored)?, warnings })
        };
        self.database.write(job).await
    }

    /// Replaces or patches an object.
    pub async fn update(
        &self,
        kind: Arc<Kind>,
        key: Key,
        part: Part,
        change: Change,
        query: &Query,
    ) -> Result<Answer, Failure> {
        let (dry_run, validation) = (query.dry_run, query.validation);
        let job = move |draft: &mut Draft<'_>| {
            let stored = draft.get(&key)?.ok_or_else(|| Failure::not_found(kind.about(&key.name)))?;
            let mut old = stored.clone();
            kind.show(&mut old);
            let mut new = change(&old)?;
            check_identity(&kind, &old, &new)?;
            let mut warnings = Vec::new();
            merge_parts(&kind, &old, &mut new, part);
            accept(&kind, &mut new, validation, &mut warnings, false)?;
            check_finalizers(&kind, &old, &new)?;
            count_generation(&kind, &old, &mut new);
            kind.hide(&mut new);
            let bytes = store(draft, &key, &stored, new)?;
            if dry_run {
                draft.discard();
            }
            Ok(Answer { code: 200, bytes: kind.present(&bytes)?, warnings })
        };
        self.database.write(job).await
    }
}

/// Writes a changed object, removes one whose last finalizer went, and leaves an unchanged one alone.
pub(crate) fn store(draft: &mut Draft<'_>, key: &Key, old: &Value, mut new: Value) -> Result<bytes::Bytes, Failure> {
    metadata(&mut new).insert("resourceVersion".to_owned(), old["metadata"]["resourceVersion"].clone());
    if is_terminating(&new) && !is_held(&new) {
        return draft.remove(key, &mut new);
    }
    if new == *old {
        return Ok(serde_json::to_vec(&new)?.into());
    }
    draft.put(key, &mut new)
}

/// Reads a body as an object of this kind.
pub(crate) fn decode(kind: &Kind, body: &[u8]) -> Result<Value, Failure> {
    let mut object: Value = serde_json::from_slice(body).map_err(|error| {
        let about = format!("{}.{}", kind.kind, kind.api_version());
        Failure::bad_request(format!("the object provided is unrecognized or cannot be read as {about}: {error}"))
    })?;
    if !object.is_object() {
        return Err(Failure::bad_request("the body of the request is not a JSON object"));
    }
    for (field, expected) in [("apiVersion", kind.api_version()), ("kind", kind.kind.clone())] {
        match object[field].as_str().unwrap_or_default() {
            "" if kind.is_custom() => {
                return Err(Failure::bad_request(format!("Object '{field}' is missing in the body of the request")));
            }
            "" => object[field] = json!(expected),
            given if given != expected => {
                let message = format!("{field} in the data ({given}) does not match the expected {field} ({expected})");
                return Err(Failure::bad_request(message));
            }
            _ => {}
        }
    }
    names::check_metadata_types(&object)
        .map_err(|why| Failure::bad_request(format!("{} cannot be handled: {why}", kind.kind)))?;
    Ok(object)
}

/// Puts the namespace of the request into an object.
pub(crate) fn place(kind: &Kind, namespace: Option<&str>, object: &mut Value) -> Result<(), Failure> {
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
        _ => Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}

/// Gives a new object what the server decides. Answers whether its name was generated.
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

/// A prefix, shortened if need be, and five characters without vowels.
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

/// Prunes, fills in and validates.
fn accept(
    kind: &Kind,
    object: &mut Value,
    validation: Validation,
    warnings: &mut Vec<String>,
    is_new: bool,
) -> Result<(), Failure> {
    if let Some(schema) = kind.schema() {
        let unknown = schema.prune(object);
        report_unknown(&unknown, validation, warnings)?;
        schema.default(object);
    }
    if is_new {
        admission::on_create(kind, object);
    } else {
        admission::on_update(kind, object);
    }
    let mut causes = names::validate_metadata(object, kind.name_rule);
    causes.extend(admission::causes(kind, object));
    if causes.is_empty() {
        return Ok(());
    }
    Err(Failure::invalid(kind.about_kind(text(object, "/metadata/name")), &causes))
}

fn report_unknown(unknown: &[String], validation: Validation, warnings: &mut Vec<String>) -> Result<(), Failure> {
    let texts: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    match validation {
        Validation::Strict if !texts.is_empty() => {
            Err(Failure::bad_request(format!("strict decoding error: {}", texts.join(", "))))
        }
        Validation::Warn => {
            warnings.extend(texts);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn check_namespace(draft: &Draft<'_>, kind: &Kind, key: &Key) -> Result<(), Failure> {
    if !kind.namespaced {
        return Ok(());
    }
    let missing = || Failure::not_found(About { group: "", kind: "namespaces", name: &key.namespace });
    let namespace = draft.get(&Key::namespace_object(&key.namespace))?.ok_or_else(missing)?;
    if is_terminating(&namespace) {
        return Err(Failure::namespace_terminating(kind.about(&key.name), &key.namespace));
    }
    Ok(())
}

/// Between the start of a request and its job the definition may have gone.
fn check_definition(registry: &std::sync::RwLock<crate::registry::Registry>, kind: &Kind) -> Result<(), Failure> {
    if !kind.is_custom() {
        return Ok(());
    }
    let registry = registry.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    let current = registry.find(&kind.group, &kind.version, &kind.plural).ok_or_else(Failure::no_such_path)?;
    if current.custom.as_ref().is_some_and(|custom| custom.terminating) {
        let message =
            format!("create not allowed while custom resource definition {} is terminating", kind.group_resource());
        return Err(Failure::new(405, "MethodNotAllowed", message));
    }
    Ok(())
}

/// An update must be of the object that is there, in the state the client has seen.
fn check_identity(kind: &Kind, old: &Value, new: &Value) -> Result<(), Failure> {
    let name = text(old, "/metadata/name");
    names::check_metadata_types(new)
        .map_err(|why| Failure::bad_request(format!("{} cannot be handled: {why}", kind.kind)))?;
    for field in ["name", "namespace"] {
        let pointer = format!("/metadata/{field}");
        let (was, is) = (text(old, &pointer), text(new, &pointer));
        if !is.is_empty() && was != is {
            let message = format!("the {field} of the object ({is}) does not match the {field} on the URL ({was})");
            return Err(Failure::bad_request(message));
        }
    }
    let (was, is) = (text(old, "/metadata/uid"), text(new, "/metadata/uid"));
    if !is.is_empty() && was != is {
        let why = format!("Precondition failed: UID in precondition: {is}, UID in object meta: {was}");
        return Err(Failure::conflict(kind.about(name), why));
    }
    match text(new, "/metadata/resourceVersion") {
        "" if kind.is_custom() || kind.is(definition::RESOURCE) => {
            let cause = StatusCause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            Err(Failure::invalid(kind.about_kind(name), &[cause]))
        }
        "" => Ok(()),
        seen if seen == text(old, "/metadata/resourceVersion") => Ok(()),
        _ => {
            let why = "the object has been modified; please apply your changes to the latest version and try again";
            Err(Failure::conflict(kind.about(name), why))
        }
    }
}

/// Keeps what this request may not change.
fn merge_parts(kind: &Kind, old: &Value, new: &mut Value, part: Part) {
    match part {
        Part::Main => {
            for field in [
                "name",
                "namespace",
                "uid",
                "creationTimestamp",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "generation",
            ] {
                keep(&old["metadata"][field], metadata(new), field);
            }
            for field in ["selfLink", "managedFields"] {
                metadata(new).remove(field);
            }
            metadata(new).retain(|_, value| !value.is_null());
            if kind.status {
                keep(&old["status"], new.as_object_mut().expect("decoded as an object"), "status");
            }
            if kind.is("namespaces") {
                new["spec"] = old["spec"].clone();
            }
        }
        Part::Status => {
            let status = new["status"].take();
            *new = old.clone();
            keep(&status, new.as_object_mut().expect("stored as an object"), "status");
        }
        Part::Finalize => {
            let finalizers = new["spec"]["finalizers"].take();
            *new = old.clone();
            keep(&finalizers, crate::object::field(new, "spec"), "finalizers");
        }
    }
    metadata(new).insert("resourceVersion".to_owned(), old["metadata"]["resourceVersion"].clone());
}

fn keep(value: &Value, fields: &mut serde_json::Map<String, Value>, name: &str) {
    if value.is_null() {
        fields.remove(name);
    } else {
        fields.insert(name.to_owned(), value.clone());
    }
}

fn check_finalizers(kind: &Kind, old: &Value, new: &Value) -> Result<(), Failure> {
    let before = finalizers(old);
    let added: Vec<&str> = finalizers(new).into_iter().filter(|finalizer| !before.contains(finalizer)).collect();
    if !is_terminating(old) || added.is_empty() {
        return Ok(());
    }
    let why = format!("no new finalizers can be added if the object is being deleted, found new finalizers {added:?}");
    let cause = StatusCause::forbidden("metadata.finalizers", why);
    Err(Failure::invalid(kind.about_kind(text(old, "/metadata/name")), &[cause]))
}

/// The generation counts changes of what a user wants: everything but metadata and, where it is apart, status.
fn count_generation(kind: &Kind, old: &Value, new: &mut Value) {
    if !kind.generation {
        return;
    }
    let wanted = |object: &Value| {
        let mut fields = object.as_object().cloned().unwrap_or_default();
        fields.remove("metadata");
        if kind.status {
            fields.remove("status");
        }
        fields
    };
    if wanted(old) != wanted(new) {
        let generation = old["metadata"]["generation"].as_u64().unwrap_or_default() + 1;
        metadata(new).insert("generation".to_owned(), json!(generation));
    }
}
