//! Matrix products: the seam between a step and the kernels that multiply.
//!
//! A step names an input and a weight; here it is decided in which form the rows enter and which kernel
//! runs, for any number of rows. Whatever is chosen, a row's bits do not depend on how many there are.

use std::ops::Range;

use finback_kernels::args::{DenseArgs, ExpertArgs, QuantiseArgs};
use finback_kernels::device::Device;
use finback_kernels::manifest::{DENSE_ROWS, Kernel, OUTPUTS};
use finback_ops::{Format, OpsError, OpsResult};

use crate::memory::{Buf, Memory};
use crate::queue::{Queue, find};

/// A linear `[out, inp]` in device memory.
#[derive(Debug, Clone, Copy)]
pub struct Weight {
    /// How it is stored.
    pub format: Format,
    /// Output channels.
    pub out: usize,
    /// Input channels.
    pub inp: usize,
    /// Address of the codes or values.
    pub data: u64,
    /// Address of the scales, 0 without.
    pub scale: u64,
}

impl Weight {
    /// No weight, of no channels.
    pub const NONE: Self = Self { format: Format::F32, out: 0, inp: 0, data: 0, scale: 0 };

    /// Some output channels; those of an FP8 weight begin at a scale tile.
    pub fn part(&self, out: Range<usize>) -> Self {
        let scales = match self.format {
            Format::Fp8 { block } => out.start / block * self.inp.div_ceil(block),
            _ => self.format.scale_bytes(out.start, self.inp),
        };
        Self {
            out: out.len(),
            data: self.data + (out.start * self.format.row_bytes(self.inp)) as u64,
            scale: self.scale + scales as u64,
            ..*self
        }
    }
}

/// The weights of a layer's experts, one after another.
#[derive(Debug, Clone, Copy)]
pub struct Stack {
    /// The first expert's.
    pub first: Weight,
    /// Bytes from one expert's weight to the next.
    pub data_bytes: u64,
    /// Bytes from one expert's scales to the next.
    pub scale_bytes: u64,
}

/// Rows that linears read.
#[derive(Debug, Clone, Copy)]
pub struct Input {
    /// Address of the first row.
    pub x: u64,
    /// Values of a row.
    pub width: usize,
    /// Values from one row to the next.
    pub stride: usize,
    /// How many.
    pub rows: usize,
    /// Whether an FP8 or FP4 weight takes them rounded to e4m3 in release numerics.
    pub round: bool,
}

/// Whose rows they are; those of the first two are used by several steps and prepared once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// A sublayer's input.
    X,
    /// The queries' latent.
    Qr,
    /// Anything else.
    Other,
}

/// Rows in the forms that weights take.
#[derive(Debug, Clone, Copy)]
pub struct Ready {
    input: Input,
    /// Addresses of e4m3 codes and scales, 0 where they were not made.
    codes: u64,
    scales: u64,
}

impl Ready {
    /// Some of the rows.
    pub fn part(&self, first: usize, rows: usize) -> Self {
        let Self { input, codes, scales } = *self;
        let skip = |address: u64, bytes: usize| match address {
            0 => 0,
            address => address + (first * bytes) as u64,
        };
        Self {
            input: Input { x: input.x + (4 * first * input.stride) as u64, rows, ..input },
            codes: skip(codes, input.width),
            scales: skip(scales, input.width / 32),
        }
    }
}

/// What outputs become.
#[derive(Debug, Clone, Copy)]
pub struct Out {
    /// Address of the first row's first channel.
    pub at: u64,
    /// Values from one row to the next.
    pub stride: usize,
    /// Whether they are stored as bf16.
    pub round: bool,
}

/// Room for codes and scales of as many rows as a pass may have.
struct Codes {
    codes: Buf,
    scales: Buf,
    /// The rows whose codes it holds now.
    rows: Range<usize>,
}

/// The products of a model on a device.
pub struct Products {
    round_inputs: bool,
    quantise: &'static Kernel,
    dense: [[Option<&'static Kernel>; 2]; 5],
    expert: [[Option<&'static Kernel>; 2]; 5],
    x: Codes,
    qr: Codes,
    other: Codes,
}

/// Rows and widths that products may be asked for.
#[derive(Debug, Clone, Copy)]
pub struct Most {
    /// Rows of a pass.
    pub rows: usize,
    /// Channels of the residual.
    pub hidden: usize,
    /// Channels of the queries' latent.
    pub q_rank: usize,
    /// Values of all rows of any other input.
    pub other: usize,
}

impl Products {
    /// Allocates for the largest inputs.
    pub fn new(
        memory: &mut Memory<'_>,
        kernels: &Found,
        round_inputs: bool,
        most: Most,
    ) -> Result<Self, OpsError> {
        let mut codes = |rows: usize, width: usize| -> Result<Codes, OpsError> {
            Ok(Codes {
                codes: memory.rows(rows, width)?,
                scales: memory.rows(rows, width / 32)?,
                rows: 0..0,
            })
        };
        Ok(Self {
            round_inputs,
            quantise: kernels.quantise,
            dense: kernels.dense,
            expert: kernels.expert,
            x: codes(most.rows, most.hidden)?,
            qr: codes(most.rows, most.q_rank)?,
            other: codes(1, most.other.next_multiple_of(32))?,
        })
    }

    /// Forgets the forms of the rows of the pass before.
    pub fn begin(&mut self) {
        self.changed(Of::X);
        self.changed(Of::Qr);
    }

    /// Forgets the forms of rows that have new values.
    pub fn changed(&mut self, of: Of) {
        if let Of::X = of {
            self.x.rows = 0..0;
        } else if let Of::Qr = of {
            self.qr.rows = 0..0;
        }
    }

    /// Prepares rows, which are `at..` of their kind in the batch, for these weights.
    pub fn ready(
        &mut self,
        queue: &mut Queue,
        of: Of,
        at: usize,
        input: Input,
        weights: &[&Weight],
    ) -> Result<Ready, OpsError> {
        let coded = input.round && self.round_inputs;
        if !coded || !weights.iter().any(|w| w.format.is_quantised()) {
            return Ok(Ready { input, codes: 0, scales: 0 });
        }
        let (room, at) = match of {
            Of::X => (&mut self.x, at),
            Of::Qr => (&mut self.qr, at),
            Of::Other => (&mut self.other, 0),
        };
        let codes = room.codes.at + (at * input.width) as u64;
        let scales = room.scales.at + (at * (input.width / 32)) as u64;
        let rows = at..at + input.rows;
        let known = of != Of::Other && room.rows.start <= rows.start && rows.end <= room.rows.end;
        if !known {
            let args = QuantiseArgs { x: input.x, codes, scales, width: word(input.width), pad: 0 };
            queue.push(self.quantise, &args, [word(input.rows), 1])?;
            room.rows = rows;
        }
        Ok(Ready { input, codes, scales })
    }

    /// Every row times a weight.
    pub fn dense(&self, queue: &mut Queue, ready: &Ready, weight: &Weight, out: Out) -> OpsResult {
        let coded = ready.codes != 0 && weight.format.is_quantised();
        let kernel = known(queue, self.dense[index(weight.format)][usize::from(coded)])?;
        for first in (0..ready.input.rows).step_by(DENSE_ROWS) {
            let part = ready.part(first, DENSE_ROWS.min(ready.input.rows - first));
            let args = DenseArgs {
                weight: weight.data,
                scale: weight.scale,
                x: part.input.x,
                codes: part.codes,
                scales: part.scales,
                out: out.at + (4 * first * out.stride) as u64,
                rows: word(part.input.rows),
                inputs: word(weight.inp),
                outputs: word(weight.out),
                side: side(weight.format),
                x_stride: word(part.input.stride),
                out_stride: word(out.stride),
                round: u32::from(out.round),
                pad: 0,
            };
            queue.push(kernel, &args, [word(weight.out).div_ceil(OUTPUTS), 1])?;
        }
        Ok(())
    }

    /// The rows of each group times its expert's weight; `rows` is the address of the row of each
    /// place, 0 where the places are the rows.
    pub fn experts(
        &self,
        queue: &mut Queue,
        ready: &Ready,
        stack: &Stack,
        groups: (u64, usize),
        rows: u64,
        out: Out,
    ) -> OpsResult {
        let weight = &stack.first;
        let coded = ready.codes != 0 && weight.format.is_quantised();
        let kernel = known(queue, self.expert[index(weight.format)][usize::from(coded)])?;
        let args = ExpertArgs {
            weight: weight.data,
            scale: weight.scale,
            x: ready.input.x,
            codes: ready.codes,
            scales: ready.scales,
            groups: groups.0,
            rows,
            out: out.at,
            weight_bytes: stack.data_bytes,
            scale_bytes: stack.scale_bytes,
            inputs: word(weight.inp),
            outputs: word(weight.out),
            side: side(weight.format),
            x_stride: word(ready.input.stride),
            out_stride: word(out.stride),
            round: u32::from(out.round),
        };
        queue.push(kernel, &args, [word(weight.out).div_ceil(OUTPUTS), word(groups.1)])
    }
}

/// The kernels of products that a device has.
pub struct Found {
    quantise: &'static Kernel,
    dense: [[Option<&'static Kernel>; 2]; 5],
    expert: [[Option<&'static Kernel>; 2]; 5],
}

impl Found {
    /// Looks for them.
    ///
    /// # Errors
    /// No kernel that rounds inputs.
    pub fn new(device: &dyn Device) -> Result<Self, OpsError> {
        let find = |name| find(device, name).ok();
        Ok(Self {
            quantise: crate::queue::find(device, "quantise")?,
            dense: [
                [find("dense_fp8"), find("dense_fp8_codes")],
                [find("dense_fp4"), find("dense_fp4_codes")],
                [find("dense_bf16"), None],
                [find("dense_f16"), None],
                [find("dense_f32"), None],
            ],
            expert: [
                [find("expert_fp8"), find("expert_fp8_codes")],
                [find("expert_fp4"), find("expert_fp4_codes")],
                [find("expert_bf16"), None],
                [None, None],
                [None, None],
            ],
        })
    }
}

fn known(queue: &Queue, kernel: Option<&'static Kernel>) -> Result<&'static Kernel, OpsError> {
    kernel.ok_or_else(|| OpsError::Unsupported {
        backend: queue.name(),
        step: "a product",
        reason: "the device has no kernel for the weight's format".into(),
    })
}

/// A format as kernels take it.
pub fn index(format: Format) -> usize {
    use finback_kernels::args::format as f;
    let index = match format {
        Format::Fp8 { .. } => f::FP8,
        Format::Fp4 => f::FP4,
        Format::Bf16 => f::BF16,
        Format::F16 => f::F16,
        Format::F32 => f::F32,
    };
    index as usize
}

fn side(format: Format) -> u32 {
    match format {
        Format::Fp8 { block } => word(block),
        _ => 32,
    }
}

/// A size as kernels take it; `check` holds every size to 32 bits.
pub fn word(size: usize) -> u32 {
    size as u32
}
