//! Kernels for the widths of large models, where a device has them, and their room.
//!
//! What is not here at a model's widths runs by the kernels that take any.

use finback_kernels::args::{Args, TileTopkArgs};
use finback_kernels::device::Device;
use finback_kernels::manifest::Kernel;
use finback_ops::{BLOCK_POSITIONS, Limits, ModelSpec, OpsError, OpsResult};

use crate::memory::{Buf, Memory};
use crate::products::word;
use crate::queue::{Queue, find};

/// Rows up to which attention takes two launches of many groups.
const FEW_ROWS: usize = 32;
/// Channels of a head, heads of a group, keys of a row and rotated channels of `tile_attend_*`.
const ATTEND: (usize, usize, usize, usize) = (512, 64, 640, 64);
/// Index heads, channels of one and rotated channels of `tile_index_scores`.
const INDEX: (usize, usize, usize) = (32, 128, 64);
/// Scores of a group of `tile_index_scores`, and of one of `tile_topk`.
const SCORES: usize = 512;
const TOPK: usize = 16_384;
/// Scores that have one best.
const TOPS: usize = 16;
/// Keys and rows of a part of `tile_index_many`.
const MANY: (usize, usize) = (384, 4);
/// Rows of a group of `tile_index_scores`, of `hyper_mix` where rows are few, and where they are many.
const SCORE_ROWS: usize = 64;
const MIX_ROWS: [usize; 2] = [4, 32];
/// Streams of `hyper_mix`, channels of a slice, and slices of a row.
const MIX: (usize, usize, usize) = (4, 128, 128);
/// Rows that `tile_hyper_mix` takes at once, and groups for each that the device runs at once.
const TILE_MIX: (usize, usize) = (16, 4);

/// The kernels of wide shapes that run here.
pub struct Wide {
    /// Attention.
    pub attend: Option<Attend>,
    /// Index scores and picks.
    pub select: Option<Select>,
    /// Hyper-connections in slices.
    pub mix: Option<Mix>,
    /// The order of routes, for any number of them.
    pub group_routes: Option<&'static Kernel>,
    /// Choices of rows that a filter needs whole.
    pub choose: Option<&'static Kernel>,
}

/// Attention on tensor cores.
#[derive(Clone, Copy)]
pub struct Attend {
    /// A row's scores, 16 heads and 64 keys a group.
    pub scores: &'static Kernel,
    /// Its outputs, 16 heads and 64 channels a group.
    pub mix: &'static Kernel,
    /// Both for 64 heads of rows.
    pub many: &'static Kernel,
    /// Scores of few rows.
    pub room: Buf,
}

/// Index scores and picks of long contexts.
#[derive(Clone, Copy)]
pub struct Select {
    /// Queries as operands.
    pub operand: &'static Kernel,
    /// Scores on tensor cores.
    pub scores: &'static Kernel,
    /// The same of many rows of one span.
    pub many: Option<&'static Kernel>,
    topk: &'static Kernel,
    /// Those operands, `index_heads * index_dim` bf16 values a row.
    pub queries: Buf,
    /// The best of each [`TOPS`] scores.
    pub tops: Buf,
    /// The best of those, and how many.
    groups: (Buf, Buf),
    /// Places and scores of the best of each tile, after every second round.
    lists: [(Buf, Buf); 2],
}

/// Hyper-connections in slices.
#[derive(Clone, Copy)]
pub struct Mix {
    /// Streams, collapsed rows and the slices' parts.
    pub mix: &'static Kernel,
    /// Whether that is by tensor cores, and leaves the collapsed rows where their norm lies as bf16.
    pub tiled: bool,
    /// The rest of a site.
    pub norm: &'static Kernel,
    /// Channels of a slice.
    pub columns: usize,
    /// Slices of a row.
    pub slices: usize,
    /// Their parts.
    pub parts: Buf,
}

impl Wide {
    /// Finds what fits the model, whose weights may be tiled, and gives it room.
    pub fn new(
        spec: &ModelSpec,
        limits: &Limits,
        device: &Found,
        tiled: bool,
        memory: &mut Memory<'_>,
    ) -> Result<Self, OpsError> {
        Ok(Self {
            attend: Attend::new(spec, limits, device, memory)?,
            select: Select::new(spec, limits, device, memory)?,
            mix: Mix::new(spec, limits, device, tiled, memory)?,
            group_routes: device.group_routes,
            choose: device.choose,
        })
    }
}

impl Attend {
    fn new(
        spec: &ModelSpec,
        limits: &Limits,
        found: &Found,
        memory: &mut Memory<'_>,
    ) -> Result<Option<Self>, OpsError> {
        let (d, (dim, heads, keys, rope)) = (&spec.dims, ATTEND);
        let block = spec.drafter.as_ref().map_or(0, |drafter| drafter.block);
        let shapes = d.head_dim == dim && d.rope_dim == rope && d.heads.is_multiple_of(heads);
        // A window's keys are filled up to a multiple of 32.
        let fits = d.window.next_multiple_of(32) + d.index_topk <= keys
            && (d.window + block).next_multiple_of(32) <= keys;
        let rows = (limits.blocks + 1) * BLOCK_POSITIONS < 1 << 30;
        let Some([scores, mix, many]) = found.attend else { return Ok(None) };
        if !(spec.numerics.round_stores && shapes && fits && rows) {
            return Ok(None);
        }
        let room = memory.words(FEW_ROWS.min(limits.rows), d.heads * keys)?;
        Ok(Some(Self { scores, mix, many, room }))
    }

    /// Whether so many rows take two launches.
    pub fn is_few(rows: usize) -> bool {
        rows <= FEW_ROWS
    }

    /// Groups of a row in the two launches for few rows.
    pub fn groups(heads: usize) -> [u32; 2] {
        let (dim, _, keys, _) = ATTEND;
        [heads / 16 * (keys / 64), heads / 16 * (dim / 64)].map(word)
    }

    /// The grid of the launch for many rows, whose groups take rows one after another.
    pub fn grid_of_many(heads: usize, rows: usize, width: u32) -> [u32; 2] {
        let parts = word(heads / ATTEND.1);
        [word(rows).min((width / parts).max(1)), parts]
    }
}

impl Select {
    fn new(
        spec: &ModelSpec,
        limits: &Limits,
        found: &Found,
        memory: &mut Memory<'_>,
    ) -> Result<Option<Self>, OpsError> {
        let d = &spec.dims;
        let shapes = (d.index_heads, d.index_dim, d.rope_dim) == INDEX;
        // A list is shorter than what it is the best of.
        let fits = d.index_topk.max(d.candidate_blocks) <= TOPK / 2;
        let Some([operand, scores, topk]) = found.select else { return Ok(None) };
        let many = found.many;
        if !(spec.numerics.round_stores && shapes && fits) {
            return Ok(None);
        }
        let most = spec.sources.iter().map(|s| limits.context / s.ratio).max().unwrap_or(0);
        let blocks = most.div_ceil(d.candidate_size.max(1));
        let tops = most.div_ceil(TOPS);
        let mut widths = [0, 0];
        let counts = [tops, d.index_topk * TOPS, d.candidate_blocks * d.candidate_size]
            .map(|count| (count, d.index_topk));
        for (count, k) in counts.into_iter().chain([(blocks, d.candidate_blocks)]) {
            for (i, tiles) in rounds(count, k).into_iter().enumerate() {
                widths[i % 2] = widths[i % 2].max(if tiles > 1 { tiles * k } else { 0 });
            }
        }
        let turn = crate::work::turn(most, limits.rows);
        let mut list = |width| -> Result<(Buf, Buf), OpsError> {
            Ok((memory.words(turn, width)?, memory.words(turn, width)?))
        };
        let lists = [list(widths[0])?, list(widths[1])?];
        let queries = memory.rows(limits.rows, 2 * d.index_heads * d.index_dim)?;
        let groups = (memory.words(turn, d.index_topk)?, memory.words(turn, 1)?);
        let tops = memory.words(turn, tops)?;
        Ok(Some(Self { operand, scores, many, topk, queries, tops, groups, lists }))
    }

    /// The grid of the scores of so many rows, and how many of them a group takes: few where that
    /// leaves most of the device idle.
    pub fn grid(count: usize, rows: usize, width: u32) -> (usize, [u32; 2]) {
        let tiles = count.div_ceil(SCORES);
        let shares = (width as usize * 2).div_ceil(tiles).max(1);
        let each = rows.div_ceil(shares).clamp(1, SCORE_ROWS);
        (each, [word(tiles), word(rows.div_ceil(each))])
    }

    /// Whether so many scores are chosen from by way of the best of each [`TOPS`]: one round does not
    /// take them all.
    pub fn is_by_tops(count: usize) -> bool {
        count > TOPK
    }

    /// The grid of `tile_index_many`, where it takes so many rows of one span: several that `tile_index_scores`
    /// would not take at once.
    pub fn grid_of_many(count: usize, rows: usize, width: u32) -> Option<[u32; 2]> {
        let (keys, of) = MANY;
        let parts = count.div_ceil(keys) * rows.div_ceil(of);
        let waits = rows > 1 && count.div_ceil(SCORES) * rows > width as usize;
        waits.then(|| [width.min(word(parts)), 1])
    }

    /// A choice among scores whose sixteens have their best in `tops`: first the best sixteens, then the
    /// best of their scores.
    pub fn pick_by_tops(&self, queue: &mut Queue, args: &TileTopkArgs, rows: u32) -> OpsResult {
        let (groups, n_groups) = self.groups;
        let stride = args.scores_stride.div_ceil(word(TOPS));
        let best = TileTopkArgs {
            scores: self.tops.at,
            ids: groups.at,
            n_picks: n_groups.at,
            count: args.count.div_ceil(word(TOPS)),
            scores_stride: stride,
            unit: word(TOPS),
            ..*args
        };
        self.pick(queue, &best, rows)?;
        let of_best = TileTopkArgs {
            candidates: groups.at,
            n_candidates: n_groups.at,
            count: args.k * word(TOPS),
            candidates_stride: args.k,
            candidate_size: word(TOPS),
            spread: 1,
            ..*args
        };
        self.pick(queue, &of_best, rows)
    }

    /// Pushes the rounds of a choice: `args` are those of one round that reads scores and writes picks.
    pub fn pick(&self, queue: &mut Queue, args: &TileTopkArgs, rows: u32) -> OpsResult {
        let rounds = rounds(args.count as usize, args.k as usize);
        let mut own = *args;
        for (i, &tiles) in rounds.iter().enumerate() {
            own.tiles = word(tiles);
            let last = i + 1 == rounds.len();
            let (ids, best) = self.lists[i % 2];
            let out = if last { (args.ids, 0, args.n_picks) } else { (ids.at, best.at, 0) };
            (own.ids, own.best, own.n_picks) = out;
            queue.push(self.topk, &own, [word(tiles), rows])?;
            let count = own.tiles * own.k;
            own = TileTopkArgs {
                scores: best.at,
                from: ids.at,
                rows: 0,
                candidates: 0,
                n_candidates: 0,
                spread: 0,
                count,
                scores_stride: count,
                ..own
            };
        }
        debug_assert_eq!(TileTopkArgs::NAME, self.topk.args);
        Ok(())
    }
}

/// Tiles of each round of a choice of the best k.
fn rounds(mut count: usize, k: usize) -> Vec<usize> {
    let mut rounds = Vec::with_capacity(3);
    loop {
        let tiles = count.div_ceil(TOPK).max(1);
        rounds.push(tiles);
        if tiles == 1 {
            return rounds;
        }
        count = tiles * k;
    }
}

impl Mix {
    fn new(
        spec: &ModelSpec,
        limits: &Limits,
        found: &Found,
        tiled: bool,
        memory: &mut Memory<'_>,
    ) -> Result<Option<Self>, OpsError> {
        let d = &spec.dims;
        let (most_streams, columns, most_slices) = MIX;
        let mixes = (2 + d.hc) * d.hc;
        let slices = d.hidden.div_ceil(columns);
        let Some([mix, norm]) = found.mix else { return Ok(None) };
        if d.hc > most_streams || slices > most_slices || !d.hidden.is_multiple_of(32) {
            return Ok(None);
        }
        let parts = memory.words(limits.rows, slices * (mixes + 2))?;
        let whole = d.hc == most_streams && d.hidden.is_multiple_of(columns);
        let tile = found.tile_mix.filter(|_| tiled && whole);
        let (mix, tiled) = (tile.unwrap_or(mix), tile.is_some());
        Ok(Some(Self { mix, tiled, norm, columns, slices, parts }))
    }

    /// Rows that a group takes one after another, on a device that runs `width` groups at once.
    pub fn rows_each(&self, rows: usize, width: u32) -> usize {
        let (turn, of) = TILE_MIX;
        match self.tiled {
            true => {
                rows.div_ceil((of * width as usize).div_ceil(self.slices)).next_multiple_of(turn)
            }
            false => MIX_ROWS[usize::from(rows > SCORE_ROWS)],
        }
    }
}

/// The wide kernels that a device has.
#[derive(Clone, Copy)]
pub struct Found {
    attend: Option<[&'static Kernel; 3]>,
    select: Option<[&'static Kernel; 3]>,
    many: Option<&'static Kernel>,
    mix: Option<[&'static Kernel; 2]>,
    tile_mix: Option<&'static Kernel>,
    group_routes: Option<&'static Kernel>,
    choose: Option<&'static Kernel>,
}

impl Found {
    /// Looks for them.
    pub fn new(device: &dyn Device) -> Self {
        let find = |name| find(device, name).ok();
        let three = |a, b, c| Some([find(a)?, find(b)?, find(c)?]);
        Self {
            attend: three("tile_attend_scores", "tile_attend_mix", "tile_attend_many"),
            select: three("index_operand", "tile_index_scores", "tile_topk"),
            many: find("tile_index_many"),
            mix: find("hyper_mix").zip(find("hyper_norm")).map(|(mix, norm)| [mix, norm]),
            tile_mix: find("tile_hyper_mix"),
            group_routes: find("tile_group_routes"),
            choose: find("tile_choose"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_ends_in_one_tile() {
        assert_eq!(rounds(0, 512), [1]);
        assert_eq!(rounds(TOPK, 512), [1]);
        assert_eq!(rounds(TOPK + 1, 512), [2, 1]);
        assert_eq!(rounds(1 << 20, 512), [64, 2, 1]);
        assert_eq!(rounds(1 << 17, 2048), [8, 1]);
    }

    #[test]
    fn the_best_of_the_best_sixteens_are_the_best_of_all() {
        let (rows, count, k) = (2, 20_000, 40);
        let mut device = finback_kernels::device::emu_with_tiles().unwrap();
        let mut put = |words: &[u32]| {
            let at = device.allocate(4 * words.len()).unwrap();
            device
                .write(at, &words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>())
                .unwrap();
            Buf { at, width: (4 * words.len() / rows) as u64 }
        };
        // Many ties, and less that is seen than there is.
        let seen = [count - 7, count - 21];
        let score = |row: usize, i: usize| match i < seen[row] {
            true => ((i * 7919 + row * 31) % 6007 / 20) as f32,
            false => f32::NEG_INFINITY,
        };
        let all: Vec<Vec<f32>> =
            (0..rows).map(|row| (0..count).map(|i| score(row, i)).collect()).collect();
        let best = |part: &[f32]| part.iter().copied().fold(f32::NEG_INFINITY, f32::max).to_bits();
        let tops: Vec<u32> = all.iter().flat_map(|row| row.chunks(TOPS).map(best)).collect();
        let table = seen.iter().flat_map(|&seen| [0, word(seen) - 1, 0, 0, 1, 0, 0, 0]);
        let scores = put(&all.concat().iter().map(|x| x.to_bits()).collect::<Vec<_>>());
        let (ids, n_picks) = (put(&vec![0; rows * k]), put(&vec![0; rows]));
        let find = |name| finback_kernels::manifest::kernel(name).unwrap();
        let select = Select {
            operand: find("index_operand"),
            scores: find("tile_index_scores"),
            many: None,
            topk: find("tile_topk"),
            queries: ids,
            tops: put(&tops),
            groups: (put(&vec![0; rows * k]), put(&vec![0; rows])),
            lists: [(ids, ids), (ids, ids)],
        };
        let args = TileTopkArgs {
            scores: scores.at,
            rows: put(&table.collect::<Vec<_>>()).at,
            ids: ids.at,
            n_picks: n_picks.at,
            count: word(count),
            scores_stride: word(count),
            k: word(k),
            tiles: 1,
            ratio: 1,
            unit: 1,
            ..TileTopkArgs::default()
        };
        let mut queue = Queue::new(device);
        select.pick_by_tops(&mut queue, &args, word(rows)).unwrap();
        let mut found = vec![0; rows * k * 4];
        queue.read(ids.at, &mut found).unwrap();
        let wanted = all.iter().flat_map(|row| {
            let mut order: Vec<usize> = (0..count).collect();
            order.sort_by(|&a, &b| row[b].total_cmp(&row[a]).then(a.cmp(&b)));
            order.truncate(k);
            order.sort_unstable();
            order.into_iter().flat_map(|i| word(i).to_ne_bytes()).collect::<Vec<_>>()
        });
        assert!(found == wanted.collect::<Vec<_>>());
    }

    #[test]
    fn few_rows_fill_the_device_and_many_share_keys() {
        assert_eq!(Select::grid(131_072, 1, 132), (1, [256, 1]));
        assert_eq!(Select::grid(131_072, 4096, 132), (64, [256, 64]));
        let (each, grid) = Select::grid(4096, 24, 132);
        assert_eq!((each, grid), (1, [8, 24]));
        assert_eq!(Select::grid_of_many(16_896, 4, 132), None);
        assert_eq!(Select::grid_of_many(16_896, 5, 132), Some([88, 1]));
        assert_eq!(Select::grid_of_many(131_072, 1, 132), None);
        assert_eq!(Select::grid_of_many(131_072, 2, 132), Some([132, 1]));
    }
}
