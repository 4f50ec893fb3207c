//! The cases of every kernel: small shapes, with the odd sizes that divide nothing.

mod attend;
mod dense;
mod experts;
mod kv;
mod norm;
mod sample;
mod select;
mod streams;

use super::case::Case;

/// Every case of every kernel.
pub fn all() -> Vec<Case> {
    [
        norm::cases(),
        streams::cases(),
        kv::cases(),
        dense::cases(),
        select::cases(),
        attend::cases(),
        experts::cases(),
        sample::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A size as a kernel takes it.
fn word(n: usize) -> u32 {
    n as u32
}

/// A grid of one group a row.
fn by_row(rows: &[usize]) -> [u32; 2] {
    [word(rows.len()), 1]
}
