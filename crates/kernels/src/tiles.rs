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
/// Most groups of one.
const FEW_GROUPS: usize = 512;
/// Warps of a group of those products, which is the most slices of a sum.
const WARPS: usize = 16;
/// Most stages of a warp's ring.
const STAGES: usize = 8;
/// Most groups of one.
const MANY_GROUPS: usize = 1024;
/// What a step of a piece of many rows costs beside its products, in rows.
const STEP_BESIDE: usize = 190;
/// What such a piece costs beside its steps, in rows times steps.
const PIECE_BESIDE: usize = 2000;
/// Shared memory that a group may ask for.
pub const SHARED: u32 = 232_448;
/// Shared memory of a product of few rows: what is left of a processor lets the group of a small launch stay
/// beside it.
pub const FEW_SHARED: u32 = 229_376;

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
    /// Where there are several such tensors, one for each place of a step.
    pub several: Option<Several>,
}

/// Stored tensors of several places, each of which becomes a weight of its own.
#[derive(Debug, Clone, Copy)]
pub struct Several {
    /// Address of the (place, start, end) of each; one without rows is left alone.
    pub groups: u64,
    /// How many there are.
    pub count: usize,
    /// Bytes from one tensor to the next.
    pub weight_bytes: u64,
    /// Bytes from one tensor's scales to the next.
    pub scale_bytes: u64,
}

/// Rows, and where their outputs go.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rows {
    /// Address of the bf16 rows, as `operand` makes them.
    pub x: u64,
    /// Values from one row to the next, a multiple of 8.
    pub x_stride: usize,
    /// Rows that there are; no group has more.
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
    /// Whether a product of few rows may run beside the launch before it, of one group: the rows were there before
    /// the launch before that, which was a product of few rows.
    pub beside: bool,
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
        /// Whether they were there before the last product of few rows, and so are read at once.
        known: bool,
    },
}

impl Groups {
    /// How many there may be.
    fn count(&self) -> usize {
        match *self {
            Self::One => 1,
            Self::Each { count, .. } | Self::Some { count, .. } => count,
        }
    }
}

/// How the product of few rows is shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Two tiles at once, up to 8 rows of a group at a time.
    Few,
    /// One tile at once, up to 32 rows.
    Some,
    /// As `Some`, the slices and the rows' inputs halved between two groups of a cluster.
    Pair,
}

impl Way {
    /// Most rows of a group at a time.
    fn rows(self) -> usize {
        if self == Self::Few { 8 } else { FEW_ROWS }
    }

    fn blocks(self) -> usize {
        if self == Self::Pair { 2 } else { 1 }
    }

    fn tiles(self) -> usize {
        if self == Self::Few { 2 } else { 1 }
    }

    fn names(self) -> [&'static str; 3] {
        match self {
            Self::Few => ["tile_fp8_few", "tile_fp4_few", "tile_bf16_few"],
            Self::Some => ["tile_fp8_some", "tile_fp4_some", "tile_bf16_some"],
            Self::Pair => ["tile_fp8_pair", "tile_fp4_pair", "tile_bf16_pair"],
        }
    }
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
        let slices = (stored && whole).then(|| slices(format, inputs / TILE_INPUTS)).flatten()?;
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

    /// Rearranges a stored tensor of the weight's inputs into the tiles at `out`, or those of several into
    /// the tiles of as many weights there.
    pub fn arrange(&self, part: &Part, out: u64) -> Option<Planned<ArrangeArgs>> {
        let several = part.several;
        let apart = |of: fn(&Several) -> u64| several.as_ref().map_or(0, of);
        let args = ArrangeArgs {
            weight: part.weight,
            scale: part.scale,
            out,
            groups: apart(|several| several.groups),
            weight_bytes: apart(|several| several.weight_bytes),
            scale_bytes: apart(|several| several.scale_bytes),
            out_bytes: self.bytes() as u64,
            inputs: word(self.inputs),
            outputs: word(part.outputs),
            side: word(part.side),
            first: word(part.first),
            apart: word(part.apart),
            tiles: word(self.count()),
        };
        let kernel = manifest::kernel(self.named(["arrange_fp8", "arrange_fp4", "arrange_bf16"]))?;
        let count = several.map_or(1, |several| several.count);
        let grid = [word(part.outputs.div_ceil(TILE_OUTPUTS)), word(count * self.steps())];
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
        // Two tiles at once cost fewer instructions, but leave groups idle where tiles are few.
        let enough = self.count() * groups.count() >= 4 * width as usize;
        let ways = match (groups, enough) {
            (_, true) => [Way::Few, Way::Some, Way::Pair],
            (Groups::Some { .. }, false) => [Way::Few, Way::Some, Way::Pair],
            (_, false) => [Way::Some, Way::Few, Way::Pair],
        };
        let few = ways.into_iter().find_map(|way| self.few(weight, rows, groups, width, way));
        few.or_else(|| self.many(weight, rows, groups, width))
    }

    /// The product of up to [`FEW_ROWS`] rows in this way; `None` where it does not take them.
    pub fn few(
        &self,
        weight: u64,
        rows: &Rows,
        groups: &Groups,
        width: u32,
        way: Way,
    ) -> Option<Planned<TileArgs>> {
        let most = match groups {
            // The kernel cuts the rows of a group into parts.
            Groups::Some { .. } if rows.rows <= FEW_ROWS => rows.rows.min(way.rows()),
            _ => rows.rows,
        };
        if most > way.rows() || groups.count() > FEW_GROUPS {
            return None;
        }
        let mut args = self.args(weight, rows, groups);
        args.most_rows = word(most);
        (args.chunk, args.stages) = self.ring(most, way)?;
        args.beside = rows.beside.into();
        let blocks = way.blocks();
        let width = width - args.beside;
        let grid = [(width / word(blocks)).max(1), word(blocks)];
        Some((manifest::kernel(self.named(way.names()))?, args, grid))
    }

    /// The product of any number of rows.
    pub fn many(
        &self,
        weight: u64,
        rows: &Rows,
        groups: &Groups,
        width: u32,
    ) -> Option<Planned<TileArgs>> {
        if groups.count() > MANY_GROUPS {
            return None;
        }
        let mut args = self.args(weight, rows, groups);
        let (outputs, sizes): (usize, &[usize]) = match (self.format, groups) {
            (format::FP4, _) => (192, &[96]),
            (format::FP8, Groups::Some { .. }) => (128, &[160]),
            (format::FP8, _) => (128, &[160, 144, 128, 96, 64]),
            (_, Groups::Some { .. }) => (128, &[128]),
            _ => (128, &[128, 96, 64]),
        };
        // At most so many pieces: how the groups are cut is known on the device.
        let across = self.outputs.div_ceil(outputs) * groups.count();
        let pieces = |most: usize| across * rows.rows.div_ceil(most);
        let turns = |most: usize| pieces(most).div_ceil(width as usize);
        let cost =
            |most: &usize| turns(*most) * (self.steps() * (most + STEP_BESIDE) + PIECE_BESIDE);
        let most = sizes.iter().copied().min_by_key(cost)?;
        args.chunk = word(most);
        let names = ["tile_fp8_many", "tile_fp4_many", "tile_bf16_many"];
        let grid = [word(pieces(most)).min(width), 1];
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
            Groups::Some { groups, count, list, known } => {
                args.groups_max = word(count);
                (args.groups, args.list, args.known) = (groups, list, known.into());
            }
        }
        args
    }

    /// Steps that a warp reads at a time, of up to so many rows, and how often shared memory holds as many
    /// beside the rows and the sums: equal parts of a slice.
    fn ring(&self, rows: usize, way: Way) -> Option<(u32, u32)> {
        if !self.slices.is_multiple_of(way.blocks()) {
            return None;
        }
        let used = Self::beside(rows, self.inputs, way);
        let slices = self.slices / way.blocks();
        let (warps, step) = (WARPS / slices * slices, way.tiles() * self.step_bytes());
        let room = (FEW_SHARED as usize).checked_sub(used)? / warps / step;
        let length = self.slice_steps();
        let most = (room / 2).max(1).min(length);
        let chunk = length.div_ceil(length.div_ceil(most));
        let stages = (room / chunk).min(STAGES);
        (stages > 1).then(|| (word(chunk), word(stages)))
    }

    /// Shared memory beside the rings: zeros, parts, signals; two turns' sums; the rows.
    fn beside(rows: usize, inputs: usize, way: Way) -> usize {
        let signals = 128 + 2 * 1024 + 12 * FEW_GROUPS + WARPS * (32 + 8 * STAGES);
        signals
            + 2 * WARPS * way.tiles() * rows.div_ceil(8) * 512
            + rows * inputs * 2 / way.blocks()
    }

    fn named(&self, [fp8, fp4, bf16]: [&'static str; 3]) -> &'static str {
        match self.format {
            format::FP8 => fp8,
            format::FP4 => fp4,
            _ => bf16,
        }
    }
}

/// Whether a launch that follows one of this kernel may read at once what was there before that one.
pub fn is_in_turn(kernel: &Kernel) -> bool {
    [Way::Few, Way::Some, Way::Pair].iter().any(|way| way.names().contains(&kernel.name))
}

/// Slices of a sum of so many steps: the most of 16, 8, 4 or 2 equal ones of at least 3 steps, or one; each of up to
/// 32 steps, whose scales a warp's lanes hold. Weights of codes take longer ones, as a slice's sums are added.
fn slices(format: u32, steps: usize) -> Option<usize> {
    let most = if format == format::BF16 { 16 } else { 8 };
    let fits = |slices: &usize| *slices <= most && steps.is_multiple_of(*slices);
    let long = [16, 8, 4, 2].into_iter().filter(fits).find(|slices| steps / slices >= 3);
    long.or(Some(1)).filter(|slices| steps / slices <= 32)
}

fn word(size: usize) -> u32 {
    size as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_many_rows_fill_a_launchs_turns() {
        let most = |format, inputs, outputs, rows, width| {
            let tiles = Tiles::new(format, 32, inputs, outputs).unwrap();
            let rows = Rows { rows, ..Rows::default() };
            tiles.many(0, &rows, &Groups::One, width).unwrap().1.chunk
        };
        // 26 parts of the rows, times 40 columns, are 7.9 turns of 132 groups; times 36 they are 7.1, where 29 are 7.9.
        assert_eq!(most(format::FP8, 8192, 5120, 4096, 132), 160);
        assert_eq!(most(format::FP8, 5120, 4608, 4096, 132), 144);
        // One turn, as full as can be.
        assert_eq!(most(format::FP8, 8192, 5120, 256, 132), 96);
        assert_eq!(most(format::BF16, 5120, 384, 4096, 132), 96);
        // The contract has a case of each size.
        for (outputs, rows, wanted) in
            [(136, 140, 144), (24, 190, 96), (200, 250, 128), (24, 84, 64)]
        {
            assert_eq!(most(format::FP8, 64, outputs, rows, 2), wanted, "{outputs} {rows}");
        }
        assert_eq!(most(format::BF16, 64, 24, 250, 2), 128);
    }

    #[test]
    fn sums_are_cut_by_the_weights_shape_alone() {
        for (inputs, wanted) in
            [(5120, 8), (8192, 8), (4096, 8), (2304, 4), (1280, 4), (1152, 2), (960, 1), (64, 1)]
        {
            assert_eq!(slices(format::FP4, inputs / TILE_INPUTS), Some(wanted), "{inputs}");
        }
        assert_eq!(slices(format::BF16, 5120 / TILE_INPUTS), Some(16));
        // 33 steps are one slice or 33, and neither fits.
        assert_eq!(slices(format::FP8, 33), None);
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
        let kernel = |tiles: &Tiles, rows, groups: &Groups| {
            let rows = Rows { rows, ..Rows::default() };
            let (kernel, args, grid) = tiles.product(0, &rows, groups, 132).unwrap();
            (kernel.name, args.most_rows, grid)
        };
        assert_eq!(kernel(&tiles, 1, &Groups::One), ("tile_fp8_some", 1, [132, 1]));
        assert_eq!(kernel(&tiles, 24, &Groups::One), ("tile_fp8_pair", 24, [66, 2]));
        assert_eq!(kernel(&tiles, 33, &Groups::One), ("tile_fp8_many", 33, [14, 1]));
        assert_eq!(kernel(&tiles, 4096, &Groups::One).2, [132, 1]);
        let experts = |count| Groups::Some { groups: 256, count, list: 0, known: false };
        assert_eq!(kernel(&tiles, 6, &experts(36)), ("tile_fp8_few", 6, [132, 1]));
        assert_eq!(kernel(&tiles, 24, &experts(144)), ("tile_fp8_few", 8, [132, 1]));
        assert_eq!(kernel(&tiles, 40, &experts(240)), ("tile_fp8_many", 40, [132, 1]));
        // One slice is not two halves.
        let odd = Tiles::new(format::FP8, 32, 960, 64).unwrap();
        assert_eq!(kernel(&odd, 24, &Groups::One).0, "tile_fp8_some");
        for rows in 1..=FEW_ROWS {
            for way in [Way::Few, Way::Some, Way::Pair] {
                let slices = tiles.slices / way.blocks();
                let warps = WARPS / slices * slices;
                let Some((chunk, stages)) = tiles.ring(rows, way) else { continue };
                let ring = warps * (stages * chunk) as usize * way.tiles() * tiles.step_bytes();
                let used = Tiles::beside(rows, 5120, way) + ring;
                assert!(used <= FEW_SHARED as usize, "{rows} {way:?}: {used}");
            }
        }
    }
}
