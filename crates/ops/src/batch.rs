//! What one pass over the layers runs: rows of several slots, and where their state lives.

use std::ops::Range;

/// Positions of one KV block.
pub const BLOCK_POSITIONS: usize = 256;

/// Consecutive rows of one slot in a batch.
#[derive(Debug, Clone)]
pub struct Span<'a> {
    /// The slot.
    pub slot: usize,
    /// Position of the first row; rows of earlier positions are in the slot's state.
    pub start: usize,
    /// Token ids of the rows.
    pub tokens: &'a [u32],
    /// The slot's KV blocks by position / [`BLOCK_POSITIONS`], enough for all its rows.
    pub blocks: &'a [u32],
}

/// Rows of a batch, by index over all its spans in order.
pub type Rows = Range<usize>;

/// Rows of one span that become part of their slot's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Index of the span in the batch that last began.
    pub span: usize,
    /// Its first rows, this many; 0 keeps none.
    pub rows: usize,
}

/// Sizes a backend allocates for; nothing is allocated later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Slots.
    pub slots: usize,
    /// Rows of one batch.
    pub rows: usize,
    /// Rows whose logits one batch may ask for.
    pub logit_rows: usize,
    /// Positions of one slot.
    pub context: usize,
    /// KV blocks in the pool.
    pub blocks: usize,
}
