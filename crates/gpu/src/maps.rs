//! What of the checkpoint's maps the device reads where it lies: the routed experts' tensors.

use std::ops::Range;

use finback_checkpoint::Tensor;
use finback_kernels::device::HostMemory;
use finback_kernels::fetch::FETCH_LINE;
use finback_ops::{ModelSpec, OpsError};

use crate::memory::Memory;
use crate::weights::THREE;

/// Stretches of a shard that lie closer than this are one: no two share a page of memory then.
const NEAR: usize = 1 << 20;
/// Bytes that are registered at once. A window ends where a multiple of this does: at a page, whatever
/// the size of those.
const WINDOW: usize = 1 << 30;

/// Some bytes of a shard, from its first on.
#[derive(Debug, Clone)]
struct Stretch {
    /// One of the shard's tensors, which keeps it mapped.
    shard: Tensor,
    bytes: Range<usize>,
}

impl Stretch {
    /// Its bytes in windows that end at multiples of `size` in memory.
    fn windows(&self, size: usize) -> Vec<Self> {
        let base = self.shard.shard_bytes().as_ptr().addr();
        let mut windows = Vec::new();
        let mut start = self.bytes.start;
        while start < self.bytes.end {
            let end = (base + start + 1).next_multiple_of(size) - base;
            let bytes = start..end.min(self.bytes.end);
            start = bytes.end;
            windows.push(Self { shard: self.shard.clone(), bytes });
        }
        windows
    }
}

impl HostMemory for Stretch {
    fn bytes(&self) -> &[u8] {
        // A stretch is cut from its shard's tensors.
        self.shard.shard_bytes().get(self.bytes.clone()).unwrap_or_default()
    }

    fn name(&self) -> String {
        let (file, Range { start, end }) = (self.shard.file(), &self.bytes);
        let file = file.file_name().unwrap_or(file.as_os_str()).display();
        format!("{file}, bytes {start} to {end}")
    }
}

/// The routed experts' tensors, scales among them.
fn tensors(spec: &ModelSpec) -> impl Iterator<Item = &Tensor> {
    let layers = spec.layers.iter().chain(spec.draft_layers());
    let linears =
        layers.flat_map(|layer| &layer.ffn.experts).flat_map(|expert| THREE.map(|of| of(expert)));
    linears.flat_map(|linear| [Some(&linear.weight), linear.scale.as_ref()]).flatten()
}

/// The stretches that hold all of them, in order of memory.
fn stretches(spec: &ModelSpec) -> Vec<Stretch> {
    let start = |tensor: &Tensor| tensor.bytes().as_ptr().addr();
    let mut all: Vec<&Tensor> = tensors(spec).collect();
    all.sort_unstable_by_key(|tensor| start(tensor));
    let mut stretches: Vec<Stretch> = Vec::new();
    for tensor in all {
        let (base, bytes) = (tensor.shard_bytes().as_ptr(), tensor.file_range());
        match stretches.last_mut() {
            Some(last)
                if last.shard.shard_bytes().as_ptr() == base
                    && bytes.start < last.bytes.end + NEAR =>
            {
                last.bytes.end = last.bytes.end.max(bytes.end);
            }
            _ => stretches.push(Stretch { shard: tensor.clone(), bytes }),
        }
    }
    stretches
}

/// Bytes of the host's memory that stay locked for the device.
pub fn locked(spec: &ModelSpec) -> u64 {
    stretches(spec).iter().map(|stretch| stretch.bytes.len() as u64).sum()
}

/// The maps as the device sees them.
#[derive(Debug, Default)]
pub struct Maps {
    /// Where offsets count from: the begin of a line.
    pub base: u64,
    /// Addresses here, and the device's of the first.
    seen: Vec<(Range<usize>, u64)>,
}

impl Maps {
    /// Makes the routed experts readable by the device; a count registers nothing.
    ///
    /// # Errors
    /// A device that does not, by the shard and its bytes.
    pub fn register(
        spec: &ModelSpec,
        memory: &mut Memory<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, OpsError> {
        Self::in_windows(spec, memory, WINDOW, progress)
    }

    fn in_windows(
        spec: &ModelSpec,
        memory: &mut Memory<'_>,
        size: usize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, OpsError> {
        let Memory::Device(device) = memory else { return Ok(Self::default()) };
        let (backend, step) = (device.name(), "experts on the host");
        let failed = |reason| OpsError::Failed { backend, step, reason };
        let mut seen: Vec<(Range<usize>, u64)> = Vec::new();
        let mut done = 0;
        for stretch in stretches(spec) {
            let mut first: Option<(usize, u64)> = None;
            for window in stretch.windows(size) {
                let (start, name) = (window.bytes().as_ptr().addr(), window.name());
                let length = window.bytes.len();
                let address = device.register(Box::new(window));
                let address = address.map_err(|error| failed(format!("{name}: {error}")))?;
                let (from, to) = *first.get_or_insert((start, address));
                if address.wrapping_sub(to) != (start - from) as u64 {
                    let what = "the device sees it apart from the bytes before it";
                    return Err(failed(format!("{name}: {what}")));
                }
                done += length as u64;
                progress(done);
            }
            let Some((start, address)) = first else { continue };
            seen.push((start..start + stretch.bytes.len(), address));
        }
        let base = seen.iter().map(|(_, address)| *address).min().unwrap_or(0);
        Ok(Self { base: base / FETCH_LINE * FETCH_LINE, seen })
    }

    /// Where a tensor begins after [`Maps::base`]; 0 in a count.
    pub fn offset(&self, tensor: &Tensor) -> u64 {
        let at = tensor.bytes().as_ptr().addr();
        let seen = self.seen.iter().find(|(here, _)| here.contains(&at));
        seen.map_or(0, |(here, address)| address + (at - here.start) as u64 - self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use finback_checkpoint::Checkpoint;
    use finback_kernels::device::{Device, DeviceError, Findings, Launch};
    use finback_kernels::manifest::Kernel;
    use finback_model::{Config, spec};
    use finback_ops::Numerics;

    fn stored() -> ModelSpec {
        let dir = finback_testkit::checkpoint("full");
        let map = std::fs::read(dir.join("engram_token_map.json")).unwrap();
        let map = serde_json::from_slice(&map).unwrap();
        let (config, files) = (Config::load(&dir).unwrap(), Checkpoint::open(&dir).unwrap());
        spec::load(&files, &config, Some(map), Numerics::RELEASE).unwrap()
    }

    /// A device that registers alone, and sees every window so far from where it lies.
    struct Seer {
        windows: Vec<Range<usize>>,
        off: fn(usize) -> u64,
    }

    impl Device for Seer {
        fn name(&self) -> &'static str {
            "seer"
        }
        fn register(&mut self, memory: Box<dyn HostMemory>) -> Result<u64, DeviceError> {
            let start = memory.bytes().as_ptr().addr();
            self.windows.push(start..start + memory.bytes().len());
            Ok(start as u64 + (self.off)(self.windows.len()))
        }
        fn allocate(&mut self, _: usize) -> Result<u64, DeviceError> {
            Ok(256)
        }
        fn free_memory(&mut self) -> Result<Option<usize>, DeviceError> {
            Ok(None)
        }
        fn clear(&mut self) {}
        fn write(&mut self, _: u64, _: &[u8]) -> Result<(), DeviceError> {
            Ok(())
        }
        fn read(&mut self, _: u64, _: &mut [u8]) -> Result<(), DeviceError> {
            Ok(())
        }
        fn launch(&mut self, _: &Launch<'_>) -> Result<(), DeviceError> {
            Ok(())
        }
        fn finish(&mut self) -> Result<Findings, DeviceError> {
            Ok(Findings::default())
        }
        fn has(&self, _: &Kernel) -> bool {
            false
        }
    }

    fn seen(spec: &ModelSpec, off: fn(usize) -> u64) -> (Result<Maps, String>, Seer, Vec<u64>) {
        let mut seer = Seer { windows: Vec::new(), off };
        let mut done = Vec::new();
        let mut memory = Memory::Device(&mut seer);
        let maps = Maps::in_windows(spec, &mut memory, 4096, &mut |bytes| done.push(bytes));
        (maps.map_err(|error| error.to_string()), seer, done)
    }

    #[test]
    fn windows_hold_every_expert_and_nothing_that_is_far_from_one() {
        let spec = stored();
        let (maps, seer, done) = seen(&spec, |_| 1 << 40);
        let maps = maps.unwrap();
        let sum: usize = seer.windows.iter().map(ExactSizeIterator::len).sum();
        assert_eq!((done.last(), locked(&spec)), (Some(&(sum as u64)), sum as u64));
        assert!(seer.windows.len() > 8 && maps.base.is_multiple_of(FETCH_LINE));
        // A window ends at a page, or where its stretch does.
        let pairs = seer.windows.windows(2);
        let mut cut = pairs.filter(|pair| pair[0].end == pair[1].start);
        assert!(cut.all(|pair| pair[0].end.is_multiple_of(4096)));
        for tensor in tensors(&spec) {
            let at = tensor.bytes().as_ptr().addr() as u64 + (1 << 40);
            assert_eq!(maps.base + maps.offset(tensor), at, "{tensor:?}");
        }
        // The tables of the same checkpoint lie in shards of their own, or behind.
        let shards: usize = stretches(&spec).iter().map(|s| s.shard.shard_bytes().len()).sum();
        assert!(sum < shards, "{sum} of {shards}");
    }

    #[test]
    fn windows_that_the_device_sees_apart_are_refused_by_name() {
        let (maps, ..) = seen(&stored(), |window| if window < 3 { 0 } else { 4096 });
        let text = maps.unwrap_err();
        assert!(text.contains("experts on the host: model-"), "{text}");
        assert!(text.ends_with(": the device sees it apart from the bytes before it"), "{text}");
    }
}
