//! Linears in device memory: as they are stored, or rearranged for tensor cores.

use std::ops::Range;

use finback_kernels::tiles::{TILE_OUTPUTS, Tiles};
use finback_ops::{Format, Linear};

use crate::hosted::Fetched;

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
    /// The same rearranged for tensor cores; nothing lies at the addresses above then.
    pub tiled: Option<Tiled>,
}

/// Weights rearranged for tensor cores.
#[derive(Debug, Clone, Copy)]
pub struct Tiled {
    /// Their shape.
    pub tiles: Tiles,
    /// Their address.
    pub at: u64,
}

impl Weight {
    /// No weight, of no channels.
    pub const NONE: Self =
        Self { format: Format::F32, out: 0, inp: 0, data: 0, scale: 0, tiled: None };

    /// Some output channels of one that is not tiled; those of an FP8 weight begin at a scale tile.
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

/// Two linears of the same rows, which may be rearranged into one.
#[derive(Debug, Clone, Copy)]
pub struct Joined {
    /// Each.
    pub parts: [Weight; 2],
    /// Both.
    pub tiled: Option<Tiled>,
}

/// A linear in groups of output channels, each of which reads inputs of its own.
#[derive(Debug, Clone, Copy)]
pub struct Grouped {
    /// All groups.
    pub whole: Weight,
    /// How many there are.
    pub groups: usize,
    /// Each group's, one after another.
    pub tiled: Option<Tiled>,
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
    /// How a step brings them to places, where they stay on the host; the addresses are the places' then.
    pub fetched: Option<Fetched>,
}

/// Two linears of every expert, which may be rearranged into one.
#[derive(Debug, Clone, Copy)]
pub struct Stacks {
    /// Each.
    pub parts: [Stack; 2],
    /// Both.
    pub tiled: Option<Tiled>,
    /// As of a [`Stack`], for both.
    pub fetched: Option<Fetched>,
}

/// What takes rows.
pub trait Takes {
    /// The format of each of its weights, and whether it is tiled.
    fn takes(&self) -> [(Format, bool); 2];
}

impl Takes for Weight {
    fn takes(&self) -> [(Format, bool); 2] {
        [(self.format, self.tiled.is_some()); 2]
    }
}

impl Takes for Joined {
    fn takes(&self) -> [(Format, bool); 2] {
        self.parts.map(|part| (part.format, self.tiled.or(part.tiled).is_some()))
    }
}

impl Takes for Grouped {
    fn takes(&self) -> [(Format, bool); 2] {
        [(self.whole.format, self.tiled.is_some()); 2]
    }
}

impl Takes for Stack {
    fn takes(&self) -> [(Format, bool); 2] {
        self.first.takes()
    }
}

impl Takes for Stacks {
    fn takes(&self) -> [(Format, bool); 2] {
        self.parts.map(|part| (part.first.format, self.tiled.or(part.first.tiled).is_some()))
    }
}

/// The tiles of a few linears of the same rows behind one another; `None` where that cannot be.
pub fn tiles_of(linears: &[&Linear]) -> Option<Tiles> {
    let (format, inp) = linears.first().map(|first| (first.format, first.inp))?;
    let out = linears.iter().map(|linear| linear.out).sum();
    // A linear behind another begins at a tile.
    let whole = linears.iter().rev().skip(1).all(|l| l.out.is_multiple_of(TILE_OUTPUTS));
    let alike = linears.iter().all(|linear| (linear.format, linear.inp) == (format, inp));
    let tiles = Tiles::new(index(format) as u32, side(format), inp, out);
    tiles.filter(|_| whole && alike)
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

/// The edge of an FP8 weight's scale tiles; of others the inputs of a scale.
pub fn side(format: Format) -> usize {
    match format {
        Format::Fp8 { block } => block,
        _ => 32,
    }
}
