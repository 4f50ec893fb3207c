//! A device that keeps what passes through it, so that parts of a pass can be run again and timed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, anyhow};
use finback_kernels::args::{Args, FillArgs, ReadAllArgs};
use finback_kernels::device::{Device, DeviceError, Findings, HostMemory, Launch};
use finback_kernels::manifest::{Kernel, kernel};
use finback_kernels::tape::Tape;

use super::work::Class;

/// Bytes that the read rate is measured over: many times any cache.
const READ_BYTES: usize = 4 << 30;
const READ_ROW: u32 = 16384;

/// A hand on a device that another owns.
#[derive(Clone)]
pub struct Watch(Arc<Mutex<Inner>>);

struct Inner {
    device: Box<dyn Device>,
    /// What has passed since it was asked for.
    seen: Option<Tape>,
}

/// What a backend owns.
struct Watched(Watch);

impl Watch {
    /// Over a device.
    pub fn over(device: Box<dyn Device>) -> Self {
        Self(Arc::new(Mutex::new(Inner { device, seen: None })))
    }

    /// The device for a backend.
    pub fn device(&self) -> Box<dyn Device> {
        Box::new(Watched(self.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The launches that `work` makes.
    pub fn launches<T>(&self, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<Tape> {
        self.lock().seen = Some(Tape::new());
        let done = work();
        let seen = self.lock().seen.take();
        done?;
        seen.ok_or_else(|| anyhow!("what passed was not kept"))
    }

    /// Waits for all that was enqueued.
    pub fn wait(&self) -> anyhow::Result<()> {
        self.lock().device.finish()?;
        Ok(())
    }

    /// Seconds that the launches take, each time of several after one that does not count.
    pub fn time(&self, tape: &Tape, times: usize) -> anyhow::Result<f64> {
        if tape.is_empty() {
            return Ok(0.0);
        }
        let device = &mut self.lock().device;
        // The second time records it, the third replays.
        for _ in 0..3 {
            device.launch_all(tape)?;
        }
        device.finish()?;
        let began = Instant::now();
        for _ in 0..times {
            device.launch_all(tape)?;
        }
        device.finish()?;
        Ok(began.elapsed().as_secs_f64() / times as f64)
    }

    /// How many some launches of a pass are, and the seconds that they take without the others: what they
    /// take behind those they need, less what these take.
    pub fn alone(
        &self,
        tape: &Tape,
        times: usize,
        wanted: impl Fn(usize, &'static Kernel) -> bool,
    ) -> anyhow::Result<(usize, f64)> {
        let count = tape.part(&wanted).len();
        let [needed, all] = behind_needed(tape, wanted);
        Ok((count, (self.time(&all, times)? - self.time(&needed, times)?).max(0.0)))
    }

    /// The device again, with nothing in its memory; its backend must be gone.
    pub fn into_device(self) -> anyhow::Result<Box<dyn Device>> {
        let inner = Arc::into_inner(self.0).context("the device is still used")?;
        let mut device = inner.into_inner().unwrap_or_else(PoisonError::into_inner).device;
        device.clear();
        Ok(device)
    }
}

/// The launches that some cannot do without, and those with them. Attention reads what was selected before
/// it, and its outputs may begin while its scores are made, by which time all before these has ended.
fn behind_needed(tape: &Tape, wanted: impl Fn(usize, &'static Kernel) -> bool) -> [Tape; 2] {
    const SCORES: &str = "tile_attend_scores";
    let part = tape.part(&wanted);
    let attends = |one: &Launch<'_>| Class::of(one.kernel) == Class::Attention;
    let attended = part.launches().any(|one| attends(&one));
    let scored = part.launches().any(|one| one.kernel.name == SCORES);
    let needed = |kernel: &'static Kernel| {
        attended && (Class::of(kernel) == Class::Indexer || (!scored && kernel.name == SCORES))
    };
    [
        tape.part(|at, kernel| !wanted(at, kernel) && needed(kernel)),
        tape.part(|at, kernel| wanted(at, kernel) || needed(kernel)),
    ]
}

impl Device for Watched {
    fn name(&self) -> &'static str {
        self.0.lock().device.name()
    }
    fn allocate(&mut self, bytes: usize) -> Result<u64, DeviceError> {
        self.0.lock().device.allocate(bytes)
    }
    fn free_memory(&mut self) -> Result<Option<usize>, DeviceError> {
        self.0.lock().device.free_memory()
    }
    fn register(&mut self, memory: Box<dyn HostMemory>) -> Result<u64, DeviceError> {
        self.0.lock().device.register(memory)
    }
    fn clear(&mut self) {
        self.0.lock().device.clear();
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.0.lock().device.write(address, bytes)
    }
    fn write_beside(&mut self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.0.lock().device.write_beside(address, bytes)
    }
    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        self.0.lock().device.read(address, out)
    }
    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), DeviceError> {
        let mut inner = self.0.lock();
        if let Some(seen) = &mut inner.seen {
            seen.push_launch(launch);
        }
        inner.device.launch(launch)
    }
    fn launch_all(&mut self, tape: &Tape) -> Result<(), DeviceError> {
        let mut inner = self.0.lock();
        if let Some(seen) = &mut inner.seen {
            tape.launches().for_each(|launch| seen.push_launch(&launch));
        }
        inner.device.launch_all(tape)
    }
    fn finish(&mut self) -> Result<Findings, DeviceError> {
        self.0.lock().device.finish()
    }
    fn has(&self, kernel: &Kernel) -> bool {
        self.0.lock().device.has(kernel)
    }
    fn width(&self) -> u32 {
        self.0.lock().device.width()
    }
}

/// Bytes a second at which the device reads its memory, the best of some; leaves nothing in it.
pub fn read_rate(device: &mut dyn Device) -> anyhow::Result<f64> {
    let bytes = if device.free_memory()?.is_some() { READ_BYTES } else { 1 << 20 };
    let find = |name| kernel(name).with_context(|| format!("{name}: no such kernel"));
    let count = bytes as u64 / 4;
    let rows = count.div_ceil(u64::from(READ_ROW)) as u32;
    let from = device.allocate(bytes)?;
    let sums = device.allocate(4 * rows as usize)?;
    let fill = FillArgs { out: from, count, width: READ_ROW, keep: u32::MAX, ..Default::default() };
    device.launch(&Launch::new(find("fill")?, &fill.bytes(), [rows, 1]))?;
    let read = ReadAllArgs { from, out: sums, width: READ_ROW, pad: 0 };
    let (args, mut best) = (read.bytes(), f64::INFINITY);
    for _ in 0..8 {
        device.finish()?;
        let began = Instant::now();
        device.launch(&Launch::new(find("read_all")?, &args, [rows, 1]))?;
        device.finish()?;
        best = best.min(began.elapsed().as_secs_f64());
    }
    device.clear();
    Ok(bytes as f64 / best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use finback_kernels::device::emu;

    #[test]
    fn attention_is_timed_behind_what_it_reads() {
        let mut tape = Tape::new();
        let names = ["rmsnorm", "tile_topk", "tile_attend_scores", "tile_attend_mix"];
        for name in names {
            let kernel = kernel(name).unwrap();
            tape.push_launch(&Launch::new(kernel, &vec![0; kernel.args_bytes], [1, 1]));
        }
        let lists = |wanted: &[&str]| {
            behind_needed(&tape, |_, kernel| wanted.contains(&kernel.name))
                .map(|tape| tape.launches().map(|launch| launch.kernel.name).collect::<Vec<_>>())
        };
        assert_eq!(lists(&names[..1]), [vec![], vec!["rmsnorm"]]);
        assert_eq!(lists(&names[1..2]), [vec![], vec!["tile_topk"]]);
        assert_eq!(lists(&names[2..3]), [&names[1..2], &names[1..3]]);
        assert_eq!(lists(&names[3..]), [&names[1..3], &names[1..]]);
        assert_eq!(lists(&names[2..]), [&names[1..2], &names[1..]]);
    }

    #[test]
    fn launches_are_kept_while_asked_for_and_the_device_comes_back() {
        let Ok(device) = emu() else { return };
        let watch = Watch::over(device);
        let mut device = watch.device();
        let out = device.allocate(64).unwrap();
        let args = FillArgs { out, count: 16, width: 16, keep: 0, set: 7, ..Default::default() };
        let args = args.bytes();
        let launch = Launch::new(kernel("fill").unwrap(), &args, [1, 1]);
        device.launch(&launch).unwrap();
        let tape = watch
            .launches(|| {
                device.launch(&launch)?;
                let mut tape = Tape::new();
                tape.push_launch(&launch);
                Ok(device.launch_all(&tape)?)
            })
            .unwrap();
        assert_eq!(tape.len(), 2);
        device.write(out, &[0; 64]).unwrap();
        assert!(watch.time(&tape, 2).unwrap() > 0.0);
        let mut word = [0; 4];
        device.read(out, &mut word).unwrap();
        assert_eq!(u32::from_ne_bytes(word), 7);
        assert!(watch.clone().into_device().is_err());
        drop(device);
        let mut device = watch.into_device().unwrap();
        assert!(device.read(out, &mut word).is_err());
        assert!(read_rate(device.as_mut()).unwrap() > 0.0);
    }
}
