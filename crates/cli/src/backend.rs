//! The backends by name: the memory each has, what it takes beside weights and state, and its start.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::anyhow;
use finback_cpu::simd::Isa;
use finback_cpu::{CpuOps, CpuOptions};
use finback_gpu::{ExpertsOn, GpuOps, Needs, Ranks, Setup};
use finback_kernels::device::Device;
use finback_model::plan::Shared;
use finback_ops::{Limits, ModelSpec, Ops, OpsError, StepTimes, Timed};

use crate::device;
use crate::machine;
use crate::progress::Progress;
use crate::settings::table::{
    BACKEND, EXPERTS_ON, GPU_ATTENTION, GPUS, ISA, PLAIN_STREAMS, PREFILL_CHUNK, THREADS,
};
use crate::settings::{UsageError, Values};

/// Prompt rows of a piece on a GPU, where nobody said: fewer would not fill it.
const GPU_CHUNK: usize = 4096;
/// `--plain-streams` on a GPU, whose rounds of more rows cost less than theirs alone.
const GPU_PLAIN_STREAMS: usize = 12;

/// Where the model runs.
pub enum Backend {
    /// The processor, over mapped weights.
    Cpu(CpuOptions),
    /// One GPU, or several that share the model.
    Gpu {
        /// Until its start takes them.
        devices: Mutex<Vec<Box<dyn Device>>>,
        /// How many there are.
        gpus: usize,
        /// The [`Device::key`] of each.
        key: String,
        /// Where the routed experts are.
        experts: ExpertsOn,
    },
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(options) => f.debug_tuple("Cpu").field(options).finish(),
            Self::Gpu { key, .. } => f.debug_tuple("Gpu").field(key).finish(),
        }
    }
}

impl Backend {
    /// The one that the settings name.
    ///
    /// # Errors
    /// It is not on this machine.
    pub fn open(values: &Values) -> anyhow::Result<Self> {
        let name = values.get(&BACKEND);
        let (experts, gpus) = (experts_on(values), values.get(&GPUS));
        let refuse = |beside: &str, accepted: &str| {
            let place = values.place(&GPUS);
            let text = format!("{place}: found \"{gpus}\" beside {beside}; accepted: {accepted}");
            Err(UsageError(text).into())
        };
        if gpus > 1 && name == "cpu" {
            return refuse("--backend cpu, which has none", "1, or with --backend cuda");
        }
        if gpus > 1 && experts != ExpertsOn::Device {
            return refuse("--experts-on host, which takes one GPU", "1");
        }
        if name == "cpu" {
            if experts != ExpertsOn::Device {
                let text = format!(
                    "{}: found \"host\" beside --backend cpu, which reads all weights there; accepted: \
                     with --backend cuda",
                    values.place(&EXPERTS_ON)
                );
                return Err(UsageError(text).into());
            }
            return cpu_options(values).map(Self::Cpu);
        }
        Ok(Self::of(device::open_all(values, &values.place(&BACKEND), &name, gpus)?, experts))
    }

    /// Over these devices, one at least, which share the model.
    fn of(devices: Vec<Box<dyn Device>>, experts: ExpertsOn) -> Self {
        // Several have the bits of one with the same attention, which the key names.
        let key = devices.first().map_or_else(String::new, |device| device.key());
        Self::Gpu { gpus: devices.len(), devices: Mutex::new(devices), key, experts }
    }

    /// Whether memory is a device's own.
    pub fn is_device(&self) -> bool {
        matches!(self, Self::Gpu { .. })
    }

    /// Names what the bits of a state depend on.
    pub fn key(&self) -> String {
        match self {
            Self::Cpu(_) => "cpu".into(),
            Self::Gpu { key, .. } => key.clone(),
        }
    }

    /// Bytes of memory there are, on each device, for weights, state and workspace.
    ///
    /// # Errors
    /// The device's own failure.
    pub fn memory(&self) -> anyhow::Result<u64> {
        let host = machine::memory().map_or(u64::MAX, |(_, available)| available);
        match self {
            Self::Cpu(_) => Ok(host),
            Self::Gpu { devices, .. } => {
                let mut devices = devices.lock().unwrap_or_else(PoisonError::into_inner);
                let mut least = host;
                for (i, device) in devices.iter_mut().enumerate() {
                    let free = device.free_memory()?.map_or(host, |free| free as u64);
                    least = if i == 0 { free } else { least.min(free) };
                }
                Ok(least)
            }
        }
    }

    /// Bytes of its buffers of one pass.
    ///
    /// # Errors
    /// Sizes that it cannot run.
    pub fn workspace_bytes(&self, spec: &ModelSpec, limits: &Limits) -> anyhow::Result<u64> {
        match self {
            Self::Cpu(options) => Ok(CpuOps::workspace_bytes(spec, limits, *options)),
            Self::Gpu { devices, .. } => {
                Ok(needs(devices, spec, limits, ExpertsOn::Device)?.workspace)
            }
        }
    }

    /// The kernels of attention that a GPU takes, as `--gpu-attention` names them.
    ///
    /// # Errors
    /// Sizes that it cannot run.
    pub fn attention(
        &self,
        spec: &ModelSpec,
        limits: &Limits,
    ) -> anyhow::Result<Option<&'static str>> {
        let Self::Gpu { devices, .. } = self else { return Ok(None) };
        let tensor = with_first(devices, |device| GpuOps::tensor_attention(spec, limits, device))?;
        Ok(Some(if tensor { "tensor" } else { "portable" }))
    }

    /// What each of several devices has of the weights; `None` where one has all.
    ///
    /// # Errors
    /// Sizes that they cannot share.
    pub fn shared(&self, spec: &ModelSpec, limits: &Limits) -> anyhow::Result<Option<Shared>> {
        let Self::Gpu { devices, gpus, .. } = self else { return Ok(None) };
        if *gpus == 1 {
            return Ok(None);
        }
        let of = |spec: &ModelSpec| needs(devices, spec, limits, ExpertsOn::Device);
        let all = of(spec)?.weights;
        let target = of(&ModelSpec { drafter: None, ..spec.clone() })?.weights;
        Ok(Some(Shared { gpus: *gpus, target, drafts: all - target }))
    }

    /// Whether the routed experts stay in the host's memory, where the rest is a device's.
    pub fn experts_on_host(&self) -> bool {
        matches!(self, Self::Gpu { experts: ExpertsOn::Host { .. }, .. })
    }

    /// Bytes of a device's memory for the experts of a step, were they on the host; `None` where they
    /// cannot be.
    pub fn places_bytes(&self, spec: &ModelSpec, limits: &Limits) -> Option<u64> {
        let Self::Gpu { devices, gpus: 1, .. } = self else { return None };
        needs(devices, spec, limits, ExpertsOn::HOST).ok().map(|needs| needs.scratch)
    }

    /// Allocates, and copies the weights where they are not used as they are mapped; gives its steps'
    /// times too where it is `timed`.
    ///
    /// # Errors
    /// As [`CpuOps::new`] and [`GpuOps::new`].
    pub fn start(
        &self,
        spec: Arc<ModelSpec>,
        limits: Limits,
        timed: bool,
    ) -> anyhow::Result<(Box<dyn Ops>, Option<StepTimes>)> {
        match self {
            Self::Cpu(options) => Ok(boxed(CpuOps::new(spec, limits, *options)?, timed)),
            Self::Gpu { devices, experts, gpus, .. } => {
                let mut devices =
                    std::mem::take(&mut *devices.lock().unwrap_or_else(PoisonError::into_inner));
                let setup = Setup { experts: *experts, ..Setup::default() };
                if *gpus > 1 {
                    let mut progress = Progress::bytes("weights to the devices");
                    let mut watch = |done| progress.at(done);
                    let ops = Ranks::new(&spec, limits, setup, devices, &mut watch);
                    progress.finish();
                    return Ok(boxed(ops?, timed));
                }
                let device = devices.pop().ok_or_else(|| anyhow!("the device was taken"))?;
                let mut progress = Progress::bytes("weights to the device");
                let ops = GpuOps::with(spec, limits, setup, device, &mut |done| progress.at(done));
                progress.finish();
                Ok(boxed(ops?, timed))
            }
        }
    }
}

/// Whether the settings name a GPU, be it here or not.
fn names_gpu(values: &Values) -> bool {
    values.get(&BACKEND) != "cpu"
}

/// Prompt rows of a piece.
pub fn chunk(values: &Values) -> usize {
    match names_gpu(values) && values.is_default(&PREFILL_CHUNK) {
        true => GPU_CHUNK,
        false => values.get(&PREFILL_CHUNK),
    }
}

/// Decoding requests from which rounds carry no drafts.
pub fn plain_streams(values: &Values) -> usize {
    match names_gpu(values) && values.is_default(&PLAIN_STREAMS) {
        true => GPU_PLAIN_STREAMS,
        // Commands with one user do not take it.
        false => values.get(&PLAIN_STREAMS).unwrap_or(usize::MAX),
    }
}

/// What settings come to on the backend that is named, by their names, be it here or not.
pub fn effective(values: &Values) -> Vec<(&'static str, String)> {
    let unused: &[&str] = match names_gpu(values) {
        true => &[THREADS.declared.name, ISA.declared.name],
        false => &[GPU_ATTENTION.declared.name],
    };
    let why = format!("unused by --{} {}", BACKEND.declared.name, values.get(&BACKEND));
    let decided = [
        (PLAIN_STREAMS.declared.name, plain_streams(values).to_string()),
        (PREFILL_CHUNK.declared.name, chunk(values).to_string()),
    ];
    unused.iter().map(|&name| (name, why.clone())).chain(decided).collect()
}

/// Where the settings have the routed experts.
pub fn experts_on(values: &Values) -> ExpertsOn {
    match values.get(&EXPERTS_ON).as_str() {
        "host" => ExpertsOn::HOST,
        _ => ExpertsOn::Device,
    }
}

/// What each device is asked for.
fn needs(
    devices: &Mutex<Vec<Box<dyn Device>>>,
    spec: &ModelSpec,
    limits: &Limits,
    experts: ExpertsOn,
) -> anyhow::Result<Needs> {
    with_first(devices, |device| GpuOps::needs(spec, limits, experts, device))
}

/// What the first device says; they are alike.
fn with_first<T>(
    devices: &Mutex<Vec<Box<dyn Device>>>,
    ask: impl FnOnce(&dyn Device) -> Result<T, OpsError>,
) -> anyhow::Result<T> {
    let devices = devices.lock().unwrap_or_else(PoisonError::into_inner);
    let device = devices.first().ok_or_else(|| anyhow!("the device was taken"))?;
    Ok(ask(device.as_ref())?)
}

fn boxed(ops: impl Ops + 'static, timed: bool) -> (Box<dyn Ops>, Option<StepTimes>) {
    if !timed {
        return (Box::new(ops), None);
    }
    let (ops, times) = Timed::new(ops);
    (Box::new(ops), Some(times))
}

fn cpu_options(values: &Values) -> anyhow::Result<CpuOptions> {
    let isa = match values.get(&ISA).as_str() {
        "auto" => Isa::detect(),
        name => Isa::named(name).ok_or_else(|| {
            let here: Vec<&str> = Isa::available().map(Isa::name).collect();
            let (place, here) = (values.place(&ISA), here.join(", "));
            UsageError(format!("{place}: found \"{name}\", accepted here: auto, {here}"))
        })?,
    };
    Ok(CpuOptions { threads: values.get(&THREADS).unwrap_or_else(machine::cores), isa })
}

#[cfg(test)]
mod tests {
    use super::*;
    use finback_kernels::device::emu;
    use finback_kernels::seated::emu_group;

    #[test]
    fn several_devices_keep_prefixes_under_the_key_of_one() {
        let (Ok(one), Ok(two)) = (emu(), emu_group(2)) else { return };
        let [one, two] = [vec![one], two].map(|all| Backend::of(all, ExpertsOn::Device));
        assert_eq!((one.key(), one.key()), ("emu".to_owned(), two.key()));
        assert!(matches!(two, Backend::Gpu { gpus: 2, .. }));
    }
}
