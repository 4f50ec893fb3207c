//! Rows that linears read, and room for the forms that they are prepared in.

use std::ops::Range;

use finback_kernels::tiles::{Groups, row_bytes};
use finback_ops::OpsError;

use crate::memory::Memory;

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
    /// Whether they are bf16 values; else they are f32.
    pub kept: bool,
}

impl Input {
    /// Bytes of a value.
    fn bytes(&self) -> usize {
        if self.kept { 2 } else { 4 }
    }
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

/// A form that rows are prepared in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// E4M3 codes with a scale for 32 values.
    Codes,
    /// Such codes in steps, as tiles of FP8 and FP4 take them.
    Coded,
    /// BF16, as tiles of BF16 take them.
    Plain,
}

impl Form {
    /// Bytes of a row.
    pub fn bytes(self, width: usize) -> usize {
        match self {
            Self::Codes => width,
            Self::Coded => row_bytes(true, width),
            Self::Plain => row_bytes(false, width),
        }
    }
}

/// Rows in the forms that weights take; an address is 0 where they were not made.
#[derive(Debug, Clone, Copy)]
pub struct Ready {
    /// As they are.
    pub input: Input,
    /// E4M3 codes.
    pub codes: u64,
    /// The codes' scales.
    pub scales: u64,
    /// Such codes in steps.
    pub coded: u64,
    /// BF16.
    pub plain: u64,
    /// Whether a product may run beside the last launch, as [`finback_kernels::tiles::Rows`] has it.
    pub beside: bool,
    /// Whether launches after the product may come early, as it has it.
    pub early: bool,
    /// Whether the product's groups take processors whole, as it has it.
    pub whole: bool,
}

impl Ready {
    /// Rows of which no form is made yet.
    pub fn new(input: Input) -> Self {
        Self {
            input,
            codes: 0,
            scales: 0,
            coded: 0,
            plain: 0,
            beside: false,
            early: false,
            whole: false,
        }
    }

    /// Some of the rows.
    pub fn part(&self, first: usize, rows: usize) -> Self {
        let Self { input, codes, scales, coded, plain, .. } = *self;
        let skip = |address: u64, bytes: usize| match address {
            0 => 0,
            address => address + (first * bytes) as u64,
        };
        Self {
            input: Input {
                x: input.x + (input.bytes() * first * input.stride) as u64,
                rows,
                ..input
            },
            codes: skip(codes, Form::Codes.bytes(input.width)),
            scales: skip(scales, input.width / 32),
            coded: skip(coded, Form::Coded.bytes(input.width)),
            plain: skip(plain, Form::Plain.bytes(input.width)),
            ..*self
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

impl Out {
    /// Nowhere.
    pub const NONE: Self = Self { at: 0, stride: 0, round: false };
}

/// The experts in use.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    /// Address of (expert, first place, end) of each.
    pub at: u64,
    /// How many there may be.
    pub count: usize,
    /// Rows that one may have.
    pub rows: usize,
    /// Whether they were there before the last product of few rows.
    pub known: bool,
}

impl Used {
    /// The groups of tiled weights; `rows` is the address of the row of each place, 0 where places are rows.
    pub fn groups(&self, rows: u64) -> Groups {
        Groups::Some { groups: self.at, count: self.count, list: rows, known: self.known }
    }
}

/// Room for rows in one form, and which of a batch's rows it holds.
#[derive(Default)]
pub struct Made {
    /// Address of the rows.
    pub at: u64,
    /// Address of their scales.
    pub scales: u64,
    /// Which they are.
    pub rows: Range<usize>,
}

/// Room for rows in every form.
#[derive(Default)]
pub struct Room {
    /// By [`Form`].
    pub codes: Made,
    /// By [`Form`].
    pub coded: Made,
    /// By [`Form`].
    pub plain: Made,
}

impl Room {
    /// Room for rows of any of these shapes (rows, width) in each form, and of those that stay `plain` in that one.
    pub fn new(
        memory: &mut Memory<'_>,
        tiled: bool,
        shapes: &[(usize, usize)],
        plain: &[(usize, usize)],
    ) -> Result<Self, OpsError> {
        let most = |shapes: &[(usize, usize)], bytes: &dyn Fn(usize) -> usize| {
            shapes.iter().map(|&(rows, width)| rows * bytes(width)).max().unwrap_or(0) as u64
        };
        let mut room = Self::default();
        room.codes.at = memory.take(most(shapes, &|width| Form::Codes.bytes(width)))?;
        room.codes.scales = memory.take(most(shapes, &|width| width.div_ceil(32)))?;
        if tiled {
            room.coded.at = memory.take(most(shapes, &|width| Form::Coded.bytes(width)))?;
            let bytes = |width| Form::Plain.bytes(width);
            room.plain.at = memory.take(most(shapes, &bytes).max(most(plain, &bytes)))?;
        }
        Ok(room)
    }

    /// Forgets what it holds.
    pub fn changed(&mut self) {
        for made in [&mut self.codes, &mut self.coded, &mut self.plain] {
            made.rows = 0..0;
        }
    }
}
