//! The host as a device: every lane a fiber of the calling thread.
//!
//! For checking at small sizes, never for serving. Lanes run in an order shuffled by the launch's
//! seed and switch at barriers and shuffles; a shadow over shared memory finds missing barriers.
#![allow(unsafe_code)]

use std::ffi::c_void;

use crate::device::{Device, DeviceError, Findings, HostMemory, Launch};
use crate::manifest::{Kernel, LANES};

/// A kernel's host code: its lanes' function and the size of its arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) lanes: unsafe extern "C" fn(*const c_void),
    pub(crate) args_bytes: unsafe extern "C" fn() -> u32,
}

macro_rules! entry {
    ($name:ident) => {{
        #[allow(unsafe_code)]
        mod symbols {
            unsafe extern "C" {
                #[link_name = concat!("finback_emu_", stringify!($name))]
                pub(super) fn lanes(args: *const std::ffi::c_void);
                #[link_name = concat!("finback_emu_size_", stringify!($name))]
                pub(super) fn args_bytes() -> u32;
            }
        }
        crate::host::Entry { lanes: symbols::lanes, args_bytes: symbols::args_bytes }
    }};
}
pub(crate) use entry;

unsafe extern "C" {
    fn finback_emu_launch(
        lanes_of: unsafe extern "C" fn(*const c_void),
        args: *const c_void,
        groups_x: u32,
        groups_y: u32,
        lanes: u32,
        seed: u64,
        fault: u32,
        report: *mut Findings,
    ) -> i32;
}

/// The name of the host as a device.
pub const NAME: &str = "emu";

/// The host as a device.
#[derive(Debug, Default)]
pub struct Host {
    memory: Vec<Vec<Line>>,
    registered: Vec<Box<dyn HostMemory>>,
    findings: Findings,
}

/// The alignment that every device gives.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(256))]
struct Line([u8; 256]);

impl Host {
    /// A device with no memory in use.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether these bytes lie in memory that was allocated.
    fn check(&self, address: u64, bytes: usize) -> Result<(), DeviceError> {
        let inside = self.memory.iter().any(|memory| {
            let first = memory.as_ptr().addr() as u64;
            let end = first + size_of_val(memory.as_slice()) as u64;
            first <= address && address.saturating_add(bytes as u64) <= end
        });
        if !inside {
            let what = format!("{bytes} bytes at {address:#x} were not allocated");
            return Err(DeviceError::Failed { device: NAME, what });
        }
        Ok(())
    }
}

impl Device for Host {
    fn name(&self) -> &'static str {
        NAME
    }

    fn allocate(&mut self, bytes: usize) -> Result<u64, DeviceError> {
        let memory = vec![Line([0; 256]); bytes.div_ceil(256).max(1)];
        let address = memory.as_ptr().expose_provenance() as u64;
        self.memory.push(memory);
        Ok(address)
    }

    fn free_memory(&mut self) -> Result<Option<usize>, DeviceError> {
        Ok(None)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check(address, bytes.len())?;
        let to = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
        // SAFETY: the bytes lie in memory that this device owns, and no launch runs.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
        Ok(())
    }

    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        self.check(address, out.len())?;
        let from = std::ptr::with_exposed_provenance::<u8>(address as usize);
        // SAFETY: the bytes lie in memory that this device owns.
        unsafe { out.as_mut_ptr().copy_from_nonoverlapping(from, out.len()) }
        Ok(())
    }

    fn register(&mut self, memory: Box<dyn HostMemory>) -> Result<u64, DeviceError> {
        let address = memory.bytes().as_ptr().expose_provenance() as u64;
        self.registered.push(memory);
        Ok(address)
    }

    fn clear(&mut self) {
        self.memory.clear();
        self.registered.clear();
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), DeviceError> {
        launch.check(self)?;
        let Launch { kernel, args, grid, seed, fault } = *launch;
        // `check` has seen that there is one.
        let Some(entry) = kernel.host else { return Ok(()) };
        // SAFETY: the function only gives a size.
        let wanted = unsafe { (entry.args_bytes)() } as usize;
        if args.len() != wanted {
            return Err(DeviceError::Arguments { kernel: kernel.name, found: args.len(), wanted });
        }
        let mut aligned = vec![0u64; args.len().div_ceil(8)];
        for (word, chunk) in aligned.iter_mut().zip(args.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_ne_bytes(bytes);
        }
        let mut findings = Findings::default();
        // SAFETY: the arguments have the struct's size; their addresses are the caller's memory, of
        // the sizes that the kernel's arguments say. All state of a launch is this thread's own.
        let code = unsafe {
            finback_emu_launch(
                entry.lanes,
                aligned.as_ptr().cast(),
                grid[0],
                grid[1],
                LANES,
                seed,
                fault,
                &raw mut findings,
            )
        };
        match code {
            0 => {
                self.findings.add(findings);
                Ok(())
            }
            _ => {
                let what = format!("no memory for the stacks of {LANES} lanes");
                Err(DeviceError::Failed { device: NAME, what })
            }
        }
    }

    fn finish(&mut self) -> Result<Findings, DeviceError> {
        Ok(std::mem::take(&mut self.findings))
    }

    fn has(&self, kernel: &Kernel) -> bool {
        kernel.host.is_some()
    }

    fn sees_races(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{KERNELS, kernel};

    #[test]
    fn arguments_have_the_size_that_the_compiler_gives() {
        for (kernel, entry) in KERNELS.iter().filter_map(|kernel| Some((kernel, kernel.host?))) {
            // SAFETY: the function only gives a size.
            let bytes = unsafe { (entry.args_bytes)() };
            assert_eq!(bytes as usize, kernel.args_bytes, "{}", kernel.args);
        }
    }

    #[test]
    fn a_launch_with_other_arguments_is_refused() {
        let kernel = kernel("rmsnorm").unwrap();
        let launch = Launch::new(kernel, &[0; 8], [1, 1]);
        let error = Host::new().launch(&launch).unwrap_err().to_string();
        assert_eq!(error, "rmsnorm: found 8 bytes of arguments, wanted 40");
    }

    /// What the shadow finds where `mode` of `check.h` breaks a rule.
    fn shadow(mode: u32, seed: u64) -> Findings {
        static SHADOW: Kernel = Kernel {
            name: "shadow",
            args: "",
            args_bytes: 8,
            fields: &[],
            lanes: LANES,
            shared: 0,
            cuda_only: false,
            host: Some(entry!(shadow)),
        };
        let args = [mode.to_ne_bytes(), [0; 4]].concat();
        let mut host = Host::new();
        host.launch(&Launch { seed, ..Launch::new(&SHADOW, &args, [3, 1]) }).unwrap();
        let found = host.finish().unwrap();
        assert_eq!(host.finish().unwrap(), Findings::default());
        found
    }

    #[test]
    fn the_shadow_finds_every_breach_in_any_order_of_lanes_and_no_other() {
        for seed in 0..20 {
            assert_eq!(shadow(0, seed), Findings::default());
            let [read, write, unwritten, outside, diverged] =
                [1, 2, 3, 4, 5].map(|mode| shadow(mode, seed));
            // A pair of neighbours races whichever of them is first; a group has 128 pairs.
            for racy in [read, write] {
                assert!(racy.races >= 3 && racy.outside + racy.diverged == 0, "{racy:?}");
            }
            assert_eq!(unwritten, Findings { unwritten: 384, ..first_of(unwritten) });
            assert_eq!(outside, Findings { outside: 3, ..first_of(outside) });
            assert_eq!(diverged, Findings { diverged: 3, ..first_of(diverged) });
        }
        assert!(shadow(1, 0).text().unwrap().contains("races"));
        assert_eq!(shadow(0, 0).text(), None);
    }

    /// Where the first finding was, and no counts.
    fn first_of(findings: Findings) -> Findings {
        Findings { line: findings.line, lane: findings.lane, ..Findings::default() }
    }

    #[test]
    fn memory_is_zero_aligned_and_none_other_is_touched() {
        let mut host = Host::new();
        let address = host.allocate(300).unwrap();
        let mut out = [1; 3];
        host.read(address + 297, &mut out).unwrap();
        assert_eq!((out, address % 256), ([0; 3], 0));
        host.write(address + 256, &[1, 2, 3]).unwrap();
        host.read(address + 256, &mut out).unwrap();
        assert_eq!(out, [1, 2, 3]);
        for outside in [address - 1, address + 510, u64::MAX] {
            assert!(host.write(outside, &[0; 3]).is_err() && host.read(outside, &mut out).is_err());
        }
        host.clear();
        assert!(host.read(address, &mut out).is_err());
    }
}
