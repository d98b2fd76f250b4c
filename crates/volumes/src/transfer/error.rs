//! Why a transfer could not be done.

use plimsoll_engine::Error;
use plimsoll_mover::MoverError;

/// Why a transfer could not be done. Each has a stable reason, which stands in the message of the custom resource.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// It was cancelled, or ended elsewhere.
    #[error("cancelled")]
    Cancelled,
    /// The pod is gone, or is another one by now.
    #[error("pod {pod} is gone")]
    PodGone {
        /// `namespace/name`.
        pod: String,
    },
    /// The volume cannot be found on this node.
    #[error("volume {volume} of pod {pod}: {cause}")]
    Volume {
        /// The volume's name in the pod.
        volume: String,
        /// `namespace/name`.
        pod: String,
        /// What is wrong.
        cause: String,
    },
    /// Its directory is there, but nothing is mounted on it.
    #[error("volume {volume} of pod {pod} is not mounted on its node")]
    NotMounted {
        /// The volume's name in the pod.
        volume: String,
        /// `namespace/name`.
        pod: String,
    },
    /// The file system of the volume does not answer.
    #[error("the file system of the volume does not answer: {cause}")]
    VolumeBlocked {
        /// What is known.
        cause: String,
    },
    /// The pod's own containers have started, or will never.
    #[error(
        "pod {pod} no longer waits for its data, so nothing is written into its volumes: delete it and restore it again"
    )]
    NotWaiting {
        /// `namespace/name`.
        pod: String,
    },
    /// The transfer's own fields cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// The agent could not signal the pod that it may start.
    #[error("failed to signal pod {pod} that the data of volume {volume} is restored: {cause}")]
    Handshake {
        /// The volume's name in the pod.
        volume: String,
        /// `namespace/name`.
        pod: String,
        /// The error of the system.
        cause: String,
    },
    /// It failed too often.
    #[error("failed after {attempts} attempts")]
    RetriesExhausted {
        /// Number of attempts.
        attempts: u32,
    },
    /// The API server.
    #[error(transparent)]
    Api(#[from] Error),
    /// The mover.
    #[error(transparent)]
    Mover(#[from] MoverError),
}

impl TransferError {
    /// A stable word for messages, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Cancelled => "Cancelled",
            Self::PodGone { .. } => "PodGone",
            Self::Volume { .. } => "VolumeNotFound",
            Self::NotMounted { .. } => "VolumeNotMounted",
            Self::VolumeBlocked { .. } => "VolumeBlocked",
            Self::NotWaiting { .. } => "PodNotWaiting",
            Self::Invalid(_) => "InvalidTransfer",
            Self::Handshake { .. } => "HandshakeFailed",
            Self::RetriesExhausted { .. } => "RetriesExhausted",
            Self::Api(error) => error.reason(),
            Self::Mover(error) => error.reason(),
        }
    }

    /// Whether the same work may succeed a little later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Api(error) => error.is_retryable(),
            Self::Mover(error) => error.is_retryable(),
            Self::VolumeBlocked { .. } => true,
            _ => false,
        }
    }

    /// Whether another process holds a lock of the repository: that ends by itself, or with its holder.
    pub fn is_locked_out(&self) -> bool {
        matches!(self, Self::Mover(MoverError::Locked { .. }))
    }

    /// The message in the custom resource.
    pub fn message(&self) -> String {
        format!("{}: {self}", self.reason())
    }
}
