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
