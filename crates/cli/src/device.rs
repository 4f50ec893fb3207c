//! The devices that run kernels, by the names that settings give them.

use finback_kernels::device::{Device, DeviceError, emu};

use crate::settings::UsageError;

/// The device of this name.
///
/// # Errors
/// One that this build has not, or that this machine cannot be; a failed start.
pub fn open(name: &str) -> anyhow::Result<Box<dyn Device>> {
    let opened = match name {
        "emu" => emu(),
        "cuda" => Err(DeviceError::Missing {
            device: "cuda",
            reason: "this build has no CUDA backend yet; it has emu".into(),
        }),
        _ => Err(DeviceError::Missing {
            device: "metal",
            reason: "this build has no Metal backend yet; it has emu".into(),
        }),
    };
    opened.map_err(|error| match error {
        DeviceError::Missing { .. } => UsageError(format!("--device {error}")).into(),
        error => error.into(),
    })
}
