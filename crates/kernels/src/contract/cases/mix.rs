//! Hyper-connections in slices.

use finback_numerics::bf16;

use super::super::case::{Case, Gate, Rule, Want, bytes, encoded};
use super::super::data::{Data, UNIT, coded_row, gamma, near, nears};
use super::streams::sinkhorn;
use super::word;
use crate::args::{Args, HyperMixArgs, HyperNormArgs};
use crate::tiles::row_bytes;

pub fn cases() -> Vec<Case> {
    vec![
        hyper_mix(PORTABLE, Input::Streams, Shape { hc: 4, columns: 40, topk: 1 }, TURNS, true),
        hyper_mix(PORTABLE, Input::Sublayer, Shape { hc: 4, columns: 128, topk: 1 }, TURNS, true),
        hyper_mix(PORTABLE, Input::Sublayer, Shape { hc: 4, columns: 128, topk: 1 }, TURNS, false),
        hyper_mix(PORTABLE, Input::Sublayer, Shape { hc: 2, columns: 88, topk: 1 }, TURNS, true),
        hyper_mix(PORTABLE, Input::Experts, Shape { hc: 4, columns: 96, topk: 7 }, TURNS, true),
        hyper_mix(PORTABLE, Input::Experts, Shape { hc: 3, columns: 128, topk: 2 }, TURNS, false),
        hyper_mix(PORTABLE, Input::Experts, Shape { hc: 4, columns: 128, topk: 16 }, MOST, true),
        hyper_mix(TILED, Input::Streams, Shape { hc: 4, columns: 128, topk: 1 }, TILES, true),
        hyper_mix(TILED, Input::Sublayer, Shape { hc: 4, columns: 128, topk: 1 }, TILES, true),
        hyper_mix(TILED, Input::Experts, Shape { hc: 4, columns: 128, topk: 7 }, TILES, true),
        hyper_norm(4, 7, true, 0),
        hyper_norm(3, 40, false, 0),
        hyper_norm(4, 7, true, 1),
    ]
}

/// Channels of a row of `hyper_norm`.
const WIDTH: usize = 640;

/// The kernel, channels of a stream, and roundings of a sum of `n` products.
#[derive(Clone, Copy)]
struct Way {
    kernel: &'static str,
    channels: usize,
    depth: fn(usize) -> usize,
}

/// Not a whole number of slices.
const PORTABLE: Way = Way { kernel: "hyper_mix", channels: 168, depth: |hc| 4 * hc + 6 };
/// An instruction of 16 products rounds as often, in units of up to twice f32's.
const TILED: Way = Way { kernel: "tile_hyper_mix", channels: 256, depth: |_| 2 * (8 * 17 + 4) };

/// Rows of `hyper_mix`, and of a group: two turns of four, and as many as one may have.
const TURNS: (usize, usize) = (7, 6);
const MOST: (usize, usize) = (65, 64);
/// The same of `tile_hyper_mix`: turns of sixteen.
const TILES: (usize, usize) = (37, 32);

/// Streams, channels of a slice, and experts of a row.
#[derive(Clone, Copy)]
struct Shape {
    hc: usize,
    columns: usize,
    topk: usize,
}

/// What the streams are expanded by.
#[derive(Clone, Copy, PartialEq)]
enum Input {
    Streams,
    Sublayer,
    Experts,
}

fn hyper_mix(
    way: Way,
    input: Input,
    shape: Shape,
    (rows, each): (usize, usize),
    round: bool,
) -> Case {
    let Way { kernel, channels, depth } = way;
    let Shape { hc, columns, topk } = shape;
    let mixes = (2 + hc) * hc;
    let slices = channels.div_ceil(columns);
    let mut data = Data::new(columns as u64 + 90);
    let streams = data.kept(rows * hc * channels, 2.0, round);
    let y = data.floats(rows * channels, 2.0);
    let routed = data.floats(rows * topk * channels, 2.0);
    let (post, comb) = (data.between(rows * hc, 0.0, 2.0), data.between(rows * hc * hc, 0.0, 1.0));
    let pre = data.between(rows * hc, 0.1, 1.0);
    let weight = data.floats(mixes * hc * channels, 0.5);
    let own = Inputs {
        input,
        shape,
        channels,
        round,
        streams: streams.clone(),
        y: y.clone(),
        routed: routed.clone(),
        post: post.clone(),
        comb: comb.clone(),
        pre: pre.clone(),
    };
    let held = weight.clone();
    let want = move |row: usize| {
        let (x, collapsed) = own.row(row);
        let mut parts = Vec::with_capacity(slices * (mixes + 2));
        for slice in 0..slices {
            let ks = slice * columns..((slice + 1) * columns).min(channels);
            let terms = |weight: &dyn Fn(usize) -> f64| {
                let each = (0..hc).flat_map(|i| ks.clone().map(move |k| i * channels + k));
                let terms = each.map(|at| weight(at) * f64::from(x[at]));
                let (sum, size) = terms.fold((0.0, 0.0), |(s, a), t| (s + t, a + t.abs()));
                near(sum, size * gamma(depth(hc)), false)
            };
            for o in 0..mixes {
                parts.push(terms(&|at| f64::from(held[o * hc * channels + at])));
            }
            parts.push(terms(&|at| f64::from(x[at])));
            let square: f64 = ks.map(|k| f64::from(collapsed[k]).powi(2)).sum();
            parts.push(near(square, square * gamma(10), false));
        }
        let streams = if round { bytes(&encoded(&x)) } else { bytes(&x) };
        let collapsed = match kernel == TILED.kernel {
            true => bytes(&encoded(&collapsed)),
            false => bytes(&collapsed),
        };
        vec![Want::Bytes(streams), Want::Bytes(collapsed), Want::Near(parts)]
    };
    let name = match input {
        Input::Streams => "as they are",
        Input::Sublayer => "after a sublayer",
        Input::Experts => "after experts",
    };
    let places = move |rows: &[usize]| bytes(&(0..word(rows.len() * topk)).collect::<Vec<_>>());
    let case = Case::new(
        kernel,
        format!("{hc} streams, {slices} slices of {columns}, {name}, rounded: {round}"),
        rows,
    )
    .in_place_kept("streams", &streams, round)
    .row("y", &y)
    .row("routed", &routed)
    .made("places", places)
    .row("post", &post)
    .row("comb", &comb)
    .row("pre", &pre)
    .shared("weight", &weight)
    .out_kept("collapsed", channels, kernel == TILED.kernel)
    .out("parts", slices * (mixes + 2) * 4)
    .launch(move |at, rows| {
        let experts = input == Input::Experts;
        let args = HyperMixArgs {
            streams: at.of("streams"),
            y: at.of("y"),
            routed: if experts { at.of("routed") } else { 0 },
            shared: at.of("y"),
            places: at.of("places"),
            post: at.of("post"),
            comb: at.of("comb"),
            pre: at.of("pre"),
            weight: at.of("weight"),
            collapsed: at.of("collapsed"),
            parts: at.of("parts"),
            width: word(channels),
            hc: word(hc),
            columns: word(columns),
            rows: word(rows.len()),
            rows_each: word(each),
            topk: word(topk),
            expand: (input != Input::Streams).into(),
            round: round.into(),
        };
        (args.bytes(), [word(slices), word(rows.len()).div_ceil(word(each))])
    })
    .want(want)
    .strike("streams", 1, f32::NAN, Rule::NanAt("collapsed", 1))
    .strike("pre", 1, f32::NAN, Rule::Nan("collapsed"))
    .strike("pre", 1, f32::NAN, Rule::Same("streams"))
    .fault("HYPER_DROPPED_STREAM", Gate::Reference);
    match input {
        Input::Streams => case,
        Input::Sublayer => case
            .fault("EXPAND_TRANSPOSED", Gate::Reference)
            .fault("HYPER_MISSING_BARRIER", Gate::Rows),
        Input::Experts => case.fault("EXPERTS_NO_SHARED", Gate::Reference),
    }
}

/// Rows of `hyper_mix`, and its steps that have one order: expansion and collapse.
struct Inputs {
    input: Input,
    shape: Shape,
    channels: usize,
    round: bool,
    streams: Vec<f32>,
    y: Vec<f32>,
    routed: Vec<f32>,
    post: Vec<f32>,
    comb: Vec<f32>,
    pre: Vec<f32>,
}

impl Inputs {
    /// The streams after, and the collapsed row.
    fn row(&self, row: usize) -> (Vec<f32>, Vec<f32>) {
        let hc = self.shape.hc;
        let stored = |x: f32| if self.round { bf16::round(x) } else { x };
        let old = &self.streams[row * hc * self.channels..(row + 1) * hc * self.channels];
        let y = |k: usize| match self.input {
            Input::Experts => {
                let routed =
                    |e: usize| self.routed[(row * self.shape.topk + e) * self.channels + k];
                let sum = (0..self.shape.topk).fold(0.0, |sum, e| sum + routed(e));
                stored(sum + self.y[row * self.channels + k])
            }
            _ => self.y[row * self.channels + k],
        };
        let value = |j: usize, k: usize| {
            if self.input == Input::Streams {
                return old[j * self.channels + k];
            }
            let comb = |i: usize| self.comb[(row * hc + i) * hc + j];
            let first = self.post[row * hc + j] * y(k);
            stored((0..hc).fold(first, |sum, i| comb(i).mul_add(old[i * self.channels + k], sum)))
        };
        let x: Vec<f32> = (0..hc * self.channels)
            .map(|at| value(at / self.channels, at % self.channels))
            .collect();
        let pre = &self.pre[row * hc..(row + 1) * hc];
        let collapsed = |k: usize| {
            let terms = pre.iter().enumerate();
            stored(terms.fold(0.0, |sum: f32, (i, p)| p.mul_add(x[i * self.channels + k], sum)))
        };
        let collapsed = (0..self.channels).map(collapsed).collect();
        (x, collapsed)
    }
}

/// `warp_sum` of terms of which lane l has those that are l modulo 32.
fn warp_sum(terms: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 32];
    terms.iter().enumerate().for_each(|(i, term)| lanes[i % 32] += term);
    for apart in [16, 8, 4, 2, 1] {
        let before = lanes;
        (0..32).for_each(|lane| lanes[lane] = before[lane] + before[lane ^ apart]);
    }
    lanes[0]
}

/// From the group `first` on: without the first, no pre, post and comb.
fn hyper_norm(hc: usize, slices: usize, kept: bool, first: u32) -> Case {
    let mixes = (2 + hc) * hc;
    let count = mixes + 2;
    let (rows, iterations) = (4, 20);
    let (eps, hc_eps, scale) = (1e-20f32, 1e-6f32, [0.9f32, 1.1, 0.7]);
    let mut data = Data::new(95);
    let collapsed: Vec<f32> = data.floats(rows * WIDTH, 2.0).into_iter().map(bf16::round).collect();
    let mut parts = data.floats(rows * slices * count, 2.0);
    for slice in parts.chunks_exact_mut(count) {
        slice[mixes..].iter_mut().for_each(|square| *square = square.abs() * 20.0);
    }
    let (base, norm) = (data.floats(mixes, 1.0), data.between(WIDTH, 0.5, 1.5));
    let pre = data.between(rows * hc, 0.1, 1.0);
    let (c, p, b, n) = (collapsed.clone(), parts.clone(), base.clone(), norm.clone());
    let want = move |row: usize| {
        let parts = &p[row * slices * count..(row + 1) * slices * count];
        let of = |o: usize| (0..slices).map(|s| parts[s * count + o]).collect::<Vec<f32>>();
        // One order, so one value: what follows of it is exact.
        let inverse = 1.0 / (warp_sum(&of(mixes + 1)) / WIDTH as f32 + eps).sqrt();
        let x: Vec<f32> =
            (0..WIDTH).map(|k| bf16::round(c[row * WIDTH + k] * inverse * n[k])).collect();
        let plain = bytes(&x.iter().map(|&x| bf16::encode(x)).collect::<Vec<u16>>());

        let exact = |o: usize| of(o).into_iter().map(f64::from).sum::<f64>();
        let size = |o: usize| of(o).into_iter().map(|x| f64::from(x).abs()).sum::<f64>();
        let by = 1.0 / (exact(mixes) / (hc * WIDTH) as f64 + f64::from(eps)).sqrt();
        let logit = |i: usize, part: usize| {
            let scale = by * f64::from(scale[part]);
            (exact(i) * scale + f64::from(b[i]), size(i) * scale * gamma(20) + UNIT * 4.0)
        };
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let pres = nears((0..hc).map(|i| {
            let (x, error) = logit(i, 0);
            near(sigmoid(x) + f64::from(hc_eps), error + 6.0 * UNIT, false)
        }));
        let posts = nears((0..hc).map(|i| {
            let (x, error) = logit(hc + i, 1);
            near(2.0 * sigmoid(x), 2.0 * (error + 6.0 * UNIT), false)
        }));
        let logits: Vec<(f64, f64)> = (0..hc * hc).map(|i| logit(2 * hc + i, 2)).collect();
        let worst = logits.iter().fold(0.0, |w: f64, (x, e)| w.max(*e + 2.0 * x.abs() * UNIT));
        let comb = sinkhorn(&logits.iter().map(|l| l.0).collect::<Vec<_>>(), iterations, hc_eps);
        // As hyper_in: scaling rows and columns does not stretch the ratios of entries.
        let relative = 4.0 * (worst + gamma(2 * iterations * (hc + 3)));
        let combs = nears(comb.iter().map(|&c| near(c, c * relative, false)));
        let (plain, rounded) = (Want::Bytes(plain), Want::Bytes(coded_row(&x)));
        let norms = [Want::Bytes(bytes(&x)), plain, rounded];
        let mixed = [pres, posts, combs].into_iter().filter(|_| first == 0);
        mixed.chain(norms).collect()
    };
    let case = Case::new(
        "hyper_norm",
        format!("{hc} streams, {rows} rows of {WIDTH} in {slices} slices, from group {first}"),
        rows,
    )
    .row_kept("collapsed", &collapsed, kept)
    .row("parts", &parts)
    .shared("base", &base)
    .shared("norm", &norm);
    let case = match first {
        0 => case.in_place("pre", &pre).out("post", hc * 4).out("comb", hc * hc * 4),
        _ => case,
    };
    let case = case
        .out("x", WIDTH * 4)
        .out("plain", WIDTH * 2)
        .strided("rounded", WIDTH + WIDTH / 32, row_bytes(true, WIDTH), 0)
        .launch(move |at, rows| {
            let of = |name| if first == 0 { at.of(name) } else { 0 };
            let args = HyperNormArgs {
                collapsed: at.of("collapsed"),
                parts: at.of("parts"),
                base: at.of("base"),
                norm: at.of("norm"),
                pre: of("pre"),
                post: of("post"),
                comb: of("comb"),
                x: at.of("x"),
                plain: at.of("plain"),
                rounded: at.of("rounded"),
                width: word(WIDTH),
                hc: word(hc),
                slices: word(slices),
                iterations: word(iterations),
                round: 1,
                eps,
                hc_eps,
                scale_pre: scale[0],
                scale_post: scale[1],
                scale_comb: scale[2],
                kept: kept.into(),
                first,
                known: kept.into(),
                pad: 0,
            };
            (args.bytes(), [word(rows.len()), 1 + word(WIDTH).div_ceil(512) - first])
        })
        .want(want)
        .strike("collapsed", 9, f32::NAN, Rule::NanAt("x", 9))
        .strike("parts", mixes + 1, f32::NAN, Rule::Nan("x"))
        .strike("parts", count + 1, f32::NAN, Rule::Same("x"))
        .fault("HYPER_DROPPED_SLICE", Gate::Reference)
        .fault("QUANT_WRONG_SCALE", Gate::Reference);
    if first > 0 {
        return case;
    }
    case.strike("parts", mixes, f32::NAN, Rule::Nan("comb"))
        .strike("parts", count + 1, f32::NAN, Rule::NanAt("pre", 1))
        .fault("SINKHORN_DROPPED_ROUND", Gate::Reference)
}
