//! Steps on the residual streams: embedding, Engram, taps, hyper-connections.

use std::ops::Range;

use finback_numerics::bf16;
use finback_ops::{EngramLayer, OpsError, OpsResult, Rows, Site, look_back};

use crate::device::{Input, Job, lift_row};
use crate::kernel::kernel;
use crate::ops::CpuOps;
use crate::par::{cut, each, parts};
use crate::row::{self, Mix};
use crate::simd::Simd;

impl CpuOps {
    pub(crate) fn embed_step(&mut self, rows: Rows) -> OpsResult {
        let (spec, work) = (&self.spec, &mut self.work);
        let (d, hc) = (spec.dims.hidden, spec.dims.hc);
        for r in rows {
            let streams = &mut work.streams[r * hc * d..(r + 1) * hc * d];
            let (first, others) = streams.split_at_mut(d);
            lift_row(&spec.embed, work.rows[r].token as usize, first)?;
            if spec.numerics.round_stores {
                first.iter_mut().for_each(|x| *x = bf16::round(*x));
            }
            others.chunks_exact_mut(d).for_each(|s| s.copy_from_slice(first));
            let pre = &mut work.pre[r * hc..(r + 1) * hc];
            pre.fill(0.0);
            pre[0] = 1.0;
        }
        Ok(())
    }

    pub(crate) fn engram_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        let spec = self.spec.clone();
        let (Some(engram), Some(weights)) = (&spec.engram, &spec.layer(layer).engram) else {
            return Ok(());
        };
        let (d, hc, n) = (spec.dims.hidden, spec.dims.hc, rows.len());
        let width = engram.columns() * engram.dim;
        let mut ids = Vec::with_capacity(engram.ngram);
        self.work.engram_rows.clear();
        for (i, r) in rows.clone().enumerate() {
            let work = &mut self.work;
            if let Some(staged) = self.stage.rows(weights.which, r, engram.columns()) {
                work.engram_rows.extend_from_slice(staged);
            } else {
                let span = &work.spans[work.rows[r].span];
                let kept = &self.state.slot(span.slot).recent;
                let token = |i: usize| work.rows[span.first + i].token;
                look_back(engram, kept, r - span.first, token, &mut ids);
                engram.rows(weights.which, &ids, &mut work.engram_rows);
            }
            let out = &mut work.engram[i * width..(i + 1) * width];
            gather(weights, engram.dim, &work.engram_rows[i * engram.columns()..], out)?;
        }
        let round = spec.numerics.round_stores;
        let input = Input { x: &self.work.engram, stride: width, rows: 0..n, round: true };
        let (kv, kv_width) = (&mut self.work.engram_kv, (hc + 1) * d);
        self.device.linear(input, &mut [Job::new(&weights.wkv, kv, kv_width)], round)?;
        let parts = parts(rows.clone(), self.device.team.threads());
        let mut contexts: Vec<_> =
            cut(&mut self.work.streams, hc * d, &parts).into_iter().zip(parts).collect();
        let (isa, eps, kv) = (self.device.isa, spec.dims.eps, &self.work.engram_kv);
        each(&mut self.device.team, &mut contexts, |_, (streams, part)| {
            let first = (part.start - rows.start) * kv_width;
            let kv = &kv[first..first + part.len() * kv_width];
            gates(isa, streams, kv, &weights.qk, d, hc, eps, round);
        })?;
        Ok(())
    }

    pub(crate) fn tap_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        let (spec, work) = (&self.spec, &mut self.work);
        let (Some(tap), Some(drafter)) = (spec.layer(layer).tap, &spec.drafter) else {
            return Ok(());
        };
        let (d, hc, width) = (spec.dims.hidden, spec.dims.hc, drafter.taps * spec.dims.hidden);
        for r in rows {
            let out = &mut work.taps[r * width + tap * d..r * width + (tap + 1) * d];
            let streams = &work.streams[r * hc * d..(r + 1) * hc * d];
            mean(self.device.isa, streams, hc, out, spec.numerics.round_stores);
        }
        Ok(())
    }

    pub(crate) fn hyper_in_step(&mut self, layer: usize, site: Site, rows: Rows) -> OpsResult {
        let spec = self.spec.clone();
        let (hyper, norm) = spec.layer(layer).site(site);
        let (d, hc) = (spec.dims.hidden, spec.dims.hc);
        let (mixes, work) = ((2 + hc) * hc, &mut self.work);
        let input = Input { x: &work.streams, stride: hc * d, rows: rows.clone(), round: false };
        let out = &mut work.mix[rows.start * mixes..];
        self.device.linear(input, &mut [Job::new(&hyper.mix, out, mixes)], false)?;
        let constants = Mix {
            base: &hyper.base,
            scale: hyper.scale,
            eps: spec.dims.hc_eps,
            iterations: spec.dims.sinkhorn,
        };
        let parts = parts(rows, self.device.team.threads());
        let mut pre = cut(&mut work.pre, hc, &parts).into_iter();
        let mut post = cut(&mut work.post, hc, &parts).into_iter();
        let mut comb = cut(&mut work.comb, hc * hc, &parts).into_iter();
        let mut contexts: Vec<SiteRows<'_>> = cut(&mut work.x, d, &parts)
            .into_iter()
            .zip(&parts)
            .filter_map(|(x, part)| {
                let streams = &work.streams[part.start * hc * d..part.end * hc * d];
                let mix = &work.mix[part.start * mixes..part.end * mixes];
                let (pre, post, comb) = (pre.next()?, post.next()?, comb.next()?);
                Some(SiteRows { streams, mix, pre, post, comb, x })
            })
            .collect();
        let (isa, eps, round) = (self.device.isa, spec.dims.eps, spec.numerics.round_stores);
        each(&mut self.device.team, &mut contexts, |_, rows| {
            site_rows(isa, rows, &constants, norm, eps, round);
        })?;
        Ok(())
    }

    pub(crate) fn hyper_out_step(&mut self, rows: Rows) -> OpsResult {
        let (dims, work) = (&self.spec.dims, &mut self.work);
        let (d, hc, round) = (dims.hidden, dims.hc, self.spec.numerics.round_stores);
        let parts = parts(rows, self.device.team.threads());
        let mut contexts: Vec<_> =
            cut(&mut work.streams, hc * d, &parts).into_iter().zip(parts).collect();
        let (isa, y, post, comb) = (self.device.isa, &work.y, &work.post, &work.comb);
        each(&mut self.device.team, &mut contexts, |_, (streams, part)| {
            let y = &y[part.start * d..part.end * d];
            let post = &post[part.start * hc..part.end * hc];
            let comb = &comb[part.start * hc * hc..part.end * hc * hc];
            expand_rows(isa, streams, y, post, comb, d, hc, round);
        })?;
        Ok(())
    }
}

/// Some rows of a hyper-connection site.
struct SiteRows<'a> {
    streams: &'a [f32],
    mix: &'a [f32],
    pre: &'a mut [f32],
    post: &'a mut [f32],
    comb: &'a mut [f32],
    x: &'a mut [f32],
}

kernel! {
    fn site_rows(rows: &mut SiteRows<'_>, site: &Mix<'_>, norm: &[f32], eps: f32, round: bool) = site_body;
}

#[inline(always)]
fn site_body<S: Simd>(
    s: S,
    rows: &mut SiteRows<'_>,
    site: &Mix<'_>,
    norm: &[f32],
    eps: f32,
    round: bool,
) {
    let (d, mixes) = (norm.len(), site.base.len());
    let n = rows.x.len() / d;
    let hc = rows.pre.len() / n.max(1);
    for r in 0..n {
        let streams = &rows.streams[r * hc * d..(r + 1) * hc * d];
        let (pre, x) = (&mut rows.pre[r * hc..(r + 1) * hc], &mut rows.x[r * d..(r + 1) * d]);
        row::collapse(s, streams, pre, x, round);
        row::rmsnorm(s, x, norm, eps, round);
        row::coefficients(
            &rows.mix[r * mixes..(r + 1) * mixes],
            row::inverse_rms(s, streams, eps),
            site,
            pre,
            &mut rows.post[r * hc..(r + 1) * hc],
            &mut rows.comb[r * hc * hc..(r + 1) * hc * hc],
        );
    }
}

kernel! {
    fn expand_rows(streams: &mut [f32], y: &[f32], post: &[f32], comb: &[f32], d: usize, hc: usize, round: bool) = expand_body;
    fn mean(streams: &[f32], hc: usize, out: &mut [f32], round: bool) = row::mean;
    fn gates(streams: &mut [f32], kv: &[f32], qk: &[f32], d: usize, hc: usize, eps: f32, round: bool) = gates_body;
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "a kernel's plain arguments")]
fn expand_body<S: Simd>(
    s: S,
    streams: &mut [f32],
    y: &[f32],
    post: &[f32],
    comb: &[f32],
    d: usize,
    hc: usize,
    round: bool,
) {
    for (r, streams) in streams.chunks_exact_mut(hc * d).enumerate() {
        let y = &y[r * d..(r + 1) * d];
        let post = &post[r * hc..(r + 1) * hc];
        row::expand(s, streams, y, post, &comb[r * hc * hc..(r + 1) * hc * hc], round);
    }
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "a kernel's plain arguments")]
fn gates_body<S: Simd>(
    s: S,
    streams: &mut [f32],
    kv: &[f32],
    qk: &[f32],
    d: usize,
    hc: usize,
    eps: f32,
    round: bool,
) {
    for (streams, kv) in streams.chunks_exact_mut(hc * d).zip(kv.chunks_exact((hc + 1) * d)) {
        let value = &kv[hc * d..];
        for i in 0..hc {
            let at: Range<usize> = i * d..(i + 1) * d;
            let stream = &mut streams[at.clone()];
            row::engram_gate(s, stream, &kv[at.clone()], &qk[at], value, eps, round);
        }
    }
}

/// Reads and lifts the hashed rows of a table.
fn gather(weights: &EngramLayer, dim: usize, hashed: &[u64], out: &mut [f32]) -> OpsResult {
    let (codes, scales) = (weights.table.bytes(), weights.table_scale.bytes());
    let blocks = dim / 32;
    for (row, out) in hashed.iter().zip(out.chunks_exact_mut(dim)) {
        let row = *row as usize;
        let (codes, scales) =
            (&codes[row * dim..(row + 1) * dim], &scales[row * blocks..(row + 1) * blocks]);
        if scales.contains(&finback_numerics::fp8::E8M0_NAN) {
            return Err(OpsError::nan_scale(&weights.table_scale, &format!("row {row}")));
        }
        finback_numerics::quant::fp8_block32_lift(codes, scales, out);
    }
    Ok(())
}
