//! What can go wrong at the device boundary.

use finback_checkpoint::Tensor;
use finback_numerics::fp8::E8M0_NAN;

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

impl OpsError {
    /// The refusal of a scale that is the NaN byte, at a place such as `row 7`.
    pub fn nan_scale(scale: &Tensor, place: &str) -> Self {
        scale.refuse(format!("the NaN byte 255 in {place}"), "E8M0 scales from 0 to 254").into()
    }

    /// Refuses a matrix of scales that holds the NaN byte.
    ///
    /// # Errors
    /// It does.
    pub fn refuse_nan_scales(scale: &Tensor) -> Result<(), Self> {
        match scale.bytes().iter().position(|&byte| byte == E8M0_NAN) {
            None => Ok(()),
            Some(at) => {
                let columns = scale.shape().last().copied().unwrap_or(1).max(1);
                let place = format!("block [{}, {}]", at / columns, at % columns);
                Err(Self::nan_scale(scale, &place))
            }
        }
    }
}
