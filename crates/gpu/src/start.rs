//! How a backend begins: what it needs of a device's memory, and the allocation of all of it.

use std::sync::Arc;

use finback_kernels::device::Device;
use finback_kernels::manifest::Kernel;
use finback_ops::{Frequencies, Limits, ModelSpec, Numerics, OpsError, Stage, TableRows};

use crate::batch::Batch;
use crate::check::check;
use crate::hosted::{ExpertsOn, Hosted, Room};
use crate::load::Placer;
use crate::maps::{self, Maps};
use crate::memory::Memory;
use crate::ops::GpuOps;
use crate::parts::Parts;
use crate::products::{Found, Products};
use crate::queue::{Kernels, Queue, failed, find};
use crate::sampling::Tables;
use crate::share::Share;
use crate::state::State;
use crate::weights::Weights;
use crate::wide::{self, Wide};
use crate::work::{self, Work};

/// What a start may choose.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Where the routed experts are.
    pub experts: ExpertsOn,
    /// Weights of more bytes than this are drawn by the device and not read: for measuring, where they
    /// are not there.
    pub draw_over: Option<usize>,
}

impl Default for Setup {
    fn default() -> Self {
        Self { experts: ExpertsOn::Device, draw_over: None }
    }
}

/// Bytes of device memory that a backend allocates, and of the host's that it locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Weights, without Engram tables: those are read by row from the map.
    pub weights: u64,
    /// Rings, open groups and the pool.
    pub state: u64,
    /// Values between steps, and tables.
    pub workspace: u64,
    /// Places for a step's experts, where those stay on the host.
    pub scratch: u64,
    /// Bytes of the host's memory that hold those experts, locked for the device.
    pub locked: u64,
}

impl Needs {
    /// All of the device's.
    pub fn total(&self) -> u64 {
        self.weights + self.state + self.workspace + self.scratch
    }

    /// The sum and its parts, in words.
    fn text(&self) -> String {
        let Self { weights, state, workspace, scratch, .. } = *self;
        let [weights, state, workspace] = [weights, state, workspace].map(gib);
        let scratch = if scratch > 0 {
            format!(", experts of a step {}", gib(scratch))
        } else {
            String::new()
        };
        let total = gib(self.total());
        format!(
            "{total} are wanted (weights {weights}, state {state}, workspace {workspace}{scratch})"
        )
    }
}

/// What a device has, and which part of a model.
struct Finds {
    backend: &'static str,
    products: Found,
    wide: wide::Found,
    kernels: Kernels,
    share: Share,
}

impl Finds {
    fn new(device: &dyn Device, numerics: Numerics) -> Result<Self, OpsError> {
        Ok(Self {
            backend: device.name(),
            products: Found::new(device, numerics)?,
            wide: wide::Found::new(device),
            kernels: Kernels::find(device)?,
            share: Share::of(device),
        })
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
    parts: Parts,
}

impl Rooms {
    fn new(
        spec: &ModelSpec,
        limits: &Limits,
        finds: &Finds,
        memory: &mut Memory<'_>,
    ) -> Result<Self, OpsError> {
        let Finds { backend, products: found, wide, kernels, share } = finds;
        let wide = Wide::new(spec, limits, wide, found.tiled, memory)?;
        if share.is_shared() && wide.attend.is_some() {
            // It takes 64 heads at once; fewer would go another way and have other bits.
            let reason = "attention on tensor cores takes one GPU; the portable one takes several";
            let (step, reason) = ("on several GPUs", reason.into());
            return Err(OpsError::Unsupported { backend, step, reason });
        }
        let state = State::new(spec, limits, memory)?;
        let own = share.own(&spec.dims);
        let most = work::inputs(spec, limits, &own);
        let parts = work::most_gathered(spec, limits);
        Ok(Self {
            parts: Parts::new(memory, kernels.join_parts, share.count, parts)?,
            work: Work::new(spec, limits, *share, memory)?,
            batch: Batch::new(spec, limits, state.packed, memory)?,
            tables: Tables::new(spec, limits, memory)?,
            products: Products::new(memory, found, spec.numerics.round_inputs, most)?,
            wide,
            state,
        })
    }
}

impl GpuOps {
    /// Bytes that a start with the experts there allocates on this device.
    ///
    /// # Errors
    /// Sizes that the kernels cannot run.
    pub fn needs(
        spec: &ModelSpec,
        limits: &Limits,
        experts: ExpertsOn,
        device: &dyn Device,
    ) -> Result<Needs, OpsError> {
        let finds = Finds::new(device, spec.numerics)?;
        check(device.name(), spec, limits)?;
        finds.share.check(device.name(), spec)?;
        let mut progress = |_| ();
        let (own, _) = finds.share.spec(spec)?;
        let mut memory = Memory::Counted(0);
        let hosted = hosted(&own, limits, experts, &finds, device)?;
        let hosted = hosted
            .map(|(room, kernel)| Hosted::new(room, Maps::default(), kernel, &mut memory))
            .transpose()?;
        let scratch = memory.counted();
        let mut placer = Placer::new(Memory::Counted(0), finds.products.tiled, &mut progress)?;
        placer.leave_experts(hosted.as_ref());
        Weights::place(&own, &mut placer)?;
        let mut memory = Memory::Counted(0);
        State::new(spec, limits, &mut memory)?;
        let state = memory.counted();
        let mut memory = Memory::Counted(0);
        Rooms::new(spec, limits, &finds, &mut memory)?;
        Ok(Needs {
            weights: placer.counted(),
            state,
            workspace: memory.counted() - state,
            scratch,
            locked: hosted.map_or(0, |_| maps::locked(spec)),
        })
    }

    /// Whether attention runs on tensor cores there.
    ///
    /// # Errors
    /// Sizes that the kernels cannot run.
    pub fn tensor_attention(
        spec: &ModelSpec,
        limits: &Limits,
        device: &dyn Device,
    ) -> Result<bool, OpsError> {
        let wide =
            Wide::new(spec, limits, &wide::Found::new(device), false, &mut Memory::Counted(0))?;
        Ok(wide.attend.is_some())
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
        Self::with(spec, limits, Setup::default(), device, progress)
    }

    /// As [`GpuOps::new`], with what a start may choose. Experts that stay on the host are locked there
    /// first: `progress` takes their bytes too, of [`Needs::locked`].
    ///
    /// # Errors
    /// As [`GpuOps::new`]; or a device that cannot read the host's memory.
    pub fn with(
        spec: Arc<ModelSpec>,
        limits: Limits,
        setup: Setup,
        mut device: Box<dyn Device>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, OpsError> {
        let needs = Self::needs(&spec, &limits, setup.experts, device.as_ref())?;
        let free = device.free_memory();
        let free = free.map_err(|error| failed(device.name(), "memory", &error))?;
        if let Some(free) = free
            && needs.total() > free as u64
        {
            let mut reason = format!("{} and {} are free", needs.text(), gib(free as u64));
            let other = Self::needs(&spec, &limits, ExpertsOn::HOST, device.as_ref());
            if let (ExpertsOn::Device, Ok(other)) = (setup.experts, other) {
                let (wanted, locked) = (gib(other.total()), gib(other.locked));
                reason += &format!(
                    "; with the routed experts on the host {wanted} are, beside {locked} locked there"
                );
            }
            let (backend, step) = (device.name(), "this checkpoint");
            return Err(OpsError::Unsupported { backend, step, reason });
        }
        let finds = Finds::new(device.as_ref(), spec.numerics)?;
        let (own, wholes) = finds.share.spec(&spec)?;
        let hosted = match hosted(&own, &limits, setup.experts, &finds, device.as_ref())? {
            None => None,
            Some((room, kernel)) => {
                let mut memory = Memory::Device(device.as_mut());
                let maps = Maps::register(&own, &mut memory, progress)?;
                Some(Hosted::new(room, maps, kernel, &mut memory)?)
            }
        };
        let memory = Memory::Device(device.as_mut());
        let mut after = |done| progress(needs.locked + done);
        let mut placer = Placer::new(memory, finds.products.tiled, &mut after)?;
        placer.leave_experts(hosted.as_ref());
        placer.decide_by(wholes);
        if let Some(over) = setup.draw_over {
            placer.draw_over(over)?;
        }
        let weights = Weights::place(&own, &mut placer)?;
        let mut memory = Memory::Device(device.as_mut());
        let Rooms { state, work, batch, tables, products, wide, parts } =
            Rooms::new(&spec, &limits, &finds, &mut memory)?;
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
            table_read: TableRows::default(),
            chosen: 0,
            drafted: 0,
            own: finds.share.own(&spec.dims),
            spec,
            limits,
            queue,
            kernels: finds.kernels,
            products,
            wide,
            parts,
            pending: None,
            factors: None,
            turned: None,
            keys_aside: false,
            hosted,
            weights,
            state,
            work,
            batch,
            tables,
        })
    }
}

/// Places for experts that stay on the host, and the kernel that fills them.
fn hosted(
    spec: &ModelSpec,
    limits: &Limits,
    experts: ExpertsOn,
    finds: &Finds,
    device: &dyn Device,
) -> Result<Option<(Room, &'static Kernel)>, OpsError> {
    let ExpertsOn::Host { scratch } = experts else { return Ok(None) };
    if finds.share.is_shared() {
        // Each would lock parts of pages that another locks.
        let (backend, reason) = (finds.backend, "experts on the host take one GPU".into());
        return Err(OpsError::Unsupported { backend, step: "on several GPUs", reason });
    }
    let room = Room::new(spec, limits, scratch, finds.products.tiled);
    Ok(Some((room, find(device, "fetch")?)))
}

fn gib(bytes: u64) -> String {
    format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30))
}
