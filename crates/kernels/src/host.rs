//! The host as a device: every lane a fiber of the calling thread.
//!
//! For checking at small sizes, never for serving. Lanes run in an order shuffled by the launch's
//! seed and switch at barriers and shuffles; a shadow over shared memory finds missing barriers.
#![allow(unsafe_code)]

use std::ffi::c_void;

use crate::device::{Device, DeviceError, Findings, Launch};
use crate::manifest::LANES;

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
}

impl Device for Host {
    fn name(&self) -> &'static str {
        NAME
    }

    fn upload(&mut self, bytes: &[u8]) -> Result<u64, DeviceError> {
        let lines = bytes.chunks(256).map(|chunk| {
            let mut line = Line([0; 256]);
            line.0[..chunk.len()].copy_from_slice(chunk);
            line
        });
        let memory: Vec<Line> = lines.collect();
        let address = memory.as_ptr().expose_provenance() as u64;
        self.memory.push(memory);
        Ok(address)
    }

    fn download(&mut self, address: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        let inside = self.memory.iter().any(|memory| {
            let first = memory.as_ptr().addr() as u64;
            let end = first + size_of_val(memory.as_slice()) as u64;
            first <= address && address + out.len() as u64 <= end
        });
        if !inside {
            let what = format!("{} bytes at {address:#x} were not uploaded", out.len());
            return Err(DeviceError::Failed { device: NAME, what });
        }
        let from = std::ptr::with_exposed_provenance::<u8>(address as usize);
        // SAFETY: the bytes lie in memory that this device owns.
        unsafe { out.as_mut_ptr().copy_from_nonoverlapping(from, out.len()) }
        Ok(())
    }

    fn clear(&mut self) {
        self.memory.clear();
    }

    fn run(&mut self, launch: &Launch<'_>) -> Result<Findings, DeviceError> {
        let Launch { kernel, args, grid, seed, fault } = *launch;
        // SAFETY: the function only gives a size.
        let wanted = unsafe { (kernel.host.args_bytes)() } as usize;
        if args.len() != wanted {
            return Err(DeviceError::Arguments { kernel: kernel.name, found: args.len(), wanted });
        }
        let mut aligned = vec![0u64; wanted.div_ceil(8)];
        for (word, chunk) in aligned.iter_mut().zip(args.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_ne_bytes(bytes);
        }
        let mut findings = Findings::default();
        // SAFETY: the arguments have the struct's size; their addresses are the caller's uploads, of
        // the sizes that the kernel's arguments say. All state of a launch is this thread's own.
        let code = unsafe {
            finback_emu_launch(
                kernel.host.lanes,
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
            0 => Ok(findings),
            _ => {
                let what = format!("no memory for the stacks of {LANES} lanes");
                Err(DeviceError::Failed { device: NAME, what })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{KERNELS, Kernel, kernel};

    #[test]
    fn arguments_have_the_size_that_the_compiler_gives() {
        for kernel in KERNELS {
            // SAFETY: the function only gives a size.
            let bytes = unsafe { (kernel.host.args_bytes)() };
            assert_eq!(bytes as usize, kernel.args_bytes, "{}", kernel.args);
        }
    }

    #[test]
    fn a_launch_with_other_arguments_is_refused() {
        let kernel = kernel("rmsnorm").unwrap();
        let launch = Launch { kernel, args: &[0; 8], grid: [1, 1], seed: 0, fault: 0 };
        let error = Host::new().run(&launch).unwrap_err().to_string();
        assert_eq!(error, "rmsnorm: found 8 bytes of arguments, wanted 40");
    }

    /// What the shadow finds where `mode` of `check.h` breaks a rule.
    fn shadow(mode: u32, seed: u64) -> Findings {
        let kernel =
            Kernel { name: "shadow", args: "", args_bytes: 8, fields: &[], host: entry!(shadow) };
        let args = [mode.to_ne_bytes(), [0; 4]].concat();
        let launch = Launch { kernel: &kernel, args: &args, grid: [3, 1], seed, fault: 0 };
        Host::new().run(&launch).unwrap()
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
    fn memory_that_was_not_uploaded_is_not_read() {
        let mut host = Host::new();
        let address = host.upload(&[1, 2, 3]).unwrap();
        let mut out = [0; 3];
        host.download(address, &mut out).unwrap();
        assert_eq!((out, address % 256), ([1, 2, 3], 0));
        host.clear();
        assert!(host.download(address, &mut out).is_err());
    }
}
