//! Steps on the residual streams: embedding, Engram, taps, hyper-connections.

use finback_kernels::args::{
    EmbedArgs, EngramGateArgs, EngramGatherArgs, HyperInArgs, HyperOutArgs, TapArgs,
};
use finback_numerics::fp8::E8M0_NAN;
use finback_ops::{EngramLayer, OpsError, OpsResult, Rows, Site, look_back};

use crate::linear::index;
use crate::ops::GpuOps;
use crate::products::word;
use crate::rows::{Input, Of, Out};

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
            pad: 0,
        };
        self.queue.push(self.kernels.embed, &args, [word(rows.len()), 1])
    }

    pub(crate) fn engram_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.check_rows("engram", &rows)?;
        let spec = self.spec.clone();
        let (Some(engram), Some(table)) = (&spec.engram, &spec.layer(layer).engram) else {
            return Ok(());
        };
        let Some((wkv, qk)) = self.weights.layers[layer].engram else { return Ok(()) };
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
        self.queue.push(self.kernels.engram_gather, &args, [word(n), 1])?;
        let input = Input { x: work.engram.at, width, stride: width, rows: n, round: true };
        let ready = self.products.ready(&mut self.queue, Of::Other, 0, input, &[&wkv])?;
        let round = spec.numerics.round_stores;
        let out = Out { at: work.engram_kv.at, stride: (d.hc + 1) * d.hidden, round };
        self.products.dense(&mut self.queue, &ready, &wkv, out)?;
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
        for r in rows {
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
        let (codes, scales) = (table.table.bytes(), table.table_scale.bytes());
        let (mut own_codes, mut own_scales) = (Vec::new(), Vec::new());
        for &row in &self.table_rows {
            let row = row as usize;
            let own = &scales[row * blocks..(row + 1) * blocks];
            if own.contains(&E8M0_NAN) {
                return Err(OpsError::nan_scale(&table.table_scale, &format!("row {row}")));
            }
            own_codes.extend_from_slice(&codes[row * dim..(row + 1) * dim]);
            own_scales.extend_from_slice(own);
        }
        self.queue.write(self.work.table_codes[table.which].at, &own_codes)?;
        self.queue.write(self.work.table_scales[table.which].at, &own_scales)
    }

    pub(crate) fn tap_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.check_rows("tap", &rows)?;
        let spec = self.spec.clone();
        let (Some(tap), Some(drafter)) = (spec.layer(layer).tap, &spec.drafter) else {
            return Ok(());
        };
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
        self.queue.push(self.kernels.tap, &args, [word(rows.len()), 1])
    }

    pub(crate) fn hyper_in_step(&mut self, layer: usize, site: Site, rows: Rows) -> OpsResult {
        self.check_rows("hyper_in", &rows)?;
        let spec = self.spec.clone();
        let (d, n, work) = (&spec.dims, rows.len(), &self.work);
        let site = &self.weights.layers[layer].sites[match site {
            Site::Attention => 0,
            Site::Ffn => 1,
        }];
        let width = d.hc * d.hidden;
        let streams = work.streams.row(rows.start);
        let input = Input { x: streams, width, stride: width, rows: n, round: false };
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

    pub(crate) fn hyper_out_step(&mut self, rows: Rows) -> OpsResult {
        self.check_rows("hyper_out", &rows)?;
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
        self.queue.push(self.kernels.hyper_out, &args, [word(rows.len()), 1])
    }
}
