//! Weights in tiles, and rows as operands.

use std::rc::Rc;

use finback_numerics::{bf16, fp4, fp8};

use super::super::case::{Case, Gate, Rule, Want, bytes, encoded};
use super::super::data::{Data, block_is_nan, coded_row};
use super::{by_slice, word};
use crate::args::{Args, OperandArgs, format};
use crate::tiles::{Part, Several, TILE_OUTPUTS, Tiles, row_bytes, step_inputs};

/// Edge of the square of an FP8 scale where a case has no other.
pub const SIDE: usize = 32;

pub fn cases() -> Vec<Case> {
    let mut cases = vec![operand(true), operand(false)];
    for kind in [format::FP8, format::FP4, format::BF16, format::LIFTED] {
        cases.push(arrange(kind, SIDE, (384, 40), 1));
        cases.push(arrange(kind, SIDE, (128, 16), 2));
        cases.push(arrange_places(kind));
    }
    // Squares of more than a block and of more than a tile's outputs, of which the last ones are parts.
    cases.push(arrange(format::FP8, 96, (384, 136), 1));
    cases.push(arrange(format::LIFTED, 96, (384, 136), 1));
    cases
}

/// A weight as it is stored, what it is, and what products make of it.
pub struct Weight {
    codes: Vec<u8>,
    scale: Vec<u8>,
    /// The stored values, `[outputs, inputs]`.
    pub values: Vec<f64>,
    /// The values as they are multiplied, rounded to the scales of steps where the format has those.
    pub stepped: Vec<f64>,
    /// The scales of steps, `[outputs, steps]`; 0 where the format has none.
    pub units: Vec<f64>,
    /// Its tiles.
    pub tiles: Vec<u8>,
}

fn power(byte: u8) -> f64 {
    f64::from(byte).exp2() * (-127f64).exp2()
}

/// Stored bytes of a weight, and what they say.
struct Stored<'a> {
    kind: u32,
    side: usize,
    inputs: usize,
    outputs: usize,
    codes: &'a [u8],
    scale: &'a [u8],
}

impl Stored<'_> {
    /// The code of an input of an output, 0 past the last output.
    fn code(&self, row: usize, k: usize) -> u8 {
        let at = row * self.inputs + k;
        match self.kind {
            _ if row >= self.outputs => 0,
            format::FP4 => self.codes[at / 2] >> (4 * (at % 2)) & 15,
            _ => self.codes[at],
        }
    }

    fn half(&self, row: usize, k: usize) -> u16 {
        let at = 2 * (row * self.inputs + k);
        if row < self.outputs {
            u16::from_ne_bytes([self.codes[at], self.codes[at + 1]])
        } else {
            0
        }
    }

    /// The scale byte of a code.
    fn scale(&self, row: usize, k: usize) -> u8 {
        match self.kind {
            format::FP4 => self.scale[row * (self.inputs / 32) + k / 32],
            _ => self.scale[row / self.side * self.inputs.div_ceil(self.side) + k / self.side],
        }
    }

    /// The largest scale byte of a step of 128 inputs.
    fn top(&self, row: usize, step: usize) -> u8 {
        let blocks = [0, 1, 2, 3].map(|block| self.scale(row, step * 128 + block * 32));
        blocks.into_iter().fold(0, u8::max)
    }

    /// The e4m3 code of an FP8 code for its step's scale.
    fn stepped(&self, row: usize, k: usize) -> u8 {
        let apart = self.top(row, k / 128) - self.scale(row, k);
        fp8::encode(fp8::decode(self.code(row, k)) * fp8::e8m0(127 - apart))
    }

    /// Which of 15 powers of two multiplies an FP4 code in its step, 0 for none of them.
    fn index(&self, row: usize, k: usize) -> u8 {
        15u8.saturating_sub(self.top(row, k / 128) - self.scale(row, k))
    }
}

/// The input of a step at byte p of it: fours of a block side by side, the blocks by turns.
fn input_at(p: usize) -> usize {
    let (i, half, block, j) = (p / 32, p % 32 / 16, p % 16 / 4, p % 4);
    block * 32 + i * 8 + half * 4 + j
}

/// A weight of random codes, whose blocks have scales apart by up to 4 powers of two, some by up to 21.
pub fn draw(data: &mut Data, kind: u32, side: usize, (inputs, outputs): (usize, usize)) -> Weight {
    let n = inputs * outputs;
    let mut scales = |count: usize, middle: i32| {
        let mut scales = data.e8m0(count, middle);
        for scale in &mut scales {
            if data.unit() < 0.1 {
                *scale -= data.below(1, 6).iter().fold(12, |sum, more| sum + *more as u8);
            }
        }
        scales
    };
    let (scale, codes) = match kind {
        format::FP8 | format::LIFTED => {
            (scales(inputs.div_ceil(side) * outputs.div_ceil(side), -6), data.e4m3(n))
        }
        format::FP4 => (scales(n / 32, -2), data.bytes(n / 2)),
        _ => (Vec::new(), bytes(&encoded(&data.floats(n, 1.0)))),
    };
    let stored = Stored { kind, side, inputs, outputs, codes: &codes, scale: &scale };
    let places = || (0..n).map(|at| (at / inputs, at % inputs));
    let value = |(row, k): (usize, usize)| match kind {
        format::FP8 | format::LIFTED => {
            f64::from(fp8::decode(stored.code(row, k))) * power(stored.scale(row, k))
        }
        format::FP4 => f64::from(fp4::decode(stored.code(row, k))) * power(stored.scale(row, k)),
        _ => f64::from(bf16::lift(stored.half(row, k))),
    };
    let stepped = |(row, k): (usize, usize)| match kind {
        format::FP8 => {
            f64::from(fp8::decode(stored.stepped(row, k))) * power(stored.top(row, k / 128))
        }
        format::FP4 if stored.index(row, k) == 0 => 0.0,
        _ => value((row, k)),
    };
    let steps = inputs / step_inputs(kind);
    let unit = |at: usize| match kind {
        format::FP8 => power(stored.top(at / steps, at % steps)),
        format::FP4 => power(stored.top(at / steps, at % steps) - 6),
        _ => 0.0,
    };
    let values = places().map(value).collect();
    let stepped = places().map(stepped).collect();
    let units = (0..outputs * steps).map(unit).collect();
    let tiles = tiled(&stored, 1);
    Weight { codes, scale, values, stepped, units, tiles }
}

/// A weight's tiles as `arrange.h` describes them, each in the first of `apart` places.
fn tiled(stored: &Stored<'_>, apart: usize) -> Vec<u8> {
    let Stored { kind, side, inputs, outputs, .. } = *stored;
    let (count, steps) = (outputs.div_ceil(TILE_OUTPUTS) * apart, inputs / step_inputs(kind));
    let whole = Tiles::new(kind, side, inputs, count * TILE_OUTPUTS);
    let mut out = vec![0; whole.map_or(0, |tiles| tiles.bytes())];
    let step_bytes = match kind {
        format::FP4 => 1072,
        format::LIFTED => 1024,
        _ => 2048,
    };
    for (tile, step) in (0..count / apart).flat_map(|t| (0..steps).map(move |s| (t, s))) {
        let (row, place) = (tile * TILE_OUTPUTS, tile * apart * steps + step);
        let (first, after) = (place * step_bytes, count * steps * step_bytes + place * 4);
        let k = step * step_inputs(kind);
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        // A 16-byte piece of an output's 128 bytes lies elsewhere among the eight for each of eight outputs.
        let byte = |o: usize, p: usize| first + o * 128 + ((p / 16) ^ (o % 8)) * 16 + p % 16;
        match kind {
            format::FP8 => {
                for (o, p) in (0..16).flat_map(|o| (0..128).map(move |p| (o, p))) {
                    let there = row + o < outputs;
                    let code = there.then(|| stored.stepped(row + o, k + input_at(p)));
                    put(byte(o, p), &[code.unwrap_or(0)]);
                }
                put(after, &fp8::e8m0(stored.top(row, step)).to_ne_bytes());
            }
            format::FP4 => {
                for lane in 0..32 {
                    let (g, block) = (lane / 4, lane % 4);
                    for (i, r) in (0..4).flat_map(|i| [(i, 0), (i, 1)]) {
                        let code = |n: usize| {
                            u32::from(stored.code(row + g + r * 8, k + block * 32 + i * 8 + n))
                        };
                        let early = (0..4).map(|j| (code(j), 4 * j, 8 * j + 7));
                        let late = (0..4).map(|j| (code(4 + j), 16 + 4 * j, 8 * j + 3));
                        let word = early.chain(late).fold(0u32, |word, (code, size, sign)| {
                            word | (code & 7) << size | (code >> 3) << sign
                        });
                        let at = i / 2 * 512 + lane * 16 + (i % 2 * 2 + r) * 4;
                        put(first + at, &word.to_ne_bytes());
                    }
                    let index = |o: usize| match row + o < outputs {
                        true => stored.index(row + o, k + block * 32),
                        false => 15,
                    };
                    put(first + 1024 + lane, &[index(g) | index(g + 8) << 4]);
                }
                for i in 0..16 {
                    let o = row + i / 2 + i % 2 * 8;
                    let exponent = (o < outputs).then(|| stored.top(o, step) - 6);
                    put(first + 1056 + i, &[exponent.unwrap_or(1)]);
                }
            }
            format::LIFTED => {
                for (lane, i, unit) in
                    (0..32).flat_map(|l| (0..4).flat_map(move |i| [(l, i, 0), (l, i, 1)]))
                {
                    let at = k + lane % 4 * 2 + unit * 32 + i / 2 * 16;
                    let pair = |n: usize| {
                        let code =
                            |n: usize| u32::from(stored.code(row + lane / 4 + i % 2 * 8, at + n));
                        let (a, b) = (code(n), code(n + 8));
                        // The first's bits stand as in a bf16; the second's where those leave room.
                        let a = (a & 128) << 8 | (a & 127) << 4;
                        a | (b & 128) << 4 | (b & 0x70) << 8 | b & 15
                    };
                    let word = pair(0) | pair(1) << 16;
                    put(first + unit * 512 + lane * 16 + i * 4, &word.to_ne_bytes());
                }
                // Codes with a bf16's exponent bits are 2^-120 of their values.
                let by = [0, 1].map(|unit| power(stored.scale(row, k + unit * 32)) * 120f64.exp2());
                put(after, &bytes(&encoded(&by.map(|by| by as f32))));
            }
            _ => {
                for (o, n) in (0..16).flat_map(|o| (0..64).map(move |n| (o, n))) {
                    put(byte(o, 2 * n), &stored.half(row + o, k + n).to_ne_bytes());
                }
            }
        }
    }
    out
}

fn kernel(kind: u32) -> &'static str {
    match kind {
        format::FP8 => "arrange_fp8",
        format::FP4 => "arrange_fp4",
        format::LIFTED => "arrange_lifted",
        _ => "arrange_bf16",
    }
}

/// A weight is one row of the case: all of its tiles, in every place or every second one.
fn arrange(kind: u32, side: usize, shape: (usize, usize), apart: usize) -> Case {
    let (inputs, outputs) = shape;
    let weight = draw(&mut Data::new(51 + u64::from(kind)), kind, side, shape);
    let count = outputs.div_ceil(TILE_OUTPUTS) * apart;
    let (codes, scale) = (&weight.codes[..], &weight.scale[..]);
    let wanted = Rc::new(tiled(&Stored { kind, side, inputs, outputs, codes, scale }, apart));
    let (size, own) = (wanted.len(), Rc::clone(&wanted));
    let places = if apart == 1 { "" } else { ", every second tile" };
    Case::new(kernel(kind), format!("{inputs} to {outputs}, squares of {side}{places}"), 1)
        .shared("weight", codes)
        .shared("scale", scale)
        .in_place("out", &vec![0u8; size])
        .launch(move |at, _| {
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
fn arrange_places(kind: u32) -> Case {
    let (rows, inputs, outputs) = (5, 128, 24);
    let shape = (inputs, outputs);
    let mut data = Data::new(54 + u64::from(kind));
    let weights: Vec<Weight> = (0..rows).map(|_| draw(&mut data, kind, SIDE, shape)).collect();
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
    Case::new(kernel(kind), format!("{rows} places, {inputs} to {outputs}"), rows)
        .made("weight", join(codes))
        .made("scale", join(scales))
        .made("groups", groups)
        .in_place("out", &vec![0u8; rows * size])
        .launch(move |at, rows| {
            let part = Part {
                weight: at.of("weight"),
                scale: at.of("scale"),
                side: SIDE,
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
            let tiles = Tiles::new(kind, SIDE, inputs, outputs);
            let planned = tiles.and_then(|tiles| tiles.arrange(&part, at.of("out")));
            planned.map_or((Vec::new(), [0, 0]), |(_, args, grid)| (args.bytes(), grid))
        })
        .want(move |row| vec![Want::Bytes(wanted[row].clone())])
        .fault("ARRANGE_WRONG_PLACE", Gate::Reference)
}

/// Rows as products take them.
pub struct Inputs {
    /// Their bytes.
    pub bytes: Vec<u8>,
    /// Bytes of a row.
    pub row_bytes: usize,
    /// Inputs of a row.
    pub inputs: usize,
    /// Their values, `[rows, inputs]`.
    pub values: Vec<f64>,
    /// The scales of their steps, `[rows, steps]`; 0 where they have none.
    pub units: Vec<f64>,
}

/// Rows as a weight in this format takes them, whose blocks are of sizes up to 2^20 apart.
pub fn inputs_of(data: &mut Data, kind: u32, rows: usize, inputs: usize) -> Inputs {
    let mut x = data.floats(rows * inputs, 4.0);
    for block in x.chunks_mut(32) {
        let small = data.unit();
        let by = if small < 0.1 { 18.0 } else { (small * 4.0).floor() };
        block.iter_mut().for_each(|x| *x *= (-by).exp2());
    }
    let row_bytes = row_bytes([format::FP8, format::FP4].contains(&kind), inputs);
    let (bytes_of, values, units) = (Vec::new(), Vec::new(), Vec::new());
    let mut all = Inputs { bytes: bytes_of, row_bytes, inputs, values, units };
    for x in x.chunks_exact(inputs) {
        if step_inputs(kind) == 64 {
            let halves = encoded(x);
            all.values.extend(halves.iter().map(|half| f64::from(bf16::lift(*half))));
            all.units.extend((0..inputs / 64).map(|_| 0.0));
            all.bytes.extend(bytes(&halves));
        } else {
            let mut row = coded_row(x);
            let scales = row[inputs..].as_chunks::<4>().0;
            let units: Vec<f64> = scales.iter().map(|s| f32::from_ne_bytes(*s).into()).collect();
            let mut values = vec![0.0; inputs];
            for (at, code) in row[..inputs].iter().enumerate() {
                let (step, p) = (at / 128, at % 128);
                values[step * 128 + input_at(p)] = f64::from(fp8::decode(*code)) * units[step];
            }
            row.resize(row_bytes, 0x7f);
            all.bytes.extend(row);
            all.values.extend(values);
            all.units.extend(units);
        }
    }
    all
}

fn operand(coded: bool) -> Case {
    const WIDTH: usize = 640;
    let (rows, width) = (5, if coded { WIDTH } else { 544 });
    let mut x = Data::new(57).floats(rows * width, 3.0);
    for (i, block) in x.chunks_mut(32).enumerate() {
        block.iter_mut().for_each(|x| *x *= (-(i as f32 * 7.0 % 17.0)).exp2());
    }
    x[3] = 1e-7;
    let wanted: Vec<Vec<u8>> = x
        .chunks_exact(width)
        .map(|x| if coded { coded_row(x) } else { bytes(&encoded(x)) })
        .collect();
    let block_nan = |before: &[u8], after: &[u8]| block_is_nan(before, after, WIDTH, 5);
    let one_nan = |before: &[u8], after: &[u8]| {
        let same = before[..74] == after[..74] && before[76..] == after[76..];
        same && bf16::lift(u16::from_ne_bytes([after[74], after[75]])).is_nan()
    };
    let (size, stride) = (wanted[0].len(), row_bytes(coded, width) + 16);
    let shape = format!("{rows} rows of {width}{}", if coded { ", coded" } else { "" });
    let case = Case::new("operand", shape, rows)
        .row("x", &x)
        .strided("out", size, stride, 0)
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
        .want(move |row| vec![Want::Bytes(wanted[row].clone())]);
    match coded {
        true => case
            .strike("x", 5, f32::NAN, Rule::Check("out", block_nan))
            .strike("x", 5, f32::INFINITY, Rule::Check("out", block_nan))
            .fault("QUANT_WRONG_SCALE", Gate::Reference),
        false => case.strike("x", 37, f32::NAN, Rule::Check("out", one_nan)),
    }
}
