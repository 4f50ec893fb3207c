//! Matrix products on tensor cores: which shapes they take, and the launches that rearrange a weight
//! and multiply by it.
//!
//! A row's bits depend on the row and the weight alone: every kernel that [`Tiles::product`] may choose
//! adds in the order of `cuda/matmul.cuh`. The dialect's dense and expert products are the oracle, and
//! the way where a shape does not fit.

use crate::args::{ArrangeArgs, GatedArgs, TileArgs, format};
use crate::manifest::{self, Kernel};

/// Outputs of a tile.
pub const TILE_OUTPUTS: usize = 16;
/// Bytes of a row that a step multiplies.
const STEP_BYTES: usize = 128;
/// Inputs that share a scale of a step: those of one, where rows are coded.
const CODED_INPUTS: usize = 128;
/// Most steps of a sum.
const STEPS: usize = 512;
/// Most rows of a product that is bound by the weights.
pub const FEW_ROWS: usize = 32;
/// Most groups of one.
const FEW_GROUPS: usize = 512;
/// Warpgroups of a group of those products that multiply.
const WARPGROUPS: usize = 2;
/// Most tiles of a processor of which two warpgroups share each.
const SHARED_TILES: usize = 3;
/// Steps of a quad: one for each warp of a warpgroup.
const QUAD: usize = 4;
/// Bytes of a row's part of a step, with a gap.
const PART: usize = 20 * 4;
/// Bytes of a row's steps from which on 5 to 8 rows take a processor's whole memory.
const LONG: usize = 5120;
/// Most stages of a warpgroup's ring of `cuda/matmul_wide.cuh`, and most warpgroups there.
const WIDE_STAGES: usize = 8;
const WIDE_WARPGROUPS: usize = 4;
/// Most stages of a warpgroup.
const STAGES: usize = 16;
/// Most groups of one.
const MANY_GROUPS: usize = 1024;
/// What a piece of many rows costs beside its steps, in steps times rows and outputs.
const PIECE_BESIDE: usize = 2000;
/// Shared memory that a group may ask for.
pub const SHARED: u32 = 232_448;
/// Shared memory of a group of a product of up to 8 rows: two of them, of this launch and the next product's, and a group of
/// a small launch between stay on a processor.
pub const FEW_SHARED: u32 = 113_664;
/// The same of up to 32 rows: one, beside a group of a small launch, but for `tile_fp4_gated`, which declares some itself.
pub const SOME_SHARED: u32 = 229_376;

/// A weight `[outputs, inputs]` in tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiles {
    format: u32,
    inputs: usize,
    outputs: usize,
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
    /// Address of the rows, as `operand` makes them in the weight's form.
    pub x: u64,
    /// Bytes from one row to the next, a multiple of 16.
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
    /// Whether a product of few rows may run beside the launch before it. Either that is a product of few rows, before
    /// which the rows were there, or one that is beside such a product: then they were there before the first of these. Or it
    /// is of one group, and they were there before the product of few rows before it.
    pub beside: bool,
    /// Whether the launches after a product of up to 8 rows, by another weight than FP4, may be on the device before
    /// the rows are there: then none of them may read anything before it has waited.
    pub early: bool,
    /// Whether each group of a product of up to 8 rows takes a processor whole, so that those which it leaves are free for
    /// what runs beside it. Groups of half a processor lie on as many as have room for one.
    pub whole: bool,
}

/// A row whose channels of experts are gated.
#[derive(Debug, Clone, Copy, Default)]
pub struct Gated {
    /// Address of the row, as `operand` makes it in the weight's form.
    pub x: u64,
    /// Address of the (weight, first place, end) of the groups in use, which come first.
    pub groups: u64,
    /// Address of each place's share of the sum.
    pub shares: u64,
    /// Address of each place's codes.
    pub coded: u64,
    /// What `swiglu` bounds gates by, 0 for nothing.
    pub limit: f32,
    /// Whether channels are rounded to bf16, before they are gated and after.
    pub round: bool,
}

/// Several weights of one shape, and which rows take which.
#[derive(Debug, Clone, Copy)]
pub enum Groups {
    /// One weight, all rows.
    One,
    /// So many weights, one after another in memory; all rows take each, with the inputs so many bytes and
    /// the outputs so many values further on each time.
    Each {
        /// How many.
        count: usize,
        /// Bytes from one weight's inputs to the next's, a multiple of 16.
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

/// Which kernel of few rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Up to 8 rows of a group at a time.
    Few,
    /// Up to 8 rows of FP8 or BF16, one group a processor.
    Eight,
    /// Up to 32 rows.
    Some,
}

impl Way {
    /// Most rows of a group at a time.
    fn rows(self) -> usize {
        if self == Self::Some { FEW_ROWS } else { 8 }
    }

    /// Places for so many rows.
    fn places(self, rows: usize) -> usize {
        match self {
            Self::Few if rows <= 4 => rows.next_power_of_two(),
            _ => rows.next_multiple_of(8),
        }
    }

    fn names(self) -> [&'static str; 4] {
        match self {
            Self::Few => ["tile_fp8_few", "tile_fp4_few", "tile_bf16_few", "tile_lifted_few"],
            Self::Eight => ["tile_fp8_eight", "", "tile_bf16_eight", ""],
            Self::Some => ["tile_fp8_some", "tile_fp4_some", "tile_bf16_some", "tile_lifted_some"],
        }
    }
}

/// Inputs of a step of a weight in this format.
pub fn step_inputs(format: u32) -> usize {
    if [format::BF16, format::LIFTED].contains(&format) { STEP_BYTES / 2 } else { STEP_BYTES }
}

/// Bytes of a row of so many inputs: codes, then the scale of each step; or bf16 values.
pub fn row_bytes(coded: bool, width: usize) -> usize {
    match coded {
        true => (width + width.div_ceil(CODED_INPUTS) * 4).next_multiple_of(16),
        false => (width * 2).next_multiple_of(16),
    }
}

/// Whether rows of so many inputs can be coded: they are whole steps.
pub fn codes(width: usize) -> bool {
    width.is_multiple_of(CODED_INPUTS)
}

impl Tiles {
    /// The tiles of a weight in `format` with FP8 scales of `side` x `side`; `None` where its products
    /// run in the dialect.
    pub fn new(format: u32, side: usize, inputs: usize, outputs: usize) -> Option<Self> {
        let stored = match format {
            format::FP8 | format::LIFTED => side > 0 && side.is_multiple_of(32),
            format::FP4 | format::BF16 => true,
            _ => false,
        };
        let steps = inputs / step_inputs(format);
        let whole = inputs.is_multiple_of(step_inputs(format)) && (1..=STEPS).contains(&steps);
        (stored && whole && outputs > 0).then_some(Self { format, inputs, outputs })
    }

    /// The same for rows that are not rounded to codes.
    pub fn plain(format: u32, side: usize, inputs: usize, outputs: usize) -> Option<Self> {
        match format {
            format::FP8 => Self::new(format::LIFTED, side, inputs, outputs),
            format::FP4 => None,
            _ => Self::new(format, side, inputs, outputs),
        }
    }

    /// Whether products by these scales are neither under nor over f32's normal numbers.
    pub fn lifts(format: u32, scales: &[u8]) -> bool {
        format == format::BF16 || scales.iter().all(|scale| (10..=134).contains(scale))
    }

    fn count(&self) -> usize {
        self.outputs.div_ceil(TILE_OUTPUTS)
    }

    /// Steps of a sum.
    pub fn steps(&self) -> usize {
        self.inputs / step_inputs(self.format)
    }

    /// Bytes of a tile's step.
    fn step_bytes(&self) -> usize {
        match self.format {
            format::FP4 => 1072,
            format::LIFTED => 1024,
            _ => 2048,
        }
    }

    /// Bytes in memory, a multiple of 256.
    pub fn bytes(&self) -> usize {
        let scales = if [format::FP8, format::LIFTED].contains(&self.format) { 4 } else { 0 };
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
        let names = ["arrange_fp8", "arrange_fp4", "arrange_bf16", "arrange_lifted"];
        let kernel = manifest::kernel(self.named(names))?;
        let count = several.map_or(1, |several| several.count);
        let grid = [word(part.outputs.div_ceil(TILE_OUTPUTS)), word(count * self.steps())];
        Some((kernel, args, grid))
    }

    /// Multiplies rows by the tiles at `weight`, on a device that runs `width` groups at once.
    pub fn product(
        &self,
        weight: u64,
        rows: &Rows,
        groups: &Groups,
        width: u32,
    ) -> Option<Planned<TileArgs>> {
        let few = |way| self.few(weight, rows, groups, width, way);
        // Rows as long leave half of a processor too small a ring.
        let long = self.steps() * STEP_BYTES >= LONG;
        let whole = rows.whole || (long && (5..=8).contains(&rows.rows));
        let eight = whole.then(|| few(Way::Eight)).flatten();
        eight
            .or_else(|| few(Way::Few))
            .or_else(|| few(Way::Some))
            .or_else(|| self.many(weight, rows, groups, width))
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
        let mut args = self.args(weight, rows, groups);
        (args.beside, args.early) = (rows.beside.into(), rows.early.into());
        let width = (width - args.beside).max(1);
        let own = (self.count() * groups.count()).div_ceil(width as usize);
        let experts = matches!(groups, Groups::Some { .. });
        // The kernel cuts the rows of a group into parts. Where there is no tile for each processor, to read the weight for each
        // of these costs less than to leave a tile to one warp.
        let cut = experts || (own == 1 && way == Way::Few && self.format != format::FP4);
        let most = if cut && rows.rows <= FEW_ROWS { rows.rows.min(way.rows()) } else { rows.rows };
        if most > way.rows() || (way == Way::Eight && experts) || groups.count() > FEW_GROUPS {
            return None;
        }
        args.most_rows = word(most);
        let kernel = manifest::kernel(self.named(way.names()))?;
        if self.format == format::FP4 || way == Way::Some {
            let warpgroups =
                if experts { WIDE_WARPGROUPS } else { own.div_ceil(4).min(WIDE_WARPGROUPS) };
            args.chunk = word(warpgroups);
            args.stages = self.wide_ring(most, way, warpgroups, experts)?;
            return Some((kernel, args, [width, 1]));
        }
        // Two quads at a time where registers and shared memory hold them.
        let fits = |quads| Some((quads, self.ring(most, quads, way, experts)?));
        let two = if most <= 4 || way == Way::Eight { fits(2) } else { None };
        let one = || if way == Way::Few { fits(1) } else { None };
        let (quads, stages) = two.or_else(one)?;
        (args.quads, args.stages) = (word(quads), stages);
        // Where there are few tiles for each processor two warpgroups share one, so that it finds the whole ring; else each
        // takes its own.
        args.chunk = word(if own <= SHARED_TILES { WARPGROUPS } else { 1 });
        let alone = own == 1 || way == Way::Eight;
        let grid = if alone { width } else { 2 * width };
        // Groups without a tile would hold places that another launch may take.
        let parts = self.count() * groups.count() * rows.rows.div_ceil(most.max(1));
        Some((kernel, args, [if experts { grid } else { grid.min(word(parts)) }, 1]))
    }

    /// One row by the experts of `groups`, at most `count`, and what follows: the channels that these weights, gates before
    /// the others, make of it, gated with each place's share, as codes. `None` for another format than FP4, for channels
    /// that are no whole 128s, and on a device that does not run a group for each 128 of each expert at once.
    pub fn gated(
        &self,
        weight: u64,
        row: &Gated,
        count: usize,
        width: u32,
    ) -> Option<Planned<GatedArgs>> {
        let channels = self.outputs / 2;
        let whole = self.outputs.is_multiple_of(2) && codes(channels);
        let grid = word(count * channels / CODED_INPUTS);
        if self.format != format::FP4 || !whole || grid > width {
            return None;
        }
        let args = GatedArgs {
            weight,
            x: row.x,
            groups: row.groups,
            shares: row.shares,
            coded: row.coded,
            expert_bytes: self.bytes() as u64,
            inputs: word(self.inputs),
            width: word(channels),
            stages: self.wide_ring(1, Way::Few, WIDE_WARPGROUPS, false)?,
            round: row.round.into(),
            limit: row.limit,
            pad: 0,
        };
        Some((manifest::kernel("tile_fp4_gated")?, args, [grid, 1]))
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
        // Outputs and rows of a piece.
        let sizes: &[(usize, usize)] = match (self.format, groups) {
            (format::FP8 | format::BF16, _) => {
                &[(256, 128), (224, 128), (192, 128), (128, 128), (64, 128)]
            }
            (_, Groups::Some { .. }) => &[(256, 80)],
            _ => &[(256, 80), (256, 72), (256, 64)],
        };
        // At most so many pieces: how the groups are cut is known on the device.
        let pieces = |(outputs, most): (usize, usize)| {
            self.outputs.div_ceil(outputs) * groups.count() * rows.rows.div_ceil(most)
        };
        let cost = |&(outputs, most): &(usize, usize)| {
            let turns = pieces((outputs, most)).div_ceil(width as usize);
            turns * (self.steps() * (outputs + most) + PIECE_BESIDE)
        };
        let (outputs, most) = sizes.iter().copied().min_by_key(cost)?;
        let direct = matches!(self.format, format::FP8 | format::BF16);
        args.chunk = word(if direct { outputs } else { most });
        let names = ["tile_fp8_many", "tile_fp4_many", "tile_bf16_many", "tile_lifted_many"];
        let grid = [word(pieces((outputs, most))).min(width), 1];
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

    /// Stages of each warpgroup, of so many quads: as many as shared memory holds beside the rest, two at least.
    fn ring(&self, rows: usize, quads: usize, way: Way, experts: bool) -> Option<u32> {
        let shared = if way == Way::Eight { SOME_SHARED } else { FEW_SHARED };
        let room = (shared as usize).checked_sub(self.beside(way.places(rows), quads, experts))?;
        let stages = (room / (WARPGROUPS * self.stage(quads))).min(STAGES);
        (stages > 1).then(|| word(stages))
    }

    /// Bytes of a stage: its steps, and the words of their scales with up to three before.
    fn stage(&self, quads: usize) -> usize {
        let steps = quads * QUAD;
        steps * self.step_bytes() + (steps + 4) * 4
    }

    /// The same of `cuda/matmul_wide.cuh`, where so many warpgroups work.
    fn wide_ring(&self, rows: usize, way: Way, warpgroups: usize, experts: bool) -> Option<u32> {
        let steps = self.steps().next_multiple_of(8);
        let rest = 128 + 4 * 16 * WIDE_STAGES + 4 * 20 + parts_room(experts) + 1024;
        let beside = rest + way.places(rows) * steps * (STEP_BYTES + 4);
        let room = (SOME_SHARED as usize).checked_sub(beside)?;
        // Steps of a tile in a stage: a copy of less than 2 KB costs as much.
        let tile = if self.step_bytes() < 2048 { 2 } else { 1 } * self.step_bytes();
        let stages = (room / (warpgroups * 4 * tile)).min(WIDE_STAGES);
        (stages > 1).then(|| word(stages))
    }

    /// Shared memory beside the rings: rows and their steps' powers of two, two places of each warpgroup for parts; then
    /// signals, and the groups' parts.
    fn beside(&self, places: usize, quads: usize, experts: bool) -> usize {
        let steps = self.steps().next_multiple_of(8);
        let rest = WARPGROUPS * (STAGES * 16 + 32) + 48 + parts_room(experts);
        rest + places * (steps * (STEP_BYTES + 4) + 2 * WARPGROUPS * quads * QUAD * PART)
    }

    fn named(&self, [fp8, fp4, bf16, lifted]: [&'static str; 4]) -> &'static str {
        match self.format {
            format::FP8 => fp8,
            format::FP4 => fp4,
            format::LIFTED => lifted,
            _ => bf16,
        }
    }
}

/// Shared memory of groups and the parts that they are cut into, which experts have.
fn parts_room(experts: bool) -> usize {
    if experts { 12 * FEW_GROUPS + 2 * 1024 } else { 0 }
}

/// Whether a launch that follows one of this kernel, which is neither `beside` another nor `early`, may read at once what
/// was there before that one.
pub fn is_in_turn(kernel: &Kernel) -> bool {
    [Way::Few, Way::Eight, Way::Some].iter().any(|way| way.names().contains(&kernel.name))
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
        // 32 parts of the rows, times 8 columns, are 1.9 turns of 132 groups; times 7 they are 1.7.
        assert_eq!(most(format::FP8, 5120, 1792, 4096, 132), 224);
        assert_eq!(most(format::FP8, 8192, 5120, 4096, 132), 256);
        // One turn, as full as can be.
        assert_eq!(most(format::FP8, 8192, 5120, 256, 132), 128);
        assert_eq!(most(format::FP8, 5120, 1792, 300, 132), 64);
        assert_eq!(most(format::LIFTED, 4096, 1024, 300, 132), 64);
        // The contract has a case of each size.
        for (outputs, rows, wanted) in
            [(250, 140, 256), (200, 250, 224), (136, 140, 192), (100, 140, 128), (24, 190, 64)]
        {
            assert_eq!(most(format::FP8, 128, outputs, rows, 2), wanted, "{outputs} {rows}");
            assert_eq!(most(format::BF16, 64, outputs, rows, 2), wanted, "{outputs} {rows}");
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_left_to_the_dialect() {
        assert!(Tiles::new(format::FP8, 32, 128, 5).is_some());
        for (kind, side, inputs) in [
            (format::FP8, 48, 128),
            (format::FP8, 32, 192),
            (format::FP4, 32, 513 * 128),
            (format::BF16, 32, 96),
            (format::F16, 32, 128),
            (format::F32, 32, 128),
        ] {
            assert_eq!(Tiles::new(kind, side, inputs, 5), None, "{kind} {side} {inputs}");
        }
        assert!(Tiles::lifts(format::FP8, &[10, 134]) && Tiles::lifts(format::FP4, &[10, 134]));
        for (kind, scale) in
            [(format::FP8, 9), (format::FP8, 135), (format::FP4, 9), (format::FP4, 135)]
        {
            assert!(!Tiles::lifts(kind, &[120, scale]), "{kind} {scale}");
        }
    }

    #[test]
    fn a_kernel_is_chosen_by_rows_and_by_what_fits() {
        let tiles = Tiles::new(format::FP8, 32, 5120, 1792).unwrap();
        let kernel = |tiles: &Tiles, rows, groups: &Groups| {
            let rows = Rows { rows, ..Rows::default() };
            let (kernel, args, grid) = tiles.product(0, &rows, groups, 132).unwrap();
            (kernel.name, args.most_rows, grid)
        };
        assert_eq!(kernel(&tiles, 1, &Groups::One), ("tile_fp8_few", 1, [112, 1]));
        assert_eq!(kernel(&tiles, 24, &Groups::One), ("tile_fp8_few", 8, [132, 1]));
        let wide = Tiles::new(format::FP8, 32, 5120, 4608).unwrap();
        assert_eq!(kernel(&wide, 24, &Groups::One), ("tile_fp8_some", 24, [132, 1]));
        assert_eq!(kernel(&tiles, 33, &Groups::One).0, "tile_fp8_many");
        assert_eq!(kernel(&tiles, 4096, &Groups::One).2, [132, 1]);
        let experts = |count| Groups::Some { groups: 256, count, list: 0, known: false };
        assert_eq!(kernel(&tiles, 6, &experts(36)), ("tile_fp8_few", 6, [264, 1]));
        assert_eq!(kernel(&tiles, 24, &experts(144)), ("tile_fp8_few", 8, [264, 1]));
        assert_eq!(kernel(&tiles, 40, &experts(240)), ("tile_fp8_many", 40, [132, 1]));
        // A group that takes its processor whole.
        for rows in [1, 8] {
            let rows = Rows { rows, whole: true, ..Rows::default() };
            let (kernel, _, grid) = wide.product(0, &rows, &Groups::One, 132).unwrap();
            assert_eq!((kernel.name, grid), ("tile_fp8_eight", [132, 1]));
        }
        // What does not fit into shared memory beside a ring is left to the kernel of many rows.
        let long = Tiles::new(format::FP8, 32, 8192, 5120).unwrap();
        assert_eq!(kernel(&long, 32, &Groups::One).0, "tile_fp8_many");
    }

    #[test]
    fn experts_of_one_row_are_gated_where_all_steps_run_at_once() {
        let plan = |kind, channels: usize, count, width| {
            let tiles = Tiles::new(kind, 32, 5120, 2 * channels).unwrap();
            let planned = tiles.gated(0, &Gated::default(), count, width);
            planned.map(|(kernel, args, grid)| (kernel.name, args.stages, grid[0]))
        };
        assert_eq!(plan(format::FP4, 2304, 6, 108), Some(("tile_fp4_gated", 6, 108)));
        for (kind, channels, count, width) in
            [(format::FP4, 2304, 6, 107), (format::FP4, 2240, 6, 108), (format::FP8, 2304, 6, 108)]
        {
            assert_eq!(plan(kind, channels, count, width), None, "{kind} {channels} {width}");
        }
    }

    #[test]
    fn two_warpgroups_share_a_tile_where_there_are_few() {
        let plan = |inputs, outputs, beside| {
            let tiles = Tiles::new(format::FP8, 32, inputs, outputs).unwrap();
            let rows = Rows { rows: 1, beside, ..Rows::default() };
            let (_, args, grid) = tiles.product(0, &rows, &Groups::One, 132).unwrap();
            (args.chunk, args.stages, grid[0], args.beside)
        };
        assert_eq!(plan(5120, 384, false), (2, 3, 24, 0));
        assert_eq!(plan(8192, 5120, false), (2, 3, 264, 0));
        assert_eq!(plan(5120, 4608, true), (2, 3, 262, 1));
        assert_eq!(plan(1280, 32768, false), (1, 3, 264, 0));
    }

    /// The end of shared memory as `cuda/matmul_few.cuh` and `cuda/matmul_wide.cuh` lay it out.
    fn end_of(tiles: &Tiles, name: &str, args: &TileArgs) -> usize {
        let wide = name.ends_with("_some") || name == "tile_fp4_few";
        let [rows, stages, team] = [args.most_rows, args.stages, args.chunk].map(|n| n as usize);
        let places = match rows {
            3..=4 if !name.ends_with("_some") => 4,
            1..=2 if !name.ends_with("_some") => rows,
            _ => rows.next_multiple_of(8),
        };
        let rows = places * tiles.steps().next_multiple_of(8) * (128 + 4);
        let words = if args.groups == 0 { 0 } else { 12 * 512 + 2 * 1024 };
        if wide {
            let in_stage = if tiles.step_bytes() < 2048 { 2 } else { 1 };
            let rings = team * stages * 4 * in_stage * tiles.step_bytes();
            return rows + 1024 + rings + 128 + 4 * 8 * 16 + 640 / 32 * 4 + words;
        }
        let steps = 4 * args.quads as usize;
        let rings = 2 * stages * (steps * tiles.step_bytes() + steps * 4 + 16);
        rows + rings + 4 * steps * places * 20 * 4 + 2 * 32 * 8 + 64 + 384 / 32 * 4 + words
    }

    #[test]
    fn rows_and_rings_lie_within_shared_memory() {
        let (mut few, mut wide) = (0, 0);
        for kind in [format::FP8, format::FP4, format::BF16, format::LIFTED] {
            for (inputs, outputs) in [(128, 16), (2304, 5120), (5120, 384), (8192, 5120)] {
                let tiles = Tiles::new(kind, 32, inputs, outputs).unwrap();
                for (count, n) in [0, 512].into_iter().flat_map(|c| (1..=32).map(move |n| (c, n))) {
                    let groups = match count {
                        0 => Groups::One,
                        _ => Groups::Some { groups: 256, count, list: 0, known: false },
                    };
                    let rows = Rows { rows: n, ..Rows::default() };
                    let (kernel, args, _) = tiles.product(0, &rows, &groups, 132).unwrap();
                    if kernel.name.ends_with("_many") {
                        continue;
                    }
                    let end = end_of(&tiles, kernel.name, &args);
                    let most = kernel.shared as usize;
                    assert!(end <= most, "{} {inputs} {n}: {end}, {most}", kernel.name);
                    *if most == FEW_SHARED as usize { &mut few } else { &mut wide } += 1;
                }
            }
        }
        assert!(few > 100 && wide > 100, "{few} {wide}");
    }

    #[test]
    fn rows_are_whole_pieces_of_sixteen_bytes() {
        for (coded, width, bytes) in [(true, 128, 144), (true, 4096, 4224), (false, 64, 128)] {
            assert_eq!(row_bytes(coded, width), bytes, "{coded} {width}");
        }
    }
}
