//! The devices that run kernels, by the names that settings give them.

use finback_cuda::{Cuda, Options};
use finback_kernels::device::{Device, DeviceError, emu, emu_with_tiles};
use finback_kernels::seated::emu_group;

use crate::demo;
use crate::settings::contract::NO_FAULTS;
use crate::settings::table::{CACHE_DIR, GPU_ATTENTION, GPUS};
use crate::settings::{UsageError, Values};

/// The device that `flag` names.
///
/// # Errors
/// One that this build has not, or that this machine cannot be; a failed start.
pub fn open(values: &Values, flag: &str, name: &str) -> anyhow::Result<Box<dyn Device>> {
    match name {
        "emu" => {
            // There they cost time and gain none.
            let device = if tensor_attention(values, false) { emu_with_tiles() } else { emu() };
            device.map_err(|error| refused(flag, error))
        }
        "cuda" => Ok(Box::new(cuda(values, flag)?)),
        _ => {
            let reason = "this build has no Metal backend yet; it has emu and cuda".into();
            Err(refused(flag, DeviceError::Missing { device: "metal", reason }))
        }
    }
}

/// So many devices of that name, which share a model where there are several.
///
/// # Errors
/// As [`open`]; too few of them, or nothing that they gather by.
pub fn open_all(
    values: &Values,
    flag: &str,
    name: &str,
    count: usize,
) -> anyhow::Result<Vec<Box<dyn Device>>> {
    match (name, count) {
        ("cuda", 2..) => {
            let flag = format!("--gpus {count} with {flag}");
            let all = finback_cuda::open_all(&cuda_options(values)?, count);
            let all = all.map_err(|error| refused(&flag, error))?;
            Ok(all.into_iter().map(|device| Box::new(device) as Box<dyn Device>).collect())
        }
        ("emu", 2..) => Ok(emu_group(count)?),
        _ => Ok(vec![open(values, flag, name)?]),
    }
}

/// The NVIDIA GPU of this machine, its compiled kernels kept in the cache directory.
///
/// # Errors
/// There is none, or it does not start.
pub fn cuda(values: &Values, flag: &str) -> anyhow::Result<Cuda> {
    finback_cuda::open(&cuda_options(values)?).map_err(|error| refused(flag, error))
}

fn cuda_options(values: &Values) -> anyhow::Result<Options> {
    let kernels = demo::cache(values.get(&CACHE_DIR).as_deref())?.join("kernels");
    // They take one GPU. Commands that take no number of them use one.
    let tensor_attention = tensor_attention(values, values.get(&GPUS) <= 1);
    let every_lane_signals = values.get(&NO_FAULTS);
    Ok(Options { kernels: Some(kernels), tensor_attention, every_lane_signals })
}

/// Whether kernels on tensor cores may be taken; `auto` is what that word comes to. The contract, which takes
/// no such setting, runs every kernel.
fn tensor_attention(values: &Values, auto: bool) -> bool {
    match values.get(&GPU_ATTENTION).as_str() {
        "auto" => auto,
        word => word != "portable",
    }
}

/// A device that is not there is a mistake in what was asked for; any other failure is its own.
fn refused(flag: &str, error: DeviceError) -> anyhow::Error {
    match error {
        DeviceError::Missing { .. } => UsageError(format!("{flag} {error}")).into(),
        error => error.into(),
    }
}
