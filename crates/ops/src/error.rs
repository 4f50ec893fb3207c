//! What can go wrong at the device boundary.

/// A device error; the step it happened in has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpsError {
    /// The device, or a thread of it, failed.
    #[error("the {backend} backend failed in {step}: {reason}")]
    Failed {
        /// The backend's name.
        backend: &'static str,
        /// The step that failed.
        step: &'static str,
        /// What it said.
        reason: String,
    },
    /// A step the backend cannot run with these sizes.
    #[error("the {backend} backend cannot run {step}: {reason}")]
    Unsupported {
        /// The backend's name.
        backend: &'static str,
        /// The step asked for.
        step: &'static str,
        /// The size or kind it cannot run, and what it can.
        reason: String,
    },
    /// Bytes of a weight that no model can have, met where they were first read.
    #[error(transparent)]
    Weights(#[from] finback_checkpoint::Error),
}
