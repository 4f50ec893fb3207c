//! Attention over window rows and picks.

use finback_numerics::{bf16, rows as packed};

use super::super::case::{Case, Gate, Rule, Want, bytes};
use super::super::data::{Data, UNIT, gamma, group_depth, near};
use super::select::{row_words, scattered};
use super::word;
use crate::args::{Args, AttendArgs};

pub fn cases() -> Vec<Case> {
    let decode = Shape {
        dim: 64,
        pairs: 16,
        plain: false,
        window: 8,
        positions: vec![0, 3, 37, 90],
        span: 1,
        draft: false,
    };
    let long = Shape { dim: 160, pairs: 4, window: 140, positions: vec![300, 139], ..decode };
    let chunk =
        Shape { dim: 32, plain: true, window: 6, positions: vec![2, 30], span: 3, ..decode };
    let draft = Shape { positions: vec![4, 30], plain: false, draft: true, ..chunk };
    [decode, long, chunk, draft].iter().map(attend).collect()
}

/// A unit is a span of `span` rows of its own slot, from its position on.
#[derive(Debug, Clone)]
struct Shape {
    dim: usize,
    /// Rotated pairs of channels.
    pairs: usize,
    /// Whether outputs go elsewhere as bf16.
    plain: bool,
    window: usize,
    positions: Vec<usize>,
    span: usize,
    draft: bool,
}

const HEADS: usize = 3;
const PER_BLOCK: usize = 4;
const BLOCKS: usize = 7;
const PICKS: usize = 6;

/// Packed rows drawn from `data`.
pub fn rows(
    data: &mut Data,
    n: usize,
    dim: usize,
    each: usize,
    store: fn(&[f32], &mut [u8]),
) -> Vec<u8> {
    let mut held = vec![0; n * each];
    for held in held.chunks_exact_mut(each) {
        store(&data.floats(dim, 2.0), held);
    }
    held
}

/// The picks of a unit's row, ascending.
fn picks_of(unit: usize, r: usize, shape: &Shape) -> Vec<u32> {
    let most = if shape.draft || shape.positions[unit] < 4 { 0 } else { PICKS - r };
    (0..most).map(|i| word(i * 4 + unit + r)).collect()
}

fn attend(shape: &Shape) -> Case {
    let (units, dim, span, window) = (shape.positions.len(), shape.dim, shape.span, shape.window);
    let each = packed::window_bytes(dim);
    let mut data = Data::new((dim + window) as u64);
    let q = data.floats(units * span * HEADS * dim, 1.5);
    let (pairs, plain) = (shape.pairs, shape.plain);
    let angles = data.between(units * span * pairs, -3.0, 3.0);
    let cos: Vec<f32> = angles.iter().map(|a| a.cos()).collect();
    let sin: Vec<f32> = angles.iter().map(|a| a.sin()).collect();
    let sinks = data.floats(HEADS, 2.0);
    let ring = rows(&mut data, units * window, dim, each, packed::store_window);
    let fresh = rows(&mut data, units * span, dim, each, packed::store_window);
    let packed_each = packed::compressed_bytes(dim);
    let pool =
        rows(&mut data, units * BLOCKS * PER_BLOCK, dim, packed_each, packed::store_compressed);
    let table = scattered(units, BLOCKS);
    let (mut picks, mut n_picks) = (Vec::new(), Vec::new());
    for (unit, r) in (0..units).flat_map(|unit| (0..span).map(move |r| (unit, r))) {
        let mut own = picks_of(unit, r, shape);
        n_picks.push(word(own.len()));
        own.resize(PICKS, u32::MAX);
        picks.extend(own);
    }
    let scale = 1.0 / (dim as f32).sqrt();
    let reference = Reference {
        shape: shape.clone(),
        q: q.clone(),
        cos: cos.clone(),
        sin: sin.clone(),
        sinks: sinks.clone(),
        ring: ring.clone(),
        fresh: fresh.clone(),
        pool: pool.clone(),
        table: table.clone(),
        scale: f64::from(scale),
    };
    let positions = shape.positions.clone();
    let meta = move |units: &[usize]| {
        let words = units.iter().enumerate().flat_map(|(i, &unit)| {
            let start = positions[unit];
            (0..span).flat_map(move |r| row_words(unit, start + r, start, i * span, span))
        });
        bytes(&words.collect::<Vec<_>>())
    };
    let draft = shape.draft;
    let name = format!("{units} spans of {span}, window {window}, {dim} wide, draft: {draft}");
    let case = Case::new("attend", name, units).in_place("q", &q);
    let case = if plain { case.out_kept("plain", span * HEADS * dim, true) } else { case };
    let case = case
        .row("cos", &cos)
        .row("sin", &sin)
        .shared("sinks", &sinks)
        .shared("ring", &ring)
        .row("fresh", &fresh)
        .shared("pool", &pool)
        .made("rows", meta)
        .shared("blocks", &table)
        .row("picks", &picks)
        .row("n_picks", &n_picks)
        .launch(move |at, units| {
            let args = AttendArgs {
                q: at.of("q"),
                cos: at.of("cos"),
                sin: at.of("sin"),
                sinks: at.of("sinks"),
                ring: at.of("ring"),
                fresh: at.of("fresh"),
                pool: at.of("pool"),
                rows: at.of("rows"),
                blocks: at.of("blocks"),
                picks: at.of("picks"),
                n_picks: if draft { 0 } else { at.of("n_picks") },
                plain: if plain { at.of("plain") } else { 0 },
                heads: word(HEADS),
                dim: word(dim),
                pairs: word(pairs),
                window: word(window),
                ring_rows: word(window),
                blocks_stride: word(BLOCKS),
                rows_per_block: word(PER_BLOCK),
                picks_stride: word(PICKS),
                draft: draft.into(),
                round: 1,
                scale,
                pad: 0,
            };
            (args.bytes(), [word(HEADS), word(units.len() * span)])
        })
        .want(move |unit| reference.unit(unit))
        .fault("ATTEND_NO_SINK", Gate::Reference)
        .fault("ROPE_NOT_INVERSE", Gate::Reference)
        .fault("ATTEND_MISSING_BARRIER", Gate::Rows);
    let case = match plain {
        true => case.strike("q", dim + 1, f32::NAN, Rule::Check("plain", second_head_is_nan)),
        false => case.strike("q", dim + 1, f32::NAN, Rule::NanIn("q", dim, dim)),
    };
    if draft { case } else { case.fault("ATTEND_DROPPED_KEY", Gate::Reference) }
}

/// Whether the first row's second head is NaN and nothing else changed; heads of 32 channels.
fn second_head_is_nan(before: &[u8], after: &[u8]) -> bool {
    let own = 64..128;
    let nan = |half: &[u8; 2]| u16::from_ne_bytes(*half) & 0x7fff > 0x7f80;
    after[own.clone()].as_chunks().0.iter().all(nan)
        && after[..own.start] == before[..own.start]
        && after[own.end..] == before[own.end..]
}

/// A pair of values with their bounds, rotated back and rounded.
fn turn_back(pair: &mut [(f64, f64)], cos: f64, sin: f64) {
    let [(even, even_bound), (odd, odd_bound)] = [pair[0], pair[1]];
    let turned = |a: f64, by_a: f64, b: f64, by_b: f64, bounds: [f64; 2]| {
        let bound = by_a.abs() * bounds[0] + by_b.abs() * bounds[1];
        near(a * by_a + b * by_b, bound + gamma(3) * ((a * by_a).abs() + (b * by_b).abs()), true)
    };
    pair[0] = turned(even, cos, odd, sin, [even_bound, odd_bound]);
    pair[1] = turned(even, -sin, odd, cos, [even_bound, odd_bound]);
}

/// The inputs, and attention over them in f64.
struct Reference {
    shape: Shape,
    q: Vec<f32>,
    cos: Vec<f32>,
    sin: Vec<f32>,
    sinks: Vec<f32>,
    ring: Vec<u8>,
    fresh: Vec<u8>,
    pool: Vec<u8>,
    table: Vec<u32>,
    scale: f64,
}

impl Reference {
    fn unit(&self, unit: usize) -> Vec<Want> {
        let Shape { span, dim, pairs, .. } = self.shape;
        let mut out = Vec::with_capacity(span * HEADS * dim);
        for r in 0..span {
            let keys = self.keys(unit, r);
            for head in 0..HEADS {
                let row = unit * span + r;
                let mut q = self.q[(row * HEADS + head) * dim..][..dim].to_vec();
                let turns = self.cos[row * pairs..].iter().zip(&self.sin[row * pairs..]);
                for ((c, s), pair) in turns.clone().zip(q[dim - 2 * pairs..].chunks_exact_mut(2)) {
                    let (even, odd) = (pair[0], pair[1]);
                    pair[0] = bf16::round(even * c - odd * s);
                    pair[1] = bf16::round(even * s + odd * c);
                }
                let mut mixed = self.head(&q, f64::from(self.sinks[head]), &keys);
                for ((&c, &s), pair) in turns.zip(mixed[dim - 2 * pairs..].chunks_exact_mut(2)) {
                    turn_back(pair, f64::from(c), f64::from(s));
                }
                out.extend(mixed);
            }
        }
        if !self.shape.plain {
            return vec![Want::Near(out)];
        }
        let held = span * HEADS * dim;
        vec![Want::Bytes(bytes(&self.q[unit * held..][..held])), Want::Near(out)]
    }

    fn keys(&self, unit: usize, r: usize) -> Vec<Vec<f32>> {
        let Shape { dim, window, span, draft, .. } = self.shape;
        let start = self.shape.positions[unit];
        let (first, last) = match draft {
            true => (start.saturating_sub(window), start + span - 1),
            false => ((start + r + 1).saturating_sub(window), start + r),
        };
        let each = packed::window_bytes(dim);
        let window_key = |position: usize| {
            let (held, at) = match position < start {
                true => (&self.ring, unit * window + position % window),
                false => (&self.fresh, unit * span + position - start),
            };
            let mut key = vec![0.0; dim];
            packed::load_window(&held[at * each..(at + 1) * each], &mut key);
            key
        };
        let packed_each = packed::compressed_bytes(dim);
        let picked = |j: u32| {
            let (block, row) = (j as usize / PER_BLOCK, j as usize % PER_BLOCK);
            let at = self.table[unit * BLOCKS + block] as usize * PER_BLOCK + row;
            let mut key = vec![0.0; dim];
            packed::load_compressed(&self.pool[at * packed_each..(at + 1) * packed_each], &mut key);
            key
        };
        let picks = picks_of(unit, r, &self.shape).into_iter().map(picked);
        (first..=last).map(window_key).chain(picks).collect()
    }

    fn head(&self, q: &[f32], sink: f64, keys: &[Vec<f32>]) -> Vec<(f64, f64)> {
        let dim = q.len();
        let term = |key: &[f32], c: usize| f64::from(q[c]) * f64::from(key[c]);
        let score = |key: &Vec<f32>| {
            let sum: f64 = (0..dim).map(|c| term(key, c)).sum();
            let size: f64 = (0..dim).map(|c| term(key, c).abs()).sum();
            (sum * self.scale, size * self.scale * gamma(4 * dim.div_ceil(128) + 6))
        };
        let scores: Vec<(f64, f64)> = keys.iter().map(score).collect();
        let top = scores.iter().fold(sink, |top, s| top.max(s.0));
        // Of each weight: its score's error twice (in the largest too), the difference's rounding,
        // and two units of exp.
        let worst = scores
            .iter()
            .fold(0.0f64, |worst, (s, error)| worst.max(2.0 * error + (top - s + 2.0) * UNIT));
        let weights: Vec<f64> = scores.iter().map(|s| (s.0 - top).exp()).collect();
        let divisor = weights.iter().sum::<f64>() + (sink - top).exp();
        (0..dim)
            .map(|c| {
                let terms = || weights.iter().zip(keys).map(|(w, key)| w * f64::from(key[c]));
                let size = terms().map(f64::abs).sum::<f64>() / divisor;
                let roundings = gamma(keys.len() + group_depth(keys.len()) + 2);
                near(terms().sum::<f64>() / divisor, size * (2.0 * worst + roundings), true)
            })
            .collect()
    }
}
