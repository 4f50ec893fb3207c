//! Quantisers, packed rows, rotations and the pooling of groups.

use finback_numerics::{bf16, fp8, quant, rows as packed};

use super::super::case::{Case, Gate, Rule, Want, bytes};
use super::super::data::Data;
use super::{by_row, by_slice, word};
use crate::args::{
    Args, CopyArgs, IndexOperandArgs, IndexQueryArgs, PackArgs, QuantiseArgs, UnpackArgs,
};

pub fn cases() -> Vec<Case> {
    let window = Packing {
        pack: "pack_window",
        unpack: "unpack_window",
        bytes: packed::window_bytes,
        store: packed::store_window,
        load: packed::load_window,
        nan: |_, after| after[32..64] == [0x7f; 32] && after[160 + 1] == fp8::E8M0_NAN,
        scales: 160,
        nan_channels: Rule::NanIn("out", 0, 128),
    };
    let compressed = Packing {
        pack: "pack_compressed",
        unpack: "unpack_compressed",
        bytes: packed::compressed_bytes,
        store: packed::store_compressed,
        load: packed::load_compressed,
        nan: |before, after| {
            after[16..24] == [0x77; 8]
                && after[80 + 2] == fp8::E4M3_NAN
                && after[24..80] == before[24..80]
        },
        scales: 80,
        nan_channels: Rule::NanIn("out", 0, 64),
    };
    let index = Packing {
        pack: "pack_index",
        unpack: "unpack_index",
        bytes: packed::index_key_bytes,
        store: packed::store_index_key,
        load: packed::load_index_key,
        nan: |_, after| after[16..32] == [0x77; 16] && after[80 + 1] == fp8::E8M0_NAN,
        scales: 80,
        nan_channels: Rule::NanIn("out", 0, 128),
    };
    let mut cases = vec![quantise(), index_query(), index_operand(), copy_rows()];
    for packing in [window, compressed, index] {
        cases.extend([pack(&packing), unpack(&packing)]);
    }
    cases
}

/// Rows whose blocks span many sizes, zeros and ties among them.
fn spread(data: &mut Data, rows: usize, width: usize) -> Vec<f32> {
    let mut x = data.floats(rows * width, 1.0);
    for (i, block) in x.chunks_mut(16).enumerate() {
        let scale = [1.0, 1e-6, 300.0, 0.0, 1e5, 2.5][i % 6];
        block.iter_mut().for_each(|x| *x *= scale);
    }
    x[0] = 2.5;
    x
}

fn quantise() -> Case {
    let (rows, width) = (4, 544);
    let x = spread(&mut Data::new(20), rows, width);
    let values = x.clone();
    Case::new("quantise", format!("{rows} rows of {width}"), rows)
        .row("x", &x)
        .out("codes", width)
        .out("scales", width / 32)
        .launch(move |at, rows| {
            let args = QuantiseArgs {
                x: at.of("x"),
                codes: at.of("codes"),
                scales: at.of("scales"),
                width: word(width),
                pad: 0,
            };
            (args.bytes(), by_slice(rows, width))
        })
        .want(move |row| {
            let (mut codes, mut scales) = (vec![0; width], vec![0; width / 32]);
            quant::fp8_block32(&values[row * width..][..width], &mut codes, &mut scales);
            vec![Want::Bytes(codes), Want::Bytes(scales)]
        })
        .strike("x", 40, f32::NAN, Rule::Check("codes", |_, after| after[32..64] == [0x7f; 32]))
        .strike(
            "x",
            40,
            f32::INFINITY,
            Rule::Check("codes", |before, after| {
                after[32..64] == [0x7f; 32] && after[64..] == before[64..]
            }),
        )
        .strike("x", 40, f32::NAN, Rule::Check("scales", |_, after| after[1] == fp8::E8M0_NAN))
        .fault("QUANT_WRONG_SCALE", Gate::Reference)
}

fn index_query() -> Case {
    let (rows, heads, dim, pairs) = (3, 3, 160, 16);
    let width = heads * dim;
    let x = spread(&mut Data::new(21), rows, width);
    let (cos, sin) = angles(28, rows * pairs);
    let (values, c, s) = (x.clone(), cos.clone(), sin.clone());
    Case::new("index_query", format!("{rows} rows of {heads} heads of {dim}"), rows)
        .in_place("q", &x)
        .row("cos", &cos)
        .row("sin", &sin)
        .launch(move |at, rows| {
            let args = IndexQueryArgs {
                q: at.of("q"),
                cos: at.of("cos"),
                sin: at.of("sin"),
                heads: word(heads),
                dim: word(dim),
                pairs: word(pairs),
                round: 1,
            };
            (args.bytes(), [word(rows.len()), word(heads)])
        })
        .want(move |row| {
            let own = row * pairs..(row + 1) * pairs;
            let q = &values[row * width..][..width];
            vec![Want::Bytes(bytes(&index_query_of(q, dim, &c[own.clone()], &s[own])))]
        })
        .strike("q", 33, f32::NAN, Rule::NanIn("q", 32, 32))
        .strike("q", 33, f32::INFINITY, Rule::NanIn("q", 32, 32))
        .fault("QUANT_WRONG_SCALE", Gate::Reference)
}

/// Cosines and sines.
pub fn angles(seed: u64, n: usize) -> (Vec<f32>, Vec<f32>) {
    let angles = Data::new(seed).between(n, -3.0, 3.0);
    (angles.iter().map(|a| a.cos()).collect(), angles.iter().map(|a| a.sin()).collect())
}

/// A row's index query with its heads rotated and rounded.
fn index_query_of(q: &[f32], dim: usize, cos: &[f32], sin: &[f32]) -> Vec<f32> {
    let mut q = q.to_vec();
    for head in q.chunks_exact_mut(dim) {
        let pairs = head[dim - 2 * cos.len()..].chunks_exact_mut(2);
        for ((c, s), pair) in cos.iter().zip(sin).zip(pairs) {
            let (even, odd) = (pair[0], pair[1]);
            pair[0] = bf16::round(even * c - odd * s);
            pair[1] = bf16::round(even * s + odd * c);
        }
    }
    let mut held = vec![0; packed::index_key_bytes(q.len())];
    packed::store_index_key(&q, &mut held);
    packed::load_index_key(&held, &mut q);
    q
}

fn index_operand() -> Case {
    // The last group has heads for half a warp.
    let (rows, heads, dim, pairs) = (3, 18, 64, 16);
    let width = heads * dim;
    let x = spread(&mut Data::new(27), rows, width);
    let (cos, sin) = angles(28, rows * pairs);
    let (values, c, s) = (x.clone(), cos.clone(), sin.clone());
    let want = move |row: usize| {
        let own = row * pairs..(row + 1) * pairs;
        let q = index_query_of(&values[row * width..][..width], dim, &c[own.clone()], &s[own]);
        let mut out = vec![0u16; width];
        for (at, &x) in q.iter().enumerate() {
            let (head, c, part) = (at / dim, at % dim, dim / 4);
            let m = c % part / 8;
            let piece = (m % 2 * 4 + c % 4) ^ (head % 8);
            let word = ((m / 2 * heads + head) * 8 + piece) * 4 + c / part;
            out[word * 2 + c % 8 / 4] = bf16::encode(x);
        }
        vec![Want::Bytes(bytes(&out))]
    };
    Case::new("index_operand", format!("{rows} rows of {heads} heads of {dim}"), rows)
        .row("q", &x)
        .row("cos", &cos)
        .row("sin", &sin)
        .out("out", width * 2)
        .launch(move |at, rows| {
            let args = IndexOperandArgs {
                q: at.of("q"),
                cos: at.of("cos"),
                sin: at.of("sin"),
                out: at.of("out"),
                heads: word(heads),
                dim: word(dim),
                pairs: word(pairs),
                pad: 0,
            };
            (args.bytes(), [word(rows.len()), word(width).div_ceil(1024)])
        })
        .want(want)
        // Channels 0 to 31 of head 0: the first two words of each of its pieces.
        .strike("q", 3, f32::NAN, Rule::Check("out", first_block_is_nan))
        .strike("q", 3, f32::INFINITY, Rule::Check("out", first_block_is_nan))
        .fault("QUANT_WRONG_SCALE", Gate::Reference)
}

fn first_block_is_nan(before: &[u8], after: &[u8]) -> bool {
    let halves = |part: &[u8]| part.as_chunks::<2>().0.to_vec();
    let pairs = halves(before).into_iter().zip(halves(after)).enumerate();
    pairs.into_iter().all(|(i, (before, after))| match i < 64 && i / 2 % 4 < 2 {
        true => u16::from_ne_bytes(after) & 0x7fff > 0x7f80,
        false => before == after,
    })
}

/// A packed form with the code that defines it.
struct Packing {
    pack: &'static str,
    unpack: &'static str,
    bytes: fn(usize) -> usize,
    store: fn(&[f32], &mut [u8]),
    load: fn(&[u8], &mut [f32]),
    /// What a NaN in channel 35 makes of a row of 160 channels.
    nan: fn(&[u8], &[u8]) -> bool,
    /// Where the scales of a row of 160 channels begin.
    scales: usize,
    /// What four NaN scales make of it.
    nan_channels: Rule,
}

const DIM: usize = 160;

fn pack(packing: &Packing) -> Case {
    let rows = 4;
    let x = spread(&mut Data::new(23), rows, DIM);
    let (values, each, store) = (x.clone(), (packing.bytes)(DIM), packing.store);
    // Rows go to places of a pool, the last first, with room between.
    let place = move |row: usize| (rows - 1 - row) * (each + 8) + 3;
    let places =
        move |rows: &[usize]| bytes(&rows.iter().map(|&row| place(row) as u64).collect::<Vec<_>>());
    Case::new(packing.pack, format!("{rows} rows of {DIM}"), rows)
        .row("x", &x)
        .made("places", places)
        .placed("out", each, move |_| rows * (each + 8), move |rows, i| place(rows[i]))
        .launch(|at, rows| {
            let args = PackArgs {
                x: at.of("x"),
                places: at.of("places"),
                out: at.of("out"),
                dim: word(DIM),
                pad: 0,
            };
            (args.bytes(), by_row(rows))
        })
        .want(move |row| {
            let mut held = vec![0; each];
            store(&values[row * DIM..][..DIM], &mut held);
            vec![Want::Bytes(held)]
        })
        .strike("x", 35, f32::NAN, Rule::Check("out", packing.nan))
        .strike("x", 35, f32::NEG_INFINITY, Rule::Check("out", packing.nan))
        .fault("QUANT_WRONG_SCALE", Gate::Reference)
}

fn unpack(packing: &Packing) -> Case {
    let rows = 3;
    let x = spread(&mut Data::new(24), rows, DIM);
    let (each, load) = ((packing.bytes)(DIM), packing.load);
    let mut held = vec![0; rows * each];
    for (row, held) in x.chunks_exact(DIM).zip(held.chunks_exact_mut(each)) {
        (packing.store)(row, held);
    }
    let stored = held.clone();
    Case::new(packing.unpack, format!("{rows} rows of {DIM}"), rows)
        .row("rows", &held)
        .out("out", DIM * 4)
        .launch(|at, rows| {
            let args = UnpackArgs {
                rows: at.of("rows"),
                places: 0,
                out: at.of("out"),
                dim: word(DIM),
                pad: 0,
            };
            (args.bytes(), by_row(rows))
        })
        .want(move |row| {
            let mut out = vec![0.0; DIM];
            load(&stored[row * each..][..each], &mut out);
            vec![Want::Bytes(bytes(&out))]
        })
        // The first four scales become 0xff, a NaN of either scale.
        .strike("rows", packing.scales / 4, f32::from_bits(u32::MAX), packing.nan_channels)
        .fault("UNPACK_SWAPPED", Gate::Reference)
}

fn copy_rows() -> Case {
    let (rows, each) = (5, 131);
    let held = Data::new(26).bytes(3 * rows * each);
    let from = held.clone();
    let source = move |row: usize| ((row * 3 + 1) % (3 * rows)) * each;
    let place = move |row: usize| (rows - 1 - row) * (each + 5) + 2;
    let words = |at: &dyn Fn(usize) -> usize, rows: &[usize]| {
        bytes(&rows.iter().map(|&row| at(row) as u64).collect::<Vec<_>>())
    };
    Case::new("copy_rows", format!("{rows} rows of {each} bytes"), rows)
        .shared("from", &held)
        .made("sources", move |rows| words(&source, rows))
        .made("places", move |rows| words(&place, rows))
        .placed("to", each, move |_| rows * (each + 5), move |rows, i| place(rows[i]))
        .launch(move |at, rows| {
            let args = CopyArgs {
                from: at.of("from"),
                sources: at.of("sources"),
                to: at.of("to"),
                places: at.of("places"),
                bytes: word(each),
                pad: 0,
            };
            (args.bytes(), by_row(rows))
        })
        .want(move |row| vec![Want::Bytes(from[source(row)..source(row) + each].to_vec())])
        .fault("COPY_SHORT", Gate::Writes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_rows_hold_every_kind_of_block() {
        let x = spread(&mut Data::new(1), 2, 96);
        assert!(x.chunks(16).any(|block| block.iter().all(|&x| x == 0.0)));
        assert!(x.iter().any(|x| x.abs() > 1e4) && x.iter().any(|x| *x != 0.0 && x.abs() < 1e-5));
    }
}
