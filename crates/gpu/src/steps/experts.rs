//! The mixture of experts: the router, and the experts of all rows at once.

use std::ops::Range;

use finback_kernels::args::{
    GroupArgs, RouteArgs, RouteFewArgs, SumExpertsArgs, SwigluArgs, scoring,
};
use finback_kernels::manifest::ROUTE_FEW;
use finback_kernels::tiles::is_in_turn;
use finback_ops::{Ffn, OpsError, OpsResult, Rows, Scoring};

use crate::hosted::Fetched;
use crate::linear::Takes;
use crate::ops::{GpuOps, Pending};
use crate::products::{by_slice, word};
use crate::rows::{Input, Of, Out, Ready, Used};

/// Rows that fill a device with a group each: then SwiGLU's groups take whole ones.
const WHOLE_ROWS: usize = 4096;

/// Whether so many rows are routed and ordered by one launch.
fn is_few(rows: usize, ffn: &Ffn) -> bool {
    let (most_rows, routes, scores) = ROUTE_FEW;
    rows <= most_rows && rows * ffn.topk <= routes && rows * ffn.experts.len() <= scores
}

impl GpuOps {
    pub(crate) fn route_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.check_rows("route", &rows)?;
        let spec = self.spec.clone();
        let (d, ffn) = (&spec.dims, &spec.layer(layer).ffn);
        let (gate, bias) = (self.weights.layers[layer].gate, self.weights.layers[layer].bias);
        let shared = self.weights.layers[layer].shared_in;
        let (input, both) = (self.x(&rows), [&gate as &dyn Takes, &shared]);
        let mut ready = self.products.ready(&mut self.queue, Of::X, rows.start, input, &both)?;
        let count = ffn.experts.len();
        let out = Out { at: self.work.gates.at, stride: count, round: false };
        self.products.dense(&mut self.queue, &ready, &gate, out)?;
        let scoring = match d.scoring {
            Scoring::SqrtSoftplus => scoring::SQRT_SOFTPLUS,
            Scoring::Sigmoid => scoring::SIGMOID,
            Scoring::Softmax => scoring::SOFTMAX,
        };
        let normalise = u32::from(d.norm_topk && ffn.topk > 1);
        let (work, routes) = (&self.work, rows.len() * ffn.topk);
        if is_few(rows.len(), ffn) {
            let args = RouteFewArgs {
                logits: work.gates.at,
                bias,
                experts: work.experts.at,
                weights: work.weights.at,
                places: work.places.at,
                rows: work.place_rows.at,
                sorted: work.routed_row(work.sorted),
                groups: work.groups.at,
                count: word(count),
                topk: word(ffn.topk),
                scoring,
                normalise,
                temperature: d.gate_temp,
                scale: d.route_scale,
                row_count: word(rows.len()),
                groups_max: word(routes.min(count)),
            };
            // The shared experts' bytes flow while one group makes the routes, which they do not need.
            ready.beside = self.queue.last().is_some_and(is_in_turn);
            self.queue.push(self.kernels.route_few, &args, [1, 1])?;
            return self.shared_in(layer, &ready);
        }
        let args = RouteArgs {
            logits: work.gates.at,
            bias,
            experts: work.experts.at,
            weights: work.weights.at,
            count: word(count),
            topk: word(ffn.topk),
            scoring,
            normalise,
            temperature: d.gate_temp,
            scale: d.route_scale,
        };
        self.queue.push(self.kernels.route, &args, [word(rows.len()), 1])?;
        self.shared_in(layer, &ready)
    }

    /// The first products of the shared experts.
    fn shared_in(&mut self, layer: usize, ready: &Ready) -> OpsResult {
        let (n, inter) = (ready.input.rows, self.own.inter);
        let round = self.spec.numerics.round_stores;
        let shared = self.weights.layers[layer].shared_in;
        let parts = [self.work.hidden, self.work.hidden_up];
        let outs =
            parts.map(|part| Out { at: self.work.shared_row(part, n), stride: inter, round });
        self.products.both(&mut self.queue, ready, &shared, outs)
    }

    /// The order of the routes by expert, where [`GpuOps::route_step`] has not made it.
    fn group_routes(&mut self, routes: usize, topk: usize, groups: usize) -> OpsResult {
        let args = GroupArgs {
            experts: self.work.experts.at,
            weights: self.work.weights.at,
            places: self.work.places.at,
            rows: self.work.place_rows.at,
            sorted: self.work.routed_row(self.work.sorted),
            groups: self.work.groups.at,
            routes: word(routes),
            topk: word(topk),
            groups_max: word(groups),
            pad: 0,
        };
        let kernel = self.wide.group_routes.unwrap_or(self.kernels.group_routes);
        self.queue.push(kernel, &args, [1, 1])
    }

    pub(crate) fn experts_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.check_rows("experts", &rows)?;
        let spec = self.spec.clone();
        let (d, ffn, n) = (&spec.dims, &spec.layer(layer).ffn, rows.len());
        // This device's channels of every expert; the next product takes all of them.
        let (round, inter) = (spec.numerics.round_stores, self.own.inter);
        let weights = &self.weights.layers[layer];
        let (routed_in, routed_down) = (weights.routed_in, weights.routed_out);
        let shared_down = weights.shared_out;
        let routes = n * ffn.topk;
        // As many groups as there may be; the ones past the used experts have no places.
        let groups = routes.min(ffn.experts.len());
        if !is_few(n, ffn) {
            self.group_routes(routes, ffn.topk, groups)?;
        }
        let input = self.x(&rows);
        let ready =
            self.products.ready(&mut self.queue, Of::X, rows.start, input, &[&routed_in])?;
        let place_rows = self.work.place_rows.at;
        let (hidden, up) = (self.work.hidden, self.work.hidden_up);
        let out = |at: u64| Out { at, stride: inter, round };
        let outs = [out(self.work.routed_row(hidden)), out(self.work.routed_row(up))];
        // Where nothing writes groups after those products.
        let mut known = self.hosted.is_none();
        for turn in self.turns(groups) {
            let used = self.used(&turn, routed_in.fetched.as_ref(), n, false)?;
            let queue = &mut self.queue;
            self.products.experts_both(queue, &ready, &routed_in, used, place_rows, outs)?;
            known &= queue.last().is_some_and(is_in_turn);
        }
        let hidden = self.work.shared_row(self.work.hidden, n);
        let weights: [&dyn Takes; 2] = [&routed_down, &shared_down];
        let shared = inter < d.inter;
        // Rows that devices bring together are coded after that: a part may end within a step.
        let coded = self.products.other_coded(&weights).filter(|_| !shared);
        let slices = if n + routes < WHOLE_ROWS { inter.div_ceil(512) } else { 1 };
        let args = SwigluArgs {
            gate: hidden,
            up: self.work.shared_row(self.work.hidden_up, n),
            weights: self.work.shared_row(self.work.sorted, n),
            out: if coded.is_some() { 0 } else { hidden },
            coded: coded.unwrap_or(0),
            width: word(inter),
            weighted: 1,
            limit: d.swiglu_limit,
            round: u32::from(round),
            slices: word(slices),
            pad: 0,
        };
        let grid = [word(n + routes), word(slices)];
        self.queue.push(self.kernels.swiglu, &args, grid)?;
        let x = if shared { self.work.hidden_up.at } else { hidden };
        if shared {
            self.parts.gather(&mut self.queue, hidden, (n + routes, inter), (x, d.inter))?;
        }

        let (width, stride) = (d.inter, d.inter);
        let input = Input { x, width, stride, rows: n + routes, round: true, kept: false };
        let ready = match coded {
            Some(coded) => Ready { input, codes: 0, scales: 0, coded, plain: 0, beside: false },
            None => self.products.ready(&mut self.queue, Of::Other, 0, input, &weights)?,
        };
        let shared_out = self.work.shared_row(self.work.expert_out, n);
        let routed_out = self.work.routed_row(self.work.expert_out);
        let out = Out { at: routed_out, stride: self.own.hidden, round };
        let routed = ready.part(n, routes);
        for turn in self.turns(groups) {
            let used = self.used(&turn, routed_down.fetched.as_ref(), n, known)?;
            self.products.experts(&mut self.queue, &routed, &routed_down, used, 0, out)?;
        }
        let out = Out { at: shared_out, ..out };
        self.products.dense(&mut self.queue, &ready.part(0, n), &shared_down, out)?;
        if shared {
            return self.sum_experts(&rows, ffn.topk);
        }
        // The sum of the experts waits for the streams' expansion, which may take it along.
        self.pending = Some(Pending { rows, experts: Some(ffn.topk) });
        Ok(())
    }

    /// The groups of used experts in turns: as many as there are places for, where they stay on the host.
    fn turns(&self, groups: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let most = self.hosted.as_ref().map_or(groups, |hosted| hosted.places).max(1);
        (0..groups).step_by(most).map(move |first| first..groups.min(first + most))
    }

    /// The experts of a turn, brought to their places where they stay on the host.
    fn used(
        &mut self,
        turn: &Range<usize>,
        fetched: Option<&Fetched>,
        rows: usize,
        known: bool,
    ) -> Result<Used, OpsError> {
        let (at, count) = (self.work.groups.row(turn.start), turn.len());
        let at = match (&self.hosted, fetched) {
            (Some(hosted), Some(fetched)) => hosted.bring(&mut self.queue, fetched, at, count)?,
            _ => at,
        };
        Ok(Used { at, count, rows, known })
    }

    /// `y =` the experts of the last [`GpuOps::experts_step`] added up.
    pub(crate) fn sum_experts(&mut self, rows: &Rows, topk: usize) -> OpsResult {
        let (n, width, whole) = (rows.len(), self.own.hidden, self.spec.dims.hidden);
        let (y, parts, work) = (self.work.y.row(rows.start), self.parts, &self.work);
        let args = SumExpertsArgs {
            routed: work.routed_row(work.expert_out),
            shared: work.shared_row(work.expert_out, n),
            places: work.places.at,
            out: y,
            width: word(width),
            topk: word(topk),
            round: u32::from(self.spec.numerics.round_stores),
            pad: 0,
        };
        if width == whole {
            return self.queue.push(self.kernels.sum_experts, &args, by_slice(n, width));
        }
        for turn in parts.turns(n, width) {
            let skip = |words: usize| (4 * turn.start * words) as u64;
            let (shared, places) = (args.shared + skip(width), args.places + skip(topk));
            let args = SumExpertsArgs { shared, places, out: parts.own(), ..args };
            self.queue.push(self.kernels.sum_experts, &args, by_slice(turn.len(), width))?;
            let to = (y + skip(whole), whole);
            parts.gather(&mut self.queue, parts.own(), (turn.len(), width), to)?;
        }
        Ok(())
    }
}
