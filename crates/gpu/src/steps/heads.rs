//! The target's head, the choice of tokens, and the drafter around its layers.

use finback_kernels::args::{
    AddArgs, AdjustArgs, ChooseArgs, ChooseSliceArgs, CollapseArgs, MarkovArgs,
};
use finback_ops::{Adjust, OpsError, OpsResult, Penalties, Rows, Sampling};

use crate::linear::index;
use crate::ops::GpuOps;
use crate::products::{by_slice, word};
use crate::rows::{Input, Of, Out};
use crate::sampling::{Chosen, Places};

/// What the choice kernel writes for a row that has none.
pub const NO_CHOICE: u32 = u32::MAX;

/// Logit rows that are adjusted and chosen from.
struct Logits {
    /// Address of the first.
    at: u64,
    /// Values from one to the next.
    stride: usize,
    /// How many.
    rows: usize,
    /// Address of the drafts before in each row's chain, and from one row's to the next.
    chain: (u64, usize),
    /// How many drafts are before.
    before: usize,
}

impl GpuOps {
    pub(crate) fn head_step(&mut self, rows: Rows, at: usize) -> OpsResult {
        let norm = self.weights.norm;
        self.logits_of(norm, rows, at)
    }

    pub(crate) fn draft_head_step(&mut self, rows: Rows, at: usize) -> OpsResult {
        let Some(norm) = self.weights.drafter.as_ref().map(|drafter| drafter.norm) else {
            return Ok(());
        };
        self.logits_of(norm, rows, at)
    }

    /// Logit rows `at..` of `head(rmsnorm(collapse(X, pre)))`; x holds what was collapsed.
    fn logits_of(&mut self, norm: u64, rows: Rows, at: usize) -> OpsResult {
        self.check_rows("head", &rows)?;
        self.check_logits("head", at, rows.len())?;
        let spec = self.spec.clone();
        let (d, n) = (&spec.dims, rows.len());
        self.expand_pending()?;
        self.products.changed(Of::X);
        let (x, y) = (self.work.x.row(rows.start), self.work.y.row(rows.start));
        let args = CollapseArgs {
            streams: self.work.streams.row(rows.start),
            pre: self.work.pre.row(rows.start),
            out: x,
            width: word(d.hidden),
            hc: word(d.hc),
            round: u32::from(spec.numerics.round_stores),
            pad: 0,
        };
        self.queue.join();
        self.queue.push(self.kernels.collapse, &args, by_slice(n, d.hidden))?;
        self.rmsnorm_to(x, norm, y, d.hidden, n)?;
        let head = self.weights.head;
        let input =
            Input { x: y, width: d.hidden, stride: d.hidden, rows: n, round: true, kept: false };
        let ready = self.products.ready(&mut self.queue, Of::Other, 0, input, &[&head])?;
        let out = Out { at: self.work.logits.row(at), stride: d.vocab, round: false };
        self.dense_whole(&ready, &head, d.vocab, out)
    }

    pub(crate) fn choose_step(
        &mut self,
        at: usize,
        params: &[(Sampling, usize)],
        adjust: &Adjust,
    ) -> OpsResult {
        self.check_logits("choose", at, params.len())?;
        self.chosen = params.len();
        let vocab = self.spec.dims.vocab;
        let mut first = 0;
        while first < params.len() {
            let count = self.tables.rows_that_fit(first, params.len(), adjust);
            let rows: Vec<Chosen<'_>> = (first..first + count)
                .map(|row| Chosen {
                    sampling: params[row].0,
                    position: params[row].1,
                    adds: adjust.row(row),
                    penalties: Penalties::default(),
                })
                .collect();
            let places = self.tables.write(&mut self.queue, &rows, 1)?;
            let logits = Logits {
                at: self.work.logits.row(at + first),
                stride: vocab,
                rows: count,
                chain: (0, 0),
                before: 0,
            };
            let out = (self.work.choices.row(first), 1, NO_CHOICE);
            self.choose_adjusted(&logits, &places, out)?;
            first += count;
        }
        Ok(())
    }

    /// Chooses from rows with their additions on them; the rows then have their own values again.
    /// `out` is where choices go, from one row's to the next, and what is written for none.
    fn choose_adjusted(
        &mut self,
        logits: &Logits,
        places: &Places,
        out: (u64, usize, u32),
    ) -> OpsResult {
        let grid = [word(logits.rows), 1];
        let adjust = AdjustArgs {
            logits: logits.at,
            starts: places.starts,
            ids: places.ids,
            adds: places.adds,
            chain: logits.chain.0,
            penalties: places.penalties,
            saved: self.tables.saved,
            saved_chain: self.tables.saved_chain,
            stride: word(logits.stride),
            chain_stride: word(logits.chain.1),
            chain_count: word(logits.before),
            restore: 0,
        };
        if !places.plain {
            self.queue.push(self.kernels.adjust, &adjust, grid)?;
        }
        self.choose_rows(logits, places, out)?;
        if !places.plain {
            let restore = AdjustArgs { restore: 1, ..adjust };
            self.queue.push(self.kernels.adjust, &restore, grid)?;
        }
        Ok(())
    }

    /// Chooses from rows as they are: many groups a row, or one where a filter needs the whole row.
    fn choose_rows(
        &mut self,
        logits: &Logits,
        places: &Places,
        (choices, choices_stride, none): (u64, usize, u32),
    ) -> OpsResult {
        let rows = word(logits.rows);
        let (vocab, stride) = (word(self.spec.dims.vocab), word(logits.stride));
        let choices_stride = word(choices_stride);
        let Places { seeds, positions, params, .. } = *places;
        let logits = logits.at;
        if !places.unfiltered {
            let args = ChooseArgs {
                logits,
                seeds,
                positions,
                params,
                choices,
                vocab,
                stride,
                choices_stride,
                none,
            };
            let kernel = self.wide.choose.unwrap_or(self.kernels.choose);
            return self.queue.push(kernel, &args, [rows, 1]);
        }
        let slices = word(self.work.slices);
        let args = ChooseSliceArgs {
            logits,
            seeds,
            positions,
            params,
            tops: self.work.tops.at,
            winners: self.work.winners.at,
            choices,
            vocab,
            stride,
            slices,
            choices_stride,
            none,
            pad: 0,
        };
        self.queue.push(self.kernels.choose_top, &args, [slices, rows])?;
        if !places.greedy {
            self.queue.push(self.kernels.choose_draw, &args, [slices, rows])?;
        }
        self.queue.push(self.kernels.choose_pick, &args, [rows, 1])
    }

    pub(crate) fn draft_context_step(&mut self, rows: Rows) -> OpsResult {
        self.check_rows("draft_context", &rows)?;
        let spec = self.spec.clone();
        let (Some(drafter), Some(weights)) = (&spec.drafter, &self.weights.drafter) else {
            return Ok(());
        };
        let (main_proj, main_norm) = (weights.main_proj, weights.main_norm);
        let (d, n, round) = (&spec.dims, rows.len(), spec.numerics.round_stores);
        let width = drafter.taps * d.hidden;
        let taps = self.work.taps.row(rows.start);
        // Without attention since, keys may still be made in the room of their operands.
        self.queue.join();
        let input = Input { x: taps, width, stride: width, rows: n, round: true, kept: false };
        let ready = self.products.ready(&mut self.queue, Of::Other, 0, input, &[&main_proj])?;
        let x = self.work.x.row(rows.start);
        let out = Out { at: x, stride: d.hidden, round };
        self.dense_whole(&ready, &main_proj, d.hidden, out)?;
        self.products.changed(Of::X);
        self.rmsnorm(x, main_norm, d.hidden, n)?;
        for layer in spec.layers.len()..spec.rings() {
            self.latents(layer, &rows)?;
            self.finish_latents(layer, &rows, None)?;
        }
        Ok(())
    }

    pub(crate) fn draft_chain_step(
        &mut self,
        at: usize,
        params: &[(Sampling, Penalties)],
        adjust: &Adjust,
    ) -> OpsResult {
        let spec = self.spec.clone();
        let Some(drafter) = &spec.drafter else { return Ok(()) };
        let (spans, block) = (params.len(), drafter.block);
        self.check_logits("draft_chain", at, spans * block)?;
        let whole = self.batch.spans.iter().all(|span| span.tokens.len() == block);
        if spans != self.batch.spans.len() || spans > self.limits.slots || !whole {
            let reason = format!(
                "{spans} sets of parameters for {} spans; each has {block} rows",
                self.batch.spans.len()
            );
            let backend = self.queue.name();
            return Err(OpsError::Unsupported { backend, step: "draft_chain", reason });
        }
        self.drafted = spans * block;
        let rows: Vec<Chosen<'_>> = params
            .iter()
            .enumerate()
            .map(|(i, &(sampling, penalties))| Chosen {
                sampling,
                position: self.batch.spans[i].start + 1,
                adds: adjust.row(i),
                penalties,
            })
            .collect();
        let places = self.tables.write(&mut self.queue, &rows, block as u64)?;
        for j in 0..block {
            self.chain_link(
                at,
                spans,
                j,
                &Places { positions: places.positions + 8 * (j * spans) as u64, ..places },
            )?;
        }
        Ok(())
    }

    /// The `j`-th draft of every span.
    fn chain_link(&mut self, at: usize, spans: usize, j: usize, places: &Places) -> OpsResult {
        let spec = self.spec.clone();
        let (Some(drafter), Some(weights)) = (&spec.drafter, &self.weights.drafter) else {
            return Ok(());
        };
        let (d, block, rank) = (&spec.dims, drafter.block, drafter.markov_embed.inp);
        let (embed, head) = (weights.markov_embed, weights.markov_head);
        let drafts = self.work.drafts.at;
        let args = MarkovArgs {
            table: embed.data,
            tokens: match j {
                0 => self.batch.tokens,
                _ => drafts + 4 * (j as u64 - 1),
            },
            h: self.work.x.row(j),
            projection: weights.confidence,
            embed: self.work.markov.at,
            confidence: self.work.confidence.at + 4 * j as u64,
            width: word(d.hidden),
            rank: word(rank),
            format: index(embed.format) as u32,
            tokens_stride: word(block),
            h_stride: word(block * d.hidden),
            confidence_stride: word(block),
        };
        self.queue.push(self.kernels.markov, &args, [word(spans), 1])?;
        let x = self.work.markov.at;
        let input = Input { x, width: rank, stride: rank, rows: spans, round: true, kept: false };
        let ready = self.products.ready(&mut self.queue, Of::Other, 0, input, &[&head])?;
        let term = self.work.markov_logits.at;
        let out = Out { at: term, stride: d.vocab, round: false };
        self.products.dense(&mut self.queue, &ready, &head, out)?;
        let logits = Logits {
            at: self.work.logits.row(at + j),
            stride: block * d.vocab,
            rows: spans,
            chain: (drafts, block),
            before: j,
        };
        let (width, x_stride) = (word(d.vocab), word(logits.stride));
        let args = AddArgs { x: logits.at, term, width, x_stride };
        self.queue.push(self.kernels.add_rows, &args, by_slice(spans, d.vocab))?;
        // A row that cannot be chosen from proposes id 0: a wrong draft costs, never harms.
        self.choose_adjusted(&logits, places, (drafts + 4 * j as u64, block, 0))
    }
}
