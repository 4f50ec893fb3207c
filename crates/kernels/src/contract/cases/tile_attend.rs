//! Attention on tensor cores: 512 channels, heads in sixteens, and up to 640 keys.

use finback_numerics::{bf16, rows as packed};

use super::super::case::{Addresses, Case, Gate, Rule, Want, bytes};
use super::super::data::{BF16_UNIT, Data, UNIT, gamma};
use super::attend::rows as packed_rows;
use super::select::{row_words, scattered};
use super::word;
use crate::args::{Args, TileAttendArgs};

pub fn cases() -> Vec<Case> {
    let full = Shape {
        heads: 16,
        positions: vec![1500, 1300],
        span: 1,
        picks: 500,
        draft: false,
        window: WINDOW,
        reach: 1.5,
    };
    let mixed = Shape {
        heads: 16,
        positions: vec![3, 900, 200],
        span: 2,
        picks: 90,
        draft: false,
        window: WINDOW,
        reach: 1.5,
    };
    let many = Shape {
        heads: 64,
        positions: vec![9, 700],
        span: 2,
        picks: 190,
        draft: false,
        window: WINDOW,
        reach: 1.5,
    };
    let draft = Shape {
        heads: 64,
        positions: vec![4, 300],
        span: 3,
        picks: 0,
        draft: true,
        window: WINDOW,
        reach: 1.5,
    };
    // Filled up to 608, which is no multiple of a group's 64 keys, and no pool.
    let wide = Shape {
        heads: 16,
        positions: vec![1500, 900],
        span: 1,
        picks: 0,
        draft: true,
        window: 600,
        reach: 1.5,
    };
    vec![
        scores(full.clone()),
        scores(wide),
        mix(full.clone()),
        // Tops rise.
        mix(Shape { reach: 12.0, ..full }),
        mix(mixed.clone()),
        mix(Shape { draft: true, picks: 0, ..mixed }),
        many_rows(many.clone()),
        many_rows(Shape { reach: 30.0, ..many }),
        many_rows(draft),
    ]
}

const DIM: usize = 512;
const WINDOW: usize = 128;
const KEYS: usize = 640;
const PAIRS: usize = 32;
const PER_BLOCK: usize = 16;
const BLOCKS: usize = 43;

/// A unit is a span of `span` rows of its own slot, from its position on.
#[derive(Clone)]
struct Shape {
    heads: usize,
    positions: Vec<usize>,
    span: usize,
    picks: usize,
    draft: bool,
    window: usize,
    /// Of the queries.
    reach: f32,
}

impl Shape {
    /// The picks of a unit's row, ascending.
    fn picks_of(&self, unit: usize, r: usize) -> Vec<u32> {
        let most = self.picks.min(self.positions[unit] / 2);
        (0..most).map(|i| word(i + unit + r)).collect()
    }

    fn rows(&self) -> usize {
        self.positions.len() * self.span
    }

    fn name(&self) -> String {
        let Self { heads, positions, span, picks, draft, .. } = self;
        format!("{} spans of {span}, {heads} heads, {picks} picks, draft: {draft}", positions.len())
    }
}

/// The inputs of all rows, and attention over them in f64.
struct Inputs {
    shape: Shape,
    q: Vec<f32>,
    cos: Vec<f32>,
    sin: Vec<f32>,
    sinks: Vec<f32>,
    ring: Vec<u8>,
    fresh: Vec<u8>,
    pool: Vec<u8>,
    table: Vec<u32>,
    picks: Vec<u32>,
    n_picks: Vec<u32>,
    scale: f32,
}

impl Inputs {
    fn new(shape: Shape) -> Self {
        let (units, rows) = (shape.positions.len(), shape.rows());
        let mut data = Data::new(500 + rows as u64);
        let (each, packed_each) = (packed::window_bytes(DIM), packed::compressed_bytes(DIM));
        let angles = data.between(rows * PAIRS, -3.0, 3.0);
        let (mut picks, mut n_picks) = (Vec::new(), Vec::new());
        for (unit, r) in (0..units).flat_map(|unit| (0..shape.span).map(move |r| (unit, r))) {
            let mut own = shape.picks_of(unit, r);
            n_picks.push(word(own.len()));
            own.resize(KEYS - WINDOW, u32::MAX);
            picks.extend(own);
        }
        let q = data
            .floats(rows * shape.heads * DIM, shape.reach)
            .into_iter()
            .map(bf16::round)
            .collect();
        Self {
            q,
            cos: angles.iter().map(|a| a.cos()).collect(),
            sin: angles.iter().map(|a| a.sin()).collect(),
            sinks: data.floats(shape.heads, 2.0),
            ring: packed_rows(&mut data, units * shape.window, DIM, each, packed::store_window),
            fresh: packed_rows(&mut data, rows, DIM, each, packed::store_window),
            pool: packed_rows(
                &mut data,
                units * BLOCKS * PER_BLOCK,
                DIM,
                packed_each,
                packed::store_compressed,
            ),
            table: scattered(units, BLOCKS),
            picks,
            n_picks,
            scale: 1.0 / (DIM as f32).sqrt(),
            shape,
        }
    }

    /// The buffers that every kernel has.
    fn case(&self, kernel: &'static str) -> Case {
        let (positions, span) = (self.shape.positions.clone(), self.shape.span);
        let meta = move |units: &[usize]| {
            let words = units.iter().enumerate().flat_map(|(i, &unit)| {
                let start = positions[unit];
                (0..span).flat_map(move |r| row_words(unit, start + r, start, i * span, span))
            });
            bytes(&words.collect::<Vec<_>>())
        };
        Case::new(kernel, self.shape.name(), self.shape.positions.len())
            .row("q", &self.q)
            .row("cos", &self.cos)
            .row("sin", &self.sin)
            .shared("sinks", &self.sinks)
            .shared("ring", &self.ring)
            .row("fresh", &self.fresh)
            .shared("pool", &self.pool)
            .made("rows", meta)
            .shared("blocks", &self.table)
            .row("picks", &self.picks)
            .row("n_picks", &self.n_picks)
    }

    fn args(&self) -> impl Fn(&Addresses) -> TileAttendArgs + 'static {
        let Shape { heads, draft, window, .. } = self.shape;
        let scale = self.scale;
        move |at| TileAttendArgs {
            q: at.of("q"),
            cos: at.of("cos"),
            sin: at.of("sin"),
            sinks: at.of("sinks"),
            ring: at.of("ring"),
            fresh: at.of("fresh"),
            pool: if draft { 0 } else { at.of("pool") },
            rows: at.of("rows"),
            blocks: at.of("blocks"),
            picks: at.of("picks"),
            n_picks: if draft { 0 } else { at.of("n_picks") },
            scores: 0,
            out: 0,
            heads: word(heads),
            window: word(window),
            ring_rows: word(window),
            blocks_stride: word(BLOCKS),
            rows_per_block: word(PER_BLOCK),
            picks_stride: word(KEYS - WINDOW),
            draft: draft.into(),
            // Nothing runs before the launch, so keys may be read at once or not.
            known: draft.into(),
            scale,
            row_count: 0,
        }
    }

    /// A head's query, rotated.
    fn query(&self, row: usize, head: usize) -> Vec<f64> {
        let mut q = self.q[(row * self.shape.heads + head) * DIM..][..DIM].to_vec();
        for (i, pair) in q[DIM - 2 * PAIRS..].chunks_exact_mut(2).enumerate() {
            let (cos, sin) = (self.cos[row * PAIRS + i], self.sin[row * PAIRS + i]);
            let (even, odd) = (pair[0], pair[1]);
            pair[0] = bf16::round(even * cos - odd * sin);
            pair[1] = bf16::round(even * sin + odd * cos);
        }
        q.into_iter().map(f64::from).collect()
    }

    fn keys(&self, unit: usize, r: usize) -> Vec<Vec<f32>> {
        let Shape { span, draft, window, .. } = self.shape;
        let start = self.shape.positions[unit];
        let (first, last) = match draft {
            true => (start.saturating_sub(window), start + span - 1),
            false => ((start + r + 1).saturating_sub(window), start + r),
        };
        let each = packed::window_bytes(DIM);
        let window_key = |position: usize| {
            let (held, at) = match position < start {
                true => (&self.ring, unit * window + position % window),
                false => (&self.fresh, unit * span + position - start),
            };
            let mut key = vec![0.0; DIM];
            packed::load_window(&held[at * each..(at + 1) * each], &mut key);
            key
        };
        let packed_each = packed::compressed_bytes(DIM);
        let picked = |j: u32| {
            let (block, row) = (j as usize / PER_BLOCK, j as usize % PER_BLOCK);
            let at = self.table[unit * BLOCKS + block] as usize * PER_BLOCK + row;
            let mut key = vec![0.0; DIM];
            packed::load_compressed(&self.pool[at * packed_each..(at + 1) * packed_each], &mut key);
            key
        };
        let picks = if draft { Vec::new() } else { self.shape.picks_of(unit, r) };
        (first..=last).map(window_key).chain(picks.into_iter().map(picked)).collect()
    }

    /// A head's scores with a bound each. A product of the tensor cores adds 16 terms to its sum with
    /// as many truncations at most, each of a unit of the largest; two units a rounding stand for that.
    fn scores(&self, q: &[f64], keys: &[Vec<f32>]) -> Vec<(f64, f64)> {
        let score = |key: &Vec<f32>| {
            let term = |c: usize| q[c] * f64::from(key[c]);
            let sum: f64 = (0..DIM).map(term).sum();
            let size: f64 = (0..DIM).map(|c| term(c).abs()).sum();
            let scale = f64::from(self.scale);
            (sum * scale, size * scale * 2.0 * gamma(DIM / 16 + 17))
        };
        keys.iter().map(score).collect()
    }

    /// A head's output from its scores: rounded, rotated back, rounded, with bounds.
    fn mixed(
        &self,
        row: usize,
        head: usize,
        scores: &[(f64, f64)],
        keys: &[Vec<f32>],
    ) -> Vec<(f64, f64)> {
        let sink = f64::from(self.sinks[head]);
        let top = scores.iter().fold(sink, |top, s| top.max(s.0));
        // Of each weight: its score's error twice, the roundings of differences, whose sum is at most 16
        // more than that to the top, two units of exp and one of a product for each 32 keys, and its
        // rounding to 17 bits.
        let parts = (keys.len() / 32 + 2) as f64;
        let worst = scores.iter().fold(0.0f64, |worst, (s, error)| {
            worst.max(2.0 * error + (top - s + 16.0 + 3.0 * parts) * UNIT)
        }) + BF16_UNIT * BF16_UNIT / 2.0;
        let weights: Vec<f64> = scores.iter().map(|s| (s.0 - top).exp()).collect();
        let divisor = weights.iter().sum::<f64>() + (sink - top).exp();
        let channel = |c: usize| {
            let terms = || weights.iter().zip(keys).map(|(w, key)| w * f64::from(key[c]));
            let value = terms().sum::<f64>() / divisor;
            let size = terms().map(f64::abs).sum::<f64>() / divisor;
            let error = size * (2.0 * worst + 2.0 * gamma(keys.len() / 8 + 40));
            (value, error + (value.abs() + error) * BF16_UNIT)
        };
        let mut out: Vec<(f64, f64)> = (0..DIM).map(channel).collect();
        for (i, pair) in out[DIM - 2 * PAIRS..].chunks_exact_mut(2).enumerate() {
            let (c, s) = (self.cos[row * PAIRS + i], self.sin[row * PAIRS + i]);
            let (c, s) = (f64::from(c), f64::from(s));
            let ((even, even_error), (odd, odd_error)) = (pair[0], pair[1]);
            let error = even_error * c.abs() + odd_error * s.abs();
            let other = even_error * s.abs() + odd_error * c.abs();
            let (even, odd) = (even * c + odd * s, odd * c - even * s);
            pair[0] = (even, error + (even.abs() + error) * (BF16_UNIT + 4.0 * UNIT));
            pair[1] = (odd, other + (odd.abs() + other) * (BF16_UNIT + 4.0 * UNIT));
        }
        out
    }

    /// A unit's outputs from its own scores.
    fn unit(&self, unit: usize) -> Vec<(f64, f64)> {
        let mut out = Vec::new();
        for r in 0..self.shape.span {
            let (keys, row) = (self.keys(unit, r), unit * self.shape.span + r);
            for head in 0..self.shape.heads {
                let scores = self.scores(&self.query(row, head), &keys);
                out.extend(self.mixed(row, head, &scores, &keys));
            }
        }
        out
    }
}

/// All ten blocks of 64 keys are in use, so that every score is written.
fn scores(shape: Shape) -> Case {
    let inputs = Inputs::new(shape);
    let (args, heads, span) = (inputs.args(), inputs.shape.heads, inputs.shape.span);
    let picks = inputs.shape.picks > 0;
    let case = inputs
        .case("tile_attend_scores")
        .out("scores", heads * KEYS * 4)
        .launch(move |at, units| {
            let args = TileAttendArgs { scores: at.of("scores"), ..args(at) };
            (args.bytes(), [word(heads / 16 * 10), word(units.len() * span)])
        })
        .want(move |unit| {
            let keys = inputs.keys(unit, 0);
            let mut out = Vec::with_capacity(heads * KEYS);
            for head in 0..heads {
                let scores = inputs.scores(&inputs.query(unit, head), &keys);
                out.extend(scores);
                out.resize((head + 1) * KEYS, (0.0, 0.0));
            }
            vec![Want::Near(out)]
        })
        .strike("q", DIM + 5, f32::NAN, Rule::Check("scores", second_head_is_nan))
        .fault("ATTEND_NEIGHBOUR_HEAD", Gate::Reference);
    if picks { case.fault("ATTEND_WRONG_PICK", Gate::Reference) } else { case }
}

fn second_head_is_nan(before: &[u8], after: &[u8]) -> bool {
    let floats = super::super::case::floats;
    let pairs = floats(before).into_iter().zip(floats(after)).enumerate();
    pairs.into_iter().all(|(i, (before, after))| match i / KEYS {
        1 => after.is_nan(),
        _ => before.to_bits() == after.to_bits(),
    })
}

/// Outputs from given scores.
fn mix(shape: Shape) -> Case {
    let inputs = Inputs::new(shape);
    let (args, heads, span) = (inputs.args(), inputs.shape.heads, inputs.shape.span);
    let reach = inputs.shape.reach;
    let scores = Data::new(77).floats(inputs.shape.rows() * heads * KEYS, 4.0 * reach);
    let draft = inputs.shape.draft;
    let case = inputs
        .case("tile_attend_mix")
        .row("scores", &scores)
        .out_kept("out", span * heads * DIM, true)
        .launch(move |at, units| {
            let args = TileAttendArgs { scores: at.of("scores"), out: at.of("out"), ..args(at) };
            (args.bytes(), [word(heads / 16 * (DIM / 64)), word(units.len() * span)])
        })
        .want(move |unit| {
            let mut out = Vec::new();
            for r in 0..span {
                let (keys, row) = (inputs.keys(unit, r), unit * span + r);
                for head in 0..heads {
                    // Picks begin at a multiple of 32.
                    let windows = keys.len() - inputs.n_picks[row] as usize * usize::from(!draft);
                    let place = |k| {
                        if k < windows { k } else { windows.next_multiple_of(32) + k - windows }
                    };
                    let own = &scores[(row * heads + head) * KEYS..];
                    let own: Vec<(f64, f64)> =
                        (0..keys.len()).map(|k| (f64::from(own[place(k)]), 0.0)).collect();
                    out.extend(inputs.mixed(row, head, &own, &keys));
                }
            }
            vec![Want::Near(out)]
        })
        .strike("scores", 1, f32::NAN, Rule::Check("out", first_head_is_nan))
        .fault("ROPE_NOT_INVERSE", Gate::Reference);
    let case = if draft { case } else { case.fault("ATTEND_DROPPED_KEY", Gate::Reference) };
    // Far scores leave a sink no share.
    let fault = if reach > 2.0 { "ATTEND_KEPT_SUMS" } else { "ATTEND_NO_SINK" };
    case.fault(fault, Gate::Reference)
}

fn first_head_is_nan(before: &[u8], after: &[u8]) -> bool {
    let halves = |part: &[u8]| part.as_chunks::<2>().0.to_vec();
    let pairs = halves(before).into_iter().zip(halves(after)).enumerate();
    pairs.into_iter().all(|(i, (before, after))| match i < DIM {
        true => u16::from_ne_bytes(after) & 0x7fff > 0x7f80,
        false => before == after,
    })
}

fn many_rows(shape: Shape) -> Case {
    let inputs = Inputs::new(shape);
    let (args, heads, span) = (inputs.args(), inputs.shape.heads, inputs.shape.span);
    let reach = inputs.shape.reach;
    let case = inputs
        .case("tile_attend_many")
        .out_kept("out", span * heads * DIM, true)
        .launch(move |at, units| {
            let row_count = word(units.len() * span);
            let args = TileAttendArgs { out: at.of("out"), row_count, ..args(at) };
            // Groups take rows one after another.
            (args.bytes(), [row_count.min(2), word(heads / 64)])
        })
        .want(move |unit| vec![Want::Near(inputs.unit(unit))])
        .strike("q", 5, f32::NAN, Rule::Check("out", first_head_is_nan))
        .fault("ATTEND_NEIGHBOUR_HEAD", Gate::Reference);
    // Far scores leave a sink no share.
    let fault = if reach > 2.0 { "ATTEND_KEPT_SUMS" } else { "ATTEND_NO_SINK" };
    case.fault(fault, Gate::Reference)
}
