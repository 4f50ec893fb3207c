//! The mixture of experts: the router, and the experts of all rows at once.

use std::ops::Range;

use finback_kernels::args::{
    GroupArgs, RouteArgs, RouteFewArgs, SumExpertsArgs, SwigluArgs, scoring,
};
use finback_kernels::manifest::ROUTE_FEW;
use finback_kernels::tiles::{Gated, is_in_turn, row_bytes};
use finback_ops::{Ffn, OpsError, OpsResult, Rows, Scoring};

use crate::hosted::Fetched;
use crate::linear::Takes;
use crate::ops::{GpuOps, Pending};
use crate::products::{by_slice, word};
use crate::rows::{Input, Of, Out, Ready, Used};

/// Rows that fill a device with a group each: then SwiGLU's groups take whole ones.
const WHOLE_ROWS: usize = 4096;

/// Of how many processors two make the rest of the shared experts beside the routed ones, of few rows and of more, whose
/// routed experts take longer.
const SHARE_OF_FEW: u32 = 11;
const SHARE_OF_MORE: u32 = 36;

/// Whether so many rows are routed and ordered by one launch.
fn is_few(rows: usize, ffn: &Ffn) -> bool {
    let (most_rows, routes, scores) = ROUTE_FEW;
    rows <= most_rows && rows * ffn.topk <= routes && rows * ffn.experts.len() <= scores
}

impl GpuOps {
    /// The choice of experts, and the shared experts, which do not need it.
    pub(crate) fn route_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.check_rows("route", &rows)?;
        let (gate, shared) = {
            let weights = &self.weights.layers[layer];
            (weights.gate, weights.shared_in)
        };
        let (input, both) = (self.x(&rows), [&gate as &dyn Takes, &shared]);
        let mut ready = self.products.ready(&mut self.queue, Of::X, rows.start, input, &both)?;
        self.choose_experts(layer, &rows, &mut ready)?;
        self.shared_in(layer, &ready)?;
        self.beside(|ops| ops.shared_out(layer, rows.len()))
    }

    /// The routes of all rows, in order of experts; says where the shared experts' first product may run beside that.
    fn choose_experts(&mut self, layer: usize, rows: &Rows, ready: &mut Ready) -> OpsResult {
        let spec = self.spec.clone();
        let (d, ffn) = (&spec.dims, &spec.layer(layer).ffn);
        let (gate, bias) = (self.weights.layers[layer].gate, self.weights.layers[layer].bias);
        let count = ffn.experts.len();
        let out = Out { at: self.work.gates.at, stride: count, round: false };
        self.products.dense(&mut self.queue, ready, &gate, out)?;
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
            return self.queue.push(self.kernels.route_few, &args, [1, 1]);
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
        self.group_routes(routes, ffn.topk, routes.min(count))
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

    /// Where rows that the experts' second products take lie as codes, the shared experts' before the routed ones';
    /// `None` where they are not coded by SwiGLU: one takes another form, or devices bring parts together first, which
    /// may end within a step.
    fn coded_hidden(&self, layer: usize) -> Option<u64> {
        let weights = &self.weights.layers[layer];
        let both: [&dyn Takes; 2] = [&weights.routed_out, &weights.shared_out];
        self.products.other_coded(&both).filter(|_| self.own.inter == self.spec.dims.inter)
    }

    /// The processors that the rest of the shared experts has beside the routed ones' first product, where it is made
    /// there: so many that it ends before that.
    fn shared_width(&self, layer: usize, rows: usize) -> Option<u32> {
        let few = is_few(rows, &self.spec.layer(layer).ffn);
        let own = 2 * self.products.width() / if few { SHARE_OF_FEW } else { SHARE_OF_MORE };
        let aside = self.queue.is_taped() && self.coded_hidden(layer).is_some();
        aside.then_some(own.max(1))
    }

    /// The rest of the shared experts, where it need not wait for the routed ones: beside those.
    fn shared_out(&mut self, layer: usize, rows: usize) -> OpsResult {
        let Some(coded) = self.coded_hidden(layer) else { return Ok(()) };
        if let Some(own) = self.shared_width(layer, rows) {
            self.go_aside(own);
        }
        self.swiglu(0..rows, rows, Some(coded))?;
        let ready = self.hidden_rows(rows, rows, coded);
        self.shared_down(layer, &ready)
    }

    /// SwiGLU of some of the experts' rows, of which the shared ones come first: as codes where an address is given
    /// for the first of all.
    fn swiglu(&mut self, of: Range<usize>, shared: usize, coded: Option<u64>) -> OpsResult {
        let (work, inter) = (&self.work, self.own.inter);
        let skip = |at: u64, width: usize| at + (4 * of.start * width) as u64;
        let hidden = skip(work.shared_row(work.hidden, shared), inter);
        let slices = if of.len() < WHOLE_ROWS { inter.div_ceil(512) } else { 1 };
        let args = SwigluArgs {
            gate: hidden,
            up: skip(work.shared_row(work.hidden_up, shared), inter),
            weights: skip(work.shared_row(work.sorted, shared), 1),
            out: if coded.is_some() { 0 } else { hidden },
            coded: coded.map_or(0, |at| at + (of.start * row_bytes(true, inter)) as u64),
            width: word(inter),
            weighted: 1,
            limit: self.spec.dims.swiglu_limit,
            round: u32::from(self.spec.numerics.round_stores),
            slices: word(slices),
            pad: 0,
        };
        self.queue.push(self.kernels.swiglu, &args, [word(of.len()), word(slices)])
    }

    /// The first of the experts' rows, of which shared ones come first, as SwiGLU codes them to an address.
    fn hidden_rows(&self, rows: usize, shared: usize, coded: u64) -> Ready {
        let (x, width) = (self.work.shared_row(self.work.hidden, shared), self.own.inter);
        let input = Input { x, width, stride: width, rows, round: true, kept: false };
        Ready { coded, ..Ready::new(input) }
    }

    /// The last product of the shared experts.
    fn shared_down(&mut self, layer: usize, ready: &Ready) -> OpsResult {
        let at = self.work.shared_row(self.work.expert_out, ready.input.rows);
        let round = self.spec.numerics.round_stores;
        let out = Out { at, stride: self.own.hidden, round };
        let down = self.weights.layers[layer].shared_out;
        self.products.dense(&mut self.queue, ready, &down, out)
    }

    /// The order of the routes by expert.
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
        let left = self.shared_width(layer, n).unwrap_or(0);
        let input = self.x(&rows);
        let ready =
            self.products.ready(&mut self.queue, Of::X, rows.start, input, &[&routed_in])?;
        let place_rows = self.work.place_rows.at;
        let (hidden, up) = (self.work.hidden, self.work.hidden_up);
        let out = |at: u64| Out { at, stride: inter, round };
        let outs = [out(self.work.routed_row(hidden)), out(self.work.routed_row(up))];
        let coded = self.coded_hidden(layer);
        // Where nothing writes groups after those products.
        let mut known = self.hosted.is_none();
        let mut gated = false;
        self.leaving(left, |ops| {
            if let Some(at) = coded.filter(|_| known) {
                let row = Gated {
                    x: ready.coded,
                    groups: ops.work.groups.at,
                    shares: ops.work.routed_row(ops.work.sorted),
                    coded: at + (n * row_bytes(true, inter)) as u64,
                    limit: d.swiglu_limit,
                    round,
                };
                let queue = &mut ops.queue;
                gated = ops.products.experts_gated(queue, &ready, &routed_in, groups, &row)?;
            }
            for turn in ops.turns(groups).filter(|_| !gated) {
                let used = ops.used(&turn, routed_in.fetched.as_ref(), n, false)?;
                let queue = &mut ops.queue;
                ops.products.experts_both(queue, &ready, &routed_in, used, place_rows, outs)?;
                known &= queue.last().is_some_and(is_in_turn);
            }
            Ok(())
        })?;
        let ready = match coded {
            Some(at) => {
                if !gated {
                    self.swiglu(n..n + routes, n, coded)?;
                }
                self.hidden_rows(n + routes, n, at)
            }
            None => self.gathered_hidden(n, routes, &[&routed_down, &shared_down])?,
        };
        let routed_out = self.work.routed_row(self.work.expert_out);
        let out = Out { at: routed_out, stride: self.own.hidden, round };
        let routed = ready.part(n, routes);
        for turn in self.turns(groups) {
            let used = self.used(&turn, routed_down.fetched.as_ref(), n, known)?;
            self.products.experts(&mut self.queue, &routed, &routed_down, used, 0, out)?;
        }
        if coded.is_none() {
            self.shared_down(layer, &ready.part(0, n))?;
        }
        if inter < d.inter {
            return self.sum_experts(&rows, ffn.topk);
        }
        // The sum of the experts waits for the streams' expansion, which may take it along.
        self.pending = Some(Pending { rows, experts: Some(ffn.topk) });
        Ok(())
    }

    /// The rows of SwiGLU of all experts, shared ones first, whole and in the form that these weights take.
    fn gathered_hidden(
        &mut self,
        shared: usize,
        routes: usize,
        weights: &[&dyn Takes],
    ) -> Result<Ready, OpsError> {
        self.swiglu(0..shared + routes, shared, None)?;
        let (own, width) = (self.own.inter, self.spec.dims.inter);
        let hidden = self.work.shared_row(self.work.hidden, shared);
        let rows = shared + routes;
        let x = if own < width { self.work.hidden_up.at } else { hidden };
        if own < width {
            self.parts.gather(&mut self.queue, hidden, (rows, own), (x, width))?;
        }
        let input = Input { x, width, stride: width, rows, round: true, kept: false };
        self.products.ready(&mut self.queue, Of::Other, 0, input, weights)
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
        // The shared experts may still be aside.
        self.queue.join();
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
