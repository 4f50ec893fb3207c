//! The latents' norms and what follows them.

use finback_numerics::{bf16, quant, rows as packed};

use super::super::case::{Case, Gate, Rule, Want, bytes};
use super::super::data::Data;
use super::word;
use crate::args::{Args, LatentsArgs};

pub fn cases() -> Vec<Case> {
    vec![finish_latents(true), finish_latents(false)]
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

fn finish_latents(queries: bool) -> Case {
    let (rows, rank, dim, pairs, eps) = (3, 160, 192, 8, 1e-20f32);
    let mut data = Data::new(29);
    let (qr, kv) = (data.floats(rows * rank, 2.0), data.floats(rows * dim, 2.0));
    let (q_norm, kv_norm) = (data.between(rank, 0.5, 1.5), data.between(dim, 0.5, 1.5));
    let angles = data.between(rows * pairs, -3.0, 3.0);
    let cos: Vec<f32> = angles.iter().map(|a| a.cos()).collect();
    let sin: Vec<f32> = angles.iter().map(|a| a.sin()).collect();
    let (q, k, qn, kn) = (qr.clone(), kv.clone(), q_norm.clone(), kv_norm.clone());
    let (c, s) = (cos.clone(), sin.clone());
    let want = move |row: usize| {
        let mut x = normed(&k[row * dim..(row + 1) * dim], &kn, eps);
        for (i, pair) in x[dim - 2 * pairs..].chunks_exact_mut(2).enumerate() {
            let (c, s, even, odd) = (c[row * pairs + i], s[row * pairs + i], pair[0], pair[1]);
            pair[0] = bf16::round(even * c - odd * s);
            pair[1] = bf16::round(even * s + odd * c);
        }
        let mut window = vec![0; packed::window_bytes(dim)];
        packed::store_window(&x, &mut window);
        if !queries {
            return vec![Want::Bytes(window)];
        }
        let x = normed(&q[row * rank..(row + 1) * rank], &qn, eps);
        let (mut codes, mut scales) = (vec![0; rank], vec![0; rank / 32]);
        quant::fp8_block32(&x, &mut codes, &mut scales);
        let mut lifted = vec![0.0; rank];
        quant::fp8_block32_lift(&codes, &scales, &mut lifted);
        let halves = |x: &[f32]| bytes(&x.iter().map(|&x| bf16::encode(x)).collect::<Vec<u16>>());
        let outs = [bytes(&x), halves(&x), halves(&lifted), window];
        outs.into_iter().map(Want::Bytes).collect()
    };
    let case = Case::new("finish_latents", format!("{rows} rows, queries: {queries}"), rows);
    let case = match queries {
        true => case.in_place("qr", &qr).out("plain", rank * 2).out("coded", rank * 2),
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
            (args.bytes(), [word(rows.len()), 1 + u32::from(queries)])
        })
        .want(want)
        .fault("QUANT_WRONG_SCALE", Gate::Reference)
        .fault("MISSING_BARRIER", Gate::Rows);
    if !queries { case } else { case.strike("qr", 3, f32::NAN, Rule::Nan("qr")) }
}
