//! What the commands need to know of each kind.

use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use plimsoll_api::kanister::v1alpha1::ActionSet;
use plimsoll_api::plimsoll::v1alpha1::Operation;
use plimsoll_api::velero::v1::{Backup, BackupStorageLocation, Restore, Schedule};

use crate::args::names::ResourceKind;

impl ResourceKind {
    /// The resource behind it.
    pub fn resource(self) -> ApiResource {
        match self {
            Self::Backup => ApiResource::erase::<Backup>(&()),
            Self::Restore => ApiResource::erase::<Restore>(&()),
            Self::Schedule => ApiResource::erase::<Schedule>(&()),
            Self::Location => ApiResource::erase::<BackupStorageLocation>(&()),
            Self::Operation => ApiResource::erase::<Operation>(&()),
            Self::Action => ApiResource::erase::<ActionSet>(&()),
        }
    }

    /// Access to its objects.
    pub fn api(self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), namespace, &self.resource())
    }

    /// Whether it is carried out: it has a phase, items, an Operation and a log.
    pub fn is_operation(self) -> bool {
        matches!(self, Self::Backup | Self::Restore | Self::Action)
    }

    /// Which of its counters is the good one.
    pub fn done_field(self) -> &'static str {
        if self == Self::Restore { "itemsRestored" } else { "itemsBackedUp" }
    }

    /// The participle for its items that are done.
    pub fn done_word(self) -> &'static str {
        if self == Self::Restore { "restored" } else { "backed up" }
    }
}
