//! What this server can do, in the words of `velero plugin get`.

use plimsoll_api::velero::v1::PluginInfo;

/// The object stores that are built in.
const OBJECT_STORES: [&str; 4] = ["plimsoll.dev/directory", "velero.io/aws", "velero.io/azure", "velero.io/gcp"];

/// Everything that is built in, sorted by kind and name.
pub fn installed() -> Vec<PluginInfo> {
    let stores = OBJECT_STORES.iter().map(|name| ((*name).to_owned(), "ObjectStore"));
    let mut all: Vec<_> = stores.collect();
    all.sort_by(|(name, kind), (other, other_kind)| (kind, name).cmp(&(other_kind, other)));
    all.into_iter()
        .map(|(name, kind)| PluginInfo { name: Some(name), kind: Some(kind.to_owned()), ..PluginInfo::default() })
        .collect()
}
