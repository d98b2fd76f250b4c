//! Errors of files and variables that a container refers to.

use crate::status_error::StatusError;

/// Something that a pod refers to cannot be provided.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unavailable {
    /// It does not exist yet. The node retries.
    Missing(String),
    /// The node does not support it.
    Unsupported(String),
}

impl From<StatusError> for Unavailable {
    fn from(failure: StatusError) -> Self {
        Self::Missing(failure.message)
    }
}

impl Unavailable {
    /// The error of a container with this variable. The reasons are those of the kubelet.
    pub fn for_variable(self, name: &str) -> StatusError {
        match self {
            Self::Missing(message) => StatusError::new(400, "CreateContainerConfigError", message),
            Self::Unsupported(message) => unsupported(format!("variable {name}: {message}")),
        }
    }

    /// The error of a pod with this volume.
    pub fn for_volume(self, name: &str) -> StatusError {
        match self {
            Self::Missing(message) => {
                let message = format!("MountVolume.SetUp failed for volume \"{name}\" : {message}");
                StatusError::new(400, "ContainerCreating", message)
            }
            Self::Unsupported(message) => unsupported(format!("volume {name}: {message}")),
        }
    }
}

/// The error of a container that the node cannot run.
pub(super) fn unsupported(message: impl Into<String>) -> StatusError {
    StatusError::new(400, "CreateContainerError", message)
}
