//! The first products of one row's experts, gated by the launch that makes them.

use finback_numerics::{bf16, math};

use super::super::case::{Case, Gate, Rule, Want, bytes};
use super::super::data::{Data, coded_row};
use super::arrange::{SIDE, Weight, draw};
use super::word;
use crate::args::{Args, format};
use crate::tiles::{Gated, Tiles, row_bytes, step_inputs};

/// What gates are bounded by.
const LIMIT: f32 = 2.5;
/// Weights that places take by turns.
const WEIGHTS: usize = 3;

pub fn cases() -> Vec<Case> {
    // More steps than a ring has, an odd number of them; several steps of channels.
    vec![gated(4, 17, 128), gated(5, 4, 256)]
}

/// What a place's channel is: every sum has one term a step, so that it is exact up to its rounding.
fn channel(weight: &Weight, x: &[f32], (gate, up): (usize, usize), share: f32) -> f32 {
    let sum = |output: usize| {
        let own = &weight.stepped[output * x.len()..(output + 1) * x.len()];
        let terms = own.iter().zip(x).filter(|(_, x)| **x != 0.0);
        let total =
            terms.fold(0.0f32, |total, (w, x)| (w * f64::from(*x) + f64::from(total)) as f32);
        bf16::round(total)
    };
    let (gate, up) = (sum(gate).min(LIMIT), sum(up).clamp(-LIMIT, LIMIT));
    bf16::round(math::silu(gate) * up * share)
}

/// The case's rows are the places of one row, each with a weight and a share.
fn gated(places: usize, steps: usize, channels: usize) -> Case {
    let (kernel, inputs) = ("tile_fp4_gated", steps * step_inputs(format::FP4));
    let mut data = Data::new(95 + steps as u64);
    let shape = (inputs, 2 * channels);
    let Some(tiles) = Tiles::new(format::FP4, SIDE, inputs, 2 * channels) else {
        return Case::new(kernel, "a shape that does not fit", 0);
    };
    let weights: Vec<Weight> =
        (0..WEIGHTS).map(|_| draw(&mut data, format::FP4, SIDE, shape)).collect();
    let all: Vec<u8> = weights.iter().flat_map(|weight| weight.tiles.clone()).collect();
    // The one input of a step that is not zero, in a block of its own each time.
    let x: Vec<f32> = (0..inputs)
        .map(|k| if k % 128 == k / 128 * 37 % 128 { (k % 5 + 2) as f32 } else { 0.0 })
        .collect();
    let shares = data.between(places, 0.1, 1.0);
    let row = coded_row(&x);
    let own = shares.clone();
    let name = format!("{places} places of {WEIGHTS} weights, {inputs} to {channels}");
    Case::new(kernel, name, places)
        .shared("weight", &all)
        .shared("x", &row)
        .row("shares", &shares)
        .made("groups", move |rows| {
            let parts = rows.iter().enumerate().map(|(i, &row)| [row % WEIGHTS, i, i + 1]);
            let mut groups: Vec<u32> = parts.flatten().map(word).collect();
            // One more, which has no row.
            groups.resize(3 * (rows.len() + 1), 0);
            bytes(&groups)
        })
        .strided("coded", channels + channels / 32, row_bytes(true, channels), 0)
        .launch(move |at, rows| {
            let row = Gated {
                x: at.of("x"),
                groups: at.of("groups"),
                shares: at.of("shares"),
                coded: at.of("coded"),
                limit: LIMIT,
                round: true,
            };
            let planned = tiles.gated(at.of("weight"), &row, rows.len() + 1, 132);
            planned.map_or((Vec::new(), [0, 0]), |(_, args, grid)| (args.bytes(), grid))
        })
        .want(move |row| {
            let weight = &weights[row % WEIGHTS];
            let made: Vec<f32> =
                (0..channels).map(|c| channel(weight, &x, (c, channels + c), own[row])).collect();
            vec![Want::Bytes(coded_row(&made))]
        })
        .strike(
            "shares",
            0,
            f32::NAN,
            Rule::Check("coded", |_, after| {
                after[..after.len() / 33 * 32].iter().all(|code| *code == 0x7f)
            }),
        )
        .fault("SWIGLU_NO_LIMIT", Gate::Reference)
        .fault("QUANT_WRONG_SCALE", Gate::Reference)
        .fault("TILE_DROPPED_STEP", Gate::Reference)
        .fault("TILE_WRONG_ENTRY", Gate::Reference)
        .fault("TILE_WRONG_SCALE", Gate::Reference)
}
