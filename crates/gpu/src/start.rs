//! How a backend begins: what it needs of a device's memory, and the allocation of all of it.

use std::sync::Arc;

use finback_kernels::device::Device;
use finback_ops::{Frequencies, Limits, ModelSpec, OpsError, Stage};

use crate::batch::Batch;
use crate::check::check;
use crate::load::Placer;
use crate::memory::Memory;
use crate::ops::GpuOps;
use crate::products::{Found, Products};
use crate::queue::{Kernels, Queue, failed};
use crate::sampling::Tables;
use crate::state::State;
use crate::weights::Weights;
use crate::wide::{self, Wide};
use crate::work::{self, Work};

/// Bytes of device memory that a backend allocates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Weights, without Engram tables: those are read by row from the map.
    pub weights: u64,
    /// Rings, open groups and the pool.
    pub state: u64,
    /// Values between steps, and tables.
    pub workspace: u64,
}

impl Needs {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights + self.state + self.workspace
    }
}

/// What is allocated beside the weights.
struct Rooms {
    state: State,
    work: Work,
    batch: Batch,
    tables: Tables,
    products: Products,
    wide: Wide,
}

impl Rooms {
    fn new(
        spec: &ModelSpec,
        limits: &Limits,
        found: &Found,
        wide: &wide::Found,
        memory: &mut Memory<'_>,
    ) -> Result<Self, OpsError> {
        let state = State::new(spec, limits, memory)?;
        let most = work::inputs(spec, limits);
        Ok(Self {
            work: Work::new(spec, limits, memory)?,
            batch: Batch::new(spec, limits, state.packed, memory)?,
            tables: Tables::new(spec, limits, memory)?,
            products: Products::new(memory, found, spec.numerics.round_inputs, most)?,
            wide: Wide::new(spec, limits, wide, memory)?,
            state,
        })
    }
}

impl GpuOps {
    /// Bytes that [`GpuOps::new`] allocates on this device.
    ///
    /// # Errors
    /// Sizes that the kernels cannot run.
    pub fn needs(
        spec: &ModelSpec,
        limits: &Limits,
        device: &dyn Device,
    ) -> Result<Needs, OpsError> {
        check(device.name(), spec, limits)?;
        let mut progress = |_| ();
        let found = Found::new(device, spec.numerics)?;
        let mut placer = Placer::new(Memory::Counted(0), found.tiled, &mut progress)?;
        Weights::place(spec, &mut placer)?;
        let mut memory = Memory::Counted(0);
        State::new(spec, limits, &mut memory)?;
        let state = memory.counted();
        let mut memory = Memory::Counted(0);
        Rooms::new(spec, limits, &found, &wide::Found::new(device), &mut memory)?;
        Ok(Needs { weights: placer.counted(), state, workspace: memory.counted() - state })
    }

    /// Allocates for the limits and copies the weights to the device; `progress` takes the bytes that
    /// are there, of [`Needs::weights`].
    ///
    /// # Errors
    /// Sizes that the kernels cannot run, too little memory, a tensor that cannot be read, an expert's
    /// scale that is NaN, or the device's failure.
    pub fn new(
        spec: Arc<ModelSpec>,
        limits: Limits,
        device: Box<dyn Device>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, OpsError> {
        Self::start(spec, limits, device, None, progress)
    }

    /// As [`GpuOps::new`], but weights of more than `over` bytes are drawn by the device and not read:
    /// for measuring, where they are not there.
    ///
    /// # Errors
    /// As [`GpuOps::new`].
    pub fn with_random_weights(
        spec: Arc<ModelSpec>,
        limits: Limits,
        device: Box<dyn Device>,
        over: usize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, OpsError> {
        Self::start(spec, limits, device, Some(over), progress)
    }

    fn start(
        spec: Arc<ModelSpec>,
        limits: Limits,
        mut device: Box<dyn Device>,
        drawn: Option<usize>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, OpsError> {
        let needs = Self::needs(&spec, &limits, device.as_ref())?;
        let free = device.free_memory();
        let free = free.map_err(|error| failed(device.name(), "memory", &error))?;
        if let Some(free) = free
            && needs.total() > free as u64
        {
            let Needs { weights, state, workspace } = needs;
            return Err(OpsError::Unsupported {
                backend: device.name(),
                step: "this checkpoint",
                reason: format!(
                    "{} are wanted (weights {}, state {}, workspace {}) and {} are free",
                    gib(needs.total()),
                    gib(weights),
                    gib(state),
                    gib(workspace),
                    gib(free as u64)
                ),
            });
        }
        let kernels = Kernels::find(device.as_ref())?;
        let found = Found::new(device.as_ref(), spec.numerics)?;
        let wide = wide::Found::new(device.as_ref());
        let memory = Memory::Device(device.as_mut());
        let mut placer = Placer::new(memory, found.tiled, progress)?;
        if let Some(over) = drawn {
            placer.draw_over(over)?;
        }
        let weights = Weights::place(&spec, &mut placer)?;
        let mut memory = Memory::Device(device.as_mut());
        let Rooms { state, work, batch, tables, products, wide } =
            Rooms::new(&spec, &limits, &found, &wide, &mut memory)?;
        let mut queue = Queue::new(device);
        let columns = spec.engram.as_ref().map_or(0, |engram| engram.columns());
        let ids: Vec<u8> =
            (0..(limits.rows * columns) as u64).flat_map(|id| id.to_ne_bytes()).collect();
        queue.write(work.table_ids.at, &ids)?;
        let ones: Vec<u8> = (0..limits.rows).flat_map(|_| 1.0f32.to_ne_bytes()).collect();
        queue.write(work.sorted.at, &ones)?;
        Ok(Self {
            window_frequencies: Frequencies::window(&spec.dims, spec.numerics),
            compressed_frequencies: Frequencies::compressed(&spec.dims, spec.numerics),
            stage: Stage::default(),
            table_rows: Vec::new(),
            chosen: 0,
            drafted: 0,
            spec,
            limits,
            queue,
            kernels,
            products,
            wide,
            pending: None,
            weights,
            state,
            work,
            batch,
            tables,
        })
    }
}

fn gib(bytes: u64) -> String {
    format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30))
}
