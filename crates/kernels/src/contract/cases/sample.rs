//! The choice of tokens, and the drafter's Markov term.

use finback_numerics::bf16;
use finback_numerics::sample::{Params, Scratch, choose};

use super::super::case::{Case, Gate, Rule, Want, bytes};
use super::super::data::{Data, gamma, group_depth, near};
use super::{by_row, word};
use crate::args::{AddArgs, Args, ChooseArgs, MarkovArgs, format};

pub fn cases() -> Vec<Case> {
    vec![choices(300), choices(33), add_rows(), markov()]
}

/// Rows of every kind of filter, and one that has no choice.
fn choices(vocab: usize) -> Case {
    let params: Vec<Params> = [
        (0.0, 0, 1.0, 0.0),
        (1.0, 0, 1.0, 0.0),
        (0.7, 5, 1.0, 0.0),
        (1.3, 0, 0.8, 0.0),
        (1.0, 20, 0.5, 0.0),
        (2.0, 0, 1.0, 0.1),
        (1.0, 40, 0.95, 0.05),
        (3.0, 1, 1.0, 0.0),
        (0.0, 0, 1.0, 0.0),
        (1.0, 0, 1.0, 0.0),
    ]
    .iter()
    .enumerate()
    .map(|(i, &(temperature, top_k, top_p, min_p))| Params {
        temperature,
        top_k,
        top_p,
        min_p,
        seed: 77 + i as u64 * 0x1_0000_0001,
    })
    .collect();
    let rows = params.len();
    let mut logits = Data::new(70).floats(rows * vocab, 6.0);
    // Few values, so that filters and the greedy choice end among ties, zeros of both signs among
    // them; and a row with an infinity.
    logits[..3 * vocab].iter_mut().for_each(|x| *x = (*x * 0.5).round());
    logits[8 * vocab] = f32::INFINITY;
    let positions: Vec<u64> = (0..rows as u64).map(|i| 1000 + i * 0x2_0000_0003).collect();
    let words: Vec<u32> = params
        .iter()
        .flat_map(|p| [p.temperature.to_bits(), p.top_k, p.top_p.to_bits(), p.min_p.to_bits()])
        .collect();
    let seeds: Vec<u64> = params.iter().map(|p| p.seed).collect();
    let (x, at) = (logits.clone(), positions.clone());
    Case::new("choose", format!("{rows} rows of {vocab}"), rows)
        .row("logits", &logits)
        .row("seeds", &seeds)
        .row("positions", &positions)
        .row("params", &words)
        .out("choices", 4)
        .launch(move |at, rows| {
            let args = ChooseArgs {
                logits: at.of("logits"),
                seeds: at.of("seeds"),
                positions: at.of("positions"),
                params: at.of("params"),
                choices: at.of("choices"),
                vocab: word(vocab),
                stride: word(vocab),
            };
            (args.bytes(), by_row(rows))
        })
        .want(move |row| {
            let logits = &x[row * vocab..][..vocab];
            let choice = choose(logits, &params[row], at[row], &mut Scratch::default());
            vec![Want::Bytes(bytes(&[choice.unwrap_or(u32::MAX)]))]
        })
        .strike("logits", 30, f32::NAN, Rule::Check("choices", |_, after| after == [255; 4]))
        .strike(
            "logits",
            30,
            f32::NEG_INFINITY,
            Rule::Check("choices", |_, after| after == [255; 4]),
        )
        .fault("CHOOSE_TIES_HIGH", Gate::Reference)
        .fault("CHOOSE_NO_FILTER", Gate::Reference)
}

fn add_rows() -> Case {
    let (rows, width) = (3, 140);
    let mut data = Data::new(71);
    let (x, term) = (data.floats(rows * width, 3.0), data.floats(rows * width, 3.0));
    let (a, b) = (x.clone(), term.clone());
    Case::new("add_rows", format!("{rows} rows of {width}"), rows)
        .in_place("x", &x)
        .row("term", &term)
        .launch(move |at, rows| {
            let args = AddArgs {
                x: at.of("x"),
                term: at.of("term"),
                width: word(width),
                x_stride: word(width),
            };
            (args.bytes(), by_row(rows))
        })
        .want(move |row| {
            let own = row * width..(row + 1) * width;
            let sums: Vec<f32> = a[own.clone()].iter().zip(&b[own]).map(|(a, b)| a + b).collect();
            vec![Want::Bytes(bytes(&sums))]
        })
        .strike("term", 9, f32::NAN, Rule::NanAt("x", 9))
        .fault("ADD_DROPPED", Gate::Reference)
}

fn markov() -> Case {
    let (rows, vocab, rank, width) = (3, 7, 20, 150);
    let mut data = Data::new(72);
    let table: Vec<u16> = data.floats(vocab * rank, 1.0).into_iter().map(bf16::encode).collect();
    let tokens = data.below(rows, vocab);
    let h = data.floats(rows * width, 2.0);
    let projection = data.floats(width + rank, 1.0);
    let (t, ids, x, p) = (table.clone(), tokens.clone(), h.clone(), projection.clone());
    let want = move |row: usize| {
        let embed: Vec<f32> =
            t[ids[row] as usize * rank..][..rank].iter().map(|&b| bf16::lift(b)).collect();
        let joined = [&x[row * width..(row + 1) * width], &embed].concat();
        let terms = || joined.iter().zip(&p).map(|(x, p)| f64::from(*x) * f64::from(*p));
        let size: f64 = terms().map(f64::abs).sum();
        let bound = size * gamma(group_depth(width) + 1);
        vec![Want::Bytes(bytes(&embed)), Want::Near(vec![near(terms().sum(), bound, false)])]
    };
    Case::new("markov", format!("{rows} rows of {width} and {rank}"), rows)
        .shared("table", &table)
        .row("tokens", &tokens)
        .row("h", &h)
        .shared("projection", &projection)
        .out("embed", rank * 4)
        .out("confidence", 4)
        .launch(move |at, rows| {
            let args = MarkovArgs {
                table: at.of("table"),
                tokens: at.of("tokens"),
                h: at.of("h"),
                projection: at.of("projection"),
                embed: at.of("embed"),
                confidence: at.of("confidence"),
                width: word(width),
                rank: word(rank),
                format: format::BF16,
                pad: 0,
            };
            (args.bytes(), by_row(rows))
        })
        .want(want)
        .strike("h", 149, f32::NAN, Rule::Nan("confidence"))
        .strike("h", 149, f32::NAN, Rule::Same("embed"))
        .fault("MARKOV_DROPPED_EMBED", Gate::Reference)
        .fault("MISSING_BARRIER", Gate::Rows)
}
