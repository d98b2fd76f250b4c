//! ConfigMaps and Secrets that a pod refers to.

use super::unavailable::Unavailable;
use crate::{Core, object::text};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;
use std::collections::BTreeMap;

/// The data of a ConfigMap or Secret, by key.
pub(super) type ConfigData = BTreeMap<String, Vec<u8>>;

/// A ConfigMap or a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfigSource {
    ConfigMap,
    Secret,
}

impl ConfigSource {
    /// The kind, as in messages of the kubelet.
    pub fn kind(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }

    fn resource(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
        }
    }

    /// Its data; `None` if it is optional and absent.
    pub fn read(
        self,
        core: &Core,
        pod: &Value,
        name: &str,
        is_optional: bool,
    ) -> Result<Option<ConfigData>, Unavailable> {
        match core.read_object(self.resource(), text(pod, "/metadata/namespace"), name)? {
            Some(object) => Ok(Some(self.config_data(&object))),
            None if is_optional => Ok(None),
            None => Err(Unavailable::Missing(format!("{} \"{name}\" not found", self.kind().to_lowercase()))),
        }
    }

    fn config_data(self, object: &Value) -> ConfigData {
        let encoded = if self == Self::Secret { "data" } else { "binaryData" };
        let decode = |field: &str, value: &Value| {
            let value = value.as_str().unwrap_or_default();
            if field == encoded { BASE64_STANDARD.decode(value).unwrap_or_default() } else { value.as_bytes().to_vec() }
        };
        let fields = ["data", "binaryData"].into_iter().flat_map(|field| {
            object[field].as_object().into_iter().flatten().map(move |(key, value)| (field, key, value))
        });
        fields.map(|(field, key, value)| (key.clone(), decode(field, value))).collect()
    }
}
