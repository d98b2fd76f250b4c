//! Why a container does not get a file or a variable.

use crate::failure::Failure;

/// What stands between a container and something that its pod refers to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unavailable {
    /// It does not exist yet. The node asks again.
    Missing(String),
    /// The node does not know how to provide it.
    Unsupported(String),
}

impl From<Failure> for Unavailable {
    fn from(failure: Failure) -> Self {
        Self::Missing(failure.message)
    }
}

impl Unavailable {
    /// The refusal of a container whose variable this is about. The reasons are the kubelet's.
    pub fn for_variable(self, name: &str) -> Failure {
        match self {
            Self::Missing(message) => Failure::new(400, "CreateContainerConfigError", message),
            Self::Unsupported(message) => unsupported(format!("variable {name}: {message}")),
        }
    }

    /// The refusal of a pod whose volume this is about.
    pub fn for_volume(self, name: &str) -> Failure {
        match self {
            Self::Missing(message) => {
                let message = format!("MountVolume.SetUp failed for volume \"{name}\" : {message}");
                Failure::new(400, "ContainerCreating", message)
            }
            Self::Unsupported(message) => unsupported(format!("volume {name}: {message}")),
        }
    }
}

/// A container that the node cannot run as it is.
pub(super) fn unsupported(message: impl Into<String>) -> Failure {
    Failure::new(400, "CreateContainerError", message)
}
