//! Weights in tiles, rows as operands, and the products of both on tensor cores.

use std::rc::Rc;

use finback_numerics::{bf16, fp4, fp8};

use super::super::case::{Addresses, Case, Gate, Rule, Want, bytes};
use super::super::data::{Data, gamma, near, nears};
use super::{by_slice, word};
use crate::args::{Args, OperandArgs, format};
use crate::tiles::{Groups, Part, Rows, Several, TILE_INPUTS, TILE_OUTPUTS, Tiles, Way};

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        arrange("arrange_fp8", format::FP8, (128, 40), 1),
        arrange("arrange_fp8", format::FP8, (64, 16), 2),
        arrange("arrange_fp4", format::FP4, (128, 40), 1),
        arrange("arrange_fp4", format::FP4, (64, 16), 2),
        arrange("arrange_bf16", format::BF16, (128, 40), 1),
        arrange("arrange_bf16", format::BF16, (64, 16), 2),
        arrange_places("arrange_fp8", format::FP8),
        arrange_places("arrange_fp4", format::FP4),
        arrange_places("arrange_bf16", format::BF16),
        operand(true),
        operand(false),
    ];
    for kind in [format::FP8, format::FP4, format::BF16] {
        // One slice; two of four steps; six, of which two groups share three each.
        cases.push(product(kind, (64, 24), 7, By::Few));
        cases.push(product(kind, (512, 40), 8, By::Few));
        cases.push(product(kind, (64, 24), 9, By::Some));
        cases.push(product(kind, (512, 40), 30, By::Some));
        cases.push(product(kind, (1536, 40), 30, By::Pair));
        cases.push(product(kind, (512, 136), 140, By::Many));
        cases.push(grouped(kind, By::Few));
        cases.push(grouped(kind, By::Some));
        cases.push(grouped(kind, By::Pair));
        cases.push(grouped(kind, By::Many));
        cases.push(diagonal(kind));
    }
    // More outputs than are done together, so that a piece begins where another ends, and an odd number of steps, more
    // than the ring holds; in sizes of experts' pieces that no other case has.
    cases.push(product(format::FP4, (64, 3096), 84, By::Many));
    cases.push(product(format::FP4, (128, 24), 31, By::Many));
    cases.push(product(format::FP4, (128, 24), 47, By::Many));
    cases.push(product(format::FP4, (128, 24), 55, By::Many));
    cases.push(product(format::FP4, (960, 520), 60, By::Many));
    cases.push(product(format::FP8, (960, 264), 84, By::Many));
    // Pieces of the other sizes.
    cases.push(product(format::FP8, (64, 24), 190, By::Many));
    cases.push(product(format::FP8, (64, 200), 250, By::Many));
    cases.push(product(format::BF16, (64, 24), 250, By::Many));
    // More turns of a group than it has places for their sums.
    cases.push(product(format::BF16, (1152, 200), 9, By::Some));
    cases.push(product(format::BF16, (2304, 200), 9, By::Pair));
    cases
}

/// A weight as it is stored, its values, and its tiles.
struct Weight {
    codes: Vec<u8>,
    scale: Vec<u8>,
    values: Vec<f64>,
    tiles: Vec<u8>,
}

fn draw(data: &mut Data, kind: u32, (inputs, outputs): (usize, usize)) -> Weight {
    let n = inputs * outputs;
    let (codes, scale) = match kind {
        format::FP8 => {
            let codes = data.e4m3(n);
            (codes, data.e8m0(inputs.div_ceil(32) * outputs.div_ceil(32), -6))
        }
        format::FP4 => (data.bytes(n / 2), data.e8m0(n / 32, -2)),
        _ => {
            let halves: Vec<u16> = data.floats(n, 1.0).into_iter().map(bf16::encode).collect();
            (bytes(&halves), Vec::new())
        }
    };
    let value = |at: usize| match kind {
        format::FP8 => {
            let block = at / inputs / 32 * inputs.div_ceil(32) + at % inputs / 32;
            f64::from(fp8::decode(codes[at])) * f64::from(fp8::e8m0(scale[block]))
        }
        format::FP4 => {
            let code = codes[at / 2] >> (4 * (at % 2));
            f64::from(fp4::decode(code)) * f64::from(fp8::e8m0(scale[at / 32]))
        }
        _ => f64::from(bf16::lift(u16::from_ne_bytes([codes[2 * at], codes[2 * at + 1]]))),
    };
    let values = (0..n).map(value).collect();
    let tiles = tiled(kind, &codes, &scale, (inputs, outputs), 1);
    Weight { codes, scale, values, tiles }
}

/// A weight's tiles as `arrange.h` describes them, each in the first of `apart` places.
fn tiled(kind: u32, codes: &[u8], scale: &[u8], shape: (usize, usize), apart: usize) -> Vec<u8> {
    let (inputs, outputs) = shape;
    let (count, steps) = (outputs.div_ceil(TILE_OUTPUTS) * apart, inputs / TILE_INPUTS);
    let whole = Tiles::new(kind, 32, inputs, count * TILE_OUTPUTS).map_or(0, |tiles| tiles.bytes());
    let step_bytes = [1024, 544, 2048][kind as usize];
    let mut out = vec![0; whole];
    let code = |row: usize, k: usize| -> u32 {
        let at = row * inputs + k;
        match kind {
            _ if row >= outputs => 0,
            format::FP8 => codes[at].into(),
            format::FP4 => u32::from(codes[at / 2] >> (4 * (at % 2)) & 15),
            _ => u16::from_ne_bytes([codes[2 * at], codes[2 * at + 1]]).into(),
        }
    };
    for (tile, step) in (0..count / apart).flat_map(|t| (0..steps).map(move |s| (t, s))) {
        let place = tile * apart;
        let first = (place * steps + step) * step_bytes;
        for (lane, i) in (0..32).flat_map(|lane| (0..4).map(move |i| (lane, i))) {
            let row = tile * TILE_OUTPUTS + lane / 4 + i % 2 * 8;
            let k = step * TILE_INPUTS + lane % 4 * 2;
            let mut put = |at: usize, word: u32| {
                out[first + at..first + at + 4].copy_from_slice(&word.to_ne_bytes());
            };
            match kind {
                format::FP8 => {
                    for unit in 0..2 {
                        let k = k + unit * 32 + i / 2 * 16;
                        let pair = |at: usize| {
                            let (a, b) = (code(row, k + at), code(row, k + at + 8));
                            // The first's bits stand as in a bf16; the second's where those leave room.
                            let a = (a & 128) << 8 | (a & 127) << 4;
                            a | (b & 128) << 4 | (b & 0x70) << 8 | b & 15
                        };
                        put(unit * 512 + lane * 16 + i * 4, pair(0) | pair(1) << 16);
                    }
                }
                format::FP4 => {
                    let k = k + i / 2 * 32;
                    let mut word = 0;
                    for half in 0..2 {
                        let of = |pair: usize| code(row, k + 8 * pair + half);
                        let mut bit = |from: u32, to: usize, half: usize| {
                            word |= (from & 1) << (to + 16 * half);
                        };
                        let places = [[6, 7, 8, 15], [10, 11, 12, 3], [0, 1, 2, 9], [4, 13, 14, 5]];
                        for (pair, places) in places.into_iter().enumerate() {
                            for (n, to) in places.into_iter().enumerate() {
                                // The signs of the second and the fourth pair lie in the other half.
                                let swapped = n == 3 && pair % 2 == 1;
                                bit(of(pair) >> n, to, if swapped { 1 - half } else { half });
                            }
                        }
                    }
                    put(lane * 16 + i * 4, word);
                }
                _ => {
                    for unit in 0..4 {
                        let k = k + unit * 16 + i / 2 * 8;
                        put(unit * 512 + lane * 16 + i * 4, code(row, k) | code(row, k + 1) << 16);
                    }
                }
            }
        }
        if kind == format::FP8 {
            for unit in 0..2 {
                let at = tile * TILE_OUTPUTS / 32 * inputs.div_ceil(32) + step * 2 + unit;
                out[count * steps * 1024 + (place * steps + step) * 2 + unit] = scale[at] + 120;
            }
        } else if kind == format::FP4 {
            for at in 0..32 {
                let row = tile * TILE_OUTPUTS + at / 4 + at % 2 * 8;
                let own =
                    (row < outputs).then(|| scale[row * (inputs / 32) + step * 2 + at % 4 / 2]);
                out[first + 512 + at] = own.unwrap_or(1).wrapping_add(126);
            }
        }
    }
    out
}

/// A weight is one row of the case: all of its tiles, in every place or every second one.
fn arrange(kernel: &'static str, kind: u32, shape: (usize, usize), apart: usize) -> Case {
    let (inputs, outputs) = shape;
    let weight = draw(&mut Data::new(51 + u64::from(kind)), kind, shape);
    let count = outputs.div_ceil(TILE_OUTPUTS) * apart;
    let wanted = Rc::new(tiled(kind, &weight.codes, &weight.scale, shape, apart));
    let (size, own) = (wanted.len(), Rc::clone(&wanted));
    let places = if apart == 1 { "" } else { ", every second tile" };
    Case::new(kernel, format!("{inputs} to {outputs}{places}"), 1)
        .shared("weight", &weight.codes)
        .shared("scale", &weight.scale)
        .in_place("out", &vec![0u8; size])
        .launch(move |at, _| {
            let side = 32;
            let part = Part {
                weight: at.of("weight"),
                scale: at.of("scale"),
                side,
                outputs,
                first: 0,
                apart,
                several: None,
            };
            let tiles = Tiles::new(kind, side, inputs, count * TILE_OUTPUTS);
            let planned = tiles.and_then(|tiles| tiles.arrange(&part, at.of("out")));
            planned.map_or((Vec::new(), [0, 0]), |(_, args, grid)| (args.bytes(), grid))
        })
        .want(move |_| vec![Want::Bytes(own.to_vec())])
        .fault("ARRANGE_SWAPPED", Gate::Reference)
}

/// Tensors of several places, every second one without rows: a place is a row of the case.
fn arrange_places(kernel: &'static str, kind: u32) -> Case {
    let (rows, inputs, outputs) = (5, 128, 24);
    let shape = (inputs, outputs);
    let mut data = Data::new(54 + u64::from(kind));
    let weights: Vec<Weight> = (0..rows).map(|_| draw(&mut data, kind, shape)).collect();
    let used = |row: usize| row.is_multiple_of(2);
    let (mut codes, mut scales, mut apart) = (Vec::new(), Vec::new(), (0, 0));
    for weight in &weights {
        apart = (weight.codes.len() + 16, weight.scale.len() + 3);
        codes.push([&weight.codes[..], &[7; 16]].concat());
        scales.push([&weight.scale[..], &[9; 3]].concat());
    }
    let join = |parts: Vec<Vec<u8>>| {
        move |rows: &[usize]| rows.iter().flat_map(|&row| parts[row].clone()).collect::<Vec<u8>>()
    };
    let groups = move |rows: &[usize]| {
        let ends = rows.iter().map(|&row| if used(row) { 2 } else { 1 });
        bytes(&ends.enumerate().flat_map(|(i, end)| [word(i), 1, end]).collect::<Vec<u32>>())
    };
    let size = weights.first().map_or(0, |weight| weight.tiles.len());
    let wanted: Vec<Vec<u8>> = weights
        .into_iter()
        .enumerate()
        .map(|(row, weight)| if used(row) { weight.tiles } else { vec![0; size] })
        .collect();
    Case::new(kernel, format!("{rows} places, {inputs} to {outputs}"), rows)
        .made("weight", join(codes))
        .made("scale", join(scales))
        .made("groups", groups)
        .in_place("out", &vec![0u8; rows * size])
        .launch(move |at, rows| {
            let part = Part {
                weight: at.of("weight"),
                scale: at.of("scale"),
                side: 32,
                outputs,
                first: 0,
                apart: 1,
                several: Some(Several {
                    groups: at.of("groups"),
                    count: rows.len(),
                    weight_bytes: apart.0 as u64,
                    scale_bytes: apart.1 as u64,
                }),
            };
            let tiles = Tiles::new(kind, 32, inputs, outputs);
            let planned = tiles.and_then(|tiles| tiles.arrange(&part, at.of("out")));
            planned.map_or((Vec::new(), [0, 0]), |(_, args, grid)| (args.bytes(), grid))
        })
        .want(move |row| vec![Want::Bytes(wanted[row].clone())])
        .fault("ARRANGE_WRONG_PLACE", Gate::Reference)
}

fn operand(coded: bool) -> Case {
    let (rows, width, stride) = (5, 544, 552);
    let mut x = Data::new(57).floats(rows * width, 3.0);
    x[3] = 1e-7;
    let halves: Vec<u16> = x
        .chunks_exact(32)
        .flat_map(|block| {
            let most = block.iter().fold(1e-4f32, |most, x| most.max(x.abs()));
            let scale = ((most / 448.0).log2().ceil()).exp2();
            let round = move |x: &f32| match coded {
                true => fp8::decode(fp8::encode(x / scale)) * scale,
                false => *x,
            };
            block.iter().map(round).map(bf16::encode).collect::<Vec<_>>()
        })
        .collect();
    let all_nan = |_: &[u8], after: &[u8]| {
        after[..64]
            .as_chunks::<2>()
            .0
            .iter()
            .all(|half| bf16::lift(u16::from_ne_bytes(*half)).is_nan())
    };
    let one_nan = |before: &[u8], after: &[u8]| {
        let same = before[..74] == after[..74] && before[76..] == after[76..];
        same && bf16::lift(u16::from_ne_bytes([after[74], after[75]])).is_nan()
    };
    let shape = format!("{rows} rows of {width}{}", if coded { ", coded" } else { "" });
    let case = Case::new("operand", shape, rows)
        .row("x", &x)
        .strided("out", width * 2, stride * 2, 0)
        .launch(move |at, rows| {
            let args = OperandArgs {
                x: at.of("x"),
                out: at.of("out"),
                width: word(width),
                x_stride: word(width),
                out_stride: word(stride),
                coded: coded.into(),
            };
            (args.bytes(), by_slice(rows, width))
        })
        .want(move |row| vec![Want::Bytes(bytes(&halves[row * width..][..width]))]);
    match coded {
        true => case
            .strike("x", 5, f32::NAN, Rule::Check("out", all_nan))
            .strike("x", 5, f32::INFINITY, Rule::Check("out", all_nan))
            .fault("QUANT_WRONG_SCALE", Gate::Reference),
        false => case.strike("x", 37, f32::NAN, Rule::Check("out", one_nan)),
    }
}

/// Which of the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Few,
    Some,
    Pair,
    Many,
}

impl By {
    fn kernel(self, kind: u32) -> &'static str {
        let names = match self {
            Self::Few => ["tile_fp8_few", "tile_fp4_few", "tile_bf16_few"],
            Self::Some => ["tile_fp8_some", "tile_fp4_some", "tile_bf16_some"],
            Self::Pair => ["tile_fp8_pair", "tile_fp4_pair", "tile_bf16_pair"],
            Self::Many => ["tile_fp8_many", "tile_fp4_many", "tile_bf16_many"],
        };
        names[kind as usize]
    }

    /// Groups that run at once, so that each does several tiles.
    fn plan(self, tiles: &Tiles, at: u64, rows: &Rows, groups: &Groups) -> (Vec<u8>, [u32; 2]) {
        let planned = match self {
            Self::Few => tiles.few(at, rows, groups, 2, Way::Few),
            // With three of them and two parts one has nothing to do.
            Self::Some => tiles.few(at, rows, groups, 3, Way::Some),
            Self::Pair => tiles.few(at, rows, groups, 4, Way::Pair),
            Self::Many => tiles.many(at, rows, groups, 2),
        };
        planned.map_or((Vec::new(), [0, 0]), |(_, args, grid)| (args.bytes(), grid))
    }
}

/// bf16 rows, and their values.
fn inputs_of(data: &mut Data, n: usize) -> (Vec<u16>, Vec<f64>) {
    let halves: Vec<u16> = data.floats(n, 2.0).into_iter().map(bf16::encode).collect();
    let values = halves.iter().map(|half| f64::from(bf16::lift(*half))).collect();
    (halves, values)
}

/// Each output of a row within the bound of its sum. A tensor core aligns the 17 terms of an
/// instruction to the largest and cuts them, each by less than two units of f32 there.
fn wanted(tiles: &Tiles, weight: &[f64], x: &[f64], round: bool) -> Want {
    let instructions = TILE_INPUTS / 16 * tiles.slice_steps();
    let depth = 2 * 17 * instructions + x.len() / TILE_INPUTS / tiles.slice_steps();
    nears(weight.chunks_exact(x.len()).map(|w| {
        let terms = || w.iter().zip(x).map(|(w, x)| w * x);
        let size: f64 = terms().map(f64::abs).sum();
        near(terms().sum(), size * gamma(depth), round)
    }))
}

/// A NaN meets every output; an infinity too, as its product with a zero weight is a NaN. A struck
/// f32 is a zero and the value in bf16.
fn struck(case: Case) -> Case {
    case.strike("x", 11, f32::NAN, Rule::Nan("out"))
        .strike("x", 11, f32::INFINITY, Rule::NotFinite("out"))
        .fault("TILE_NEIGHBOUR_ROW", Gate::Rows)
}

fn faults(case: Case, kind: u32, tiles: &Tiles) -> Case {
    let case = match tiles.slice_steps() * TILE_INPUTS == tiles.inputs() {
        true => case,
        false => case.fault("TILE_DROPPED_SLICE", Gate::Reference),
    };
    match kind {
        format::BF16 => case,
        _ => case.fault("TILE_WRONG_SCALE", Gate::Reference),
    }
}

fn product(kind: u32, shape: (usize, usize), rows: usize, by: By) -> Case {
    let (inputs, outputs) = shape;
    let mut data = Data::new(60 + u64::from(kind) + inputs as u64);
    let Some(tiles) = Tiles::new(kind, 32, inputs, outputs) else {
        return Case::new(by.kernel(kind), "a shape that does not fit", 0);
    };
    let weight = draw(&mut data, kind, shape);
    let (x, x_values) = inputs_of(&mut data, rows * inputs);
    let (round, stride) = (rows.is_multiple_of(2), outputs + 3);
    let plan = move |by: By| {
        move |at: &Addresses, rows: &[usize]| {
            let rows = Rows {
                x: at.of("x"),
                x_stride: inputs,
                rows: rows.len(),
                out: at.of("out"),
                out_stride: stride,
                round,
                ..Rows::default()
            };
            by.plan(&tiles, at.of("weight"), &rows, &Groups::One)
        }
    };
    let values = weight.values;
    let twin = if by == By::Many { By::Few } else { By::Many };
    let case = Case::new(by.kernel(kind), format!("{rows} rows, {inputs} to {outputs}"), rows)
        .shared("weight", &weight.tiles)
        .row("x", &x)
        .strided("out", outputs * 4, stride * 4, 0)
        .launch(plan(by))
        .want(move |row| vec![wanted(&tiles, &values, &x_values[row * inputs..][..inputs], round)]);
    // The other kernel has the same bits, of as many rows as both take.
    let case = if twin == By::Many { case.twin(twin.kernel(kind), plan(twin)) } else { case };
    faults(struck(case), kind, &tiles)
}

/// Rows of three weights by a list, two of them with rows.
fn grouped(kind: u32, by: By) -> Case {
    // Of many rows, more than a piece has.
    let rows = if by == By::Many { 150 } else { 20 };
    let (inputs, outputs) = (384, 40);
    let mut data = Data::new(80 + u64::from(kind));
    let Some(tiles) = Tiles::new(kind, 32, inputs, outputs) else {
        return Case::new(by.kernel(kind), "a shape that does not fit", 0);
    };
    let weights: Vec<Weight> = (0..3).map(|_| draw(&mut data, kind, (inputs, outputs))).collect();
    let all: Vec<u8> = weights.iter().flat_map(|weight| weight.tiles.clone()).collect();
    let (x, x_values) = inputs_of(&mut data, rows * inputs);
    let weight_of = |row: usize| if row < 3 { 0 } else { 2 };
    let sorted = move |rows: &[usize]| {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|&i| (weight_of(rows[i]), i));
        order
    };
    let groups = move |rows: &[usize]| {
        let first = rows.iter().filter(|&&row| weight_of(row) == 0).count();
        let parts = [[0, 0, first], [2, first, rows.len()]];
        let mut groups: Vec<u32> =
            parts.iter().filter(|part| part[1] < part[2]).flatten().copied().map(word).collect();
        groups.resize(9, 0);
        bytes(&groups)
    };
    let list = move |rows: &[usize]| bytes(&sorted(rows).into_iter().map(word).collect::<Vec<_>>());
    let place = move |rows: &[usize], i: usize| {
        sorted(rows).iter().position(|&other| other == i).unwrap_or(0) * outputs * 4
    };
    let case = Case::new(
        by.kernel(kind),
        format!("{rows} rows of 3 weights, {inputs} to {outputs}"),
        rows,
    )
    .shared("weight", &all)
    .made("groups", groups)
    .made("list", list)
    .row("x", &x)
    .placed("out", outputs * 4, move |rows| rows * outputs * 4, place)
    .launch(move |at, rows| {
        let groups = Groups::Some {
            groups: at.of("groups"),
            count: 3,
            list: at.of("list"),
            known: by == By::Some,
        };
        let rows = Rows {
            x: at.of("x"),
            x_stride: inputs,
            rows: rows.len(),
            out: at.of("out"),
            out_stride: outputs,
            round: true,
            ..Rows::default()
        };
        by.plan(&tiles, at.of("weight"), &rows, &groups)
    })
    .want(move |row| {
        let values = &weights[weight_of(row)].values;
        vec![wanted(&tiles, values, &x_values[row * inputs..][..inputs], true)]
    });
    faults(struck(case), kind, &tiles)
}

/// Two weights, each of its own inputs and outputs of a row, the last outputs apart from the others.
fn diagonal(kind: u32) -> Case {
    let (rows, inputs, outputs, split) = (7, 192, 32, 16);
    let mut data = Data::new(90 + u64::from(kind));
    let Some(tiles) = Tiles::new(kind, 32, inputs, outputs) else {
        return Case::new(By::Few.kernel(kind), "a shape that does not fit", 0);
    };
    let weight = draw(&mut data, kind, (inputs, outputs));
    let (x, x_values) = inputs_of(&mut data, rows * inputs);
    let values = weight.values;
    Case::new(By::Few.kernel(kind), format!("{rows} rows, {inputs} to {split} and {split}"), rows)
        .shared("weight", &weight.tiles)
        .row("x", &x)
        .strided("out", split * 4, split * 4, 0)
        .strided("second", split * 4, split * 4, 0)
        .launch(move |at, rows| {
            let rows = Rows {
                x: at.of("x"),
                x_stride: inputs,
                rows: rows.len(),
                out: at.of("out"),
                out_stride: split,
                split,
                second: at.of("second"),
                second_stride: split,
                round: false,
                beside: true,
            };
            let groups = Groups::Each { count: 1, x_step: 0, out_step: 0 };
            By::Few.plan(&tiles, at.of("weight"), &rows, &groups)
        })
        .want(move |row| {
            let x = &x_values[row * inputs..][..inputs];
            let (first, second) = values.split_at(split * inputs);
            vec![wanted(&tiles, first, x, false), wanted(&tiles, second, x, false)]
        })
        .fault("TILE_NEIGHBOUR_ROW", Gate::Rows)
}
