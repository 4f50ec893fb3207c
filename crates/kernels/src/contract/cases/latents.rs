//! The latents' norms and what follows them.

use finback_numerics::{bf16, math, rows as packed};

use super::super::case::{Case, Gate, Rule, Want, bytes};
use super::super::data::{Data, coded_row};
use super::kv::angles;
use super::{by_row, word};
use crate::args::{Args, CompressedArgs, LatentsArgs};
use crate::manifest::SLICE;
use crate::tiles::row_bytes;

pub fn cases() -> Vec<Case> {
    let row = Kind { ratio: 3, index: false, forms: true };
    let wide = Kind { ratio: 6, index: false, forms: false };
    let latent = Kind { ratio: 1, index: false, forms: false };
    let key = Kind { ratio: 1, index: true, forms: false };
    let compressed = [row, wide, latent, key].into_iter().map(finish_compressed);
    let latents = [(true, 192), (true, 672), (false, 192)].map(finish_latents);
    latents.into_iter().chain(compressed).collect()
}

/// `rmsnorm` in the kernel's own order of the sum, rounded.
fn normed(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let mut lanes = [0.0f32; 128];
    x.iter().enumerate().for_each(|(k, x)| lanes[k % 128] = x.mul_add(*x, lanes[k % 128]));
    let warp = |w: usize| {
        let mut own: Vec<f32> = lanes[w * 32..(w + 1) * 32].to_vec();
        for apart in [16, 8, 4, 2, 1] {
            own = (0..32).map(|lane: usize| own[lane] + own[lane ^ apart]).collect();
        }
        own[0]
    };
    let sum = (warp(0) + warp(1)) + (warp(2) + warp(3));
    let inverse = 1.0 / (sum / x.len() as f32 + eps).sqrt();
    x.iter().zip(weight).map(|(x, w)| bf16::round(x * inverse * w)).collect()
}

/// Rotates the last channels of a vector, rounded.
fn turn(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let first = x.len() - 2 * cos.len();
    for ((c, s), pair) in cos.iter().zip(sin).zip(x[first..].chunks_exact_mut(2)) {
        let (even, odd) = (pair[0], pair[1]);
        pair[0] = bf16::round(even * c - odd * s);
        pair[1] = bf16::round(even * s + odd * c);
    }
}

/// A row as bf16, and as codes in steps.
fn forms(x: &[f32]) -> [Vec<u8>; 2] {
    [bytes(&x.iter().map(|&x| bf16::encode(x)).collect::<Vec<u16>>()), coded_row(x)]
}

/// Outputs for both.
fn out_forms(case: Case, width: usize) -> Case {
    let coded = width + width / 32;
    case.out("plain", width * 2).strided("coded", coded, row_bytes(true, width), 0)
}

/// What a compressed row comes from and becomes.
#[derive(Clone, Copy)]
struct Kind {
    /// Raw rows of a group, pooled where there is more than one.
    ratio: usize,
    /// Whether it is packed as an index key.
    index: bool,
    /// Whether it is an operand too.
    forms: bool,
}

/// The pool of a group's raw rows, [kv, gate] each, in the kernel's own order.
fn pooled(raw: &[f32], dim: usize) -> Vec<f32> {
    let rows: Vec<&[f32]> = raw.chunks_exact(2 * dim).collect();
    let channel = |k: usize| {
        let top = rows.iter().fold(f32::NEG_INFINITY, |top, row| top.max(row[dim + k]));
        let terms = rows.iter().map(|row| (math::exp(row[dim + k] - top), row[k]));
        let (sum, all) =
            terms.fold((0.0f32, 0.0), |(sum, all), (e, x)| (e.mul_add(x, sum), all + e));
        bf16::round(sum / all)
    };
    (0..dim).map(channel).collect()
}

fn finish_compressed(kind: Kind) -> Case {
    let Kind { ratio, index, forms: with_forms } = kind;
    // Where members are many, so are the channels: both come in several parts.
    let dim = match (ratio, with_forms) {
        (_, true) => 640,
        (5.., _) => 672,
        _ => 160,
    };
    let (rows, pairs, eps) = (3, 8, 1e-20f32);
    let mut data = Data::new(31);
    let (raw, x) = (data.floats(rows * ratio * 2 * dim, 3.0), data.floats(rows * dim, 2.0));
    let norm = data.between(dim, 0.5, 1.5);
    let (cos, sin) = angles(32, rows * pairs);
    let (r, v, n, c, s) = (raw.clone(), x.clone(), norm.clone(), cos.clone(), sin.clone());
    let each = if index { packed::index_key_bytes(dim) } else { packed::compressed_bytes(dim) };
    let store = if index { packed::store_index_key } else { packed::store_compressed };
    let want = move |row: usize| {
        let latent = match ratio {
            1 => v[row * dim..(row + 1) * dim].to_vec(),
            _ => pooled(&r[row * ratio * 2 * dim..][..ratio * 2 * dim], dim),
        };
        let x = normed(&latent, &n, eps);
        let mut outs = vec![bytes(&x)];
        if with_forms {
            outs.extend(forms(&x));
        }
        let (mut turned, own) = (x, row * pairs..(row + 1) * pairs);
        turn(&mut turned, &c[own.clone()], &s[own]);
        let mut held = vec![0; each];
        store(&turned, &mut held);
        outs.push(held);
        outs.into_iter().map(Want::Bytes).collect()
    };
    let shape = format!("{rows} groups of {ratio}, index: {index}");
    let case = Case::new("finish_compressed", shape, rows);
    let case = match ratio {
        1 => case.in_place("x", &x),
        _ => case.out("x", dim * 4).row("raw", &raw).made("members", move |groups| {
            bytes(&(0..word(groups.len() * ratio)).collect::<Vec<_>>())
        }),
    };
    let case = match with_forms {
        true => out_forms(case, dim),
        false => case,
    };
    // Rows go to places of a pool, the last first, with room between.
    let place = move |row: usize| (rows - 1 - row) * (each + 8) + 3;
    let case = case
        .shared("norm", &norm)
        .row("cos", &cos)
        .row("sin", &sin)
        .made("places", move |rows| {
            bytes(&rows.iter().map(|&row| place(row) as u64).collect::<Vec<_>>())
        })
        .placed("out", each, move |_| rows * (each + 8), move |rows, i| place(rows[i]))
        .launch(move |at, rows| {
            let of = |name, there: bool| if there { at.of(name) } else { 0 };
            let args = CompressedArgs {
                x: at.of("x"),
                raw: of("raw", ratio > 1),
                members: of("members", ratio > 1),
                norm: at.of("norm"),
                cos: at.of("cos"),
                sin: at.of("sin"),
                plain: of("plain", with_forms),
                coded: of("coded", with_forms),
                places: at.of("places"),
                out: at.of("out"),
                dim: word(dim),
                pairs: word(pairs),
                ratio: word(ratio),
                round: 1,
                eps,
                index: index.into(),
            };
            (args.bytes(), by_row(rows))
        })
        .want(want)
        .fault("QUANT_WRONG_SCALE", Gate::Reference)
        .fault("MISSING_BARRIER", Gate::Rows);
    match ratio {
        1 => case.strike("x", 3, f32::NAN, Rule::Nan("x")),
        _ => case
            .strike("raw", dim + 3, f32::NAN, Rule::Nan("x"))
            .fault("POOL_DROPPED_ROW", Gate::Reference),
    }
}

/// Without or with queries; of wide rows queries are not stored as f32.
fn finish_latents((queries, dim): (bool, usize)) -> Case {
    let (rows, rank, pairs, eps) = (3, 640, 8, 1e-20f32);
    let f32s = dim < 512;
    let mut data = Data::new(29);
    let (qr, kv) = (data.floats(rows * rank, 2.0), data.floats(rows * dim, 2.0));
    let (q_norm, kv_norm) = (data.between(rank, 0.5, 1.5), data.between(dim, 0.5, 1.5));
    let (cos, sin) = angles(30, rows * pairs);
    let (q, k, qn, kn) = (qr.clone(), kv.clone(), q_norm.clone(), kv_norm.clone());
    let (c, s) = (cos.clone(), sin.clone());
    let want = move |row: usize| {
        let mut x = normed(&k[row * dim..(row + 1) * dim], &kn, eps);
        let own = row * pairs..(row + 1) * pairs;
        turn(&mut x, &c[own.clone()], &s[own]);
        let mut window = vec![0; packed::window_bytes(dim)];
        packed::store_window(&x, &mut window);
        if !queries {
            return vec![Want::Bytes(window)];
        }
        let x = normed(&q[row * rank..(row + 1) * rank], &qn, eps);
        let [plain, coded] = forms(&x);
        let normed = f32s.then(|| bytes(&x));
        normed.into_iter().chain([plain, coded, window]).map(Want::Bytes).collect()
    };
    let case =
        Case::new("finish_latents", format!("{rows} rows of {dim}, queries: {queries}"), rows);
    let case = match queries {
        true if f32s => out_forms(case.row("qr", &qr).out("normed", rank * 4), rank),
        true => out_forms(case.row("qr", &qr), rank),
        false => case,
    };
    let case = case
        .shared("q_norm", &q_norm)
        .row("kv", &kv)
        .shared("kv_norm", &kv_norm)
        .row("cos", &cos)
        .row("sin", &sin)
        .out("out", packed::window_bytes(dim))
        .launch(move |at, rows| {
            let of = |name| if queries { at.of(name) } else { 0 };
            let args = LatentsArgs {
                qr: of("qr"),
                normed: if f32s { of("normed") } else { 0 },
                q_norm: at.of("q_norm"),
                plain: of("plain"),
                coded: of("coded"),
                kv: at.of("kv"),
                kv_norm: at.of("kv_norm"),
                cos: at.of("cos"),
                sin: at.of("sin"),
                out: at.of("out"),
                rank: word(rank),
                dim: word(dim),
                pairs: word(pairs),
                round: 1,
                eps,
                pad: 0,
            };
            let slices = dim.div_ceil(SLICE) + if queries { rank.div_ceil(SLICE) } else { 0 };
            (args.bytes(), [word(rows.len()), word(slices)])
        })
        .want(want)
        .fault("QUANT_WRONG_SCALE", Gate::Reference)
        .fault("MISSING_BARRIER", Gate::Rows);
    if queries && f32s { case.strike("qr", 3, f32::NAN, Rule::Nan("normed")) } else { case }
}
