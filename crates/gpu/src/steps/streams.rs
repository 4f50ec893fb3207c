//! Steps on the residual streams: embedding, Engram, taps, hyper-connections.

use finback_kernels::args::{
    EmbedArgs, EngramGateArgs, EngramGatherArgs, HyperInArgs, HyperMixArgs, HyperNormArgs,
    HyperOutArgs, TapArgs,
};
use finback_kernels::tiles::is_in_turn;
use finback_numerics::fp8::E8M0_NAN;
use finback_ops::{EngramLayer, Format, OpsError, OpsResult, Rows, Site, look_back};

use crate::linear::index;
use crate::ops::{Factors, GpuOps, Pending};
use crate::products::{by_slice, word};
use crate::rows::{Input, Of, Out};
use crate::wide::Mix;

impl GpuOps {
    pub(crate) fn embed_step(&mut self, rows: Rows) -> OpsResult {
        self.check_rows("embed", &rows)?;
        let (d, weight, work) = (&self.spec.dims, &self.weights.embed, &self.work);
        let args = EmbedArgs {
            table: weight.data,
            tokens: self.batch.tokens + 4 * rows.start as u64,
            streams: work.streams.row(rows.start),
            pre: work.pre.row(rows.start),
            width: word(d.hidden),
            hc: word(d.hc),
            format: index(weight.format) as u32,
            round: u32::from(self.spec.numerics.round_stores),
        };
        self.queue.push(self.kernels.embed, &args, by_slice(rows.len(), d.hidden))
    }

    pub(crate) fn engram_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.check_rows("engram", &rows)?;
        let spec = self.spec.clone();
        let (Some(engram), Some(table)) = (&spec.engram, &spec.layer(layer).engram) else {
            return Ok(());
        };
        let Some((wkv, qk)) = self.weights.layers[layer].engram else { return Ok(()) };
        self.expand_pending()?;
        self.read_table(table, rows.clone())?;
        let (d, n, work) = (&spec.dims, rows.len(), &self.work);
        let width = engram.columns() * engram.dim;
        let args = EngramGatherArgs {
            table: work.table_codes[table.which].at,
            scales: work.table_scales[table.which].at,
            ids: work.table_ids.at,
            out: work.engram.at,
            columns: word(engram.columns()),
            dim: word(engram.dim),
        };
        self.queue.push(self.kernels.engram_gather, &args, by_slice(n, width))?;
        let input =
            Input { x: work.engram.at, width, stride: width, rows: n, round: true, kept: false };
        let ready = self.products.ready(&mut self.queue, Of::Other, 0, input, &[&wkv])?;
        let round = spec.numerics.round_stores;
        let whole = (d.hc + 1) * d.hidden;
        let out = Out { at: work.engram_kv.at, stride: whole, round };
        self.dense_whole(&ready, &wkv, whole, out)?;
        let work = &self.work;
        let args = EngramGateArgs {
            streams: work.streams.row(rows.start),
            kv: work.engram_kv.at,
            qk,
            width: word(d.hidden),
            hc: word(d.hc),
            eps: d.eps,
            round: u32::from(round),
        };
        self.queue.push(self.kernels.engram_gate, &args, [word(d.hc), word(n)])
    }

    /// Reads the table rows of the batch's rows from the map and copies them to the device.
    fn read_table(&mut self, table: &EngramLayer, rows: Rows) -> OpsResult {
        let spec = self.spec.clone();
        let Some(engram) = &spec.engram else { return Ok(()) };
        let (columns, dim, blocks) = (engram.columns(), engram.dim, engram.dim / 32);
        let mut ids = Vec::with_capacity(engram.ngram);
        self.table_rows.clear();
        for r in rows.clone() {
            if let Some(staged) = self.stage.rows(table.which, r, columns) {
                self.table_rows.extend_from_slice(staged);
                continue;
            }
            let Some(span) = self.batch.spans.iter().rfind(|span| span.first <= r) else {
                continue;
            };
            let kept = self.state.recent(span.slot);
            look_back(engram, kept, r - span.first, |i| span.tokens[i], &mut ids);
            engram.rows(table.which, &ids, &mut self.table_rows);
        }
        let mut read = std::mem::take(&mut self.table_read);
        let (codes, scales) = match self.stage.table(table.which) {
            Some(ahead) => {
                let part = |bytes: usize| rows.start * bytes..rows.end * bytes;
                (&ahead.codes[part(columns * dim)], &ahead.scales[part(columns * blocks)])
            }
            None => {
                read.read(table, dim, &self.table_rows);
                (&read.codes[..], &read.scales[..])
            }
        };
        if let Some(at) = scales.iter().position(|&scale| scale == E8M0_NAN) {
            let row = self.table_rows[at / blocks];
            return Err(OpsError::nan_scale(&table.table_scale, &format!("row {row}")));
        }
        self.queue.write_beside(self.work.table_codes[table.which].at, codes)?;
        self.queue.write_beside(self.work.table_scales[table.which].at, scales)?;
        self.table_read = read;
        Ok(())
    }

    pub(crate) fn tap_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.check_rows("tap", &rows)?;
        let spec = self.spec.clone();
        let (Some(tap), Some(drafter)) = (spec.layer(layer).tap, &spec.drafter) else {
            return Ok(());
        };
        self.expand_pending()?;
        let d = &spec.dims;
        let args = TapArgs {
            streams: self.work.streams.row(rows.start),
            out: self.work.taps.row(rows.start),
            width: word(d.hidden),
            hc: word(d.hc),
            stride: word(drafter.taps * d.hidden),
            at: word(tap * d.hidden),
            round: u32::from(spec.numerics.round_stores),
            pad: 0,
        };
        self.queue.push(self.kernels.tap, &args, by_slice(rows.len(), d.hidden))
    }

    pub(crate) fn hyper_in_step(&mut self, layer: usize, which: Site, rows: Rows) -> OpsResult {
        self.check_rows("hyper_in", &rows)?;
        let sliced = self.weights.layers[layer].site(which).mix.format == Format::F32;
        if let Some(mix) = self.wide.mix.filter(|_| sliced) {
            return self.hyper_in_slices(layer, which, rows, &mix);
        }
        self.expand_pending()?;
        let spec = self.spec.clone();
        let (d, n, work) = (&spec.dims, rows.len(), &self.work);
        let site = self.weights.layers[layer].site(which);
        let width = d.hc * d.hidden;
        let streams = work.streams.row(rows.start);
        let kept = spec.numerics.round_stores;
        let input = Input { x: streams, width, stride: width, rows: n, round: false, kept };
        let ready = self.products.ready(&mut self.queue, Of::Other, 0, input, &[&site.mix])?;
        let mix = work.mix.row(rows.start);
        let out = Out { at: mix, stride: (2 + d.hc) * d.hc, round: false };
        self.products.dense(&mut self.queue, &ready, &site.mix, out)?;
        self.products.changed(Of::X);
        let [scale_pre, scale_post, scale_comb] = site.scale;
        let args = HyperInArgs {
            streams,
            mix,
            base: site.base,
            norm: site.norm,
            pre: work.pre.row(rows.start),
            post: work.post.row(rows.start),
            comb: work.comb.row(rows.start),
            x: work.x.row(rows.start),
            width: word(d.hidden),
            hc: word(d.hc),
            iterations: word(d.sinkhorn),
            round: u32::from(spec.numerics.round_stores),
            eps: d.eps,
            hc_eps: d.hc_eps,
            scale_pre,
            scale_post,
            scale_comb,
            pad: 0,
        };
        self.queue.push(self.kernels.hyper_in, &args, [word(n), 1])
    }

    /// [`GpuOps::hyper_in_step`] over slices, which expands the streams where that is still to be done.
    fn hyper_in_slices(&mut self, layer: usize, which: Site, rows: Rows, mix: &Mix) -> OpsResult {
        let pending = self.pending.take_if(|pending| pending.rows == rows);
        self.expand_pending()?;
        let spec = self.spec.clone();
        self.products.changed(Of::X);
        let (d, n, work) = (&spec.dims, rows.len(), &self.work);
        let [plain, rounded] = self.products.make_both(Of::X, rows.clone(), d.hidden);
        let x = work.x.row(rows.start);
        let collapsed = if mix.tiled { plain } else { x };
        let reads = self.weights.layers[layer].reads_f32(which);
        let site = self.weights.layers[layer].site(which);
        let round = u32::from(spec.numerics.round_stores);
        let experts = pending.as_ref().and_then(|pending| pending.experts);
        let each = mix.rows_each(n, self.products.width());
        let args = HyperMixArgs {
            streams: work.streams.row(rows.start),
            y: work.y.row(rows.start),
            routed: experts.map_or(0, |_| work.routed_row(work.expert_out)),
            shared: experts.map_or(0, |_| work.shared_row(work.expert_out, n)),
            places: work.places.at,
            post: work.post.row(rows.start),
            comb: work.comb.row(rows.start),
            pre: work.pre.row(rows.start),
            weight: site.mix.data,
            collapsed,
            parts: mix.parts.row(rows.start),
            width: word(d.hidden),
            hc: word(d.hc),
            columns: word(mix.columns),
            rows: word(n),
            rows_each: word(each),
            topk: word(experts.unwrap_or(0)),
            expand: u32::from(pending.is_some()),
            round,
        };
        self.queue.join();
        self.queue.push(mix.mix, &args, [word(mix.slices), word(n.div_ceil(each))])?;
        let [scale_pre, scale_post, scale_comb] = site.scale;
        let norms = word(d.hidden.div_ceil(512));
        let args = HyperNormArgs {
            collapsed,
            parts: mix.parts.row(rows.start),
            base: site.base,
            norm: site.norm,
            pre: work.pre.row(rows.start),
            post: work.post.row(rows.start),
            comb: work.comb.row(rows.start),
            x: if reads { x } else { 0 },
            plain,
            rounded,
            width: word(d.hidden),
            hc: word(d.hc),
            slices: word(mix.slices),
            iterations: word(d.sinkhorn),
            round,
            eps: d.eps,
            hc_eps: d.hc_eps,
            scale_pre,
            scale_post,
            scale_comb,
            kept: u32::from(mix.tiled),
            first: 0,
            known: 0,
            pad: 0,
        };
        if !self.queue.is_taped() {
            return self.queue.push(mix.norm, &args, [word(n), 1 + norms]);
        }
        // What the next site takes is made beside this one's sublayer: attention's output says where, experts have launches
        // aside anyway.
        if which == Site::Attention {
            self.factors = Some(Factors { kernel: mix.norm, args, rows: word(n) });
        } else {
            self.queue.go_aside(true);
            self.queue.push(mix.norm, &args, [word(n), 1])?;
            self.queue.go_aside(false);
        }
        self.queue.push(mix.norm, &HyperNormArgs { first: 1, ..args }, [word(n), norms])
    }

    /// What the next site takes, where it is still to be made.
    pub(crate) fn make_factors(&mut self) -> OpsResult {
        let Some(Factors { kernel, args, rows }) = self.factors.take() else { return Ok(()) };
        // A product does not write what it is made from, so it may be made beside the last one.
        let known = self.queue.last().is_some_and(is_in_turn).into();
        self.queue.push(kernel, &HyperNormArgs { known, ..args }, [rows, 1])
    }

    /// The streams' expansion waits for the next step, which may do it on its way.
    pub(crate) fn hyper_out_step(&mut self, rows: Rows) -> OpsResult {
        self.check_rows("hyper_out", &rows)?;
        let sums =
            self.pending.take_if(|pending| pending.experts.is_some() && pending.rows == rows);
        self.expand_pending()?;
        self.pending = Some(sums.unwrap_or(Pending { rows, experts: None }));
        Ok(())
    }

    /// Expands the streams where that is still to be done.
    pub(crate) fn expand_pending(&mut self) -> OpsResult {
        self.make_factors()?;
        let Some(Pending { rows, experts }) = self.pending.take() else { return Ok(()) };
        if let Some(topk) = experts {
            self.sum_experts(&rows, topk)?;
        }
        let (d, work) = (&self.spec.dims, &self.work);
        let args = HyperOutArgs {
            streams: work.streams.row(rows.start),
            y: work.y.row(rows.start),
            post: work.post.row(rows.start),
            comb: work.comb.row(rows.start),
            width: word(d.hidden),
            hc: word(d.hc),
            round: u32::from(self.spec.numerics.round_stores),
            pad: 0,
        };
        self.queue.join();
        self.queue.push(self.kernels.hyper_out, &args, by_slice(rows.len(), d.hidden))
    }
}
