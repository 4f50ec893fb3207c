//! The mixture of experts: the router, and the experts of many rows at once.

use finback_numerics::math;
use finback_ops::{OpsResult, Rows, Scoring};

use crate::device::{Gathered, Input, Job};
use crate::par::{cut, each, parts};
use crate::simd::Simd;
use crate::kernel::kernel;
use crate::ops::CpuOps;
use crate::row;

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
        // Hidden rows: one for each (row, place) in expert order, then the shared expert's.
        let work = &mut self.work;
        let input = Input { x: &work.x, stride: dims.hidden, rows: rows.clone(), round: true };
        let (gate, up) = (&mut work.hidden, &mut work.hidden_up);
        let mut lists: Vec<Gathered<'_>> = Vec::with_capacity(self.groups.used.len() + 1);
        for group in &self.groups.used {
            let e = &ffn.experts[group.expert];
            lists.push(Gathered { weights: [&e.w1, &e.w3], rows: self.groups.rows(group) });
        }
        lists.push(Gathered { weights: [&ffn.shared.w1, &ffn.shared.w3], rows: &self.groups.all[..n] });
        self.device.expert_in(input, &lists, [&mut gate[..], &mut up[..]], inter, round)?;

        let routed = n * topk;
        let split = parts(0..routed + n, self.device.team.threads());
        let mut contexts: Vec<_> =
            cut(gate, inter, &split).into_iter().zip(cut(up, inter, &split)).zip(split).collect();
        let (isa, limit, weights) = (self.device.isa, dims.swiglu_limit, &self.groups.weights);
        each(&mut self.device.team, &mut contexts, |_, ((gate, up), part)| {
            let hidden = gate.chunks_exact_mut(inter).zip(up.chunks_exact(inter));
            for (i, (gate, up)) in part.clone().zip(hidden) {
                swiglu(isa, gate, up, weights.get(i).copied().unwrap_or(1.0), limit, round);
            }
        })?;

        let mut lists: Vec<Gathered<'_, 1>> = Vec::with_capacity(self.groups.used.len() + 1);
        for group in &self.groups.used {
            let e = &ffn.experts[group.expert];
            lists.push(Gathered { weights: [&e.w2], rows: self.groups.rows(group) });
        }
        lists.push(Gathered { weights: [&ffn.shared.w2], rows: &self.groups.all[..n] });
        let input = Input { x: &work.hidden, stride: inter, rows: 0..routed + n, round: true };
        let out = &mut work.y[rows.start * dims.hidden..rows.end * dims.hidden];
        self.device.expert_out(input, &lists, out, dims.hidden, round)?;
        Ok(())
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
    /// `0, 1, 2, ..`: the rows of the shared expert.
    pub all: Vec<u32>,
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
            all: (0..rows as u32).collect(),
            starts: Vec::with_capacity(experts + 1),
        }
    }

    /// The rows of a group, ascending.
    pub fn rows(&self, group: &GroupOf) -> &[u32] {
        &self.order[group.start..group.end]
    }

    /// Sorts routes `[rows, topk]` by expert.
    fn fill(&mut self, routes: &[(u32, f32)], topk: usize, experts: usize) {
        let Self { used, order, weights, starts, .. } = self;
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
        for (i, &(e, weight)) in routes.iter().enumerate() {
            let at = &mut starts[e as usize];
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
    }
}
