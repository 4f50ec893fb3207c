//! The cases of every kernel: small shapes, with the odd sizes that divide nothing.

mod arrange;
mod attend;
mod dense;
mod experts;
mod fetch;
mod kv;
mod latents;
mod mix;
mod norm;
mod parts;
mod probe;
mod sample;
mod select;
mod streams;
mod tile_attend;
mod tile_gated;
mod tile_select;
mod tiles;

use super::case::Case;
use crate::manifest::SLICE;

/// Every case of every kernel.
pub fn all() -> Vec<Case> {
    [
        norm::cases(),
        streams::cases(),
        mix::cases(),
        kv::cases(),
        latents::cases(),
        dense::cases(),
        select::cases(),
        attend::cases(),
        experts::cases(),
        sample::cases(),
        probe::cases(),
        parts::cases(),
        fetch::cases(),
        arrange::cases(),
        tiles::cases(),
        tile_attend::cases(),
        tile_gated::cases(),
        tile_select::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A size as a kernel takes it.
fn word(n: usize) -> u32 {
    n as u32
}

/// A grid of one group a row and slice of channels.
fn by_slice(rows: &[usize], width: usize) -> [u32; 2] {
    [word(rows.len()), word(width.div_ceil(SLICE))]
}

/// A grid of one group a row.
fn by_row(rows: &[usize]) -> [u32; 2] {
    [word(rows.len()), 1]
}
