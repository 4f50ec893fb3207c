//! A worker's memory.

use super::decode::QUAD;
use super::{COLUMNS, few, many};
use crate::simd::LANES;

/// Eight f32, aligned so that none straddles a cache line.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(32))]
pub(super) struct Vector(pub [f32; LANES]);

/// Vectors of a quad with its scale.
pub(super) const QUAD_VECTORS: usize = QUAD / LANES + 1;

/// Unfinished sums and decoded weights: about 170 KB, for the second-level cache.
#[derive(Debug)]
pub(super) struct Scratch {
    /// `[row][COLUMNS]`: the lanes of each sum.
    pub sums: Box<[Vector]>,
    /// `[column][many::QUADS][QUAD_VECTORS]`: decoded weights.
    pub weights: Box<[Vector]>,
    /// The last, partial block of each column, filled up with zeros.
    pub ends: Box<[[u8; few::LARGEST]; COLUMNS]>,
}

impl Scratch {
    pub(super) fn new() -> Scratch {
        let vectors = |n| vec![Vector::default(); n].into_boxed_slice();
        Scratch {
            sums: vectors(many::ROWS * COLUMNS),
            weights: vectors(COLUMNS * many::QUADS * QUAD_VECTORS),
            ends: Box::new([[0; few::LARGEST]; COLUMNS]),
        }
    }
}
