//! Parts of rows from several devices.

use super::super::case::{Case, Gate, Want, bytes};
use super::super::data::Data;
use super::word;
use crate::args::{Args, JoinArgs};

pub fn cases() -> Vec<Case> {
    vec![join_parts(2, 7), join_parts(3, 200)]
}

/// Words of a row that a group moves, `JOIN_WORDS` of `parts.h`.
const GROUP: usize = 512;

fn join_parts(count: usize, width: usize) -> Case {
    let (rows, whole) = (5, count * width);
    let stride = whole + 3;
    let x = Data::new(31).below(rows * whole, 1 << 24);
    let held = x.clone();
    let parts = move |rows: &[usize]| {
        let part = |p: usize| rows.iter().map(move |row| row * whole + p * width);
        let words: Vec<u32> =
            (0..count).flat_map(part).flat_map(|at| held[at..at + width].iter().copied()).collect();
        bytes(&words)
    };
    Case::new("join_parts", format!("{rows} rows of {count} x {width}"), rows)
        .made("parts", parts)
        .strided("out", 4 * whole, 4 * stride, 0)
        .launch(move |at, rows| {
            let args = JoinArgs {
                parts: at.of("parts"),
                out: at.of("out"),
                rows: word(rows.len()),
                count: word(count),
                width: word(width),
                stride: word(stride),
            };
            (args.bytes(), [word(rows.len()), word(whole.div_ceil(GROUP))])
        })
        .want(move |row| vec![Want::Bytes(bytes(&x[row * whole..(row + 1) * whole]))])
        .fault("JOIN_SWAPPED", Gate::Reference)
        .fault("JOIN_SHORT", Gate::Writes)
}
