//! Elementary functions and the norm.

use finback_numerics::{bf16, fp4, fp8, math};

use super::super::case::{Case, Gate, Rule, Want, floats};
use super::super::data::{Data, gamma, group_depth, near, nears};
use super::{by_row, word};
use crate::args::{Args, ElementaryArgs, RmsnormArgs};

pub fn cases() -> Vec<Case> {
    let functions: [(&str, Function); 9] = [
        ("exp", math::exp),
        ("ln", math::ln),
        ("log1p", math::log1p),
        ("softplus", math::softplus),
        ("sigmoid", math::sigmoid),
        ("silu", math::silu),
        ("bf16", bf16::round),
        ("e4m3", fp8::round),
        ("e2m1", fp4::round),
    ];
    let elementary = functions.into_iter().enumerate().map(|(i, (name, f))| elementary(i, name, f));
    elementary.chain([rmsnorm(100, true), rmsnorm(520, false)]).collect()
}

/// An elementary function of f32.
type Function = fn(f32) -> f32;

fn elementary(index: usize, name: &str, f: Function) -> Case {
    let mut data = Data::new(7);
    let mut x = data.floats(40, 3.0);
    x.extend(data.floats(40, 100.0));
    let limits =
        [0.0, -0.0, 1.0, -1.0, 448.0, 6.0, 88.8, -103.5, -104.5, f32::MAX, f32::MIN_POSITIVE];
    x.extend(limits.iter().chain(&[f32::INFINITY, 1e-40, 0.25, 0.75, 2.5, 5.0, 464.0]));
    if !name.starts_with(['l', 's']) {
        // Elsewhere the limit is a NaN, whose bits are the device's own.
        x.push(f32::NEG_INFINITY);
    }
    x.retain(|&x| f(x).is_finite() || !f(x).is_nan());
    let rows = x.len();
    let values = x.clone();
    Case::new("elementary", name, rows)
        .row("x", &x)
        .out("out", 4)
        .launch(move |at, rows| {
            let count = word(rows.len());
            let args =
                ElementaryArgs { x: at.of("x"), out: at.of("out"), count, function: word(index) };
            (args.bytes(), [count.div_ceil(128), 1])
        })
        .want(move |row| vec![Want::Bytes(f(values[row]).to_ne_bytes().to_vec())])
        .strike("x", 0, f32::NAN, Rule::NanAt("out", 0))
        .fault("MATH_LAST_BIT", Gate::Reference)
}

fn rmsnorm(width: usize, round: bool) -> Case {
    let (rows, eps) = (6, 1e-20f32);
    let mut data = Data::new(width as u64);
    let (x, w) = (data.floats(rows * width, 4.0), data.between(width, 0.5, 1.5));
    let (inputs, weights) = (x.clone(), w.clone());
    let want = move |row: usize| {
        let x = &inputs[row * width..(row + 1) * width];
        let sum: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
        let inverse = 1.0 / (sum / width as f64 + f64::from(eps)).sqrt();
        // The sum's error halves under the root; six more operations follow.
        let relative = gamma(group_depth(width) + 7);
        vec![nears(x.iter().zip(&weights).map(|(&x, &w)| {
            let value = f64::from(x) * inverse * f64::from(w);
            near(value, value.abs() * relative, round)
        }))]
    };
    Case::new("rmsnorm", format!("{rows} rows of {width}"), rows)
        .row("x", &x)
        .shared("weight", &w)
        .out("out", width * 4)
        .launch(move |at, rows| {
            let args = RmsnormArgs {
                x: at.of("x"),
                weight: at.of("weight"),
                out: at.of("out"),
                width: word(width),
                eps,
                round: round.into(),
                pad: 0,
            };
            (args.bytes(), by_row(rows))
        })
        .want(want)
        .strike("x", 5, f32::NAN, Rule::Nan("out"))
        .strike("x", 5, f32::INFINITY, Rule::Check("out", zeros_but_one))
        .fault("NORM_NEIGHBOUR_ROW", Gate::Rows)
        .fault("NORM_UNWRITTEN", Gate::Writes)
        .fault("MISSING_BARRIER", Gate::Rows)
}

/// An infinite mean makes every value a zero but the infinity's own.
fn zeros_but_one(_: &[u8], after: &[u8]) -> bool {
    let after = floats(after);
    after.iter().enumerate().all(|(k, x)| if k == 5 { x.is_nan() } else { *x == 0.0 })
}
