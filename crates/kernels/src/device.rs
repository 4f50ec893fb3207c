//! What the contract needs of a device: memory by address, and launches.

use crate::manifest::Kernel;

/// A machine that runs kernels.
pub trait Device {
    /// Its name, as a user types it.
    fn name(&self) -> &'static str;

    /// Copies bytes to new memory at an address that is a multiple of 256.
    ///
    /// # Errors
    /// Too little memory, or the device's own failure.
    fn upload(&mut self, bytes: &[u8]) -> Result<u64, DeviceError>;

    /// Copies device memory to `out`.
    ///
    /// # Errors
    /// The device's own failure.
    fn download(&mut self, address: u64, out: &mut [u8]) -> Result<(), DeviceError>;

    /// Frees all that was uploaded.
    fn clear(&mut self);

    /// Runs a kernel over a grid of groups and waits for it.
    ///
    /// # Errors
    /// Arguments of another size, or the device's own failure.
    fn run(&mut self, launch: &Launch<'_>) -> Result<Findings, DeviceError>;
}

/// The device of this name.
///
/// # Errors
/// One that this build has not, or that this machine cannot be.
pub fn open(name: &str) -> Result<Box<dyn Device>, DeviceError> {
    let reason = match name {
        #[cfg(host_build)]
        crate::host::NAME => return Ok(Box::new(crate::host::Host::new())),
        #[cfg(not(host_build))]
        "emu" => "is written for x86-64 and AArch64 under Unix, and this is another machine",
        "cuda" => "this build has no CUDA backend yet; it has emu",
        "metal" => "this build has no Metal backend yet; it has emu",
        _ => "no such device; it has emu",
    };
    Err(DeviceError::Missing { device: name.into(), reason })
}

/// One launch.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// The bytes of its arguments.
    pub args: &'a [u8],
    /// Groups in x and y.
    pub grid: [u32; 2],
    /// Orders the lanes where the device lets one choose.
    pub seed: u64,
    /// The planted fault, 0 for none.
    pub fault: u32,
}

/// What a device noticed in a launch; all zero where it does not look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Findings {
    /// Accesses of a shared word that another lane wrote or read since the last barrier.
    pub races: u32,
    /// Reads of a shared word that the group had not written.
    pub unwritten: u32,
    /// Shared indices past the end, and loads off their alignment.
    pub outside: u32,
    /// Barriers that not every lane reached.
    pub diverged: u32,
    /// Line of the last barrier before the first finding.
    pub line: u32,
    /// Lane of the first finding.
    pub lane: u32,
}

impl Findings {
    /// The findings as a line, `None` where there are none.
    pub fn text(&self) -> Option<String> {
        let Self { races, unwritten, outside, diverged, line, lane } = self;
        (races + unwritten + outside + diverged > 0).then(|| {
            format!(
                "{races} races, {unwritten} unwritten reads, {outside} accesses outside, {diverged} \
                 diverged barriers; the first in lane {lane} after the barrier in line {line}"
            )
        })
    }
}

/// Why a device did not run something.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// There is no such device here.
    #[error("{device}: {reason}")]
    Missing {
        /// Its name.
        device: String,
        /// Why not.
        reason: &'static str,
    },
    /// The arguments are not the kernel's.
    #[error("{kernel}: found {found} bytes of arguments, wanted {wanted}")]
    Arguments {
        /// The kernel.
        kernel: &'static str,
        /// Bytes given.
        found: usize,
        /// Bytes of its struct.
        wanted: usize,
    },
    /// The device failed.
    #[error("{device}: {what}")]
    Failed {
        /// The device.
        device: &'static str,
        /// What happened.
        what: String,
    },
}

#[cfg(test)]
mod tests {
    use super::open;

    #[test]
    fn devices_that_are_not_there_are_refused_by_name() {
        for name in ["cuda", "metal", "gpu"] {
            let message = open(name).err().unwrap().to_string();
            assert!(message.starts_with(name) && message.ends_with("it has emu"), "{message}");
        }
    }
}
