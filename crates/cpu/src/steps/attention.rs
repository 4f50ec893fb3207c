//! Attention's steps: projections, compression, the attention itself, the output projection.

use std::ops::Range;

use finback_numerics::lanes::Lanes;
use finback_numerics::{bf16, math, rows as packed};
use finback_ops::{Format, OpsResult, Rows};

use crate::attend::Keys;
use crate::device::{Input, Job};
use crate::kernel::kernel;
use crate::ops::CpuOps;
use crate::par::{cut, each, parts};
use crate::rope::{Turn, rotate};
use crate::row;
use crate::simd::{self, LANES, Simd};
use crate::state::State;
use crate::work::{SpanRows, Work};

impl CpuOps {
    pub(crate) fn project_step(&mut self, layer: usize, kv: Rows, q: Rows) -> OpsResult {
        let spec = self.spec.clone();
        let (dims, weights) = (&spec.dims, &spec.layer(layer).attn);
        let round = spec.numerics.round_stores;
        let input = |rows: Rows, x| Input { x, stride: dims.hidden, rows, round: true };
        let work = &mut self.work;
        let kv_out = &mut work.kv[kv.start * dims.head_dim..];
        let kv_job = Job::new(&weights.wkv, kv_out, dims.head_dim);
        if q == kv {
            let qr_job =
                Job::new(&weights.wq_a, &mut work.qr[q.start * dims.q_rank..], dims.q_rank);
            self.device.linear(input(kv.clone(), &work.x), &mut [kv_job, qr_job], round)?;
        } else {
            self.device.linear(input(kv.clone(), &work.x), &mut [kv_job], round)?;
            if !q.is_empty() {
                let out = &mut work.qr[q.start * dims.q_rank..];
                let qr_job = Job::new(&weights.wq_a, out, dims.q_rank);
                self.device.linear(input(q.clone(), &work.x), &mut [qr_job], round)?;
            }
        }
        self.window_rows_step(layer, kv)?;
        if q.is_empty() {
            return Ok(());
        }
        let (isa, work) = (self.device.isa, &mut self.work);
        let qr = &mut work.qr[q.start * dims.q_rank..q.end * dims.q_rank];
        norm_rows(isa, qr, &weights.q_norm, dims.eps, round);
        let input = Input { x: &work.qr, stride: dims.q_rank, rows: q.clone(), round: true };
        let width = dims.heads * dims.head_dim;
        let out = &mut work.q[q.start * width..];
        self.device.linear(input, &mut [Job::new(&weights.wq_b, out, width)], round)?;
        let angles = work.angles.of(spec.layer(layer).ratio);
        let parts = parts(q, self.device.team.threads());
        let mut contexts: Vec<_> =
            parts.iter().cloned().zip(cut(&mut work.q, width, &parts)).collect();
        each(&mut self.device.team, &mut contexts, |_, (rows, queries)| {
            for (r, row) in rows.clone().zip(queries.chunks_exact_mut(width)) {
                angles.rotate(r, row, dims.head_dim, Turn { inverse: false, round });
            }
        })?;
        Ok(())
    }

    /// From the projected latents in `kv` to packed window rows of a layer.
    pub(crate) fn window_rows_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        let spec = self.spec.clone();
        let (dims, weights) = (&spec.dims, &spec.layer(layer).attn);
        let (isa, round, d) = (self.device.isa, spec.numerics.round_stores, dims.head_dim);
        let (bytes, work) = (self.state.layout.window_row, &mut self.work);
        let angles = work.angles.of(spec.layer(layer).ratio);
        let parts = parts(rows, self.device.team.threads());
        let mut contexts: Vec<_> = cut(&mut work.kv, d, &parts)
            .into_iter()
            .zip(cut(&mut work.window_rows[layer], bytes, &parts))
            .zip(parts)
            .collect();
        each(&mut self.device.team, &mut contexts, |_, ((kv, out), part)| {
            norm_rows(isa, kv, &weights.kv_norm, dims.eps, round);
            let rows = kv.chunks_exact_mut(d).zip(out.chunks_exact_mut(bytes));
            for (r, (kv, out)) in part.clone().zip(rows) {
                angles.rotate(r, kv, d, Turn { inverse: false, round });
                packed::store_window(kv, out);
            }
        })?;
        Ok(())
    }

    pub(crate) fn compress_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        let spec = self.spec.clone();
        let target = spec.layer(layer);
        let (Some(weights), Some(source)) = (&target.compressor, target.source) else {
            return Ok(());
        };
        let (dims, ratio) = (&spec.dims, target.ratio);
        let (round, d, eps) = (spec.numerics.round_stores, dims.head_dim, dims.eps);
        let isa = self.device.isa;
        let work = &mut self.work;
        let input = Input { x: &work.x, stride: dims.hidden, rows: rows.clone(), round: true };
        let closing: Vec<usize> =
            rows.clone().filter(|&r| (work.rows[r].position + 1).is_multiple_of(ratio)).collect();
        match &weights.wgate {
            None => {
                let job = Job::new(&weights.wkv, &mut work.kv, d);
                self.device.linear(input, &mut [job], round)?;
            }
            Some(wgate) => {
                let (kv, gate) = work.raw[source].split_at_mut(self.limits.rows * d);
                let at = rows.start * d;
                let mut jobs =
                    [Job::new(&weights.wkv, &mut kv[at..], d), Job::new(wgate, &mut gate[at..], d)];
                self.device.linear(input, &mut jobs, false)?;
                for (i, &r) in closing.iter().enumerate() {
                    let row = work.rows[r];
                    let span = &work.spans[row.span];
                    let raw = work.raw[source].split_at(self.limits.rows * d);
                    let group = group(span, row.position, raw, &self.state, source);
                    pool(isa, &group, &mut work.kv[i * d..(i + 1) * d], round);
                }
            }
        }
        let n = closing.len();
        if n == 0 {
            return Ok(());
        }
        norm_rows(isa, &mut work.kv[..n * d], &weights.norm, eps, round);
        let input = Input { x: &work.kv, stride: d, rows: 0..n, round: true };
        let job = Job::new(&weights.index_k, &mut work.index_k, dims.index_dim);
        self.device.linear(input, &mut [job], round)?;
        let keys = &mut work.index_k[..n * dims.index_dim];
        norm_rows(isa, keys, &weights.index_norm, eps, round);
        let (half, turn) = (dims.rope_dim / 2, Turn { inverse: false, round });
        let (mut cos, mut sin) = (vec![0.0; half], vec![0.0; half]);
        for (i, &r) in closing.iter().enumerate() {
            let group = work.rows[r].position / ratio;
            self.compressed_frequencies.write(group * ratio, &mut cos, &mut sin);
            let blocks = &work.spans[work.rows[r].span].blocks;
            let (row, key) = self.state.pair_mut(source, group, blocks);
            let latent = &mut work.kv[i * d..(i + 1) * d];
            rotate(latent, &cos, &sin, turn);
            packed::store_compressed(latent, row);
            let index_key = &mut work.index_k[i * dims.index_dim..(i + 1) * dims.index_dim];
            rotate(index_key, &cos, &sin, turn);
            packed::store_index_key(index_key, key);
        }
        Ok(())
    }

    pub(crate) fn attend_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        let spec = self.spec.clone();
        let dims = &spec.dims;
        let draft = layer >= spec.layers.len();
        let width = dims.heads * dims.head_dim;
        let work = &mut self.work;
        let queries = std::mem::take(&mut work.q);
        let mut queries = queries;
        let threads = self.device.team.threads();
        let view = KeysOf { work, state: &self.state, layer, draft, window: dims.window };
        let sinks = &spec.layer(layer).attn.sink;
        let (isa, round) = (self.device.isa, spec.numerics.round_stores);
        let scale = (dims.head_dim as f32).sqrt().recip();
        let source = spec.layer(layer).source;
        let angles = view.work.angles.of(spec.layer(layer).ratio);
        // A unit is one row's heads, or a part of them where rows are fewer than workers.
        let split_heads = if rows.len() >= threads { 1 } else { threads.min(dims.heads) };
        let units: Vec<(usize, Range<usize>)> = rows
            .clone()
            .flat_map(|r| parts(0..dims.heads, split_heads).into_iter().map(move |h| (r, h)))
            .collect();
        let shares = parts(0..units.len(), threads);
        let mut rest = &mut queries[rows.start * width..rows.end * width];
        let mut contexts = Vec::with_capacity(shares.len());
        for (share, keys) in shares.iter().zip(&mut self.keys) {
            let heads: usize = units[share.clone()].iter().map(|(_, h)| h.len()).sum();
            let (own, others) = std::mem::take(&mut rest).split_at_mut(heads * dims.head_dim);
            rest = others;
            contexts.push((&units[share.clone()], own, keys));
        }
        let result = each(&mut self.device.team, &mut contexts, |_, (units, queries, keys)| {
            let mut rest = &mut queries[..];
            let mut decoded = None;
            for (r, heads) in units.iter() {
                let (q, others) =
                    std::mem::take(&mut rest).split_at_mut(heads.len() * dims.head_dim);
                rest = others;
                if decoded.replace(*r) != Some(*r) {
                    load_keys(isa, &view, *r, source, keys);
                }
                attend(isa, keys, q, &sinks[heads.clone()], scale, round);
                angles.rotate(*r, q, dims.head_dim, Turn { inverse: true, round });
            }
        });
        self.work.q = queries;
        Ok(result?)
    }

    pub(crate) fn attn_out_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        let spec = self.spec.clone();
        let (dims, weights) = (&spec.dims, &spec.layer(layer).attn);
        let (round, work) = (spec.numerics.round_stores, &mut self.work);
        let width = dims.heads * dims.head_dim;
        let (group, z_width) = (width / dims.o_groups, dims.o_groups * dims.o_rank);
        // A part of the weight starts and ends on its scale tiles; what lies outside the group is
        // left behind.
        let tile = match weights.wo_a.format {
            Format::Fp8 { block } => block,
            _ => 1,
        };
        for g in 0..dims.o_groups {
            let own = g * dims.o_rank..(g + 1) * dims.o_rank;
            let part = own.start / tile * tile
                ..own.end.next_multiple_of(tile).min(dims.o_groups * dims.o_rank);
            let x = &work.q[g * group..];
            let input = Input { x, stride: width, rows: rows.clone(), round: false };
            let outs = &mut work.z_part[..rows.len() * part.len()];
            let job = Job::part(&weights.wo_a, part.clone(), outs, part.len());
            self.device.linear(input, &mut [job], round)?;
            let skip = own.start - part.start;
            for (out, r) in work.z_part.chunks_exact(part.len()).zip(rows.clone()) {
                work.z[r * z_width..][own.clone()].copy_from_slice(&out[skip..skip + dims.o_rank]);
            }
        }
        let input = Input { x: &work.z, stride: z_width, rows: rows.clone(), round: true };
        let out = &mut work.y[rows.start * dims.hidden..];
        self.device.linear(input, &mut [Job::new(&weights.wo_b, out, dims.hidden)], round)?;
        Ok(())
    }
}

/// Where the keys of a layer's rows are.
struct KeysOf<'a> {
    work: &'a Work,
    state: &'a State,
    layer: usize,
    draft: bool,
    window: usize,
}

/// Decodes the keys of a row: the window by position, then the picks ascending.
#[inline(always)]
fn load_body<S: Simd>(s: S, from: &KeysOf<'_>, r: usize, source: Option<usize>, keys: &mut Keys) {
    let row = from.work.rows[r];
    let span = &from.work.spans[row.span];
    // A draft row sees the positions before its block, then the whole block.
    let (first, last) = if from.draft {
        (span.start.saturating_sub(from.window), span.start + span.rows - 1)
    } else {
        ((row.position + 1).saturating_sub(from.window), row.position)
    };
    let bytes = from.state.layout.window_row;
    keys.clear();
    for position in first..=last {
        let packed_row = if position < span.start {
            from.state.ring_row(span.slot, from.layer, position)
        } else {
            let at = (span.first + position - span.start) * bytes;
            &from.work.window_rows[from.layer][at..at + bytes]
        };
        simd::load_window(s, packed_row, keys.push());
    }
    if let Some(source) = source {
        for &j in from.work.picks_of(r) {
            let packed_row = from.state.compressed(source, j as usize, &span.blocks);
            simd::load_compressed(s, packed_row, keys.push());
        }
    }
}

/// The raw kv and gate rows of the group that closes at a position, oldest first.
fn group<'a>(
    span: &SpanRows,
    closing: usize,
    (kv, gate): (&'a [f32], &'a [f32]),
    state: &'a State,
    source: usize,
) -> Vec<(&'a [f32], &'a [f32])> {
    let (layout, d) = (&state.layout.sources[source], state.layout.head_dim);
    let open = &state.slot(span.slot).open[layout.open..];
    (closing + 1 - layout.ratio..=closing)
        .map(|position| {
            if position < span.start {
                let at = position % layout.ratio * 2 * d;
                (&open[at..at + d], &open[at + d..at + 2 * d])
            } else {
                let at = (span.first + position - span.start) * d;
                (&kv[at..at + d], &gate[at..at + d])
            }
        })
        .collect()
}

kernel! {
    fn norm_rows(x: &mut [f32], weight: &[f32], eps: f32, round: bool) = norm_rows_body;
    fn load_keys(from: &KeysOf<'_>, r: usize, source: Option<usize>, keys: &mut Keys) = load_body;
    fn attend(keys: &mut Keys, q: &mut [f32], sinks: &[f32], scale: f32, round: bool) = attend_body;
    fn pool(group: &[(&[f32], &[f32])], out: &mut [f32], round: bool) = pool_body;
}

#[inline(always)]
fn norm_rows_body<S: Simd>(s: S, x: &mut [f32], weight: &[f32], eps: f32, round: bool) {
    for row in x.chunks_exact_mut(weight.len()) {
        row::rmsnorm(s, row, weight, eps, round);
    }
}

#[inline(always)]
fn attend_body<S: Simd>(
    s: S,
    keys: &mut Keys,
    q: &mut [f32],
    sinks: &[f32],
    scale: f32,
    round: bool,
) {
    keys.attend(s, q, sinks, scale);
    if round {
        row::round_row(s, q);
    }
}

/// Per channel, the softmax of the gates over the group, weighting the kv rows.
#[inline(always)]
fn pool_body<S: Simd>(s: S, group: &[(&[f32], &[f32])], out: &mut [f32], round: bool) {
    for (at, out) in (0..out.len()).step_by(LANES).zip(out.chunks_exact_mut(LANES)) {
        let mut top = s.splat(f32::NEG_INFINITY);
        for (_, gate) in group {
            top = s.load(&gate[at..]).max(top);
        }
        let (mut sum, mut divisor) = (s.splat(0.0), s.splat(0.0));
        for (kv, gate) in group {
            let e = math::exp(s.load(&gate[at..]) - top);
            sum = e.fma(s.load(&kv[at..]), sum);
            divisor = divisor + e;
        }
        let pooled = sum / divisor;
        s.store(out, if round { bf16::round(pooled) } else { pooled });
    }
}
