//! Products of rows and weights in tiles on tensor cores.

use super::super::case::{Addresses, Case, Gate, Rule, Want, bytes};
use super::super::data::{Data, UNIT, near, nears};
use super::arrange::{Inputs, SIDE, Weight, draw, inputs_of};
use super::word;
use crate::args::{Args, format};
use crate::tiles::{Groups, Rows, Tiles, Way, step_inputs};

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in [format::FP8, format::FP4, format::BF16, format::LIFTED] {
        // Steps of a sum: one; turns of four and what is left of one; more than a ring holds.
        cases.push(product(kind, (1, 24), 7, By::Few));
        cases.push(product(kind, (9, 40), 8, By::Few));
        cases.push(product(kind, (70, 24), 3, By::Few));
        cases.push(product(kind, (1, 24), 9, By::Some));
        cases.push(product(kind, (6, 24), 24, By::Some));
        cases.push(product(kind, (9, 40), 30, By::Some));
        cases.push(product(kind, (3, 72), 17, By::Some));
        // So many tiles that each group has several.
        cases.push(product(kind, (6, 840), 2, By::Few));
        // So few that two warpgroups share each, and some groups have two.
        cases.push(product(kind, (6, 90), 3, By::Few));
        cases.push(product(kind, (5, 136), 140, By::Many));
        cases.push(grouped(kind, By::Few));
        cases.push(grouped(kind, By::Some));
        cases.push(grouped(kind, By::Many));
        cases.push(single(kind, By::Few));
        cases.push(single(kind, By::Some));
        cases.push(each(kind, By::Few));
        cases.push(each(kind, By::Some));
        cases.push(each(kind, By::Many));
        cases.push(split(kind));
    }
    for kind in [format::FP8, format::BF16] {
        cases.push(product(kind, (1, 24), 5, By::Eight));
        cases.push(product(kind, (9, 72), 8, By::Eight));
        // So many tiles that each warpgroup takes its own.
        cases.push(product(kind, (2, 136), 5, By::Eight));
        cases.push(product(kind, (70, 24), 6, By::Eight));
        cases.push(each(kind, By::Eight));
    }
    // Rows in parts, as there is no tile for each group.
    for kind in [format::FP8, format::BF16, format::LIFTED] {
        cases.push(product(kind, (5, 24), 20, By::Few));
    }
    // More outputs than are done together, so that a piece begins where another ends, and an odd number of steps, more
    // than the ring holds.
    cases.push(product(format::FP4, (1, 3096), 84, By::Many));
    cases.push(product(format::FP4, (15, 520), 60, By::Many));
    cases.push(product(format::FP8, (7, 264), 84, By::Many));
    // Pieces of the other sizes: of outputs where these are many, else of rows.
    for kind in [format::FP8, format::BF16] {
        for (outputs, rows) in [(24, 190), (100, 140), (200, 250), (250, 140)] {
            cases.push(product(kind, (1, outputs), rows, By::Many));
        }
    }
    for kind in [format::FP4, format::LIFTED] {
        for rows in [24, 31, 40, 47, 55, 72, 80] {
            cases.push(product(kind, (2, 24), rows, By::Many));
        }
    }
    cases.push(product(format::LIFTED, (2, 24), 64, By::Many));
    cases
}

/// Which of the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Few,
    Eight,
    Some,
    Many,
}

impl By {
    fn kernel(self, kind: u32) -> &'static str {
        let [fp8, fp4, bf16, lifted] = match self {
            Self::Few => ["tile_fp8_few", "tile_fp4_few", "tile_bf16_few", "tile_lifted_few"],
            Self::Eight => ["tile_fp8_eight", "", "tile_bf16_eight", ""],
            Self::Some => ["tile_fp8_some", "tile_fp4_some", "tile_bf16_some", "tile_lifted_some"],
            Self::Many => ["tile_fp8_many", "tile_fp4_many", "tile_bf16_many", "tile_lifted_many"],
        };
        match kind {
            format::FP8 => fp8,
            format::FP4 => fp4,
            format::LIFTED => lifted,
            _ => bf16,
        }
    }

    /// Groups that run at once, so that each does several tiles.
    fn plan(self, tiles: &Tiles, at: u64, rows: &Rows, groups: &Groups) -> (Vec<u8>, [u32; 2]) {
        let planned = match self {
            Self::Few => tiles.few(at, rows, groups, 2, Way::Few),
            Self::Eight => tiles.few(at, rows, groups, 2, Way::Eight),
            // With three of them and two parts one has nothing to do.
            Self::Some => tiles.few(at, rows, groups, 3, Way::Some),
            Self::Many => tiles.many(at, rows, groups, 2),
        };
        planned.map_or((Vec::new(), [0, 0]), |(_, args, grid)| (args.bytes(), grid))
    }
}

/// The inputs of instruction i of a step.
fn instruction(kind: u32, step: usize, i: usize) -> impl Iterator<Item = usize> {
    let (blocks, side) = if step_inputs(kind) == 64 { (1, 16) } else { (4, 8) };
    let first = step * step_inputs(kind) + i * side;
    (0..blocks).flat_map(move |block| (0..side).map(move |n| first + block * 32 + n))
}

/// An output of a row, and how far from it a sum may be. In an instruction each term, the sum so far among them, is cut
/// to so many bits below the largest of their exponents, and the result to as many of its own: of codes 13, which have
/// exponents of -6 and more, and of bf16 23. Steps are added in f32. What codes lose at arranging comes to that.
fn output(kind: u32, weight: &Weight, o: usize, x: &Inputs, row: usize) -> (f64, f64) {
    let coded = step_inputs(kind) != 64;
    let (bits, depth) = if coded { (13, 32) } else { (23, 16) };
    let cut = (-f64::from(bits)).exp2();
    let steps = weight.units.len() / (weight.values.len() / x.inputs);
    let (at, from) = (o * x.inputs, row * x.inputs);
    let (mut value, mut total, mut bound) = (0.0, 0.0, 0.0);
    for step in 0..steps {
        let (w_least, x_least) =
            (weight.units[o * steps + step] / 64.0, x.units[row * steps + step] / 64.0);
        let (mut part, mut lost): (f64, f64) = (0.0, 0.0);
        for i in 0..4 {
            let mut top = part.abs() + lost;
            for k in instruction(kind, step, i) {
                let (w, stored) = (weight.stepped[at + k], weight.values[at + k]);
                let x = x.values[from + k];
                value += stored * x;
                bound += ((stored - w) * x).abs();
                part += w * x;
                if w * x != 0.0 {
                    top = top.max(w.abs().max(w_least) * x.abs().max(x_least));
                }
            }
            lost += f64::from(depth + 1) * cut * top;
            lost += cut * (part.abs() + lost);
        }
        total += part;
        bound += lost;
        bound += UNIT * (total + bound).abs().max((total - bound).abs());
    }
    (value, bound)
}

/// Outputs of a row, each within its bound.
fn wanted(
    kind: u32,
    weight: &Weight,
    outputs: std::ops::Range<usize>,
    x: &Inputs,
    row: usize,
    round: bool,
) -> Want {
    nears(outputs.map(|o| {
        let (value, bound) = output(kind, weight, o, x, row);
        near(value, bound, round)
    }))
}

/// A NaN meets every output; an infinity too, as its product with a zero weight is a NaN. A struck f32 is a zero and the
/// value in bf16, or codes of which the last is NaN.
fn struck(case: Case) -> Case {
    case.strike("x", 11, f32::NAN, Rule::Nan("out"))
        .strike("x", 11, f32::INFINITY, Rule::NotFinite("out"))
        .fault("TILE_NEIGHBOUR_ROW", Gate::Rows)
}

fn faults(case: Case, kind: u32, steps: usize) -> Case {
    let case = if steps == 1 { case } else { case.fault("TILE_DROPPED_STEP", Gate::Reference) };
    let case =
        if kind == format::FP4 { case.fault("TILE_WRONG_ENTRY", Gate::Reference) } else { case };
    if kind == format::BF16 { case } else { case.fault("TILE_WRONG_SCALE", Gate::Reference) }
}

fn none(kind: u32, by: By) -> Case {
    Case::new(by.kernel(kind), "a shape that does not fit", 0)
}

/// Rows by one weight of so many steps and outputs.
fn product(kind: u32, (steps, outputs): (usize, usize), rows: usize, by: By) -> Case {
    let inputs = steps * step_inputs(kind);
    let mut data = Data::new(60 + u64::from(kind) + inputs as u64);
    let Some(tiles) = Tiles::new(kind, SIDE, inputs, outputs) else { return none(kind, by) };
    let weight = draw(&mut data, kind, SIDE, (inputs, outputs));
    let x = inputs_of(&mut data, kind, rows, inputs);
    let (round, stride, x_stride) = (rows.is_multiple_of(2), outputs + 3, x.row_bytes);
    let plan = move |by: By| {
        move |at: &Addresses, rows: &[usize]| {
            let rows = Rows {
                x: at.of("x"),
                x_stride,
                rows: rows.len(),
                out: at.of("out"),
                out_stride: stride,
                round,
                early: round,
                ..Rows::default()
            };
            by.plan(&tiles, at.of("weight"), &rows, &Groups::One)
        }
    };
    let case = Case::new(by.kernel(kind), format!("{rows} rows, {inputs} to {outputs}"), rows)
        .shared("weight", &weight.tiles)
        .row("x", &x.bytes)
        .strided("out", outputs * 4, stride * 4, 0)
        .launch(plan(by));
    // The kernel of many rows has the same bits.
    let many = By::Many.kernel(kind);
    let case = if by == By::Many { case } else { case.twin(many, plan(By::Many)) };
    let case = case.want(move |row| vec![wanted(kind, &weight, 0..outputs, &x, row, round)]);
    faults(struck(case), kind, steps)
}

/// Several weights of one shape, and all of their tiles one after another.
fn draw_all(
    data: &mut Data,
    kind: u32,
    shape: (usize, usize),
    count: usize,
) -> (Vec<Weight>, Vec<u8>) {
    let weights: Vec<Weight> = (0..count).map(|_| draw(data, kind, SIDE, shape)).collect();
    let all = weights.iter().flat_map(|weight| weight.tiles.clone()).collect();
    (weights, all)
}

/// Rows of three weights by a list, two of them with rows.
fn grouped(kind: u32, by: By) -> Case {
    // Of many rows, more than a piece has.
    let rows = if by == By::Many { 150 } else { 20 };
    let (steps, outputs) = (6, 40);
    let inputs = steps * step_inputs(kind);
    let mut data = Data::new(80 + u64::from(kind));
    let Some(tiles) = Tiles::new(kind, SIDE, inputs, outputs) else { return none(kind, by) };
    let (weights, all) = draw_all(&mut data, kind, (inputs, outputs), 3);
    let x = inputs_of(&mut data, kind, rows, inputs);
    let x_stride = x.row_bytes;
    let weight_of = |row: usize| if row < 3 { 0 } else { 2 };
    let sorted = move |rows: &[usize]| {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|&i| (weight_of(rows[i]), i));
        order
    };
    let groups = move |rows: &[usize]| {
        let first = rows.iter().filter(|&&row| weight_of(row) == 0).count();
        let parts = [[0, 0, first], [2, first, rows.len()]];
        let mut groups: Vec<u32> =
            parts.iter().filter(|part| part[1] < part[2]).flatten().copied().map(word).collect();
        groups.resize(9, 0);
        bytes(&groups)
    };
    let list = move |rows: &[usize]| bytes(&sorted(rows).into_iter().map(word).collect::<Vec<_>>());
    let place = move |rows: &[usize], i: usize| {
        sorted(rows).iter().position(|&other| other == i).unwrap_or(0) * outputs * 4
    };
    let shape = format!("{rows} rows of 3 weights, {inputs} to {outputs}");
    let case = Case::new(by.kernel(kind), shape, rows)
        .shared("weight", &all)
        .made("groups", groups)
        .made("list", list)
        .row("x", &x.bytes)
        .placed("out", outputs * 4, move |rows| rows * outputs * 4, place)
        .launch(move |at, rows| {
            let groups = Groups::Some {
                groups: at.of("groups"),
                count: 3,
                list: at.of("list"),
                known: by == By::Some,
            };
            let rows = Rows {
                x: at.of("x"),
                x_stride,
                rows: rows.len(),
                out: at.of("out"),
                out_stride: outputs,
                round: true,
                ..Rows::default()
            };
            by.plan(&tiles, at.of("weight"), &rows, &groups)
        })
        .want(move |row| vec![wanted(kind, &weights[weight_of(row)], 0..outputs, &x, row, true)]);
    faults(struck(case), kind, steps)
}

/// Each row of a weight of its own, of more of them than one warp cuts into parts.
fn single(kind: u32, by: By) -> Case {
    let (rows, count, steps, outputs) = (70, 72, 2, 24);
    let inputs = steps * step_inputs(kind);
    let mut data = Data::new(90 + u64::from(kind));
    let Some(tiles) = Tiles::new(kind, SIDE, inputs, outputs) else { return none(kind, by) };
    let (weights, all) = draw_all(&mut data, kind, (inputs, outputs), 3);
    let x = inputs_of(&mut data, kind, rows, inputs);
    let x_stride = x.row_bytes;
    let case = Case::new(by.kernel(kind), format!("{rows} rows of a weight each"), rows)
        .shared("weight", &all)
        .made("groups", move |rows| {
            let parts = rows.iter().enumerate().map(|(i, &row)| [row % 3, i, i + 1]);
            let mut groups: Vec<u32> = parts.flatten().map(word).collect();
            groups.resize(3 * count, 0);
            bytes(&groups)
        })
        .row("x", &x.bytes)
        .strided("out", outputs * 4, outputs * 4, 0)
        .launch(move |at, rows| {
            let groups = Groups::Some { groups: at.of("groups"), count, list: 0, known: false };
            let rows = Rows {
                x: at.of("x"),
                x_stride,
                // Of a group.
                rows: if by == By::Some { 9 } else { 2 }.min(rows.len()),
                out: at.of("out"),
                out_stride: outputs,
                ..Rows::default()
            };
            by.plan(&tiles, at.of("weight"), &rows, &groups)
        })
        .want(move |row| vec![wanted(kind, &weights[row % 3], 0..outputs, &x, row, false)]);
    // A part has no other row to take.
    let case = case.strike("x", 11, f32::NAN, Rule::Nan("out"));
    faults(case, kind, steps)
}

/// Two weights, each of its own inputs and outputs of every row.
fn each(kind: u32, by: By) -> Case {
    let rows = match by {
        By::Few => 6,
        By::Eight => 7,
        By::Some => 12,
        By::Many => 36,
    };
    let (steps, outputs) = (3, 32);
    let inputs = steps * step_inputs(kind);
    let mut data = Data::new(85 + u64::from(kind));
    let Some(tiles) = Tiles::new(kind, SIDE, inputs, outputs) else { return none(kind, by) };
    let (weights, all) = draw_all(&mut data, kind, (inputs, outputs), 2);
    // A row's two parts lie side by side.
    let x = inputs_of(&mut data, kind, rows * 2, inputs);
    let x_step = x.row_bytes;
    let shape = format!("{rows} rows by 2 weights, {inputs} to {outputs} each");
    let case = Case::new(by.kernel(kind), shape, rows)
        .shared("weight", &all)
        .row("x", &x.bytes)
        .strided("out", outputs * 8, outputs * 8, 0)
        .launch(move |at, rows| {
            let rows = Rows {
                x: at.of("x"),
                x_stride: x_step * 2,
                rows: rows.len(),
                out: at.of("out"),
                out_stride: outputs * 2,
                round: true,
                ..Rows::default()
            };
            let groups = Groups::Each { count: 2, x_step, out_step: outputs };
            by.plan(&tiles, at.of("weight"), &rows, &groups)
        })
        .want(move |row| {
            let outs = (0..2 * outputs).map(|o| {
                let (which, o) = (o / outputs, o % outputs);
                let (value, bound) = output(kind, &weights[which], o, &x, row * 2 + which);
                near(value, bound, true)
            });
            vec![nears(outs)]
        })
        .fault("TILE_NEIGHBOUR_ROW", Gate::Rows);
    faults(case, kind, steps)
}

/// The last outputs apart from the others, beside a launch of one group.
fn split(kind: u32) -> Case {
    let (rows, steps, outputs, split) = (7, 3, 48, 16);
    let inputs = steps * step_inputs(kind);
    let mut data = Data::new(90 + u64::from(kind));
    let Some(tiles) = Tiles::new(kind, SIDE, inputs, outputs) else { return none(kind, By::Few) };
    let weight = draw(&mut data, kind, SIDE, (inputs, outputs));
    let x = inputs_of(&mut data, kind, rows, inputs);
    let (x_stride, second) = (x.row_bytes, outputs - split);
    let shape = format!("{rows} rows, {inputs} to {split} and {second}");
    Case::new(By::Few.kernel(kind), shape, rows)
        .shared("weight", &weight.tiles)
        .row("x", &x.bytes)
        .strided("out", split * 4, split * 4, 0)
        .strided("second", second * 4, second * 4, 0)
        .launch(move |at, rows| {
            let rows = Rows {
                x: at.of("x"),
                x_stride,
                rows: rows.len(),
                out: at.of("out"),
                out_stride: split,
                split,
                second: at.of("second"),
                second_stride: second,
                beside: true,
                ..Rows::default()
            };
            By::Few.plan(&tiles, at.of("weight"), &rows, &Groups::One)
        })
        .want(move |row| {
            [0..split, split..outputs].map(|own| wanted(kind, &weight, own, &x, row, false)).into()
        })
        .fault("TILE_NEIGHBOUR_ROW", Gate::Rows)
}
