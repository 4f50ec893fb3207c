//! Routed experts that stay in the host's memory: a step brings those it uses to places on the device,
//! in the order that its products take them, and multiplies by what lies there.
//!
//! Which experts those are is read on the device, so a round is the same launches whatever they are. The
//! products are those of experts that lie on the device: the same kernels over the same bytes.

use finback_kernels::args::FetchArgs;
use finback_kernels::fetch::{self, Tensor};
use finback_kernels::manifest::Kernel;
use finback_kernels::tiles::{Part, Several, TILE_OUTPUTS, Tiles};
use finback_ops::{Expert, LayerSpec, Limits, Linear, ModelSpec, OpsError, OpsResult};

use crate::linear::{side, tiles_of};
use crate::maps::Maps;
use crate::memory::Memory;
use crate::products::word;
use crate::queue::Queue;
use crate::weights::THREE;

/// Where the routed experts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpertsOn {
    /// In the device's memory, arranged once.
    Device,
    /// In the mapped checkpoint, which the device reads.
    Host {
        /// Bytes of device memory for experts of a step, one at least; a step that uses more of them
        /// takes them in turns.
        scratch: u64,
    },
}

impl ExpertsOn {
    /// On the host, with room for what a round of a few rows uses.
    pub const HOST: Self = Self::Host { scratch: 1 << 30 };
}

/// What a step reads of experts at once.
pub const IN: [fn(&Expert) -> &Linear; 2] = [THREE[0], THREE[1]];
/// What it reads after that.
pub const OUT: [fn(&Expert) -> &Linear; 1] = [THREE[2]];
/// Groups of a launch's second dimension.
const GRID: usize = 65535;
/// Where a tensor of a place begins.
const ALIGNMENT: u64 = 256;

/// Places for a step's experts, by what a place takes.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    places: usize,
    /// Bytes of a place's tensors as they are stored.
    stored: u64,
    /// Bytes of the same in tiles.
    tiles: u64,
}

impl Room {
    /// As many as the limits may use, within so many bytes.
    pub fn new(spec: &ModelSpec, limits: &Limits, scratch: u64, tiled: bool) -> Self {
        let (mut stored, mut tiles, mut most, mut steps) = (0, 0, 1, 1);
        for layer in spec.layers.iter().chain(spec.draft_layers()) {
            let Some(first) = layer.ffn.experts.first() else { continue };
            most = used(layer, limits).max(most);
            for phase in [&IN[..], &OUT[..]] {
                let linears: Vec<&Linear> = phase.iter().map(|of| of(first)).collect();
                let own = linears.iter().flat_map(|linear| sizes(linear)).map(apart).sum();
                stored = stored.max(own);
                let own = if tiled { tiles_of(&linears) } else { None };
                tiles = own.map_or(0, |own| own.bytes() as u64).max(tiles);
                steps = own.map_or(0, |own| own.steps()).max(steps);
            }
        }
        let fit = scratch.checked_div(stored + tiles).unwrap_or(0);
        let fit = usize::try_from(fit).unwrap_or(usize::MAX).min(GRID / steps);
        Self { places: fit.clamp(1, most), stored, tiles }
    }
}

/// Experts that a step of a layer may use.
fn used(layer: &LayerSpec, limits: &Limits) -> usize {
    (limits.rows * layer.ffn.topk).min(layer.ffn.experts.len())
}

/// Bytes of a linear's codes and of its scales.
fn sizes(linear: &Linear) -> [u64; 2] {
    let Linear { format, out, inp, .. } = *linear;
    [(out * format.row_bytes(inp)) as u64, format.scale_bytes(out, inp) as u64]
}

fn apart(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGNMENT)
}

/// The maps, and the places on the device.
pub struct Hosted {
    maps: Maps,
    kernel: &'static Kernel,
    /// Experts that there are places for.
    pub places: usize,
    /// The places' tensors as they are stored, one tensor of all places after another.
    stored: u64,
    /// Where the same go in tiles, if products take those.
    pub tiles: u64,
    /// (place, start, end) of each.
    pub named: u64,
}

impl Hosted {
    /// Allocates the places; `kernel` is `fetch`.
    pub fn new(
        room: Room,
        maps: Maps,
        kernel: &'static Kernel,
        memory: &mut Memory<'_>,
    ) -> Result<Self, OpsError> {
        let Room { places, stored, tiles } = room;
        let all = places as u64;
        let stored = memory.take(all * stored)?;
        let tiles = memory.take(all * tiles)?;
        Ok(Self { maps, kernel, places, stored, tiles, named: memory.take(12 * all)? })
    }

    /// How a step brings these linears of every expert, without the address of its table; and the table.
    pub fn plan(
        &self,
        experts: &[Expert],
        of: &[fn(&Expert) -> &Linear],
        tiles: Option<Tiles>,
    ) -> (Fetched, Vec<u64>) {
        let mut fetched =
            Fetched { table: 0, count: 0, tensors: [NONE; 4], parts: [None; 2], tiles };
        let (mut to, mut first) = (0, 0);
        for (i, of) in of.iter().enumerate() {
            let Some(linear) = experts.first().map(of) else { continue };
            let [weight, scale] = sizes(linear).map(|bytes| {
                let tensor = Tensor { bytes, to, apart: apart(bytes) };
                to += self.places as u64 * tensor.apart;
                tensor
            });
            for tensor in [weight, scale].into_iter().filter(|tensor| tensor.bytes > 0) {
                fetched.tensors[fetched.count] = tensor;
                fetched.count += 1;
            }
            fetched.parts[i] = Some(Part {
                weight: self.stored + weight.to,
                scale: if scale.bytes > 0 { self.stored + scale.to } else { 0 },
                side: side(linear.format),
                outputs: linear.out,
                first,
                apart: 1,
                several: Some(Several {
                    groups: self.named,
                    count: self.places,
                    weight_bytes: weight.apart,
                    scale_bytes: scale.apart,
                }),
            });
            first += linear.out / TILE_OUTPUTS;
        }
        let linears = experts.iter().flat_map(|expert| of.iter().map(|of| of(expert)));
        let tensors = linears.flat_map(|l| [Some(&l.weight), l.scale.as_ref()]).flatten();
        let offsets: Vec<u64> = tensors.map(|tensor| self.maps.offset(tensor)).collect();
        let table = fetch::table(&fetched.tensors[..fetched.count], &offsets);
        (fetched, table)
    }

    /// Brings the experts of so many groups at this address; the address of the groups that name their
    /// places instead.
    pub fn bring(
        &self,
        queue: &mut Queue,
        fetched: &Fetched,
        groups: u64,
        count: usize,
    ) -> Result<u64, OpsError> {
        let args = FetchArgs {
            map: self.maps.base,
            table: fetched.table,
            groups,
            named: self.named,
            out: self.stored,
            count: word(fetched.count),
            pad: 0,
        };
        queue.push(self.kernel, &args, fetch::grid(&fetched.tensors[..fetched.count], count))?;
        if let Some(tiles) = &fetched.tiles {
            for part in fetched.parts.iter().flatten() {
                self.arrange(queue, tiles, part, count)?;
            }
        }
        Ok(self.named)
    }

    fn arrange(&self, queue: &mut Queue, tiles: &Tiles, part: &Part, count: usize) -> OpsResult {
        let several = part.several.map(|several| Several { count, ..several });
        match tiles.arrange(&Part { several, ..*part }, self.tiles) {
            Some((kernel, args, grid)) => queue.push(kernel, &args, grid),
            None => Err(OpsError::Unsupported {
                backend: queue.name(),
                step: "the experts",
                reason: "no kernel arranges their format".into(),
            }),
        }
    }
}

/// How a step brings some linears of a layer's experts.
#[derive(Debug, Clone, Copy)]
pub struct Fetched {
    /// Address of the table.
    pub table: u64,
    tensors: [Tensor; 4],
    count: usize,
    /// Each linear in the places, as it is stored.
    pub parts: [Option<Part>; 2],
    /// What both become.
    pub tiles: Option<Tiles>,
}

const NONE: Tensor = Tensor { bytes: 0, to: 0, apart: 0 };
