//! Commands that run in containers around a backup or after a restore.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use crate::go::GoDuration;
use crate::macros::{open_enum, wire_struct};

wire_struct! {
    /// Hooks of a backup.
    pub struct BackupHooks {
        /// Hooks for the objects they select.
        pub resources: Vec<BackupResourceHookSpec>,
    }

    /// Which objects a backup's hooks are for, and the hooks.
    pub struct BackupResourceHookSpec {
        /// Name of the hook.
        pub name: Option<String>,
        /// Namespaces it applies to; empty is all of them.
        pub included_namespaces: Vec<String>,
        /// Namespaces it does not apply to.
        pub excluded_namespaces: Vec<String>,
        /// Resource types it applies to; empty is all of them.
        pub included_resources: Vec<String>,
        /// Resource types it does not apply to.
        pub excluded_resources: Vec<String>,
        /// Only objects with these labels.
        pub label_selector: Option<LabelSelector>,
        /// Run before the object is stored.
        pub pre: Vec<BackupResourceHook>,
        /// Run after the object is stored.
        pub post: Vec<BackupResourceHook>,
    }

    /// One hook of a backup.
    pub struct BackupResourceHook {
        /// A command in a container.
        pub exec: Option<ExecHook>,
    }

    /// A command to run in a container during a backup.
    pub struct ExecHook {
        /// Container to run it in; unset is the pod's first.
        pub container: Option<String>,
        /// The command and its arguments.
        #[schemars(length(min = 1))]
        pub command: Vec<String>,
        /// What a failure means for the item.
        pub on_error: Option<HookErrorMode>,
        /// How long the command may take.
        pub timeout: Option<GoDuration>,
    }

    /// Hooks of a restore.
    pub struct RestoreHooks {
        /// Hooks for the objects they select.
        pub resources: Vec<RestoreResourceHookSpec>,
    }

    /// Which objects a restore's hooks are for, and the hooks.
    pub struct RestoreResourceHookSpec {
        /// Name of the hook.
        pub name: Option<String>,
        /// Namespaces it applies to; empty is all of them.
        pub included_namespaces: Vec<String>,
        /// Namespaces it does not apply to.
        pub excluded_namespaces: Vec<String>,
        /// Resource types it applies to; empty is all of them.
        pub included_resources: Vec<String>,
        /// Resource types it does not apply to.
        pub excluded_resources: Vec<String>,
        /// Only objects with these labels.
        pub label_selector: Option<LabelSelector>,
        /// Run during and after the restore of the object.
        pub post_hooks: Vec<RestoreResourceHook>,
    }

    /// One hook of a restore.
    pub struct RestoreResourceHook {
        /// A command in a container.
        pub exec: Option<ExecRestoreHook>,
        /// Containers to run before the pod's own.
        pub init: Option<InitRestoreHook>,
    }

    /// A command to run in a container after a restore.
    pub struct ExecRestoreHook {
        /// Container to run it in; unset is the pod's first.
        pub container: Option<String>,
        /// The command and its arguments.
        #[schemars(length(min = 1))]
        pub command: Vec<String>,
        /// What a failure means for the item.
        pub on_error: Option<HookErrorMode>,
        /// How long the command may take.
        pub exec_timeout: Option<GoDuration>,
        /// How long to wait for the container.
        pub wait_timeout: Option<GoDuration>,
        /// Whether the container must be ready rather than running.
        pub wait_for_ready: Option<bool>,
    }

    /// Init containers a restore adds to a pod.
    pub struct InitRestoreHook {
        /// The containers, as a pod's spec has them.
        #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
        pub init_containers: Vec<Value>,
        /// How long to wait for them.
        pub timeout: Option<GoDuration>,
    }
}

open_enum! {
    /// What a hook's failure means.
    pub enum HookErrorMode {
        Continue = "Continue",
        Fail = "Fail",
    }
}
