//! The object an operation is about.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use plimsoll_engine::cluster::collection_path;

/// The object an operation is about.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its `kind`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The verb of its operations.
    pub verb: &'static str,
}

impl Subject {
    /// The name of its Operation: `backup-x`. Names too long for another object's name are cut and made unique.
    pub fn operation_name(&self) -> String {
        operation_name(self.verb, &self.name)
    }

    /// The path of its custom resource.
    pub fn path(&self) -> String {
        let plural = self.kind.to_lowercase() + "s";
        format!("{}/{}", collection_path(&self.api_version, &plural, Some(&self.namespace)), self.name)
    }

    /// The subject as Events name it.
    pub fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.api_version.clone()),
            kind: Some(self.kind.clone()),
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }

    /// The subject as the owner of what belongs to it.
    pub fn owner(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: Some(true),
            block_owner_deletion: None,
        }
    }
}

/// The name of the Operation that does `verb` with `subject`.
pub fn operation_name(verb: &str, subject: &str) -> String {
    const MAX_LENGTH: usize = 240;
    let name = format!("{verb}-{subject}");
    if name.len() <= MAX_LENGTH {
        return name;
    }
    let hash = plimsoll_api::labels::valid_name(&name);
    let hash = &hash[hash.len() - 6..];
    format!("{}-{hash}", name[..MAX_LENGTH - 7].trim_end_matches(['-', '.']))
}
