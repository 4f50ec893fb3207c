//! The backends by name: the memory each has, what it takes beside weights and state, and its start.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::anyhow;
use finback_cpu::simd::Isa;
use finback_cpu::{CpuOps, CpuOptions};
use finback_gpu::{ExpertsOn, GpuOps, Needs, Setup};
use finback_kernels::device::Device;
use finback_ops::{Limits, ModelSpec, Ops, StepTimes, Timed};

use crate::device;
use crate::machine;
use crate::progress::Progress;
use crate::settings::table::{BACKEND, EXPERTS_ON, ISA, PREFILL_CHUNK, THREADS};
use crate::settings::{UsageError, Values};

/// Prompt rows of a piece on a GPU, where nobody said: fewer would not fill it.
const GPU_CHUNK: usize = 4096;

/// Where the model runs.
pub enum Backend {
    /// The processor, over mapped weights.
    Cpu(CpuOptions),
    /// A GPU.
    Gpu {
        /// Until its start takes it.
        device: Mutex<Option<Box<dyn Device>>>,
        /// Its [`Device::key`].
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
        let experts = experts_on(values);
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
        let device = device::open(values, &values.place(&BACKEND), &name)?;
        let key = device.key();
        Ok(Self::Gpu { device: Mutex::new(Some(device)), key, experts })
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

    /// Prompt rows of a piece.
    pub fn chunk(&self, values: &Values) -> usize {
        match self {
            Self::Gpu { .. } if values.is_default(&PREFILL_CHUNK) => GPU_CHUNK,
            _ => values.get(&PREFILL_CHUNK),
        }
    }

    /// Bytes of memory there are for weights, state and workspace.
    ///
    /// # Errors
    /// The device's own failure.
    pub fn memory(&self) -> anyhow::Result<u64> {
        let host = machine::memory().map_or(u64::MAX, |(_, available)| available);
        match self {
            Self::Cpu(_) => Ok(host),
            Self::Gpu { device, .. } => {
                let mut device = device.lock().unwrap_or_else(PoisonError::into_inner);
                let device = device.as_mut().ok_or_else(|| anyhow!("the device was taken"))?;
                Ok(device.free_memory()?.map_or(host, |free| free as u64))
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
            Self::Gpu { device, .. } => {
                Ok(needs(device, spec, limits, ExpertsOn::Device)?.workspace)
            }
        }
    }

    /// Whether the routed experts stay in the host's memory, where the rest is a device's.
    pub fn experts_on_host(&self) -> bool {
        matches!(self, Self::Gpu { experts: ExpertsOn::Host { .. }, .. })
    }

    /// Bytes of a device's memory for the experts of a step, were they on the host; `None` where they
    /// cannot be.
    pub fn places_bytes(&self, spec: &ModelSpec, limits: &Limits) -> Option<u64> {
        let Self::Gpu { device, .. } = self else { return None };
        needs(device, spec, limits, ExpertsOn::HOST).ok().map(|needs| needs.scratch)
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
            Self::Gpu { device, experts, .. } => {
                let device = device.lock().unwrap_or_else(PoisonError::into_inner).take();
                let device = device.ok_or_else(|| anyhow!("the device was taken"))?;
                let mut progress = Progress::bytes("weights to the device");
                let setup = Setup { experts: *experts, ..Setup::default() };
                let ops = GpuOps::with(spec, limits, setup, device, &mut |done| progress.at(done));
                progress.finish();
                Ok(boxed(ops?, timed))
            }
        }
    }
}

/// Where the settings have the routed experts.
pub fn experts_on(values: &Values) -> ExpertsOn {
    match values.get(&EXPERTS_ON).as_str() {
        "host" => ExpertsOn::HOST,
        _ => ExpertsOn::Device,
    }
}

fn needs(
    device: &Mutex<Option<Box<dyn Device>>>,
    spec: &ModelSpec,
    limits: &Limits,
    experts: ExpertsOn,
) -> anyhow::Result<Needs> {
    let device = device.lock().unwrap_or_else(PoisonError::into_inner);
    let device = device.as_deref().ok_or_else(|| anyhow!("the device was taken"))?;
    Ok(GpuOps::needs(spec, limits, experts, device)?)
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
