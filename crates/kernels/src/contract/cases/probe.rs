//! Filling memory and reading it.

use super::super::case::{Case, Gate, Want, bytes};
use super::super::data::Data;
use super::{by_row, word};
use crate::args::{Args, FillArgs, ReadAllArgs};

pub fn cases() -> Vec<Case> {
    vec![fill(300, 0xffff_ffff, 0), fill(128, 0x9f9f_9f9f, 0x2020_2020), read(4), read(5000)]
}

fn hash(key: u32, i: u32) -> u32 {
    let x = key.wrapping_mul(0x9e37_79b9).wrapping_add(i);
    let x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    let x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

fn fill(width: usize, keep: u32, set: u32) -> Case {
    let keys: Vec<u32> = (0..5).map(|row| row * 77 + 3).collect();
    let wanted = keys.clone();
    Case::new("fill", format!("5 rows of {width}"), 5)
        .row("keys", &keys)
        .out("out", width * 4)
        .launch(move |at, rows| {
            let args = FillArgs {
                out: at.of("out"),
                keys: at.of("keys"),
                count: (rows.len() * width) as u64,
                width: word(width),
                seed: 9,
                keep,
                set,
                keyed: 1,
                pad: 0,
            };
            (args.bytes(), by_row(rows))
        })
        .want(move |row| {
            let words = (0..word(width)).map(|i| hash(wanted[row] + 9, i) & keep | set);
            vec![Want::Bytes(bytes(&words.collect::<Vec<u32>>()))]
        })
        .fault("FILL_NEIGHBOUR_KEY", Gate::Rows)
}

fn read(width: usize) -> Case {
    let mut data = Data::new(width as u64);
    let words: Vec<u32> = data.floats(3 * width, 1.0).iter().map(|x| x.to_bits()).collect();
    let wanted = words.clone();
    Case::new("read_all", format!("3 rows of {width}"), 3)
        .row("from", &words)
        .out("out", 4)
        .launch(move |at, rows| {
            let args =
                ReadAllArgs { from: at.of("from"), out: at.of("out"), width: word(width), pad: 0 };
            (args.bytes(), by_row(rows))
        })
        .want(move |row| {
            let own = &wanted[row * width..(row + 1) * width];
            vec![Want::Bytes(own.iter().fold(0, |sum, word| sum ^ word).to_ne_bytes().to_vec())]
        })
        .fault("READ_SHORT", Gate::Reference)
}
