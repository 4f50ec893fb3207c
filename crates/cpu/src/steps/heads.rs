//! The target's head, the choice of tokens, and the drafter around its layers.

use finback_numerics::sample::{self, Params, Scratch};
use finback_ops::{Adjust, OpsResult, Penalties, Rows, Sampling};

use crate::device::{Input, Job, lift_row};
use crate::kernel::kernel;
use crate::ops::CpuOps;
use crate::par::{each, parts};
use crate::row;
use crate::simd::{Isa, Simd};

impl CpuOps {
    pub(crate) fn head_step(&mut self, rows: Rows, at: usize) -> OpsResult {
        let spec = self.spec.clone();
        self.collapse_rows(rows.clone());
        self.logits(&spec.norm, rows, at)
    }

    /// `x = collapse(X, pre)`.
    fn collapse_rows(&mut self, rows: Rows) {
        let (dims, work) = (&self.spec.dims, &mut self.work);
        let (d, hc, round) = (dims.hidden, dims.hc, self.spec.numerics.round_stores);
        for r in rows {
            let streams = &work.streams[r * hc * d..(r + 1) * hc * d];
            let pre = &work.pre[r * hc..(r + 1) * hc];
            collapse(self.device.isa, streams, pre, &mut work.x[r * d..(r + 1) * d], round);
        }
    }

    /// Logit rows `at..` of `head(rmsnorm(x))`; x keeps its value, y holds the norm.
    fn logits(&mut self, norm: &[f32], rows: Rows, at: usize) -> OpsResult {
        let spec = self.spec.clone();
        let (dims, work) = (&spec.dims, &mut self.work);
        let (d, vocab) = (dims.hidden, dims.vocab);
        let (isa, eps, round) = (self.device.isa, dims.eps, spec.numerics.round_stores);
        let range = rows.start * d..rows.end * d;
        work.y[range.clone()].copy_from_slice(&work.x[range.clone()]);
        for y in work.y[range].chunks_exact_mut(d) {
            rmsnorm(isa, y, norm, eps, round);
        }
        let input = Input { x: &work.y, stride: d, rows, round: true };
        let out = &mut work.logits[at * vocab..];
        self.device.linear(input, &mut [Job::new(&spec.head, out, vocab)], false)
    }

    pub(crate) fn choose_step(
        &mut self,
        at: usize,
        params: &[(Sampling, usize)],
        adjust: &Adjust,
    ) -> OpsResult {
        let (vocab, work) = (self.spec.dims.vocab, &mut self.work);
        work.choices.clear();
        work.choices.resize(params.len(), None);
        let split = parts(0..params.len(), self.device.team.threads());
        let logits = &mut work.logits[at * vocab..(at + params.len()) * vocab];
        let mut contexts: Vec<_> = crate::par::cut(&mut work.choices, 1, &split)
            .into_iter()
            .zip(crate::par::cut(logits, vocab, &split))
            .zip(&mut self.samplers)
            .zip(split)
            .collect();
        let isa = self.device.isa;
        each(&mut self.device.team, &mut contexts, |_, (((choices, rows), scratch), part)| {
            for ((choice, row), i) in
                choices.iter_mut().zip(rows.chunks_exact_mut(vocab)).zip(part.clone())
            {
                let (sampling, position) = &params[i];
                let (params, position) = (params_of(sampling), *position as u64);
                *choice = choose_adjusted(isa, row, adjust.row(i), &params, position, scratch);
            }
        })?;
        Ok(())
    }

    pub(crate) fn draft_context_step(&mut self, rows: Rows) -> OpsResult {
        let spec = self.spec.clone();
        let Some(drafter) = &spec.drafter else { return Ok(()) };
        let (dims, round) = (&spec.dims, spec.numerics.round_stores);
        let (d, width, work) = (dims.hidden, drafter.taps * dims.hidden, &mut self.work);
        let input = Input { x: &work.taps, stride: width, rows: rows.clone(), round: true };
        let out = &mut work.x[rows.start * d..];
        self.device.linear(input, &mut [Job::new(&drafter.main_proj, out, d)], round)?;
        for x in work.x[rows.start * d..rows.end * d].chunks_exact_mut(d) {
            rmsnorm(self.device.isa, x, &drafter.main_norm, dims.eps, round);
        }
        for (i, layer) in drafter.layers.iter().enumerate() {
            let work = &mut self.work;
            let input = Input { x: &work.x, stride: d, rows: rows.clone(), round: true };
            let out = &mut work.kv[rows.start * dims.head_dim..];
            let job = Job::new(&layer.attn.wkv, out, dims.head_dim);
            self.device.linear(input, &mut [job], round)?;
            self.window_rows_step(spec.layers.len() + i, rows.clone())?;
        }
        Ok(())
    }

    pub(crate) fn draft_head_step(&mut self, rows: Rows, at: usize) -> OpsResult {
        let spec = self.spec.clone();
        let Some(drafter) = &spec.drafter else { return Ok(()) };
        self.collapse_rows(rows.clone());
        self.logits(&drafter.norm, rows, at)
    }

    pub(crate) fn draft_chain_step(
        &mut self,
        at: usize,
        params: &[(Sampling, Penalties)],
        adjust: &Adjust,
    ) -> OpsResult {
        let spec = self.spec.clone();
        let Some(drafter) = &spec.drafter else { return Ok(()) };
        let (d, vocab, rank) = (spec.dims.hidden, spec.dims.vocab, drafter.markov_embed.inp);
        let (spans, block) = (params.len(), drafter.block);
        self.work.drafts.clear();
        self.work.drafts.resize(spans * block, 0);
        self.work.confidence.clear();
        self.work.confidence.resize(spans * block, 0.0);
        let isa = self.device.isa;
        for j in 0..block {
            let work = &mut self.work;
            for i in 0..spans {
                let before = match j {
                    0 => work.rows[work.spans[i].first].token,
                    _ => work.drafts[i * block + j - 1],
                };
                let embed = &mut self.markov[i * rank..(i + 1) * rank];
                lift_row(&drafter.markov_embed, before as usize, embed)?;
                let h = &work.x[(i * block + j) * d..(i * block + j + 1) * d];
                let (for_h, for_embed) = drafter.confidence.split_at(d);
                work.confidence[i * block + j] = dot(isa, for_h, h) + dot(isa, for_embed, embed);
            }
            let input = Input { x: &self.markov, stride: rank, rows: 0..spans, round: true };
            let job = Job::new(&drafter.markov_head, &mut self.markov_logits, vocab);
            self.device.linear(input, &mut [job], false)?;
            for (i, (sampling, penalties)) in params.iter().enumerate() {
                let row = at + i * block + j;
                let logits = &mut work.logits[row * vocab..(row + 1) * vocab];
                let term = &self.markov_logits[i * vocab..(i + 1) * vocab];
                logits.iter_mut().zip(term).for_each(|(l, m)| *l += m);
                let position = work.spans[i].start + 1 + j;
                // A row that cannot be chosen from proposes id 0: a wrong draft costs, never harms.
                let chain = &mut work.drafts[i * block..=i * block + j];
                let adds = chain_adds(adjust.row(i), &chain[..j], penalties);
                let (params, scratch) = (params_of(sampling), &mut self.samplers[0]);
                let choice = choose_adjusted(isa, logits, &adds, &params, position as u64, scratch);
                chain[j] = choice.unwrap_or(0);
            }
        }
        Ok(())
    }
}

kernel! {
    fn collapse(streams: &[f32], pre: &[f32], out: &mut [f32], round: bool) = row::collapse;
    fn rmsnorm(x: &mut [f32], weight: &[f32], eps: f32, round: bool) = row::rmsnorm;
    fn dot(a: &[f32], b: &[f32]) -> f32 = row::dot;
    fn choose(logits: &[f32], params: &Params, position: u64, scratch: &mut Scratch) -> Option<u32> = choose_body;
}

#[inline(always)]
fn choose_body<S: Simd>(
    _: S,
    logits: &[f32],
    params: &Params,
    position: u64,
    scratch: &mut Scratch,
) -> Option<u32> {
    sample::choose(logits, params, position, scratch)
}

/// [`choose`] with `adds` on the row, which then has its own values again.
fn choose_adjusted(
    isa: Isa,
    row: &mut [f32],
    adds: &[(u32, f32)],
    params: &Params,
    position: u64,
    scratch: &mut Scratch,
) -> Option<u32> {
    if adds.is_empty() {
        return choose(isa, row, params, position, scratch);
    }
    let own: Vec<f32> = adds.iter().map(|&(id, _)| row[id as usize]).collect();
    adds.iter().for_each(|&(id, add)| row[id as usize] += add);
    let choice = choose(isa, row, params, position, scratch);
    adds.iter().zip(own).for_each(|(&(id, _), own)| row[id as usize] = own);
    choice
}

/// What is added to a draft row: the span's own entries, and what the chain's drafts so far cost.
fn chain_adds(entries: &[(u32, f32)], drafts: &[u32], penalties: &Penalties) -> Vec<(u32, f32)> {
    let mut adds = entries.to_vec();
    if penalties.is_none() {
        return adds;
    }
    for &id in drafts {
        match adds.iter_mut().find(|(named, _)| *named == id) {
            Some((_, add)) => *add -= penalties.frequency,
            None => adds.push((id, -penalties.presence - penalties.frequency)),
        }
    }
    adds
}

fn params_of(sampling: &Sampling) -> Params {
    let &Sampling { temperature, top_k, top_p, min_p, seed } = sampling;
    Params { temperature, top_k, top_p, min_p, seed }
}
