//! `Profile`: where blueprints keep data. Its fields sit at the top level of the object.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ObjectReference;
use crate::macros::wire_struct;
use crate::wire::{self, Extra};

/// A place for data and how to reach it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cr.kanister.io",
    version = "v1alpha1",
    kind = "Profile",
    plural = "profiles",
    namespaced,
    no_spec,
    doc = "A place where blueprints keep data, and the credentials for it.",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
pub struct ProfileFields {
    /// The place.
    #[serde(deserialize_with = "wire::null_as_default", skip_serializing_if = "wire::is_absent")]
    pub location: Option<Location>,
    /// Where its credentials are.
    #[serde(deserialize_with = "wire::null_as_default", skip_serializing_if = "wire::is_absent")]
    pub credential: Option<Credential>,
    /// Whether certificates are not checked.
    #[serde(
        rename = "skipSSLVerify",
        deserialize_with = "wire::null_as_default",
        skip_serializing_if = "wire::is_absent"
    )]
    pub skip_ssl_verify: Option<bool>,
    /// What was there and is not declared above; written back as it was.
    #[serde(flatten, deserialize_with = "wire::undeclared_at_top")]
    pub extra: Extra,
}

wire_struct! {
    /// A place for data.
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

    /// Where credentials are.
    pub struct Credential {
        /// Which of the following: `keyPair`, `secret` or `kopia`.
        #[serde(rename = "type")]
        pub type_: Option<String>,
        /// A name and a key.
        pub key_pair: Option<KeyPair>,
        /// A secret of a type Kanister knows.
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

    /// How to log in to a Kopia server.
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
