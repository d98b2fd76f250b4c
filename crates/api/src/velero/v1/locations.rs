//! `BackupStorageLocation` and `VolumeSnapshotLocation`: where backups and snapshots are stored.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::SecretKeySelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;

use crate::go::GoDuration;
use crate::macros::{open_enum, wire_struct};

wire_struct! {
    /// A location in an object store, and how to reach it.
    #[derive(CustomResource)]
    #[kube(
        group = "velero.io", version = "v1", kind = "BackupStorageLocation", plural = "backupstoragelocations",
        shortname = "bsl", namespaced, status = "BackupStorageLocationStatus",
        doc = "A location in an object store where backups are stored.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct BackupStorageLocationSpec {
        /// Provider of the object store, such as `aws`.
        pub provider: Option<String>,
        /// Settings of the provider.
        pub config: BTreeMap<String, String>,
        /// Key of a secret with the provider's credentials.
        pub credential: Option<SecretKeySelector>,
        /// Bucket and prefix.
        pub object_storage: Option<ObjectStorageLocation>,
        /// Whether backups that name no location go here.
        pub default: Option<bool>,
        /// Whether backups may be written.
        pub access_mode: Option<AccessMode>,
        /// How often the bucket's backups are synced into the cluster; zero is never.
        pub backup_sync_period: Option<GoDuration>,
        /// How often the location is checked; zero is never.
        pub validation_frequency: Option<GoDuration>,
    }

    /// A bucket.
    pub struct ObjectStorageLocation {
        /// Name of the bucket.
        pub bucket: Option<String>,
        /// Path inside the bucket.
        pub prefix: Option<String>,
        /// Certificates to trust, in PEM; superseded by `caCertRef`.
        #[schemars(with = "String", extend("format" = "byte"))]
        pub ca_cert: Option<ByteString>,
        /// Key of a secret with the certificates to trust.
        pub ca_cert_ref: Option<SecretKeySelector>,
    }

    /// Whether a location can be used.
    pub struct BackupStorageLocationStatus {
        /// State of the location.
        pub phase: Option<LocationPhase>,
        /// When its backups were last synced.
        pub last_synced_time: Option<Time>,
        /// When it was last checked.
        pub last_validation_time: Option<Time>,
        /// What is wrong with it.
        pub message: Option<String>,
        /// No longer used.
        pub last_synced_revision: Option<String>,
        /// No longer used: see the spec.
        pub access_mode: Option<AccessMode>,
    }

    /// A provider of volume snapshots, and how to reach it.
    #[derive(CustomResource)]
    #[kube(
        group = "velero.io", version = "v1", kind = "VolumeSnapshotLocation", plural = "volumesnapshotlocations",
        shortname = "vsl", namespaced, status = "VolumeSnapshotLocationStatus",
        doc = "A location where a provider stores volume snapshots.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct VolumeSnapshotLocationSpec {
        /// Provider of the snapshots.
        pub provider: Option<String>,
        /// Settings of the provider.
        pub config: BTreeMap<String, String>,
        /// Key of a secret with the provider's credentials.
        pub credential: Option<SecretKeySelector>,
    }

    /// Whether a snapshot location can be used.
    pub struct VolumeSnapshotLocationStatus {
        /// State of the location.
        pub phase: Option<LocationPhase>,
    }
}

open_enum! {
    /// Whether a location can be used.
    pub enum LocationPhase {
        Available = "Available",
        Unavailable = "Unavailable",
    }

    /// What may be done in a location.
    pub enum AccessMode {
        ReadWrite = "ReadWrite",
        ReadOnly = "ReadOnly",
    }
}
