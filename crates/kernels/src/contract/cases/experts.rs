//! The router, the order by expert, and what lies between the experts' products.

use finback_numerics::{bf16, math};

use super::super::case::{Addresses, Case, Gate, Rule, Want, bytes};
use super::super::data::{Data, UNIT, block_is_nan, coded_row, gamma, group_depth, near, nears};
use super::{by_row, by_slice, word};
use crate::args::{Args, GroupArgs, RouteArgs, RouteFewArgs, SumExpertsArgs, SwigluArgs, scoring};
use crate::tiles::row_bytes;

pub fn cases() -> Vec<Case> {
    vec![
        route(scoring::SQRT_SOFTPLUS, 200, 6, true),
        route(scoring::SIGMOID, 24, 3, true),
        route(scoring::SOFTMAX, 150, 4, false),
        route_few(1, 24, 3),
        route_few(5, 24, 3),
        route_few(8, 130, 6),
        route_few(5, 600, 6),
        group_routes("group_routes", 5, 3, 8),
        group_routes("group_routes", 60, 3, 20),
        group_routes("tile_group_routes", 5, 3, 8),
        group_routes("tile_group_routes", 700, 6, 384),
        swiglu(true, 10.0, false),
        swiglu(true, 10.0, true),
        swiglu(false, 0.0, true),
        sum_experts(),
    ]
}

/// A router and the logits of some rows.
#[derive(Clone)]
struct Router {
    logits: Vec<f32>,
    bias: Vec<f32>,
    scoring: u32,
    count: usize,
    topk: usize,
    normalise: bool,
}

const TEMPERATURE: f32 = 1.25;
const SCALE: f32 = 1.5;

impl Router {
    fn new(scoring: u32, rows: usize, count: usize, topk: usize, normalise: bool) -> Self {
        let mut data = Data::new(60 + u64::from(scoring));
        let mut logits = data.floats(rows * count, 4.0);
        let mut bias = data.floats(count, 0.3);
        // The second row's logits are few values over equal biases: the choice is by ties.
        bias[..count / 2].fill(0.5);
        logits.iter_mut().skip(count).take(count).for_each(|x| *x = x.round());
        Self { logits, bias, scoring, count, topk, normalise }
    }

    /// A row's experts, ascending, and their weights.
    fn row(&self, row: usize) -> (Vec<u32>, Vec<(f64, f64)>) {
        let Self { scoring, count, topk, .. } = *self;
        let x = &self.logits[row * count..][..count];
        let top = x.iter().fold(f32::NEG_INFINITY, |top, x| top.max(x / TEMPERATURE));
        // Softmax sums in the kernel's own order: to choose, only the order of scores matters.
        let score = |x: f32| match scoring {
            scoring::SQRT_SOFTPLUS => math::softplus(x / TEMPERATURE).sqrt(),
            scoring::SIGMOID => math::sigmoid(x / TEMPERATURE),
            _ => math::exp(x / TEMPERATURE - top),
        };
        let all: f64 = x.iter().map(|&x| f64::from(score(x))).sum();
        let divide = if scoring == scoring::SOFTMAX { all as f32 } else { 1.0 };
        let score = |e: usize| score(x[e]) / divide;
        let by = |e: usize| score(e) + self.bias[e];
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|&a, &b| by(b).total_cmp(&by(a)).then(a.cmp(&b)));
        order.truncate(topk);
        order.sort_unstable();
        let exact = |e: usize| {
            let x = f64::from(x[e]) / f64::from(TEMPERATURE);
            match scoring {
                scoring::SQRT_SOFTPLUS => (x.max(0.0) + (-x.abs()).exp().ln_1p()).sqrt(),
                scoring::SIGMOID => 1.0 / (1.0 + (-x).exp()),
                _ => f64::from(score(e)),
            }
        };
        let sum: f64 = order.iter().map(|&e| exact(e)).sum();
        let divisor = if self.normalise { sum } else { 1.0 };
        let weight = |&e: &usize| {
            let value = exact(e) / divisor * f64::from(SCALE);
            // The division by the temperature, the function's few units, and the sums.
            let steps = 16 + topk + group_depth(count);
            near(value, value * (gamma(steps) + 8.0 * x[e].abs() as f64 * UNIT), false)
        };
        (order.iter().map(|&e| word(e)).collect(), order.iter().map(weight).collect())
    }

    /// The arguments of `route_few`, without an order by expert.
    fn few(&self, at: &Addresses, rows: usize) -> RouteFewArgs {
        RouteFewArgs {
            logits: at.of("logits"),
            bias: at.of("bias"),
            experts: at.of("experts"),
            weights: at.of("weights"),
            count: word(self.count),
            topk: word(self.topk),
            scoring: self.scoring,
            normalise: self.normalise.into(),
            temperature: TEMPERATURE,
            scale: SCALE,
            row_count: word(rows),
            ..RouteFewArgs::default()
        }
    }
}

fn route(scoring: u32, count: usize, topk: usize, normalise: bool) -> Case {
    let rows = 4;
    let router = Router::new(scoring, rows, count, topk, normalise);
    let (few, own) = (router.clone(), router.clone());
    Case::new("route", format!("{topk} of {count}, scoring {scoring}"), rows)
        .row("logits", &router.logits)
        .shared("bias", &router.bias)
        .out("experts", topk * 4)
        .out("weights", topk * 4)
        .launch(move |at, rows| {
            let args = RouteArgs {
                logits: at.of("logits"),
                bias: at.of("bias"),
                experts: at.of("experts"),
                weights: at.of("weights"),
                count: word(count),
                topk: word(topk),
                scoring,
                normalise: normalise.into(),
                temperature: TEMPERATURE,
                scale: SCALE,
            };
            (args.bytes(), by_row(rows))
        })
        .twin("route_few", move |at, rows| (few.few(at, rows.len()).bytes(), [1, 1]))
        .want(move |row| {
            let (ids, weights) = own.row(row);
            vec![Want::Bytes(bytes(&ids)), Want::Near(weights)]
        })
        // Choices stay experts of the layer, whatever a logit is.
        .strike("logits", 0, f32::NAN, Rule::Check("experts", ascending))
        .strike("logits", 0, f32::INFINITY, Rule::Check("experts", ascending))
        .fault("ROUTE_NO_BIAS", Gate::Reference)
        .fault("ROUTE_TIES_HIGH", Gate::Reference)
}

/// The whole batch is one unit: what it sorts is the batch.
fn route_few(rows: usize, count: usize, topk: usize) -> Case {
    let router = Router::new(scoring::SQRT_SOFTPLUS, rows, count, topk, true);
    let (few, own) = (router.clone(), router.clone());
    let routes = rows * topk;
    // Of one row more than it has.
    let groups_max = routes.min(count) + if rows == 1 { 2 } else { 0 };
    let want = move |_: usize| {
        let (ids, weights): (Vec<_>, Vec<_>) = (0..rows).map(|row| own.row(row)).unzip();
        let (ids, weights): (Vec<u32>, Vec<_>) = (ids.concat(), weights.concat());
        let Order { places, rows, groups, order } = Order::of(&ids, topk, groups_max);
        let sorted = order.iter().map(|&i| weights[i]).collect();
        vec![
            Want::Bytes(bytes(&ids)),
            Want::Near(weights),
            Want::Bytes(bytes(&places)),
            Want::Bytes(bytes(&rows)),
            Want::Near(sorted),
            Want::Bytes(bytes(&groups)),
        ]
    };
    let case = Case::new("route_few", format!("{rows} rows of {topk} of {count}"), 1)
        .row("logits", &router.logits)
        .shared("bias", &router.bias)
        .out("experts", routes * 4)
        .out("weights", routes * 4)
        .out("places", routes * 4)
        .out("rows", routes * 4)
        .out("sorted", routes * 4)
        .out("groups", groups_max * 12)
        .launch(move |at, _| {
            let args = RouteFewArgs {
                places: at.of("places"),
                rows: at.of("rows"),
                sorted: at.of("sorted"),
                groups: at.of("groups"),
                groups_max: word(groups_max),
                ..few.few(at, rows)
            };
            (args.bytes(), [1, 1])
        })
        .want(want)
        .strike("logits", 0, f32::NAN, Rule::Check("experts", first_is_ascending))
        .fault("ROUTE_NO_BIAS", Gate::Reference)
        .fault("ROUTE_MISSING_BARRIER", Gate::Rows);
    // One row has no two routes of an expert; the second one's choice is by ties.
    if rows == 1 {
        return case;
    }
    case.fault("GROUP_UNSTABLE", Gate::Reference).fault("ROUTE_TIES_HIGH", Gate::Reference)
}

/// The first row's three experts.
fn first_is_ascending(before: &[u8], after: &[u8]) -> bool {
    ascending(&before[..12], &after[..12])
}

fn ascending(_: &[u8], after: &[u8]) -> bool {
    let ids: Vec<u32> = after.as_chunks::<4>().0.iter().map(|b| u32::from_ne_bytes(*b)).collect();
    ids.is_sorted_by(|a, b| a < b) && ids.iter().all(|&id| id < 200)
}

/// Routes in order of their experts.
struct Order {
    places: Vec<u32>,
    rows: Vec<u32>,
    groups: Vec<u32>,
    /// The route of each place.
    order: Vec<usize>,
}

impl Order {
    fn of(list: &[u32], topk: usize, groups_max: usize) -> Self {
        let mut order: Vec<usize> = (0..list.len()).collect();
        order.sort_by_key(|&i| (list[i], i));
        let mut places = vec![0; list.len()];
        order.iter().enumerate().for_each(|(place, &i)| places[i] = word(place));
        let rows = order.iter().map(|&i| word(i / topk)).collect();
        let mut groups = Vec::new();
        for (place, &i) in order.iter().enumerate() {
            if place == 0 || list[order[place - 1]] != list[i] {
                let n = list.iter().filter(|&&e| e == list[i]).count();
                groups.extend([list[i], word(place), word(place + n)]);
            }
        }
        groups.resize(groups_max * 3, 0);
        Self { places, rows, groups, order }
    }
}

/// The whole batch is one unit: what it sorts is the batch.
fn group_routes(kernel: &'static str, rows: usize, topk: usize, experts: usize) -> Case {
    let mut data = Data::new(rows as u64);
    let routes = rows * topk;
    let mut ids = Vec::with_capacity(routes);
    for _ in 0..rows {
        // Distinct experts, ascending, as the router gives them.
        let first = data.below(1, experts - 2 * topk)[0];
        ids.extend((0..word(topk)).map(|i| first + 2 * i));
    }
    let weights = data.floats(routes, 1.0);
    let groups_max = routes.min(experts);
    let (list, held) = (ids.clone(), weights.clone());
    let want = move |_: usize| {
        let Order { places, rows, groups, order } = Order::of(&list, topk, groups_max);
        let sorted: Vec<f32> = order.iter().map(|&i| held[i]).collect();
        vec![
            Want::Bytes(bytes(&places)),
            Want::Bytes(bytes(&rows)),
            Want::Bytes(bytes(&sorted)),
            Want::Bytes(bytes(&groups)),
        ]
    };
    Case::new(kernel, format!("{rows} rows of {topk} among {experts}"), 1)
        .row("experts", &ids)
        .row("weights", &weights)
        .out("places", routes * 4)
        .out("rows", routes * 4)
        .out("sorted", routes * 4)
        .out("groups", groups_max * 12)
        .launch(move |at, _| {
            let args = GroupArgs {
                experts: at.of("experts"),
                weights: at.of("weights"),
                places: at.of("places"),
                rows: at.of("rows"),
                sorted: at.of("sorted"),
                groups: at.of("groups"),
                routes: word(routes),
                topk: word(topk),
                groups_max: word(groups_max),
                pad: 0,
            };
            (args.bytes(), [1, 1])
        })
        .want(want)
        .strike("weights", 1, f32::NAN, Rule::Same("groups"))
        .fault("GROUP_UNSTABLE", Gate::Reference)
}

/// Channels of a row of `swiglu` in whole steps.
const SWIGLU_WIDTH: usize = 640;

fn swiglu(weighted: bool, limit: f32, coded: bool) -> Case {
    let (rows, width) = (3, if coded { SWIGLU_WIDTH } else { 544 });
    // A group a slice, or one for both.
    let slices = if weighted { 2 } else { 1 };
    let mut data = Data::new(63);
    let (gate, up) = (data.floats(rows * width, 15.0), data.floats(rows * width, 15.0));
    let weights = data.between(rows, 0.1, 1.0);
    let (g, u, w) = (gate.clone(), up.clone(), weights.clone());
    let want = move |row: usize| {
        if coded {
            // Every operation is the kernel's own.
            let value = |at: usize| {
                let (mut gate, mut up) = (g[at], u[at]);
                if limit > 0.0 {
                    (gate, up) = (gate.min(limit), up.clamp(-limit, limit));
                }
                bf16::round(math::silu(gate) * up * if weighted { w[row] } else { 1.0 })
            };
            let values: Vec<f32> = (row * width..(row + 1) * width).map(value).collect();
            return vec![Want::Bytes(coded_row(&values))];
        }
        let weight = if weighted { f64::from(w[row]) } else { 1.0 };
        let values: Vec<(f64, f64)> = (row * width..(row + 1) * width)
            .map(|at| {
                let (mut gate, mut up) = (f64::from(g[at]), f64::from(u[at]));
                if limit > 0.0 {
                    (gate, up) = (gate.min(limit.into()), up.clamp((-limit).into(), limit.into()));
                }
                let value = gate / (1.0 + (-gate).exp()) * up * weight;
                // Three units in the last place of silu, two products.
                near(value, value.abs() * gamma(8), true)
            })
            .collect();
        vec![Want::Near(values)]
    };
    let kind = if coded { "coded" } else { "as they are" };
    let (bytes, stride) = match coded {
        true => (width + width / 32, row_bytes(true, width)),
        false => (width * 4, width * 4),
    };
    let case = Case::new("swiglu", format!("{rows} rows of {width}, limit {limit}, {kind}"), rows)
        .row("gate", &gate)
        .row("up", &up)
        .row("weights", &weights)
        .strided("out", bytes, stride, 0)
        .launch(move |at, rows| {
            let out = at.of("out");
            let args = SwigluArgs {
                gate: at.of("gate"),
                up: at.of("up"),
                weights: at.of("weights"),
                out: if coded { 0 } else { out },
                coded: if coded { out } else { 0 },
                width: word(width),
                weighted: weighted.into(),
                limit,
                round: 1,
                slices,
                pad: 0,
            };
            (args.bytes(), [word(rows.len()), slices])
        })
        .want(want);
    let case = if coded {
        // A NaN takes its block along.
        let block = |before: &[u8], after: &[u8]| block_is_nan(before, after, SWIGLU_WIDTH, 130);
        case.strike("gate", 130, f32::NAN, Rule::Check("out", block))
            .fault("QUANT_WRONG_SCALE", Gate::Reference)
    } else {
        case.strike("gate", 130, f32::NAN, Rule::NanAt("out", 130)).strike(
            "up",
            130,
            f32::NAN,
            Rule::NanAt("out", 130),
        )
    };
    let case = case.fault("REHEARSAL_WRITES", Gate::Writes);
    if limit > 0.0 { case.fault("SWIGLU_NO_LIMIT", Gate::Reference) } else { case }
}

fn sum_experts() -> Case {
    let (rows, topk, width) = (3, 7, 530);
    let mut data = Data::new(64);
    let routed = data.floats(rows * topk * width, 2.0);
    let shared = data.floats(rows * width, 2.0);
    let (r, s) = (routed.clone(), shared.clone());
    let want = move |row: usize| {
        vec![nears((0..width).map(|k| {
            let own = (0..topk).map(|i| f64::from(r[(row * topk + i) * width + k]));
            let terms: Vec<f64> = own.chain([f64::from(s[row * width + k])]).collect();
            let size: f64 = terms.iter().map(|t| t.abs()).sum();
            near(terms.iter().sum(), size * gamma(topk), true)
        }))]
    };
    // A row's routed outputs lie where the sort put them: here, its own, one after another.
    let places = move |rows: &[usize]| bytes(&(0..word(rows.len() * topk)).collect::<Vec<_>>());
    Case::new("sum_experts", format!("{rows} rows of {topk} experts"), rows)
        .row("routed", &routed)
        .row("shared", &shared)
        .made("places", places)
        .out("out", width * 4)
        .launch(move |at, rows| {
            let args = SumExpertsArgs {
                routed: at.of("routed"),
                shared: at.of("shared"),
                places: at.of("places"),
                out: at.of("out"),
                width: word(width),
                topk: word(topk),
                round: 1,
                pad: 0,
            };
            (args.bytes(), by_slice(rows, width))
        })
        .want(want)
        .strike("routed", width + 4, f32::NAN, Rule::NanAt("out", 4))
        .fault("EXPERTS_NO_SHARED", Gate::Reference)
}
