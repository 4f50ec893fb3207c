//! Attention's steps: projections, compression, the attention itself, the output projection.

use finback_kernels::args::{AttendArgs, CompressedArgs, LatentsArgs, RmsnormArgs, TileAttendArgs};
use finback_kernels::manifest::SLICE;
use finback_kernels::tiles::is_in_turn;
use finback_ops::{OpsResult, Rows};

use crate::batch::ROW_WORDS;
use crate::ops::GpuOps;
use crate::products::word;
use crate::rows::{Input, Of, Out, Ready};
use crate::weights::Raw;
use crate::wide::Attend;

/// Processors of a small product that goes aside.
const ASIDE: u32 = 8;

impl GpuOps {
    pub(crate) fn project_step(&mut self, layer: usize, kv: Rows, q: Rows) -> OpsResult {
        self.check_rows("project", &kv)?;
        self.check_rows("project", &q)?;
        let q_norm = self.weights.layers[layer].q_norm;
        self.index_weights(layer, &q)?;
        self.latents(layer, &kv)?;
        if q.is_empty() {
            return self.finish_latents(layer, &kv, None);
        }
        self.finish_latents(layer, &(kv.start..q.start), None)?;
        self.finish_latents(layer, &(q.end..kv.end), None)?;
        self.finish_latents(layer, &q, Some(q_norm))?;
        match self.weights.layers[layer].indexer {
            // The choice, which comes next, pushes them, to be made beside it.
            Some(_) => Ok(()),
            None => self.queries(layer, &q, false),
        }
    }

    /// The queries of a layer's rows from their latents, by a product that takes processors `whole` or not.
    pub(crate) fn queries(&mut self, layer: usize, q: &Rows, whole: bool) -> OpsResult {
        let (d, round) = (&self.spec.dims, self.spec.numerics.round_stores);
        let wq_b = self.weights.layers[layer].wq_b;
        let input = self.qr(q);
        let ready = self.products.ready(&mut self.queue, Of::Qr, q.start, input, &[&wq_b])?;
        let heads = self.own.heads;
        let out = Out { at: self.work.q.row(q.start), stride: heads * d.head_dim, round };
        self.products.dense(&mut self.queue, &Ready { whole, ..ready }, &wq_b, out)
    }

    /// The projected latents of a layer's rows, in `kv` and `latent`.
    pub(crate) fn latents(&mut self, layer: usize, rows: &Rows) -> OpsResult {
        let joined = self.weights.layers[layer].latents;
        let (d, round) = (&self.spec.dims, self.spec.numerics.round_stores);
        let outs = [
            Out { at: self.work.kv.row(rows.start), stride: d.head_dim, round },
            Out { at: self.work.latent.row(rows.start), stride: d.q_rank, round },
        ];
        let input = self.x(rows);
        let ready = self.products.ready(&mut self.queue, Of::X, rows.start, input, &[&joined])?;
        // What finishes the latents waits for them, so the next product's weights may come while the rows are made. Keys'
        // product read these rows too.
        let beside = self.queue.last().is_some_and(is_in_turn);
        self.products.both(&mut self.queue, &Ready { early: true, beside, ..ready }, &joined, outs)
    }

    /// From the projected latents to packed window rows of a layer and, where their norm is given, the
    /// queries' latents as `wq_b` takes them.
    pub(crate) fn finish_latents(
        &mut self,
        layer: usize,
        rows: &Rows,
        q_norm: Option<u64>,
    ) -> OpsResult {
        self.write_angles()?;
        let (d, round) = (&self.spec.dims, self.spec.numerics.round_stores);
        let (dim, rank) = (d.head_dim, d.q_rank);
        let (cos, sin) = self.angles(layer, rows.start);
        let mut forms = [0, 0];
        if q_norm.is_some() {
            self.products.changed(Of::Qr);
            if rank.is_multiple_of(32) {
                forms = self.products.make_both(Of::Qr, rows.clone(), rank);
            }
        }
        let width = finback_numerics::rows::window_bytes(dim) as u64;
        let reads = self.weights.layers[layer].reads_f32_latent();
        let args = LatentsArgs {
            qr: q_norm.map_or(0, |_| self.work.latent.row(rows.start)),
            normed: if reads { self.work.qr.row(rows.start) } else { 0 },
            q_norm: q_norm.unwrap_or(0),
            plain: forms[0],
            coded: forms[1],
            kv: self.work.kv.row(rows.start),
            kv_norm: self.weights.layers[layer].kv_norm,
            cos,
            sin,
            out: self.state.fresh(layer) + rows.start as u64 * width,
            rank: word(rank),
            dim: word(dim),
            pairs: word(d.rope_dim / 2),
            round: u32::from(round),
            eps: d.eps,
            pad: 0,
        };
        let slices = word(dim.div_ceil(SLICE) + q_norm.map_or(0, |_| rank.div_ceil(SLICE)));
        self.queue.push(self.kernels.finish_latents, &args, [word(rows.len()), slices])
    }

    pub(crate) fn compress_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.check_rows("compress", &rows)?;
        self.write_angles()?;
        self.beside(|ops| ops.compress(layer, rows))
    }

    /// Of a taped pass: what follows goes aside, its products on so many processors.
    pub(crate) fn go_aside(&mut self, processors: u32) {
        if self.queue.is_taped() {
            self.queue.go_aside(true);
            self.products.set_width(processors.min(self.products.width()));
        }
    }

    /// A step that may go aside; what follows does not.
    pub(crate) fn beside(&mut self, step: impl FnOnce(&mut Self) -> OpsResult) -> OpsResult {
        let done = self.leaving(0, step);
        self.queue.go_aside(false);
        done
    }

    /// A step whose products leave so many processors to what runs beside it, of a taped pass.
    pub(crate) fn leaving(
        &mut self,
        processors: u32,
        step: impl FnOnce(&mut Self) -> OpsResult,
    ) -> OpsResult {
        let width = self.products.width();
        if self.queue.is_taped() {
            self.products.set_width(width.saturating_sub(processors).max(1));
        }
        let done = step(self);
        self.products.set_width(width);
        done
    }

    fn compress(&mut self, layer: usize, rows: Rows) -> OpsResult {
        let spec = self.spec.clone();
        let target = spec.layer(layer);
        let (Some(source), Some(weights)) = (target.source, &self.weights.layers[layer].compressor)
        else {
            return Ok(());
        };
        let source = self.state.sources[source];
        let raw = weights.raw;
        let (norm, index_k, index_norm) = (weights.norm, weights.index_k, weights.index_norm);
        let (d, round) = (&spec.dims, spec.numerics.round_stores);
        let Some(closing) = self.batch.closing(source.ratio) else { return Ok(()) };
        // A part of the batch closes its own groups; the whole one takes what fills it up as well.
        let whole = rows == (0..self.batch.rows);
        let first = closing.rows.partition_point(|&row| row < rows.start);
        let last = closing.rows.partition_point(|&row| row < rows.end);
        let n = if whole { closing.count } else { last - first };
        let (members, row_places, key_places) = (
            closing.members + (4 * first * source.ratio) as u64,
            closing.row_places + 8 * first as u64,
            closing.key_places + 8 * first as u64,
        );
        let half = (d.rope_dim / 2) as u64;
        let angles = match source.ratio {
            1 => self.angles(layer, rows.start),
            _ => (closing.cos + 4 * half * first as u64, closing.sin + 4 * half * first as u64),
        };
        let input = self.x(&rows);
        let ready =
            self.products.ready(&mut self.queue, Of::X, rows.start, input, &[raw.takes()])?;
        let latents = self.work.compressed.at;
        match &raw {
            Raw::Latent(wkv) => {
                let out = Out { at: latents, stride: d.head_dim, round };
                self.products.dense(&mut self.queue, &ready, wkv, out)?;
            }
            Raw::Gated(joined) => {
                let stride = 2 * d.head_dim;
                let at = self.state.own_raw(&source) + (4 * stride * rows.start) as u64;
                let out = Out { at, stride, round: false };
                let gate = Out { at: at + 4 * d.head_dim as u64, ..out };
                self.products.both(&mut self.queue, &ready, joined, [out, gate])?;
            }
        }
        if n == 0 {
            return Ok(());
        }
        // The choice and attention are the first to read what follows.
        self.keys_aside = true;
        self.go_aside(ASIDE);
        let (width, stride) = (d.head_dim, d.head_dim);
        let input = Input { x: latents, width, stride, rows: n, round: true, kept: false };
        let forms = self.products.own_forms(&index_k);
        let [plain, coded] = forms.unwrap_or_default();
        let pooled = matches!(raw, Raw::Gated(_));
        let args = CompressedArgs {
            x: latents,
            raw: if pooled { source.raw.at } else { 0 },
            members,
            norm,
            cos: angles.0,
            sin: angles.1,
            plain,
            coded,
            places: row_places,
            out: source.rows.at,
            dim: word(d.head_dim),
            pairs: word(d.rope_dim / 2),
            ratio: word(source.ratio),
            round: u32::from(round),
            eps: d.eps,
            index: 0,
        };
        self.queue.push(self.kernels.finish_compressed, &args, [word(n), 1])?;
        let ready = match forms {
            Some(_) => Ready { coded, plain, ..Ready::new(input) },
            None => self.products.ready(&mut self.queue, Of::Other, 0, input, &[&index_k])?,
        };
        let keys = self.work.index_k.at;
        let out = Out { at: keys, stride: d.index_dim, round };
        self.products.dense(&mut self.queue, &ready, &index_k, out)?;
        let args = CompressedArgs {
            x: keys,
            raw: 0,
            norm: index_norm,
            plain: 0,
            coded: 0,
            places: key_places,
            out: source.keys.at,
            dim: word(d.index_dim),
            index: 1,
            ..args
        };
        self.queue.push(self.kernels.finish_compressed, &args, [word(n), 1])
    }

    pub(crate) fn attend_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.check_rows("attend", &rows)?;
        if std::mem::take(&mut self.keys_aside) {
            self.queue.join();
        }
        if let Some(wide) = self.attends_wide(layer) {
            return self.attend_wide(layer, rows, &wide);
        }
        let spec = self.spec.clone();
        let (d, work, heads) = (&spec.dims, &self.work, self.own.heads);
        let source = spec.layer(layer).source.map(|source| self.state.sources[source]);
        let picks = |address: u64| if source.is_some() { address } else { 0 };
        let (cos, sin) = self.angles(layer, rows.start);
        let tiled = self.weights.layers[layer].wo_a.tiled.is_some();
        let args = AttendArgs {
            q: work.q.row(rows.start),
            cos,
            sin,
            sinks: self.weights.layers[layer].sink,
            ring: self.state.ring(layer),
            fresh: self.state.fresh(layer),
            pool: source.map_or(0, |source| source.rows.at),
            rows: self.batch.table + (4 * ROW_WORDS * rows.start) as u64,
            blocks: self.batch.blocks,
            picks: picks(work.picks.row(rows.start)),
            n_picks: picks(work.n_picks.row(rows.start)),
            plain: if tiled { self.products.other_plain() } else { 0 },
            heads: word(heads),
            dim: word(d.head_dim),
            pairs: word(d.rope_dim / 2),
            window: word(d.window),
            ring_rows: word(d.window),
            blocks_stride: word(self.batch.stride),
            rows_per_block: word(source.map_or(1, |source| source.per_block)),
            picks_stride: word(d.index_topk),
            draft: u32::from(layer >= spec.layers.len()),
            round: u32::from(spec.numerics.round_stores),
            scale: (d.head_dim as f32).sqrt().recip(),
            pad: 0,
        };
        self.queue.push(self.kernels.attend, &args, [word(heads), word(rows.len())])
    }

    /// The kernels of attention for the release's widths, which make what a tiled wo_a takes.
    fn attends_wide(&self, layer: usize) -> Option<Attend> {
        self.wide.attend.filter(|_| self.weights.layers[layer].wo_a.tiled.is_some())
    }

    fn attend_wide(&mut self, layer: usize, rows: Rows, wide: &Attend) -> OpsResult {
        let spec = self.spec.clone();
        let (d, work, n) = (&spec.dims, &self.work, word(rows.len()));
        let source = spec.layer(layer).source.map(|source| self.state.sources[source]);
        let picks = |address: u64| if source.is_some() { address } else { 0 };
        let (cos, sin) = self.angles(layer, rows.start);
        let args = TileAttendArgs {
            q: work.q.row(rows.start),
            cos,
            sin,
            sinks: self.weights.layers[layer].sink,
            ring: self.state.ring(layer),
            fresh: self.state.fresh(layer),
            pool: source.map_or(0, |source| source.rows.at),
            rows: self.batch.table + (4 * ROW_WORDS * rows.start) as u64,
            blocks: self.batch.blocks,
            picks: picks(work.picks.row(rows.start)),
            n_picks: picks(work.n_picks.row(rows.start)),
            scores: wide.room.at,
            out: self.products.other_plain(),
            heads: word(d.heads),
            window: word(d.window),
            ring_rows: word(d.window),
            blocks_stride: word(self.batch.stride),
            rows_per_block: word(source.map_or(1, |source| source.per_block)),
            picks_stride: word(d.index_topk),
            draft: u32::from(layer >= spec.layers.len()),
            // Products write neither keys nor picks.
            known: u32::from(self.queue.last().is_some_and(is_in_turn)),
            scale: (d.head_dim as f32).sqrt().recip(),
            row_count: n,
        };
        let [scores, mix] = Attend::groups(d.heads);
        if !Attend::is_few(rows.len()) {
            let grid = Attend::grid_of_many(d.heads, rows.len(), self.products.width());
            return self.queue.push(wide.many, &args, grid);
        }
        self.queue.push(wide.scores, &args, [scores, n])?;
        self.queue.push(wide.mix, &args, [mix, n])
    }

    pub(crate) fn attn_out_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.check_rows("attn_out", &rows)?;
        let spec = self.spec.clone();
        let (d, round, n) = (&spec.dims, spec.numerics.round_stores, rows.len());
        let (wo_a, wo_b) = (self.weights.layers[layer].wo_a, self.weights.layers[layer].wo_b);
        let (width, z_width) = (self.own.heads * d.head_dim, d.o_groups * d.o_rank);
        let x = self.work.q.row(rows.start);
        let input = Input { x, width, stride: width, rows: n, round: false, kept: false };
        let ready = match wo_a.tiled {
            // Attention left its output so.
            Some(_) => Ready { plain: self.products.other_plain(), ..Ready::new(input) },
            None => self.products.ready(&mut self.queue, Of::Other, 0, input, &[&wo_a])?,
        };
        let out = Out { at: self.work.z.row(rows.start), stride: z_width, round };
        self.grouped_whole(&ready, &wo_a, z_width, out)?;
        let x = self.work.z.row(rows.start);
        let input = Input { x, width: z_width, stride: z_width, rows: n, round: true, kept: false };
        self.make_factors()?;
        let ready = self.products.ready(&mut self.queue, Of::Other, 0, input, &[&wo_b])?;
        let out = Out { at: self.work.y.row(rows.start), stride: d.hidden, round };
        self.dense_whole(&ready, &wo_b, d.hidden, out)
    }

    /// `rmsnorm` of rows in place.
    pub(crate) fn rmsnorm(&mut self, x: u64, weight: u64, width: usize, rows: usize) -> OpsResult {
        self.rmsnorm_to(x, weight, x, width, rows)
    }

    /// `rmsnorm` of rows to other ones.
    pub(crate) fn rmsnorm_to(
        &mut self,
        x: u64,
        weight: u64,
        out: u64,
        width: usize,
        rows: usize,
    ) -> OpsResult {
        let (eps, round) = (self.spec.dims.eps, u32::from(self.spec.numerics.round_stores));
        let args = RmsnormArgs { x, weight, out, width: word(width), eps, round, pad: 0 };
        self.queue.push(self.kernels.rmsnorm, &args, [word(rows), 1])
    }

    /// Cosines and sines of a layer's rows from `row` on.
    pub(crate) fn angles(&self, layer: usize, row: usize) -> (u64, u64) {
        let (cos, sin) = match self.spec.layer(layer).ratio {
            0 => self.batch.window,
            _ => self.batch.compressed,
        };
        let skip = (2 * self.spec.dims.rope_dim * row) as u64;
        (cos + skip, sin + skip)
    }

    /// The sublayer's input.
    pub(crate) fn x(&self, rows: &Rows) -> Input {
        let width = self.spec.dims.hidden;
        let x = self.work.x.row(rows.start);
        Input { x, width, stride: width, rows: rows.len(), round: true, kept: false }
    }

    /// The queries' latent.
    pub(crate) fn qr(&self, rows: &Rows) -> Input {
        let width = self.spec.dims.q_rank;
        let x = self.work.qr.row(rows.start);
        Input { x, width, stride: width, rows: rows.len(), round: true, kept: false }
    }
}
