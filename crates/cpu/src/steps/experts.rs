//! The mixture of experts: the router, and the experts of many rows at once.

use finback_numerics::math;
use finback_ops::{Expert, Ffn, OpsResult, Rows, Scoring};

use crate::device::{Input, Job};
use crate::kernel::kernel;
use crate::ops::CpuOps;
use crate::par::{cut, each, parts};
use crate::row;
use crate::simd::{Isa, Simd};

impl CpuOps {
    pub(crate) fn route_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        let spec = self.spec.clone();
        let (dims, ffn) = (&spec.dims, &spec.layer(layer).ffn);
        let (experts, work) = (ffn.experts.len(), &mut self.work);
        let input = Input { x: &work.x, stride: dims.hidden, rows: rows.clone(), round: true };
        let job = Job::new(&ffn.gate, &mut work.scores, experts);
        self.device.linear(input, &mut [job], false)?;
        let router = Router {
            scoring: dims.scoring,
            temperature: dims.gate_temp,
            normalise: dims.norm_topk && ffn.topk > 1,
            scale: dims.route_scale,
            bias: &ffn.bias,
        };
        let scores = &mut work.scores[..rows.len() * experts];
        let routes = &mut work.routes[..rows.len() * ffn.topk];
        for (scores, routes) in
            scores.chunks_exact_mut(experts).zip(routes.chunks_exact_mut(ffn.topk))
        {
            route(self.device.isa, &router, scores, routes);
        }
        Ok(())
    }

    pub(crate) fn experts_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        let spec = self.spec.clone();
        let (dims, ffn) = (&spec.dims, &spec.layer(layer).ffn);
        let (n, topk, inter) = (rows.len(), ffn.topk, dims.inter);
        let round = spec.numerics.round_stores;
        self.groups.fill(&self.work.routes[..n * topk], topk, ffn.experts.len());
        self.check_experts(layer)?;
        let (routed, work, groups) = (n * topk, &mut self.work, &self.groups);
        let total = routed + n;
        let input = Input { x: &work.x, stride: dims.hidden, rows: rows.clone(), round: true };
        let mut gates = &mut work.hidden[..total * inter];
        let mut ups = &mut work.hidden_up[..total * inter];
        let mut jobs = Vec::with_capacity(2 * groups.used.len() + 2);
        for (expert, list) in groups.lists(ffn, n) {
            let (gate, up) =
                (take(&mut gates, list.len() * inter), take(&mut ups, list.len() * inter));
            jobs.push(Job::gathered(&expert.w1, list, gate));
            jobs.push(Job::gathered(&expert.w3, list, up));
        }
        self.device.linear(input, &mut jobs, round)?;

        let split = parts(0..total, self.device.team.threads());
        let mut contexts: Vec<_> = cut(&mut work.hidden, inter, &split)
            .into_iter()
            .zip(cut(&mut work.hidden_up, inter, &split))
            .zip(split)
            .collect();
        let (isa, limit) = (self.device.isa, dims.swiglu_limit);
        each(&mut self.device.team, &mut contexts, |_, ((gate, up), part)| {
            let hidden = gate.chunks_exact_mut(inter).zip(up.chunks_exact(inter));
            for (i, (gate, up)) in part.clone().zip(hidden) {
                let weight = groups.weights.get(i).copied().unwrap_or(1.0);
                swiglu(isa, gate, up, weight, limit, round);
            }
        })?;

        let input = Input { x: &work.hidden, stride: inter, rows: 0..total, round: true };
        let mut outs = &mut work.expert_out[..total * dims.hidden];
        let mut jobs = Vec::with_capacity(groups.used.len() + 1);
        let mut from = 0;
        for (expert, list) in groups.lists(ffn, n) {
            let places = &groups.all[from..from + list.len()];
            let out = take(&mut outs, list.len() * dims.hidden);
            jobs.push(Job::gathered(&expert.w2, places, out));
            from += list.len();
        }
        self.device.linear(input, &mut jobs, round)?;

        let split = parts(rows.clone(), self.device.team.threads());
        let mut contexts: Vec<_> =
            cut(&mut work.y, dims.hidden, &split).into_iter().zip(split).collect();
        let expert_out = &work.expert_out;
        each(&mut self.device.team, &mut contexts, |_, (y, part)| {
            for (r, y) in part.clone().zip(y.chunks_exact_mut(dims.hidden)) {
                let i = r - rows.start;
                let shared = routed + i;
                let row = |place: usize| &expert_out[place * dims.hidden..][..dims.hidden];
                let places = &groups.places[i * topk..(i + 1) * topk];
                sum_experts(isa, places.iter().map(|&p| row(p as usize)), row(shared), y, round);
            }
        })?;
        Ok(())
    }
}

/// Cuts the first `len` values off a buffer.
fn take<'a>(rest: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    let (own, others) = std::mem::take(rest).split_at_mut(len);
    *rest = others;
    own
}

/// The routed experts' rows in ascending id, then the shared one's, summed and rounded once.
fn sum_experts<'a>(
    isa: Isa,
    routed: impl Iterator<Item = &'a [f32]>,
    shared: &'a [f32],
    y: &mut [f32],
    round: bool,
) {
    y.fill(0.0);
    for row in routed.chain([shared]) {
        y.iter_mut().zip(row).for_each(|(y, x)| *y += x);
    }
    if round {
        round_row(isa, y);
    }
}

/// The rows of each expert in use, ascending.
#[derive(Default)]
pub struct Groups {
    /// The experts with rows, ascending.
    pub used: Vec<GroupOf>,
    /// Rows by expert, then by row.
    order: Vec<u32>,
    /// Routing weights in the same order.
    pub weights: Vec<f32>,
    /// Of each row's routes in turn, their places in that order.
    places: Vec<u32>,
    /// `0, 1, 2, ..`, as many as routes and shared rows together.
    all: Vec<u32>,
    starts: Vec<u32>,
}

/// One expert's rows.
#[derive(Debug, Clone, Copy)]
pub struct GroupOf {
    /// The expert.
    pub expert: usize,
    start: usize,
    end: usize,
}

impl Groups {
    /// Room for `rows` rows of `topk` experts among `experts`.
    pub fn new(rows: usize, topk: usize, experts: usize) -> Self {
        Self {
            used: Vec::with_capacity(experts),
            order: Vec::with_capacity(rows * topk),
            weights: Vec::with_capacity(rows * topk),
            places: Vec::with_capacity(rows * topk),
            all: (0..(rows * (topk + 1)) as u32).collect(),
            starts: Vec::with_capacity(experts + 1),
        }
    }

    /// The rows of a group, ascending.
    pub fn rows(&self, group: &GroupOf) -> &[u32] {
        &self.order[group.start..group.end]
    }

    /// Each used expert with its rows, ascending; then the shared one with all `n`.
    fn lists<'a>(
        &'a self,
        ffn: &'a Ffn,
        n: usize,
    ) -> impl Iterator<Item = (&'a Expert, &'a [u32])> {
        let routed = self.used.iter().map(|group| (&ffn.experts[group.expert], self.rows(group)));
        routed.chain([(&ffn.shared, &self.all[..n])])
    }

    /// Sorts routes `[rows, topk]` by expert.
    fn fill(&mut self, routes: &[(u32, f32)], topk: usize, experts: usize) {
        let Self { used, order, weights, places, starts, .. } = self;
        starts.clear();
        starts.resize(experts + 1, 0);
        for &(e, _) in routes {
            starts[e as usize + 1] += 1;
        }
        for e in 0..experts {
            starts[e + 1] += starts[e];
        }
        used.clear();
        for e in 0..experts {
            let (start, end) = (starts[e] as usize, starts[e + 1] as usize);
            if start < end {
                used.push(GroupOf { expert: e, start, end });
            }
        }
        order.clear();
        order.resize(routes.len(), 0);
        weights.clear();
        weights.resize(routes.len(), 0.0);
        places.clear();
        for (i, &(e, weight)) in routes.iter().enumerate() {
            let at = &mut starts[e as usize];
            places.push(*at);
            order[*at as usize] = (i / topk) as u32;
            weights[*at as usize] = weight;
            *at += 1;
        }
    }
}

/// A layer's routing rule.
struct Router<'a> {
    scoring: Scoring,
    temperature: f32,
    normalise: bool,
    scale: f32,
    bias: &'a [f32],
}

kernel! {
    fn route(router: &Router<'_>, scores: &mut [f32], routes: &mut [(u32, f32)]) = route_body;
    fn round_row(x: &mut [f32]) = row::round_row;
    fn swiglu(gate: &mut [f32], up: &[f32], weight: f32, limit: f32, round: bool) = row::swiglu;
}

/// From a row's router logits to its experts, ascending, and their weights (model-spec section 6).
#[inline(always)]
fn route_body<S: Simd>(_: S, router: &Router<'_>, scores: &mut [f32], routes: &mut [(u32, f32)]) {
    match router.scoring {
        Scoring::SqrtSoftplus => {
            scores.iter_mut().for_each(|x| *x = math::softplus(*x / router.temperature).sqrt());
        }
        Scoring::Sigmoid => {
            scores.iter_mut().for_each(|x| *x = math::sigmoid(*x / router.temperature));
        }
        Scoring::Softmax => {
            let mut top = f32::NEG_INFINITY;
            for x in scores.iter_mut() {
                *x /= router.temperature;
                top = if *x > top { *x } else { top };
            }
            let mut sum = 0.0;
            for x in scores.iter_mut() {
                *x = math::exp(*x - top);
                sum += *x;
            }
            scores.iter_mut().for_each(|x| *x /= sum);
        }
    }
    // The best by score plus bias; a NaN is never better, so a row of NaN takes the first experts.
    let mut sum = 0.0;
    for place in 0..routes.len() {
        let (mut best, mut at) = (f32::NEG_INFINITY, None);
        for (e, (score, bias)) in scores.iter().zip(router.bias).enumerate() {
            let taken = routes[..place].iter().any(|&(other, _)| other as usize == e);
            if !taken && (at.is_none() || score + bias > best) {
                (best, at) = (score + bias, Some(e));
            }
        }
        let e = at.unwrap_or(place);
        routes[place] = (e as u32, scores[e]);
        sum += scores[e];
    }
    let divisor = if router.normalise { sum + 1e-20 } else { 1.0 };
    for (_, weight) in routes.iter_mut() {
        *weight = *weight / divisor * router.scale;
    }
    routes.sort_unstable_by_key(|&(e, _)| e);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_hold_rows_by_ascending_expert() {
        let routes = [(1, 0.5), (3, 0.25), (0, 1.0), (3, 2.0), (1, 4.0), (3, 8.0)];
        let mut groups = Groups::new(3, 2, 4);
        groups.fill(&routes, 2, 4);
        let seen: Vec<(usize, &[u32])> =
            groups.used.iter().map(|g| (g.expert, groups.rows(g))).collect();
        assert_eq!(seen, [(0, &[1][..]), (1, &[0, 2]), (3, &[0, 1, 2])]);
        assert_eq!(groups.weights, [1.0, 0.5, 4.0, 0.25, 2.0, 8.0]);
        assert_eq!(groups.places, [1, 3, 0, 4, 2, 5]);
    }
}
