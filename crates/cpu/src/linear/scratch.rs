//! A worker's memory.

use super::COLUMNS;
use super::strip::{LARGEST, ROWS};
use crate::simd::LANES;

/// Eight f32, aligned so that none straddles a cache line.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(32))]
pub(super) struct Vector(pub [f32; LANES]);

/// Unfinished sums and the ends of weight rows: small enough for the first-level cache.
#[derive(Debug)]
pub(super) struct Scratch {
    /// `[row][COLUMNS]`: the lanes of each sum.
    pub sums: [Vector; ROWS * COLUMNS],
    /// The last, partial block of each column, filled up with zeros.
    pub ends: [[u8; LARGEST]; COLUMNS],
}

impl Scratch {
    pub(super) fn new() -> Box<Scratch> {
        let sums = [Vector::default(); ROWS * COLUMNS];
        Box::new(Scratch { sums, ends: [[0; LARGEST]; COLUMNS] })
    }
}
