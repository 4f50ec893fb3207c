//! Matrix products on tensor cores: which shapes they take, and the launches that rearrange a weight
//! and multiply by it.
//!
//! A row's bits depend on the row and the weight alone: every kernel that [`Tiles::product`] may choose
//! adds in the order of `cuda/matmul.cuh`. The dialect's dense and expert products are the oracle, and
//! the way where a shape does not fit.

use crate::args::{ArrangeArgs, TileArgs, format};
use crate::manifest::{self, Kernel};

/// Outputs of a tile.
pub const TILE_OUTPUTS: usize = 16;
/// Inputs of a step.
pub const TILE_INPUTS: usize = 64;
/// Most rows of a product that is bound by the weights.
pub const FEW_ROWS: usize = 32;
/// Warps of a group of those products, which is the most slices of a sum.
const WARPS: usize = 16;
/// Outputs and rows of a group of the products of many rows.
const MANY: (usize, usize) = (128, 128);
/// Shared memory that a group may ask for.
pub const SHARED: u32 = 232_448;

/// A weight `[outputs, inputs]` in tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiles {
    format: u32,
    inputs: usize,
    outputs: usize,
    slices: usize,
}

/// A launch: the kernel, its arguments, its grid.
pub type Planned<A> = (&'static Kernel, A, [u32; 2]);

/// Which of the weight's tiles a stored tensor becomes: `first`, and every `apart`-th after it.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Address of the codes or values.
    pub weight: u64,
    /// Address of the scales, 0 without.
    pub scale: u64,
    /// Edge of an FP8 scale's square.
    pub side: usize,
    /// Outputs of the stored tensor.
    pub outputs: usize,
    /// Its first tile.
    pub first: usize,
    /// Tiles from one of its tiles to the next.
    pub apart: usize,
}

/// Rows, and where their outputs go.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rows {
    /// Address of the bf16 rows, as `operand` makes them.
    pub x: u64,
    /// Values from one row to the next, a multiple of 8.
    pub x_stride: usize,
    /// Rows; of the largest group where there are groups.
    pub rows: usize,
    /// Address of the f32 outputs.
    pub out: u64,
    /// Values from one row's outputs to the next's.
    pub out_stride: usize,
    /// Outputs from here on go to `second`, a multiple of 16; 0 where all go to `out`.
    pub split: usize,
    /// Address of those outputs.
    pub second: u64,
    /// Values from one row's to the next's.
    pub second_stride: usize,
    /// Whether outputs are rounded to bf16.
    pub round: bool,
}

/// Several weights of one shape, and which rows take which.
#[derive(Debug, Clone, Copy)]
pub enum Groups {
    /// One weight, all rows.
    One,
    /// So many weights, one after another in memory; all rows take each, with the inputs and outputs so
    /// many values further on each time.
    Each {
        /// How many.
        count: usize,
        /// Values from one weight's inputs to the next's.
        x_step: usize,
        /// Values from one weight's outputs to the next's.
        out_step: usize,
    },
    /// Weights by the (weight, first place, end) of the groups in use, which come first.
    Some {
        /// Address of the groups.
        groups: u64,
        /// How many there may be.
        count: usize,
        /// Address of each place's row, 0 where places are rows.
        list: u64,
    },
}

impl Tiles {
    /// The tiles of a weight in `format` with FP8 scales of `side` x `side`; `None` where its products
    /// run in the dialect.
    pub fn new(format: u32, side: usize, inputs: usize, outputs: usize) -> Option<Self> {
        let stored = match format {
            format::FP8 => side > 0 && side.is_multiple_of(32),
            format::FP4 | format::BF16 => true,
            _ => false,
        };
        let whole = inputs > 0 && inputs.is_multiple_of(TILE_INPUTS) && outputs > 0;
        let slices = (stored && whole).then(|| slices(inputs / TILE_INPUTS)).flatten()?;
        Some(Self { format, inputs, outputs, slices })
    }

    /// Whether these scales lift codes exactly: each product of a code and its scale is a bf16 value
    /// that is not subnormal, and what multiplies a code is one too.
    pub fn lifts(format: u32, scales: &[u8]) -> bool {
        let range = match format {
            format::FP8 => 10..=134,
            format::FP4 => 2..=128,
            _ => return true,
        };
        scales.iter().all(|scale| range.contains(scale))
    }

    fn count(&self) -> usize {
        self.outputs.div_ceil(TILE_OUTPUTS)
    }

    fn steps(&self) -> usize {
        self.inputs / TILE_INPUTS
    }

    /// Bytes of a tile's step.
    fn step_bytes(&self) -> usize {
        match self.format {
            format::FP8 => 1024,
            format::FP4 => 544,
            _ => 2048,
        }
    }

    /// Bytes in memory, a multiple of 256.
    pub fn bytes(&self) -> usize {
        let scales = if self.format == format::FP8 { 2 } else { 0 };
        (self.count() * self.steps() * (self.step_bytes() + scales)).next_multiple_of(256)
    }

    /// Rearranges a stored tensor of the weight's inputs into the tiles at `out`.
    pub fn arrange(&self, part: &Part, out: u64) -> Option<Planned<ArrangeArgs>> {
        let args = ArrangeArgs {
            weight: part.weight,
            scale: part.scale,
            out,
            inputs: word(self.inputs),
            outputs: word(part.outputs),
            side: word(part.side),
            first: word(part.first),
            apart: word(part.apart),
            tiles: word(self.count()),
        };
        let kernel = manifest::kernel(self.named(["arrange_fp8", "arrange_fp4", "arrange_bf16"]))?;
        let grid = [word(part.outputs.div_ceil(TILE_OUTPUTS)), word(self.steps())];
        Some((kernel, args, grid))
    }

    /// Steps of a slice.
    pub fn slice_steps(&self) -> usize {
        self.steps() / self.slices
    }

    /// Inputs of the weight.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Multiplies rows by the tiles at `weight`, on a device that runs `width` groups at once.
    pub fn product(
        &self,
        weight: u64,
        rows: &Rows,
        groups: &Groups,
        width: u32,
    ) -> Option<Planned<TileArgs>> {
        let few =
            [1, 2].into_iter().find_map(|blocks| self.few(weight, rows, groups, width, blocks));
        few.or_else(|| self.many(weight, rows, groups))
    }

    /// The product of up to [`FEW_ROWS`] rows where so many groups, 1 or 2, share a sum's slices; `None`
    /// where the rows do not fit in shared memory or the slices are not halves.
    pub fn few(
        &self,
        weight: u64,
        rows: &Rows,
        groups: &Groups,
        width: u32,
        blocks: usize,
    ) -> Option<Planned<TileArgs>> {
        let mut args = self.args(weight, rows, groups);
        (args.stages, args.chunk) = self.ring(rows.rows, blocks)?;
        let names = match blocks {
            1 => ["tile_fp8_few", "tile_fp4_few", "tile_bf16_few"],
            _ => ["tile_fp8_pair", "tile_fp4_pair", "tile_bf16_pair"],
        };
        let grid = [(width / word(blocks)).max(1), word(blocks)];
        Some((manifest::kernel(self.named(names))?, args, grid))
    }

    /// The product of any number of rows.
    pub fn many(&self, weight: u64, rows: &Rows, groups: &Groups) -> Option<Planned<TileArgs>> {
        let args = self.args(weight, rows, groups);
        let parts = match groups {
            Groups::Some { .. } => 1,
            _ => word(rows.rows.div_ceil(MANY.1)),
        };
        let names = ["tile_fp8_many", "tile_fp4_many", "tile_bf16_many"];
        let grid = [word(self.outputs.div_ceil(MANY.0)), args.groups_max * parts];
        Some((manifest::kernel(self.named(names))?, args, grid))
    }

    fn args(&self, weight: u64, rows: &Rows, groups: &Groups) -> TileArgs {
        let mut args = TileArgs {
            weight,
            x: rows.x,
            out: rows.out,
            second: rows.second,
            expert_bytes: self.bytes() as u64,
            rows: word(rows.rows),
            inputs: word(self.inputs),
            outputs: word(self.outputs),
            slices: word(self.slices),
            groups_max: 1,
            x_stride: word(rows.x_stride),
            out_stride: word(rows.out_stride),
            split: word(if rows.split == 0 { self.outputs } else { rows.split }),
            second_stride: word(rows.second_stride),
            round: rows.round.into(),
            most_rows: word(rows.rows),
            ..TileArgs::default()
        };
        match *groups {
            Groups::One => {}
            Groups::Each { count, x_step, out_step } => {
                args.groups_max = word(count);
                (args.x_step, args.out_step) = (word(x_step), word(out_step));
            }
            Groups::Some { groups, count, list } => {
                args.groups_max = word(count);
                (args.groups, args.list) = (groups, list);
            }
        }
        args
    }

    /// Stages of a warp's ring and steps of each where so many blocks share the slices: two of as many
    /// steps as shared memory holds beside the rows and the sums, up to a slice.
    fn ring(&self, rows: usize, blocks: usize) -> Option<(u32, u32)> {
        if !self.slices.is_multiple_of(blocks) || rows > FEW_ROWS {
            return None;
        }
        let sums = 2 * WARPS * rows.div_ceil(8) * 512;
        let fixed = 256 + WARPS * 96 + sums + rows * self.inputs * 2 / blocks;
        let room = (SHARED as usize).checked_sub(fixed)? / WARPS;
        let chunk = (room / 2 / self.step_bytes()).min(self.steps() / self.slices);
        (chunk > 0).then_some((2, word(chunk)))
    }

    fn named(&self, [fp8, fp4, bf16]: [&'static str; 3]) -> &'static str {
        match self.format {
            format::FP8 => fp8,
            format::FP4 => fp4,
            _ => bf16,
        }
    }
}

/// Slices of a sum of so many steps: the most of up to 16 equal ones, of 3 to 16 steps each.
fn slices(steps: usize) -> Option<usize> {
    let fits = |slices: &usize| steps.is_multiple_of(*slices) && steps / slices <= 16;
    let long = (1..=WARPS).rev().filter(fits).find(|slices| steps / slices >= 3);
    long.or_else(|| Some(1).filter(fits))
}

fn word(size: usize) -> u32 {
    size as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_cut_by_the_weights_shape_alone() {
        for (inputs, wanted) in [(5120, 16), (8192, 16), (4096, 16), (2304, 12), (1280, 5), (64, 1)]
        {
            assert_eq!(slices(inputs / TILE_INPUTS), Some(wanted), "{inputs}");
        }
        // 17 steps are one slice or 17, and neither fits.
        assert_eq!(slices(17), None);
    }

    #[test]
    fn shapes_that_do_not_fit_are_left_to_the_dialect() {
        assert!(Tiles::new(format::FP8, 32, 128, 5).is_some());
        for (kind, side, inputs) in [
            (format::FP8, 48, 128),
            (format::FP8, 32, 96),
            (format::F16, 32, 128),
            (format::F32, 32, 128),
        ] {
            assert_eq!(Tiles::new(kind, side, inputs, 5), None, "{kind} {side} {inputs}");
        }
        assert!(Tiles::lifts(format::FP8, &[10, 134]) && Tiles::lifts(format::FP4, &[2, 128]));
        for (kind, scale) in
            [(format::FP8, 9), (format::FP8, 135), (format::FP4, 1), (format::FP4, 129)]
        {
            assert!(!Tiles::lifts(kind, &[120, scale]), "{kind} {scale}");
        }
    }

    #[test]
    fn a_kernel_is_chosen_by_rows_and_never_asks_for_more_than_there_is() {
        let tiles = Tiles::new(format::FP8, 32, 5120, 1792).unwrap();
        let kernel = |tiles: &Tiles, rows| {
            let rows = Rows { rows, ..Rows::default() };
            let (kernel, args, grid) = tiles.product(0, &rows, &Groups::One, 132).unwrap();
            (kernel.name, args.stages * args.chunk, grid)
        };
        assert_eq!(kernel(&tiles, 1).0, "tile_fp8_few");
        assert_eq!(kernel(&tiles, 24).0, "tile_fp8_pair");
        assert_eq!(kernel(&tiles, 33), ("tile_fp8_many", 0, [14, 1]));
        assert_eq!(kernel(&tiles, 4096).2, [14, 32]);
        // Five slices are not two halves.
        let odd = Tiles::new(format::FP8, 32, 1280, 64).unwrap();
        assert_eq!(kernel(&odd, 24).0, "tile_fp8_few");
        for (rows, blocks) in (1..=FEW_ROWS).flat_map(|rows| [(rows, 1), (rows, 2)]) {
            if let Some((stages, chunk)) = tiles.ring(rows, blocks) {
                let ring = WARPS * (stages * chunk) as usize * tiles.step_bytes();
                let sums = 2 * WARPS * rows.div_ceil(8) * 512;
                let used = 256 + WARPS * 96 + sums + rows * 5120 * 2 / blocks + ring;
                assert!(used <= SHARED as usize, "{rows} {blocks}: {used}");
            }
        }
    }
}
