//! What a device gives: memory by address, and launches in order.

use crate::manifest::Kernel;
use crate::meeting::Seat;
use crate::tape::{Tape, Work};

/// A machine that runs kernels. Addresses are the device's own; launches, writes and reads happen in
/// the order they are asked for.
pub trait Device: Send {
    /// Its name, as a user types it.
    fn name(&self) -> &'static str;

    /// Names what the bits of results depend on: states kept under one key are used under it alone.
    fn key(&self) -> String {
        self.name().into()
    }

    /// New memory at an address that is a multiple of 256, all zero.
    ///
    /// # Errors
    /// Too little memory, or the device's own failure.
    fn allocate(&mut self, bytes: usize) -> Result<u64, DeviceError>;

    /// Free memory in bytes; `None` where it has no bound of its own.
    ///
    /// # Errors
    /// The device's own failure.
    fn free_memory(&mut self) -> Result<Option<usize>, DeviceError>;

    /// Makes memory of the host readable by launches at the address that comes back, and keeps it until
    /// [`Device::clear`] or the device's end. Its bytes lie where they lie as long as it lives.
    ///
    /// # Errors
    /// A device that cannot, or its own failure.
    fn register(&mut self, memory: Box<dyn HostMemory>) -> Result<u64, DeviceError> {
        drop(memory);
        let what = "it reads no memory of the host".into();
        Err(DeviceError::Failed { device: self.name(), what })
    }

    /// Frees all that was allocated, and lets go of what was registered.
    fn clear(&mut self);

    /// Copies `bytes` to an address, after every launch before. They may change on return.
    ///
    /// # Errors
    /// Memory that was not allocated, or the device's own failure.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Copies `bytes` to an address that no launch since the last [`Device::finish`] or [`Device::read`] uses: those may run
    /// meanwhile, later ones find the bytes. They may change on return.
    ///
    /// # Errors
    /// As [`Device::write`].
    fn write_beside(&mut self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.write(address, bytes)
    }

    /// Waits for every launch before and copies device memory to `out`.
    ///
    /// # Errors
    /// Memory that was not allocated, or the device's own failure.
    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), DeviceError>;

    /// Enqueues a kernel over a grid of groups.
    ///
    /// # Errors
    /// Arguments of another size, a kernel that this device has not, or the device's own failure.
    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), DeviceError>;

    /// Enqueues a whole list. A device may record it and replay it when the same list comes again. Without
    /// streams what is aside runs as late as it may, which shows what should have waited for it.
    ///
    /// # Errors
    /// As [`Device::launch`].
    fn launch_all(&mut self, tape: &Tape) -> Result<(), DeviceError> {
        let mut aside = Vec::new();
        for work in tape.works() {
            match work {
                Work::Launch(launch) if launch.place == Place::Aside => aside.push(launch),
                Work::Launch(launch) => {
                    if launch.place == Place::Joined {
                        aside.drain(..).try_for_each(|launch| self.launch(&launch))?;
                    }
                    self.launch(&launch)?;
                }
                Work::Gather(gather) => self.gather(&gather)?,
            }
        }
        aside.drain(..).try_for_each(|launch| self.launch(&launch))
    }

    /// Its place among the devices that share one model; `None` where it has the whole model.
    fn seat(&self) -> Option<Seat> {
        None
    }

    /// Enqueues a gather, to which every device of the model comes: each has the parts of all then, in
    /// order of rank.
    ///
    /// # Errors
    /// A device that does not come, memory that was not allocated, or the device's own failure.
    fn gather(&mut self, gather: &Gather) -> Result<(), DeviceError> {
        let what =
            format!("a gather of {} bytes, and no other device shares the model", gather.bytes);
        Err(DeviceError::Failed { device: self.name(), what })
    }

    /// Waits for every launch before; what the device noticed in them since the last call.
    ///
    /// # Errors
    /// The device's own failure.
    fn finish(&mut self) -> Result<Findings, DeviceError>;

    /// Whether it has this kernel: tiles are some devices' own.
    fn has(&self, kernel: &Kernel) -> bool;

    /// Groups that it runs at once, for launches that are made to fill it.
    fn width(&self) -> u32 {
        1
    }

    /// Whether it notices a missing barrier whatever the values are. Others leave that to a race
    /// checker beside them.
    fn sees_races(&self) -> bool {
        false
    }

    /// Whether a launch that touches memory past an allocation's end, rounded up to 256 bytes, fails.
    fn sees_outside(&self) -> bool {
        false
    }
}

/// Memory of the host that outlives its owner's moves, such as a mapped file's.
pub trait HostMemory: Send + std::fmt::Debug {
    /// Its bytes, at one address as long as it lives.
    fn bytes(&self) -> &[u8];

    /// What an error calls it.
    fn name(&self) -> String;
}

/// The host as a device with the dialect's kernels alone, by which models of any width run.
///
/// # Errors
/// A machine for which fibers are not written.
pub fn emu() -> Result<Box<dyn Device>, DeviceError> {
    #[cfg(host_build)]
    return Ok(Box::new(crate::host::Host::portable()));
    #[cfg(not(host_build))]
    Err(no_fibers())
}

/// The host as a device with every kernel: those of CUDA alone are emulated.
///
/// # Errors
/// As [`emu`].
pub fn emu_with_tiles() -> Result<Box<dyn Device>, DeviceError> {
    #[cfg(host_build)]
    return Ok(Box::new(crate::host::Host::new()));
    #[cfg(not(host_build))]
    Err(no_fibers())
}

#[cfg(not(host_build))]
fn no_fibers() -> DeviceError {
    DeviceError::Missing {
        device: "emu",
        reason: "is written for x86-64 and AArch64 under Unix, and this is another machine".into(),
    }
}

/// Where a launch of a list stands among those before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Place {
    /// Behind all that are not aside.
    #[default]
    Main,
    /// Behind all; those that follow wait for it from the next joined one on.
    Aside,
    /// Behind all.
    Joined,
}

/// A bit of a launch's fault with which a kernel ends where it first waits for the launches before it.
pub const STOPS: u32 = 1 << 31;

/// One launch.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The bytes of its arguments.
    pub args: &'a [u8],
    /// Groups in x and y.
    pub grid: [u32; 2],
    /// Orders the lanes where the device lets one choose.
    pub seed: u64,
    /// The planted fault, 0 for none; with [`STOPS`] on a device that sees races.
    pub fault: u32,
    /// Its place in a list; by itself a launch is behind all before it.
    pub place: Place,
}

impl<'a> Launch<'a> {
    /// A launch without a fault.
    pub fn new(kernel: &'static Kernel, args: &'a [u8], grid: [u32; 2]) -> Self {
        Self { kernel, args, grid, seed: 0, fault: 0, place: Place::Main }
    }

    /// Whether the arguments have the kernel's size and the device has the kernel.
    ///
    /// # Errors
    /// They have not, or it has not.
    pub fn check(&self, device: &dyn Device) -> Result<(), DeviceError> {
        let Self { kernel, args, .. } = self;
        if args.len() != kernel.args_bytes {
            let (kernel, wanted) = (kernel.name, kernel.args_bytes);
            return Err(DeviceError::Arguments { kernel, found: args.len(), wanted });
        }
        if !device.has(kernel) {
            return Err(DeviceError::NoKernel { device: device.name(), kernel: kernel.name });
        }
        Ok(())
    }
}

/// Parts of the same size from every device that shares a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gather {
    /// Address of this device's own part.
    pub from: u64,
    /// Where the parts of all go, one after another.
    pub to: u64,
    /// Bytes of a part.
    pub bytes: usize,
}

/// What a device noticed in launches; all zero where it does not look.
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
        (self.count() > 0).then(|| {
            format!(
                "{races} races, {unwritten} unwritten reads, {outside} accesses outside, {diverged} \
                 diverged barriers; the first in lane {lane} after the barrier in line {line}"
            )
        })
    }

    /// Adds those of a later launch; the first finding of all stays the first.
    pub fn add(&mut self, later: Self) {
        if self.count() == 0 {
            (self.line, self.lane) = (later.line, later.lane);
        }
        let sums = [
            (&mut self.races, later.races),
            (&mut self.unwritten, later.unwritten),
            (&mut self.outside, later.outside),
            (&mut self.diverged, later.diverged),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
    }

    fn count(&self) -> u64 {
        [self.races, self.unwritten, self.outside, self.diverged].into_iter().map(u64::from).sum()
    }
}

/// Why a device did not run something.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// There is no such device here.
    #[error("{device}: {reason}")]
    Missing {
        /// Its name.
        device: &'static str,
        /// Why not.
        reason: String,
    },
    /// The device has not this kernel.
    #[error("{kernel}: the {device} device has no such kernel")]
    NoKernel {
        /// The device.
        device: &'static str,
        /// The kernel.
        kernel: &'static str,
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
    /// Too little memory.
    #[error("{device}: {wanted} bytes of memory are wanted and {free} are free")]
    Memory {
        /// The device.
        device: &'static str,
        /// Bytes asked for.
        wanted: usize,
        /// Bytes there are.
        free: usize,
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
    use super::*;

    #[test]
    fn findings_add_up_and_keep_the_first() {
        let mut sum = Findings::default();
        sum.add(Findings { races: 2, line: 7, lane: 3, ..Findings::default() });
        sum.add(Findings { outside: u32::MAX, line: 9, lane: 4, ..Findings::default() });
        sum.add(Findings { outside: 1, line: 9, lane: 4, ..Findings::default() });
        let wanted = Findings { races: 2, outside: u32::MAX, line: 7, lane: 3, ..sum };
        assert_eq!((sum, sum.unwritten), (wanted, 0));
    }
}
