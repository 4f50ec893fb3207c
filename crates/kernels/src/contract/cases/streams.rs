//! The residual streams: embedding, hyper-connections, taps, Engram.

use finback_numerics::{bf16, fp8};

use super::super::case::{Case, Gate, Rule, Want, bytes, encoded};
use super::super::data::{Data, UNIT, gamma, group_depth, near, nears};
use super::{by_row, by_slice, word};
use crate::args::{
    Args, CollapseArgs, EmbedArgs, EngramGateArgs, EngramGatherArgs, HyperInArgs, HyperOutArgs,
    TapArgs, format,
};

pub fn cases() -> Vec<Case> {
    vec![
        embed(format::BF16, true),
        embed(format::BF16, false),
        embed(format::F32, true),
        collapse(true),
        collapse(false),
        tap(true),
        tap(false),
        hyper_in(true),
        hyper_in(false),
        hyper_out(true),
        hyper_out(false),
        engram_gather(),
        engram_gate(true),
        engram_gate(false),
    ]
}

const WIDTH: usize = 520;
const HC: usize = 4;

fn embed(kind: u32, round: bool) -> Case {
    let (rows, vocab) = (5, 9);
    let mut data = Data::new(1);
    let values = data.kept(vocab * WIDTH, 2.0, kind == format::BF16);
    let tokens = data.below(rows, vocab);
    let table = if kind == format::BF16 { bytes(&encoded(&values)) } else { bytes(&values) };
    let ids = tokens.clone();
    let shape = format!("{rows} rows of {HC} streams of {WIDTH}, format {kind}, rounded: {round}");
    Case::new("embed", shape, rows)
        .shared("table", &table)
        .row("tokens", &tokens)
        .out_kept("streams", HC * WIDTH, round)
        .out("pre", HC * 4)
        .launch(move |at, rows| {
            let args = EmbedArgs {
                table: at.of("table"),
                tokens: at.of("tokens"),
                streams: at.of("streams"),
                pre: at.of("pre"),
                width: word(WIDTH),
                hc: word(HC),
                format: kind,
                round: round.into(),
            };
            (args.bytes(), by_slice(rows, WIDTH))
        })
        .want(move |row| {
            let from = ids[row] as usize * WIDTH;
            let one = values[from..from + WIDTH].repeat(HC);
            let streams = if round { bytes(&encoded(&one)) } else { bytes(&one) };
            vec![Want::Bytes(streams), Want::Bytes(bytes(&[1.0f32, 0.0, 0.0, 0.0]))]
        })
        .fault("EMBED_DROPPED_STREAM", Gate::Writes)
}

/// `sum_i pre_i X_i` of channel `k` as the kernel adds it.
fn collapsed(streams: &[f32], pre: &[f32], k: usize, round: bool) -> f32 {
    let sum =
        pre.iter().enumerate().fold(0.0, |sum, (i, p)| p.mul_add(streams[i * WIDTH + k], sum));
    if round { bf16::round(sum) } else { sum }
}

fn collapse(round: bool) -> Case {
    let rows = 5;
    let mut data = Data::new(2);
    let streams = data.kept(rows * HC * WIDTH, 3.0, round);
    let pre = data.between(rows * HC, 0.0, 1.0);
    let (x, p) = (streams.clone(), pre.clone());
    Case::new("collapse", format!("{rows} rows, rounded: {round}"), rows)
        .row_kept("streams", &streams, round)
        .row("pre", &pre)
        .out("out", WIDTH * 4)
        .launch(move |at, rows| {
            let args = CollapseArgs {
                streams: at.of("streams"),
                pre: at.of("pre"),
                out: at.of("out"),
                width: word(WIDTH),
                hc: word(HC),
                round: round.into(),
                pad: 0,
            };
            (args.bytes(), by_slice(rows, WIDTH))
        })
        .want(move |row| {
            let (x, p) = (&x[row * HC * WIDTH..], &p[row * HC..(row + 1) * HC]);
            vec![nears((0..WIDTH).map(|k| {
                let term = |i: usize| f64::from(p[i]) * f64::from(x[i * WIDTH + k]);
                let (value, size) =
                    (0..HC).fold((0.0, 0.0), |(v, s), i| (v + term(i), s + term(i).abs()));
                near(value, size * gamma(HC), round)
            }))]
        })
        .strike("streams", WIDTH + 3, f32::NAN, Rule::NanAt("out", 3))
        .strike("pre", 1, f32::NAN, Rule::Nan("out"))
        .fault("COLLAPSE_DROPPED_STREAM", Gate::Reference)
}

fn tap(round: bool) -> Case {
    let (rows, taps, which) = (3, 3, 1);
    let streams = Data::new(3).kept(rows * HC * WIDTH, 3.0, round);
    let x = streams.clone();
    let shape = format!("{rows} rows, column {which} of {taps}, rounded: {round}");
    Case::new("tap", shape, rows)
        .row_kept("streams", &streams, round)
        .strided("out", WIDTH * 4, taps * WIDTH * 4, which * WIDTH * 4)
        .launch(move |at, rows| {
            let args = TapArgs {
                streams: at.of("streams"),
                out: at.of("out"),
                width: word(WIDTH),
                hc: word(HC),
                stride: word(taps * WIDTH),
                at: word(which * WIDTH),
                round: round.into(),
                pad: 0,
            };
            (args.bytes(), by_slice(rows, WIDTH))
        })
        .want(move |row| {
            vec![nears((0..WIDTH).map(|k| {
                let at = |i: usize| f64::from(x[(row * HC + i) * WIDTH + k]);
                let sum: f64 = (0..HC).map(at).sum();
                let size: f64 = (0..HC).map(|i| at(i).abs()).sum();
                near(sum / HC as f64, size / HC as f64 * gamma(HC), round)
            }))]
        })
        .strike("streams", 2 * WIDTH + 7, f32::NAN, Rule::NanAt("out", 7))
        .fault("TAP_WRONG_SCALE", Gate::Reference)
}

fn hyper_in(round: bool) -> Case {
    let (rows, mixes, iterations) = (4, (2 + HC) * HC, 20);
    let (eps, hc_eps, scale) = (1e-20f32, 1e-6f32, [0.9f32, 1.1, 0.7]);
    let mut data = Data::new(4);
    let streams = data.kept(rows * HC * WIDTH, 2.0, round);
    let mix = data.floats(rows * mixes, 3.0);
    let (base, norm) = (data.floats(mixes, 1.0), data.between(WIDTH, 0.5, 1.5));
    let pre = data.between(rows * HC, 0.1, 1.0);
    let (s, m, b, n, p) = (streams.clone(), mix.clone(), base.clone(), norm.clone(), pre.clone());
    let want = move |row: usize| {
        let (s, m) = (&s[row * HC * WIDTH..(row + 1) * HC * WIDTH], &m[row * mixes..]);
        let p = &p[row * HC..(row + 1) * HC];
        let square = |x: &[f32]| x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
        let inverse = |x: &[f32]| 1.0 / (square(x) / x.len() as f64 + f64::from(eps)).sqrt();

        // From the collapse's own bits on: its rounding to bf16 would hide the norm's error.
        let x: Vec<f32> = (0..WIDTH).map(|k| collapsed(s, p, k, round)).collect();
        let by = inverse(&x);
        let x = nears(x.iter().zip(&n).map(|(&x, &n)| {
            let value = f64::from(x) * by * f64::from(n);
            near(value, value.abs() * gamma(group_depth(WIDTH) + 7), round)
        }));

        let by = inverse(s);
        let logit = |i: usize, part: usize| {
            let scaled = f64::from(m[i]) * by * f64::from(scale[part]);
            let error = scaled.abs() * gamma(group_depth(HC * WIDTH) + 7) + UNIT * 4.0;
            (scaled + f64::from(b[i]), error)
        };
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        // A sigmoid's slope is at most its value, and 1/4.
        let pres = nears((0..HC).map(|i| {
            let (x, error) = logit(i, 0);
            near(sigmoid(x) + f64::from(hc_eps), error + 6.0 * UNIT, false)
        }));
        let posts = nears((0..HC).map(|i| {
            let (x, error) = logit(HC + i, 1);
            near(2.0 * sigmoid(x), 2.0 * (error + 6.0 * UNIT), false)
        }));
        let logits: Vec<(f64, f64)> = (0..HC * HC).map(|i| logit(2 * HC + i, 2)).collect();
        let worst = logits.iter().fold(0.0, |w: f64, (x, e)| w.max(*e + 2.0 * x.abs() * UNIT));
        let comb = sinkhorn(&logits.iter().map(|l| l.0).collect::<Vec<_>>(), iterations, hc_eps);
        // Scaling rows and columns does not stretch the ratios of entries (Hilbert's metric), so
        // errors add up: the logits' and each division's own.
        let relative = 4.0 * (worst + gamma(2 * iterations * (HC + 3)));
        let combs = nears(comb.iter().map(|&c| near(c, c * relative, false)));
        // Outputs in order of the case's buffers.
        vec![pres, posts, combs, x]
    };
    Case::new("hyper_in", format!("{rows} rows of {HC} streams of {WIDTH}, rounded: {round}"), rows)
        .row_kept("streams", &streams, round)
        .row("mix", &mix)
        .shared("base", &base)
        .shared("norm", &norm)
        .in_place("pre", &pre)
        .out("post", HC * 4)
        .out("comb", HC * HC * 4)
        .out("x", WIDTH * 4)
        .launch(move |at, rows| {
            let args = HyperInArgs {
                streams: at.of("streams"),
                mix: at.of("mix"),
                base: at.of("base"),
                norm: at.of("norm"),
                pre: at.of("pre"),
                post: at.of("post"),
                comb: at.of("comb"),
                x: at.of("x"),
                width: word(WIDTH),
                hc: word(HC),
                iterations: word(iterations),
                round: round.into(),
                eps,
                hc_eps,
                scale_pre: scale[0],
                scale_post: scale[1],
                scale_comb: scale[2],
                pad: 0,
            };
            (args.bytes(), by_row(rows))
        })
        .want(want)
        .strike("streams", 9, f32::NAN, Rule::Nan("x"))
        .strike("streams", 9, f32::NAN, Rule::Nan("comb"))
        .strike("mix", 1, f32::NAN, Rule::NanAt("pre", 1))
        .strike("mix", HC, f32::NAN, Rule::NanAt("post", 0))
        .strike("mix", 1, f32::NAN, Rule::Same("x"))
        .fault("SINKHORN_DROPPED_ROUND", Gate::Reference)
        .fault("SINKHORN_MISSING_BARRIER", Gate::Rows)
        .fault("MISSING_BARRIER", Gate::Rows)
}

/// Model-spec section 4 in f64.
pub fn sinkhorn(logits: &[f64], iterations: usize, eps: f32) -> Vec<f64> {
    let eps = f64::from(eps);
    let mut c = logits.to_vec();
    let hc = c.len().isqrt();
    for row in c.chunks_exact_mut(hc) {
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        row.iter_mut().for_each(|c| *c = (*c - top).exp());
        let sum: f64 = row.iter().sum();
        row.iter_mut().for_each(|c| *c = *c / sum + eps);
    }
    for round in 0..iterations {
        if round > 0 {
            for row in c.chunks_exact_mut(hc) {
                let sum: f64 = row.iter().sum::<f64>() + eps;
                row.iter_mut().for_each(|c| *c /= sum);
            }
        }
        for j in 0..hc {
            let sum: f64 = (0..hc).map(|i| c[i * hc + j]).sum::<f64>() + eps;
            (0..hc).for_each(|i| c[i * hc + j] /= sum);
        }
    }
    c
}

fn hyper_out(round: bool) -> Case {
    let rows = 4;
    let mut data = Data::new(5);
    let streams = data.kept(rows * HC * WIDTH, 2.0, round);
    let y = data.floats(rows * WIDTH, 2.0);
    let (post, comb) = (data.between(rows * HC, 0.0, 2.0), data.between(rows * HC * HC, 0.0, 1.0));
    let (s, v, p, c) = (streams.clone(), y.clone(), post.clone(), comb.clone());
    let want = move |row: usize| {
        vec![nears((0..HC * WIDTH).map(|at| {
            let (j, k) = (at / WIDTH, at % WIDTH);
            let own = f64::from(p[row * HC + j]) * f64::from(v[row * WIDTH + k]);
            let terms = (0..HC).map(|i| {
                f64::from(c[(row * HC + i) * HC + j]) * f64::from(s[(row * HC + i) * WIDTH + k])
            });
            let (value, size) =
                terms.fold((own, own.abs()), |(value, size), t| (value + t, size + t.abs()));
            near(value, size * gamma(HC + 1), round)
        }))]
    };
    let shape = format!("{rows} rows of {HC} streams of {WIDTH}, rounded: {round}");
    Case::new("hyper_out", shape, rows)
        .in_place_kept("streams", &streams, round)
        .row("y", &y)
        .row("post", &post)
        .row("comb", &comb)
        .launch(move |at, rows| {
            let args = HyperOutArgs {
                streams: at.of("streams"),
                y: at.of("y"),
                post: at.of("post"),
                comb: at.of("comb"),
                width: word(WIDTH),
                hc: word(HC),
                round: round.into(),
                pad: 0,
            };
            (args.bytes(), by_slice(rows, WIDTH))
        })
        .want(want)
        .strike("comb", 0, f32::NAN, Rule::NanIn("streams", 0, WIDTH))
        .strike("post", 1, f32::NAN, Rule::NanIn("streams", WIDTH, WIDTH))
        .fault("EXPAND_TRANSPOSED", Gate::Reference)
}

fn engram_gather() -> Case {
    let (rows, columns, dim, table_rows) = (3, 9, 64, 17);
    let mut data = Data::new(6);
    let (table, scales) = (data.e4m3(table_rows * dim), data.e8m0(table_rows * dim / 32, 0));
    let ids: Vec<u64> = data.below(rows * columns, table_rows).into_iter().map(u64::from).collect();
    let (codes, exponents, hashed) = (table.clone(), scales.clone(), ids.clone());
    Case::new("engram_gather", format!("{rows} rows of {columns} columns of {dim}"), rows)
        .shared("table", &table)
        .shared("scales", &scales)
        .row("ids", &ids)
        .out("out", columns * dim * 4)
        .launch(move |at, rows| {
            let args = EngramGatherArgs {
                table: at.of("table"),
                scales: at.of("scales"),
                ids: at.of("ids"),
                out: at.of("out"),
                columns: word(columns),
                dim: word(dim),
            };
            (args.bytes(), by_slice(rows, columns * dim))
        })
        .want(move |row| {
            let value = |at: usize| {
                let from = hashed[row * columns + at / dim] as usize * dim + at % dim;
                fp8::decode(codes[from]) * fp8::e8m0(exponents[from / 32])
            };
            let values: Vec<f32> = (0..columns * dim).map(value).collect();
            vec![Want::Bytes(bytes(&values))]
        })
        .fault("ENGRAM_WRONG_SCALE", Gate::Reference)
}

fn engram_gate(round: bool) -> Case {
    // More channels than a group has on their way at a time.
    const WIDTH: usize = 1100;
    let (rows, eps) = (3, 1e-20f32);
    let mut data = Data::new(8);
    let streams = data.kept(rows * HC * WIDTH, 2.0, round);
    let kv = data.floats(rows * (HC + 1) * WIDTH, 2.0);
    let qk = data.between(HC * WIDTH, -0.5, 1.0);
    let (h, k, w) = (streams.clone(), kv.clone(), qk.clone());
    let want = move |row: usize| {
        let lift = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
        let mut values = Vec::with_capacity(HC * WIDTH);
        for i in 0..HC {
            let h = lift(&h[(row * HC + i) * WIDTH..][..WIDTH]);
            let key = lift(&k[(row * (HC + 1) + i) * WIDTH..][..WIDTH]);
            let value = lift(&k[(row * (HC + 1) + HC) * WIDTH..][..WIDTH]);
            let qk = lift(&w[i * WIDTH..][..WIDTH]);
            let inverse = |x: &[f64]| {
                1.0 / (x.iter().map(|x| x * x).sum::<f64>() / WIDTH as f64 + f64::from(eps)).sqrt()
            };
            let terms: Vec<f64> = (0..WIDTH).map(|c| h[c] * qk[c] * key[c]).collect();
            let by = inverse(&h) * inverse(&key) / (WIDTH as f64).sqrt();
            let size = terms.iter().map(|t| t.abs()).sum::<f64>() * by;
            let found = terms.iter().sum::<f64>() * by;
            let error = size * gamma(3 * group_depth(WIDTH) + 20);
            let root = |x: f64| x.abs().max(1e-6).sqrt().copysign(x);
            let gate = |x: f64| 1.0 / (1.0 + (-root(x)).exp());
            // The gate rises with the match, so its ends bound it.
            let spread = gate(found + error) - gate(found - error) + 8.0 * UNIT;
            values.extend((0..WIDTH).map(|c| {
                let x = h[c] + gate(found) * value[c];
                near(x, value[c].abs() * spread + UNIT * x.abs(), round)
            }));
        }
        vec![Want::Near(values)]
    };
    Case::new(
        "engram_gate",
        format!("{rows} rows of {HC} streams of {WIDTH}, rounded: {round}"),
        rows,
    )
    .in_place_kept("streams", &streams, round)
    .row("kv", &kv)
    .shared("qk", &qk)
    .launch(move |at, rows| {
        let args = EngramGateArgs {
            streams: at.of("streams"),
            kv: at.of("kv"),
            qk: at.of("qk"),
            width: word(WIDTH),
            hc: word(HC),
            eps,
            round: round.into(),
        };
        (args.bytes(), [word(HC), word(rows.len())])
    })
    .want(want)
    .strike("streams", WIDTH + 2, f32::NAN, Rule::NanIn("streams", WIDTH, WIDTH))
    .strike("kv", 5, f32::NAN, Rule::NanIn("streams", 0, WIDTH))
    .fault("ENGRAM_NO_SIGN", Gate::Reference)
    .fault("MISSING_BARRIER", Gate::Rows)
}
