//! Dense and expert products.

use std::rc::Rc;

use finback_numerics::{bf16, fp4, fp8};

use super::super::case::{Case, Gate, Rule, Want, bytes};
use super::super::data::{Data, gamma, near, nears};
use super::word;
use crate::args::{Args, DenseArgs, ExpertArgs, format};
use crate::manifest::OUTPUTS;

pub fn cases() -> Vec<Case> {
    use Stored::{Bf16, F16, F32, Fp4, Fp8};
    vec![
        dense("dense_fp8", Fp8(32), (96, 10), 16, false),
        dense("dense_fp8", Fp8(128), (1056, 5), 7, false),
        dense("dense_fp8_codes", Fp8(32), (96, 10), 16, true),
        dense("dense_fp8_codes", Fp8(32), (1056, 5), 3, true),
        dense("dense_fp4", Fp4, (96, 10), 16, false),
        dense("dense_fp4", Fp4, (1088, 5), 7, false),
        dense("dense_fp4_codes", Fp4, (96, 10), 16, true),
        dense("dense_fp4_codes", Fp4, (1088, 5), 3, true),
        dense("dense_bf16", Bf16, (72, 10), 16, false),
        dense("dense_bf16", Bf16, (520, 5), 3, false),
        dense("dense_f16", F16, (72, 10), 5, false),
        dense("dense_f32", F32, (76, 24), 16, false),
        dense("dense_f32", F32, (260, 5), 3, false),
        expert("expert_fp4", Fp4, (128, 6), false),
        expert("expert_fp4_codes", Fp4, (128, 6), true),
        expert("expert_fp8", Fp8(32), (128, 6), false),
        expert("expert_fp8_codes", Fp8(32), (128, 6), true),
        expert("expert_bf16", Bf16, (64, 6), false),
    ]
}

/// A stored format; FP8 with the side of its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stored {
    Fp8(usize),
    Fp4,
    Bf16,
    F16,
    F32,
}

/// A weight in its stored bytes, with its values.
struct Weight {
    bytes: Vec<u8>,
    scale: Vec<u8>,
    values: Vec<f64>,
}

impl Stored {
    /// Inputs of 16 bytes.
    fn chunk(self) -> usize {
        match self {
            Self::Fp8(_) => 16,
            Self::Fp4 => 32,
            Self::Bf16 | Self::F16 => 8,
            Self::F32 => 4,
        }
    }

    fn code(self) -> u32 {
        match self {
            Self::Fp8(_) => format::FP8,
            Self::Fp4 => format::FP4,
            Self::Bf16 => format::BF16,
            Self::F16 => format::F16,
            Self::F32 => format::F32,
        }
    }

    fn side(self) -> usize {
        if let Self::Fp8(side) = self { side } else { 32 }
    }

    /// Roundings between a product and its sum: the chunk's chain, the lane's chunks, five of the
    /// warp, and the input's scale.
    fn depth(self, inputs: usize) -> usize {
        self.chunk() + (inputs / self.chunk()).div_ceil(32) + 6
    }

    fn draw(self, data: &mut Data, (inputs, outputs): (usize, usize)) -> Weight {
        let n = inputs * outputs;
        match self {
            Self::Fp8(side) => {
                let width = inputs.div_ceil(side);
                let bytes = data.e4m3(n);
                let scale = data.e8m0(width * outputs.div_ceil(side), -6);
                let values = (0..n).map(|at| {
                    let block = at / inputs / side * width + at % inputs / side;
                    f64::from(fp8::decode(bytes[at])) * f64::from(fp8::e8m0(scale[block]))
                });
                Weight { values: values.collect(), bytes, scale }
            }
            Self::Fp4 => {
                let (bytes, scale) = (data.bytes(n / 2), data.e8m0(n / 32, -2));
                let values = (0..n).map(|at| {
                    let code = bytes[at / 2] >> (4 * (at % 2));
                    f64::from(fp4::decode(code)) * f64::from(fp8::e8m0(scale[at / 32]))
                });
                Weight { values: values.collect(), bytes, scale }
            }
            Self::Bf16 => {
                let halves: Vec<u16> = data.floats(n, 1.0).into_iter().map(bf16::encode).collect();
                let values = halves.iter().map(|&h| f64::from(bf16::lift(h))).collect();
                Weight { bytes: bytes(&halves), scale: Vec::new(), values }
            }
            Self::F16 => {
                // Subnormals too, but no infinity and no NaN.
                let halves: Vec<u16> = data
                    .below(n, 1 << 16)
                    .into_iter()
                    .map(|h| if h & 0x7c00 == 0x7c00 { 0x3c00 } else { h as u16 & 0xbfff })
                    .collect();
                let values = halves.iter().map(|&h| f64::from(bf16::lift_f16(h))).collect();
                Weight { bytes: bytes(&halves), scale: Vec::new(), values }
            }
            Self::F32 => {
                let floats = data.floats(n, 1.0);
                let values = floats.iter().map(|&x| f64::from(x)).collect();
                Weight { bytes: bytes(&floats), scale: Vec::new(), values }
            }
        }
    }
}

/// Input rows: as f32, or as e4m3 codes with their scales; with their values.
struct Rows {
    floats: Vec<f32>,
    codes: Vec<u8>,
    scales: Vec<u8>,
    values: Vec<f64>,
}

fn input(data: &mut Data, n: usize, coded: bool) -> Rows {
    let (codes, scales) =
        if coded { (data.e4m3(n), data.e8m0(n / 32, -8)) } else { Default::default() };
    let floats = if coded { Vec::new() } else { data.floats(n, 2.0) };
    let lift =
        |at: usize| f64::from(fp8::decode(codes[at])) * f64::from(fp8::e8m0(scales[at / 32]));
    let values = match coded {
        true => (0..n).map(lift).collect(),
        false => floats.iter().map(|&x| f64::from(x)).collect(),
    };
    Rows { floats, codes, scales, values }
}

/// What each output of a row is, within the bound of its sum.
fn products(weight: &[f64], x: &[f64], stored: Stored, round: bool) -> Want {
    let outputs = weight.chunks_exact(x.len());
    nears(outputs.map(|w| {
        let terms = || w.iter().zip(x).map(|(w, x)| w * x);
        let size: f64 = terms().map(f64::abs).sum();
        near(terms().sum(), size * gamma(stored.depth(x.len())), round)
    }))
}

/// Rows of the case as inputs, whichever form they have.
fn with_input(case: Case, x: &Rows, coded: bool, kept: bool) -> Case {
    match coded {
        true => {
            let case = case.row("codes", &x.codes).row("scales", &x.scales);
            let broken = x.scales.len() / case.rows >= 4;
            // The first four scales become 0xff, their NaN.
            let nan = f32::from_bits(u32::MAX);
            if broken { case.strike("scales", 0, nan, Rule::Nan("out")) } else { case }
        }
        // A NaN meets every output; an infinity too, as its product with a zero weight is a NaN.
        false => case
            .row_kept("x", &x.floats, kept)
            .strike("x", 37, f32::NAN, Rule::Nan("out"))
            .strike("x", 37, f32::INFINITY, Rule::NotFinite("out")),
    }
}

fn dense(
    kernel: &'static str,
    stored: Stored,
    (inputs, outputs): (usize, usize),
    rows: usize,
    coded: bool,
) -> Case {
    let mut data = Data::new((inputs * 7 + outputs) as u64 + u64::from(stored.code()));
    let weight = stored.draw(&mut data, (inputs, outputs));
    let round = rows.is_multiple_of(2);
    // Where the outputs are not rounded, the inputs were.
    let kept = !coded && !round;
    let mut x = input(&mut data, rows * inputs, coded);
    if kept {
        x.floats.iter_mut().for_each(|x| *x = bf16::round(*x));
        x.values = x.floats.iter().map(|&x| f64::from(x)).collect();
    }
    let (values, held) = (Rc::new(x.values.clone()), weight.values);
    // Output rows lie further apart than they are wide.
    let stride = outputs + 3;
    let case = Case::new(kernel, format!("{rows} rows, {inputs} to {outputs}"), rows)
        .shared("weight", &weight.bytes)
        .shared("scale", &weight.scale);
    let case = with_input(case, &x, coded, kept)
        .strided("out", outputs * 4, stride * 4, 0)
        .launch(move |at, rows| {
            let of = |name| if coded == (name != "x") { at.of(name) } else { 0 };
            let args = DenseArgs {
                weight: at.of("weight"),
                scale: at.of("scale"),
                x: of("x"),
                codes: of("codes"),
                scales: of("scales"),
                out: at.of("out"),
                rows: word(rows.len()),
                inputs: word(inputs),
                outputs: word(outputs),
                side: word(stored.side()),
                x_stride: word(inputs),
                out_stride: word(stride),
                round: round.into(),
                x_round: kept.into(),
            };
            (args.bytes(), [word(outputs).div_ceil(OUTPUTS), 1])
        })
        .want(move |row| vec![products(&held, &values[row * inputs..][..inputs], stored, round)])
        .fault("DENSE_DROPPED_GROUP", Gate::Reference)
        .fault("DENSE_NEIGHBOUR_ROW", Gate::Rows);
    let scaled = matches!(stored, Stored::Fp8(_) | Stored::Fp4);
    if scaled { case.fault("DENSE_WRONG_SCALE", Gate::Reference) } else { case }
}

/// Rows of three experts, one of which has more rows than a product takes at a time.
fn expert(
    kernel: &'static str,
    stored: Stored,
    (inputs, outputs): (usize, usize),
    coded: bool,
) -> Case {
    let (rows, experts) = (20, 3);
    let mut data = Data::new(90 + u64::from(stored.code()));
    let weights: Vec<Weight> =
        (0..experts).map(|_| stored.draw(&mut data, (inputs, outputs))).collect();
    let joined = |part: fn(&Weight) -> &Vec<u8>| -> Vec<u8> {
        weights.iter().flat_map(|weight| part(weight).clone()).collect()
    };
    let (weight, scale) = (joined(|w| &w.bytes), joined(|w| &w.scale));
    let (weight_bytes, scale_bytes) = (weight.len() / experts, scale.len() / experts);
    let held: Vec<Vec<f64>> = weights.into_iter().map(|weight| weight.values).collect();
    let x = input(&mut data, rows * inputs, coded);
    let values = x.values.clone();
    let expert_of = |row: usize| {
        if row < 2 {
            0
        } else if row == 11 {
            2
        } else {
            1
        }
    };
    // Launch rows by expert, then by row.
    let sorted = move |rows: &[usize]| {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|&i| (expert_of(rows[i]), i));
        order
    };
    let groups = move |rows: &[usize]| {
        let order = sorted(rows);
        let mut groups: Vec<u32> = Vec::with_capacity(experts * 3);
        for expert in 0..experts {
            let own = |i: &&usize| expert_of(rows[**i]) == expert;
            let start = order.iter().position(|i| own(&i));
            if let Some(start) = start {
                groups.extend([expert, start, start + order.iter().filter(own).count()].map(word));
            }
        }
        groups.resize(experts * 3, 0);
        bytes(&groups)
    };
    let list = move |rows: &[usize]| bytes(&sorted(rows).into_iter().map(word).collect::<Vec<_>>());
    let place = move |rows: &[usize], i: usize| {
        sorted(rows).iter().position(|&other| other == i).unwrap_or(0) * outputs * 4
    };
    let case =
        Case::new(kernel, format!("{rows} rows of {experts} experts, {inputs} to {outputs}"), rows)
            .shared("weight", &weight)
            .shared("scale", &scale)
            .made("groups", groups)
            .made("rows", list);
    with_input(case, &x, coded, false)
        .placed("out", outputs * 4, move |rows| rows * outputs * 4, place)
        .launch(move |at, _| {
            let of = |name| if coded == (name != "x") { at.of(name) } else { 0 };
            let args = ExpertArgs {
                weight: at.of("weight"),
                scale: at.of("scale"),
                x: of("x"),
                codes: of("codes"),
                scales: of("scales"),
                groups: at.of("groups"),
                rows: at.of("rows"),
                out: at.of("out"),
                weight_bytes: weight_bytes as u64,
                scale_bytes: scale_bytes as u64,
                inputs: word(inputs),
                outputs: word(outputs),
                side: word(stored.side()),
                x_stride: word(inputs),
                out_stride: word(outputs),
                round: 1,
            };
            (args.bytes(), [word(outputs).div_ceil(OUTPUTS), word(experts)])
        })
        .want(move |row| {
            vec![products(&held[expert_of(row)], &values[row * inputs..][..inputs], stored, true)]
        })
        .fault("DENSE_DROPPED_GROUP", Gate::Reference)
        .fault("DENSE_NEIGHBOUR_ROW", Gate::Rows)
}

#[cfg(test)]
#[cfg(host_build)]
mod tests {
    use super::*;
    use crate::device::{Device, Launch};
    use crate::host::Host;
    use crate::manifest::kernel;

    /// The outputs of one product of 5 rows.
    fn run(name: &str, weight: &Weight, x: &Rows, (inputs, outputs): (usize, usize)) -> Vec<u8> {
        let mut host = Host::new();
        let mut up = |bytes: &[u8]| {
            let address = host.allocate(bytes.len()).unwrap();
            host.write(address, bytes).unwrap();
            address
        };
        let args = DenseArgs {
            weight: up(&weight.bytes),
            scale: up(&weight.scale),
            x: up(&bytes(&x.floats)),
            codes: up(&x.codes),
            scales: up(&x.scales),
            out: up(&vec![0; 5 * outputs * 4]),
            rows: 5,
            inputs: word(inputs),
            outputs: word(outputs),
            side: 32,
            x_stride: word(inputs),
            out_stride: word(outputs),
            round: 0,
            x_round: 0,
        };
        let grid = [word(outputs).div_ceil(OUTPUTS), 1];
        host.launch(&Launch::new(kernel(name).unwrap(), &args.bytes(), grid)).unwrap();
        let mut out = vec![0; 5 * outputs * 4];
        host.read(args.out, &mut out).unwrap();
        out
    }

    #[test]
    fn codes_and_their_values_give_the_same_bits() {
        for (stored, plain, coded) in [
            (Stored::Fp8(32), "dense_fp8", "dense_fp8_codes"),
            (Stored::Fp4, "dense_fp4", "dense_fp4_codes"),
        ] {
            let (mut data, shape) = (Data::new(5), (1088, 6));
            let weight = stored.draw(&mut data, shape);
            let mut x = input(&mut data, 5 * shape.0, true);
            x.floats = x.values.iter().map(|&x| x as f32).collect();
            let (a, b) = (run(plain, &weight, &x, shape), run(coded, &weight, &x, shape));
            assert!(a == b && a.iter().any(|&byte| byte != 0), "{stored:?}");
        }
    }
}
