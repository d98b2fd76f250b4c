//! `Profile`: where blueprints keep data. Its fields sit at the top level of the object.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ObjectReference;
use crate::macros::wire_struct;
use crate::wire::{self, Extra};

/// A location for data and its credentials.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cr.kanister.io",
    version = "v1alpha1",
    kind = "Profile",
    plural = "profiles",
    namespaced,
    no_spec,
    doc = "A location where blueprints store data, and its credentials.",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
pub struct ProfileFields {
    /// The location.
    #[serde(deserialize_with = "wire::null_as_default", skip_serializing_if = "wire::is_absent")]
    pub location: Option<Location>,
    /// Its credentials.
    #[serde(deserialize_with = "wire::null_as_default", skip_serializing_if = "wire::is_absent")]
    pub credential: Option<Credential>,
    /// Whether certificates are not verified.
    #[serde(
        rename = "skipSSLVerify",
        deserialize_with = "wire::null_as_default",
        skip_serializing_if = "wire::is_absent"
    )]
    pub skip_ssl_verify: Option<bool>,
    /// Unknown fields, written back unchanged.
    #[serde(flatten, deserialize_with = "wire::unknown_top_level_fields")]
    pub extra: Extra,
}

wire_struct! {
    /// A location for data.
    pub struct Location {
        /// Kind of store: `s3Compliant`, `gcs`, `azure` or `kopia`.
        #[serde(rename = "type")]
        pub type_: Option<String>,
        /// Name of the bucket.
        pub bucket: Option<String>,
        /// Address of the store.
        pub endpoint: Option<String>,
        /// Path inside the bucket.
        pub prefix: Option<String>,
        /// Region of the store.
        pub region: Option<String>,
    }

    /// References to credentials.
    pub struct Credential {
        /// Which of the following: `keyPair`, `secret` or `kopia`.
        #[serde(rename = "type")]
        pub type_: Option<String>,
        /// A name and a key.
        pub key_pair: Option<KeyPair>,
        /// A secret of a type that Kanister supports.
        pub secret: Option<ObjectReference>,
        /// A Kopia server.
        pub kopia_server_secret: Option<KopiaServerSecret>,
    }

    /// A name and a key in a secret.
    pub struct KeyPair {
        /// Field of the secret that holds the name.
        pub id_field: Option<String>,
        /// Field of the secret that holds the key.
        pub secret_field: Option<String>,
        /// The secret.
        pub secret: Option<ObjectReference>,
    }

    /// Credentials of a Kopia server.
    pub struct KopiaServerSecret {
        /// User.
        pub username: Option<String>,
        /// Host the user is on.
        pub hostname: Option<String>,
        /// The user's password.
        pub user_passphrase: Option<KopiaServerSecretKey>,
        /// The server's certificate.
        pub tls_cert: Option<KopiaServerSecretKey>,
        /// Options of the connection.
        pub connect_options: BTreeMap<String, i64>,
    }

    /// One field of a secret.
    pub struct KopiaServerSecretKey {
        /// The field.
        pub key: Option<String>,
        /// The secret.
        pub secret: Option<ObjectReference>,
    }
}
