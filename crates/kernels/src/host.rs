//! The host as a device: every lane a fiber of the calling thread.
//!
//! For checking at small sizes, never for serving. Groups and lanes run in an order shuffled by the
//! launch's seed, or where it names none by one of its own; lanes switch where they meet. A shadow over the dialect's shared memory finds missing barriers.
//! Kernels of CUDA alone run as well, by what `host/primitives.h` makes of the machine's words. Every
//! allocation lies between pages that nothing may touch: an access past its end ends the launch.
#![allow(unsafe_code)]

use std::ffi::c_void;

use crate::device::{Device, DeviceError, Findings, HostMemory, Launch};
use crate::manifest::Kernel;

/// A kernel's host code: its lanes' function, and the size of its arguments.
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
        groups: *const u32,
        lanes: u32,
        shared: u32,
        seed: u64,
        fault: u32,
        report: *mut Findings,
        broken: *mut Broken,
    ) -> i32;
    fn finback_emu_map(bytes: usize) -> *mut c_void;
    fn finback_emu_unmap(at: *mut c_void, bytes: usize);
}

/// Why a launch ended early, as `host/shared.h` has it.
#[derive(Debug, Default, Clone, Copy)]
#[repr(C)]
struct Broken {
    address: u64,
    kind: u32,
    lane: u32,
    group: [u32; 2],
}

/// The name of the host as a device.
pub const NAME: &str = "emu";

/// The host as a device.
#[derive(Debug, Default)]
pub struct Host {
    memory: Vec<Pages>,
    registered: Vec<Box<dyn HostMemory>>,
    findings: Findings,
    portable: bool,
    /// Launches that named no seed.
    unseeded: u64,
}

/// The alignment that every device gives.
const ALIGNMENT: usize = 256;

/// An allocation, whose end is that of a page.
#[derive(Debug)]
struct Pages {
    at: u64,
    bytes: usize,
}

impl Pages {
    fn new(bytes: usize) -> Option<Self> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT)?;
        // SAFETY: the function asks the system for new pages.
        let at = unsafe { finback_emu_map(bytes) };
        (!at.is_null()).then(|| Self { at: at.expose_provenance() as u64, bytes })
    }

    fn end(&self) -> u64 {
        self.at + self.bytes as u64
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `new` made these pages, and no launch runs.
        unsafe {
            finback_emu_unmap(std::ptr::with_exposed_provenance_mut(self.at as usize), self.bytes);
        }
    }
}

impl Host {
    /// A device with every kernel and no memory in use.
    pub fn new() -> Self {
        Self::default()
    }

    /// A device with the dialect's kernels alone.
    pub fn portable() -> Self {
        Self { portable: true, ..Self::default() }
    }

    /// Whether these bytes lie in memory that was allocated.
    fn check(&self, address: u64, bytes: usize) -> Result<(), DeviceError> {
        let inside = self.memory.iter().any(|memory| {
            memory.at <= address && address.saturating_add(bytes as u64) <= memory.end()
        });
        if !inside {
            let what = format!("{bytes} bytes at {address:#x} were not allocated");
            return Err(DeviceError::Failed { device: NAME, what });
        }
        Ok(())
    }

    /// What a launch did that ended it.
    fn broken(&self, kernel: &Kernel, broken: Broken) -> DeviceError {
        let Broken { address, kind, lane, group: [x, y] } = broken;
        let below = self.memory.iter().filter(|memory| memory.end() <= address);
        let near = below
            .max_by_key(|memory| memory.end())
            .filter(|memory| address - memory.end() < memory.bytes.max(1 << 16) as u64);
        let what = match (kind, near) {
            (broken::MEMORY, Some(memory)) => format!(
                "touches memory {} bytes past an allocation of {}",
                address - memory.end(),
                memory.bytes
            ),
            (broken::MEMORY, None) => {
                format!("touches memory at {address:#x}, which was not allocated")
            }
            (broken::SHARED, _) => "touches shared memory past its end".into(),
            (broken::RULE, _) => "loads or stores off its alignment, or outside an array".into(),
            _ => "takes more stack than the host gives it".into(),
        };
        let what = format!("{}: lane {lane} of group ({x}, {y}) {what}", kernel.name);
        DeviceError::Failed { device: NAME, what }
    }
}

/// Kinds of [`Broken`].
mod broken {
    pub const MEMORY: u32 = 1;
    pub const SHARED: u32 = 2;
    pub const RULE: u32 = 3;
}

impl Device for Host {
    fn name(&self) -> &'static str {
        NAME
    }

    fn allocate(&mut self, bytes: usize) -> Result<u64, DeviceError> {
        let refused = || DeviceError::Failed {
            device: NAME,
            what: format!("{bytes} bytes are more than the system gives"),
        };
        let memory = Pages::new(bytes).ok_or_else(refused)?;
        let address = memory.at;
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
        let Launch { kernel, args, grid, seed, fault, .. } = *launch;
        // `check` has seen that there is one.
        let Some(entry) = kernel.host else { return Ok(()) };
        // SAFETY: the function only gives a size.
        let wanted = unsafe { (entry.args_bytes)() } as usize;
        if args.len() != wanted {
            return Err(DeviceError::Arguments { kernel: kernel.name, found: args.len(), wanted });
        }
        // So that a model's launches of a kind run in many orders.
        self.unseeded += u64::from(seed == 0);
        let seed = if seed == 0 { self.unseeded } else { seed };
        let mut aligned = vec![0u64; args.len().div_ceil(8)];
        for (word, chunk) in aligned.iter_mut().zip(args.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_ne_bytes(bytes);
        }
        let (mut findings, mut broken) = (Findings::default(), Broken::default());
        // SAFETY: the arguments have the struct's size; what they point to that is not there ends the
        // launch. All state of a launch is this thread's own.
        let code = unsafe {
            finback_emu_launch(
                entry.lanes,
                aligned.as_ptr().cast(),
                grid.as_ptr(),
                kernel.lanes,
                kernel.shared,
                seed,
                fault,
                &raw mut findings,
                &raw mut broken,
            )
        };
        self.findings.add(findings);
        let failed = |what| Err(DeviceError::Failed { device: NAME, what });
        match code {
            0 => Ok(()),
            1 => failed(format!("{}: {} lanes, {} groups", kernel.name, kernel.lanes, grid[1])),
            2 => failed(format!("{}: no memory for stacks and shared memory", kernel.name)),
            _ => Err(self.broken(kernel, broken)),
        }
    }

    fn finish(&mut self) -> Result<Findings, DeviceError> {
        Ok(std::mem::take(&mut self.findings))
    }

    fn has(&self, kernel: &Kernel) -> bool {
        kernel.host.is_some() && !(self.portable && kernel.cuda_only)
    }

    fn sees_races(&self) -> bool {
        true
    }

    fn sees_outside(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use finback_numerics::fp8;

    use super::*;
    use crate::manifest::{KERNELS, LANES, kernel};

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

    /// A kernel that checks the host itself.
    const fn checking(name: &'static str, args_bytes: usize, host: Entry) -> Kernel {
        Kernel {
            name,
            args: "",
            args_bytes,
            fields: &[],
            lanes: LANES,
            shared: 0,
            cuda_only: false,
            host: Some(host),
        }
    }

    /// What the shadow finds where `mode` of `check.h` breaks a rule.
    fn shadow(mode: u32, seed: u64) -> Findings {
        static SHADOW: Kernel = checking("shadow", 8, entry!(shadow));
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
    fn groups_run_in_an_order_of_the_seed() {
        static TURNS: Kernel = checking("turns", 8, entry!(turns));
        let order = |seed| {
            let mut host = Host::new();
            let out = host.allocate(4 * 13).unwrap();
            let args = out.to_ne_bytes();
            host.launch(&Launch { seed, ..Launch::new(&TURNS, &args, [4, 3]) }).unwrap();
            let mut bytes = [0; 52];
            host.read(out, &mut bytes).unwrap();
            bytes.as_chunks::<4>().0[1..].iter().map(|word| word[0]).collect::<Vec<u8>>()
        };
        for seed in 1..9 {
            let (mut turns, other) = (order(seed), order(seed + 1));
            assert!(turns == order(seed) && turns != other, "{seed}");
            turns.sort_unstable();
            assert_eq!(turns, (0..12).collect::<Vec<u8>>());
        }
    }

    /// What comes of `mode` of `check_tiles.h`: why it ended early, or findings, lane 5's words and what
    /// its memory holds.
    fn astray(mode: u32) -> (Result<(), String>, Findings, [u32; 2]) {
        static ASTRAY: Kernel =
            Kernel { shared: 256, cuda_only: true, ..checking("astray", 24, entry!(astray)) };
        let mut host = Host::new();
        let (memory, out) = (host.allocate(256).unwrap(), host.allocate(32).unwrap());
        host.write(memory, &[7, 0, 0, 0]).unwrap();
        let words = [256u32, mode].map(u32::to_ne_bytes).concat();
        let args = [&memory.to_ne_bytes()[..], &out.to_ne_bytes(), &words].concat();
        let ran = host.launch(&Launch::new(&ASTRAY, &args, [1, 1]));
        let (findings, mut bytes) = (host.finish().unwrap(), [0; 8]);
        host.read(out + 20, &mut bytes).unwrap();
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        (ran.map_err(|error| error.to_string()), findings, [word(0), word(4)])
    }

    #[test]
    fn an_access_that_is_not_there_ends_the_launch_and_not_the_process() {
        assert_eq!(astray(0), (Ok(()), Findings::default(), [0, 0]));
        for (mode, wanted) in [
            (1, "touches memory 0 bytes past an allocation of 256"),
            (2, "touches memory at 0x10, which was not allocated"),
            (3, "loads or stores off its alignment, or outside an array"),
            (4, "loads or stores off its alignment, or outside an array"),
            (5, "touches shared memory past its end"),
        ] {
            let wanted = format!("emu: astray: lane 5 of group (0, 0) {wanted}");
            assert_eq!(astray(mode).0, Err(wanted), "{mode}");
        }
        let outside = astray(6).1;
        assert_eq!((outside.outside, outside.lane), (1, 5));
        // And the thread goes on.
        assert_eq!(astray(0), (Ok(()), Findings::default(), [0, 0]));
    }

    #[test]
    fn copies_arrive_when_they_are_waited_for_and_a_signal_may_never_turn() {
        const NOTHING: u32 = u32::MAX;
        assert_eq!(astray(7), (Ok(()), Findings::default(), [7, NOTHING]));
        assert_eq!(astray(9), (Ok(()), Findings::default(), [7, NOTHING]));
        let (ran, findings, words) = astray(8);
        assert_eq!((ran, findings.diverged, words), (Ok(()), 1, [0, NOTHING]));
    }

    /// The sum of two instructions' products of codes.
    fn cut(products: [&[(f32, f32)]; 2]) -> f32 {
        static CUT: Kernel = Kernel {
            shared: 2048,
            cuda_only: true,
            ..checking("cut_codes", 16, entry!(cut_codes))
        };
        let mut codes = [[[0; 32]; 2]; 2];
        for (i, products) in products.into_iter().enumerate() {
            for (k, &(a, b)) in products.iter().enumerate() {
                (codes[0][i][k], codes[1][i][k]) = (fp8::encode(a), fp8::encode(b));
            }
        }
        let mut host = Host::new();
        let (from, out) = (host.allocate(128).unwrap(), host.allocate(2048).unwrap());
        host.write(from, codes.as_flattened().as_flattened()).unwrap();
        let args = [from.to_ne_bytes(), out.to_ne_bytes()].concat();
        host.launch(&Launch::new(&CUT, &args, [1, 1])).unwrap();
        let mut bytes = [0; 2048];
        host.read(out, &mut bytes).unwrap();
        assert!(host.finish().unwrap() == Findings::default());
        let sums = bytes.as_chunks::<4>().0;
        assert!(sums.iter().all(|sum| *sum == sums[0]));
        f32::from_ne_bytes(sums[0])
    }

    #[test]
    fn sums_of_codes_are_cut_as_the_device_cuts_them() {
        let (one, unit, half) = ((1.0, 1.0), 1.0 / 8192.0, (1.0 / 128.0, 1.0 / 128.0));
        let with = |first, more: (f32, f32)| [vec![first], vec![more; 31]].concat();
        // What is below 2^-13 of the largest is nothing, however often it is there; one unit counts.
        assert_eq!(cut([&with(one, half), &[]]), 1.0);
        assert_eq!(cut([&with(one, (1.0 / 64.0, 1.0 / 128.0)), &[]]), 1.0 + 31.0 * unit);
        assert_eq!(cut([&[one, (-1.0 / 128.0, 1.0 / 128.0)], &[]]), 1.0);
        // A result keeps as many bits of its own; so does a sum beside what is larger.
        assert_eq!(cut([&[one, one, (1.0 / 64.0, 1.0 / 128.0)], &[]]), 2.0);
        assert_eq!(cut([&with(one, (1.0 / 64.0, 1.0 / 128.0)), &[(2.0, 1.0)]]), 3.0 + 30.0 * unit);
        assert_eq!(cut([&[one], &[half; 32]]), 1.0);
        // Exponents decide, not values; those of codes below 2^-6 are -6.
        let twice = [(1.75, 1.75), (1.0 / 64.0, 1.0 / 128.0), (1.0 / 64.0, 1.0 / 128.0)];
        assert_eq!(cut([&twice, &[]]), 3.0625 + 2.0 * unit);
        let least = 1.0 / 512.0;
        assert_eq!(cut([&[(least, 4.0), (least, least)], &[]]), 4.0 * least);
        assert_eq!(cut([&[(least, least)], &[]]), least * least);
        assert!(cut([&[(f32::NAN, 0.0)], &[one]]).is_nan());
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
