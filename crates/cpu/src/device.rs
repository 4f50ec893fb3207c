//! The team, the instruction set and the linear layers over them.

use std::ops::Range;

use finback_numerics::{bf16, fp4, fp8, quant};
use finback_ops::{Format, Limits, Linear, ModelSpec, OpsError, OpsResult, Rows};

use crate::kernel::kernel;
use crate::ops::CpuOptions;
use crate::row;
use crate::simd::Isa;
use crate::team::Team;

/// What runs the kernels.
pub struct Device {
    /// The threads.
    pub team: Team,
    /// The instruction set.
    pub isa: Isa,
    round_inputs: bool,
}

/// The rows a linear reads.
pub struct Input<'a> {
    /// Row-major values.
    pub x: &'a [f32],
    /// Values from one row to the next.
    pub stride: usize,
    /// The rows.
    pub rows: Rows,
    /// Whether an FP8 or FP4 weight takes them rounded to e4m3 in release numerics.
    pub round: bool,
}

/// One linear over an input: output row i, of the input's i-th row, starts at `i * stride`.
pub struct Job<'a> {
    weight: &'a Linear,
    part: Range<usize>,
    out: &'a mut [f32],
    stride: usize,
}

impl<'a> Job<'a> {
    /// All output channels.
    pub fn new(weight: &'a Linear, out: &'a mut [f32], stride: usize) -> Self {
        Self::part(weight, 0..weight.out, out, stride)
    }

    /// Some output channels; the first goes to the start of `out`.
    pub fn part(
        weight: &'a Linear,
        part: Range<usize>,
        out: &'a mut [f32],
        stride: usize,
    ) -> Self {
        Self { weight, part, out, stride }
    }
}

/// An expert's matrices and the rows that use it.
pub struct Gathered<'a, const N: usize = 2> {
    /// The matrices, over the same input.
    pub weights: [&'a Linear; N],
    /// Rows of the batch.
    pub rows: &'a [u32],
}

impl Device {
    /// Starts the team.
    ///
    /// # Errors
    /// A thread that cannot start.
    pub fn new(spec: &ModelSpec, _: &Limits, options: CpuOptions) -> Result<Self, OpsError> {
        Ok(Self {
            team: Team::new(options.threads)?,
            isa: options.isa,
            round_inputs: spec.numerics.round_inputs,
        })
    }

    /// Lifts one row of an unscaled matrix.
    pub fn lift_row(&self, linear: &Linear, index: usize, out: &mut [f32]) {
        lift(linear, index, out);
    }

    /// Runs several linears over one input; outputs rounded to bf16 where `store`.
    pub fn linear(&mut self, input: Input<'_>, jobs: &mut [Job<'_>], store: bool) -> OpsResult {
        for job in jobs {
            let k = job.weight.inp;
            let mut w = vec![0.0; k];
            let xs: Vec<Vec<f32>> = input
                .rows
                .clone()
                .map(|r| self.prepared(job.weight, &input.x[r * input.stride..][..k], input.round))
                .collect();
            for (i, n) in job.part.clone().enumerate() {
                lift(job.weight, n, &mut w);
                for (r, x) in xs.iter().enumerate() {
                    let y = dot(self.isa, &w, x);
                    job.out[r * job.stride + i] = if store { bf16::round(y) } else { y };
                }
            }
        }
        Ok(())
    }

    fn prepared(&self, weight: &Linear, x: &[f32], round: bool) -> Vec<f32> {
        let mut x = x.to_vec();
        if round && self.round_inputs && matches!(weight.format, Format::Fp8 { .. } | Format::Fp4) {
            let (mut codes, mut scales) = (vec![0; x.len()], vec![0; x.len() / 32]);
            quant::fp8_block32(&x, &mut codes, &mut scales);
            quant::fp8_block32_lift(&codes, &scales, &mut x);
        }
        x
    }

    /// Gate and up rows of every list in order.
    pub fn expert_in(
        &mut self,
        input: Input<'_>,
        lists: &[Gathered<'_>],
        out: [&mut [f32]; 2],
        inter: usize,
        store: bool,
    ) -> OpsResult {
        let [gate, up] = out;
        for (m, out) in [gate, up].into_iter().enumerate() {
            let mut at = 0;
            for list in lists {
                for &r in list.rows {
                    let row = input.rows.start + r as usize;
                    let input = Input { rows: row..row + 1, ..input };
                    let job = Job::new(list.weights[m], &mut out[at * inter..], inter);
                    self.linear(input, &mut [job], store)?;
                    at += 1;
                }
            }
        }
        Ok(())
    }

    /// Sums the lists' outputs into each row.
    pub fn expert_out(
        &mut self,
        input: Input<'_>,
        lists: &[Gathered<'_, 1>],
        out: &mut [f32],
        width: usize,
        store: bool,
    ) -> OpsResult {
        out.fill(0.0);
        let mut y = vec![0.0; width];
        let mut at = input.rows.start;
        for list in lists {
            for &r in list.rows {
                let input = Input { rows: at..at + 1, ..input };
                self.linear(input, &mut [Job::new(list.weights[0], &mut y, width)], store)?;
                let out = &mut out[r as usize * width..(r as usize + 1) * width];
                out.iter_mut().zip(&y).for_each(|(o, y)| *o += y);
                at += 1;
            }
        }
        if store {
            out.iter_mut().for_each(|o| *o = bf16::round(*o));
        }
        Ok(())
    }
}

kernel! {
    fn dot(a: &[f32], b: &[f32]) -> f32 = row::dot;
}

fn lift(linear: &Linear, n: usize, out: &mut [f32]) {
    let k = linear.inp;
    let bytes = linear.weight.bytes();
    let scale = linear.scale.as_ref().map(|s| s.bytes()).unwrap_or_default();
    match linear.format {
        Format::Fp8 { block } => {
            let across = k.div_ceil(block);
            for (i, out) in out.iter_mut().enumerate() {
                let s = fp8::e8m0(scale[n / block * across + i / block]);
                *out = fp8::decode(bytes[n * k + i]) * s;
            }
        }
        Format::Fp4 => {
            for (i, out) in out.iter_mut().enumerate() {
                let code = bytes[n * k / 2 + i / 2] >> (4 * (i % 2)) & 15;
                *out = fp4::decode(code) * fp8::e8m0(scale[n * k / 32 + i / 32]);
            }
        }
        Format::Bf16 | Format::F16 => {
            let bytes = &bytes[n * k * 2..];
            for (i, out) in out.iter_mut().enumerate() {
                let bits = u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]);
                *out = if linear.format == Format::Bf16 { bf16::lift(bits) } else { bf16::lift_f16(bits) };
            }
        }
        Format::F32 => {
            let bytes = &bytes[n * k * 4..];
            for (i, out) in out.iter_mut().enumerate() {
                *out = f32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]]);
            }
        }
    }
}

