//! CUDA as a device of kernels: memory, code compiled at load, launches and recorded lists.
//!
//! - [`Cuda`] is the device. Its code comes from the text in `finback-kernels`, compiled by NVRTC for
//!   the device that is there and kept in a directory.
//! - NVIDIA's own matrix product is used as a measure alone.
//! - Several GPUs that share a model gather through NCCL.
//! - Its libraries are opened at run time: this builds, and says why there is no device,
//!   on any machine.

mod blas;
mod cache;
mod device;
mod driver;
mod graphs;
mod nccl;
mod nvrtc;
mod registered;

pub use device::{Cuda, Options, about, count, gathers, open, open_all, takes};
pub use driver::About;

/// The name of the device, as a user types it.
pub const NAME: &str = "cuda";
