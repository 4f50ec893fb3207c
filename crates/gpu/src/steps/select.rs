//! The indexer: each row's compressed rows, at both levels of selection.

use finback_kernels::args::{
    BlockBestArgs, IndexOperandArgs, IndexQueryArgs, IndexScoresArgs, TileIndexArgs, TileTopkArgs,
    TopkArgs,
};
use finback_kernels::manifest::LANES;
use finback_kernels::tiles::is_in_turn;
use finback_ops::{OpsResult, Rows};

use crate::batch::ROW_WORDS;
use crate::ops::GpuOps;
use crate::products::word;
use crate::rows::{Of, Out, Ready};
use crate::state::Source;
use crate::wide::Select;

/// Of how many processors the queries' product leaves one to the choice beside it.
const LEFT: u32 = 8;

/// How a layer's choice relates to the candidate blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// All visible rows.
    Free,
    /// All visible rows, and the blocks are chosen here.
    Source,
    /// Rows of the chosen blocks.
    Within,
}

impl GpuOps {
    /// The layer's queries too, which are made beside the choice.
    pub(crate) fn select_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.check_rows("select", &rows)?;
        self.index_queries(layer, &rows)?;
        self.beside(|ops| {
            ops.keys_aside = true;
            ops.queue.go_aside(true);
            ops.select(layer, rows.clone())
        })?;
        // The choice beside them needs processors of its own.
        let whole = self.queue.is_taped();
        self.leaving(self.products.width() / LEFT, |ops| ops.queries(layer, &rows, whole))
    }

    /// The weights of the indexer's heads, beside the keys' product, whose rows they take.
    pub(crate) fn index_weights(&mut self, layer: usize, rows: &Rows) -> OpsResult {
        let Some((_, weights)) = self.weights.layers[layer].indexer else { return Ok(()) };
        let (stride, round) = (self.spec.dims.index_heads, self.spec.numerics.round_stores);
        let x = self.x(rows);
        let x = self.products.ready(&mut self.queue, Of::X, rows.start, x, &[&weights])?;
        let out = Out { at: self.work.index_w.row(rows.start), stride, round };
        let beside = self.queue.last().is_some_and(is_in_turn);
        self.products.dense(&mut self.queue, &Ready { beside, ..x }, &weights, out)
    }

    /// The indexer's queries.
    fn index_queries(&mut self, layer: usize, rows: &Rows) -> OpsResult {
        let Some((wq_b, _)) = self.weights.layers[layer].indexer else { return Ok(()) };
        let (d, round) = (&self.spec.dims, self.spec.numerics.round_stores);
        let width = d.index_heads * d.index_dim;
        let qr = self.qr(rows);
        let qr = self.products.ready(&mut self.queue, Of::Qr, rows.start, qr, &[&wq_b])?;
        let out = Out { at: self.work.index_q.row(rows.start), stride: width, round };
        self.products.dense(&mut self.queue, &qr, &wq_b, out)
    }

    fn select(&mut self, layer: usize, rows: Rows) -> OpsResult {
        let spec = self.spec.clone();
        let Some(source) = spec.layer(layer).source else { return Ok(()) };
        let (d, round) = (&spec.dims, spec.numerics.round_stores);
        let source = self.state.sources[source];
        let level = match d.candidate_layer {
            Some(l) if l == layer => Level::Source,
            Some(l) if l < layer => Level::Within,
            _ => Level::Free,
        };
        let q = self.work.index_q.row(rows.start);
        if let Some(wide) = self.wide.select {
            let (cos, sin) = self.angles(layer, rows.start);
            let args = IndexOperandArgs {
                q,
                cos,
                sin,
                out: wide.queries.row(rows.start),
                heads: word(d.index_heads),
                dim: word(d.index_dim),
                pairs: word(d.rope_dim / 2),
                pad: 0,
            };
            let groups = (d.index_heads * d.index_dim).div_ceil(1024);
            self.queue.push(wide.operand, &args, [word(rows.len()), word(groups)])?;
            for start in rows.clone().step_by(self.work.turn) {
                let turn = start..rows.end.min(start + self.work.turn);
                self.pick_wide(level, &source, turn, &wide)?;
            }
            return Ok(());
        }
        let (cos, sin) = self.angles(layer, rows.start);
        let args = IndexQueryArgs {
            q,
            cos,
            sin,
            heads: word(d.index_heads),
            dim: word(d.index_dim),
            pairs: word(d.rope_dim / 2),
            round: u32::from(round),
        };
        let grid = [word(rows.len()), word(d.index_heads)];
        self.queue.push(self.kernels.index_query, &args, grid)?;
        for start in rows.clone().step_by(self.work.turn) {
            self.score_and_pick(level, &source, start..rows.end.min(start + self.work.turn))?;
        }
        Ok(())
    }

    /// Scores and picks for as many rows as scores have room for.
    fn score_and_pick(&mut self, level: Level, source: &Source, rows: Rows) -> OpsResult {
        let spec = self.spec.clone();
        let (d, work, n) = (&spec.dims, &self.work, word(rows.len()));
        let size = d.candidate_size;
        let seen = self.count(source, &rows);
        let (count, candidates) = match level {
            Level::Within => (
                seen.div_ceil(size).min(d.candidate_blocks) * size,
                work.candidates.row(rows.start),
            ),
            Level::Free | Level::Source => (seen, 0),
        };
        // A row of scores is as long as the longest one; a choice within blocks may be longer.
        let stride = work.most_rows.next_multiple_of(size.max(1));
        let table = self.batch.table + (4 * ROW_WORDS * rows.start) as u64;
        let args = IndexScoresArgs {
            q: work.index_q.row(rows.start),
            w: work.index_w.row(rows.start),
            keys: source.keys.at,
            rows: table,
            blocks: self.batch.blocks,
            candidates,
            n_candidates: if candidates == 0 { 0 } else { work.n_candidates.row(rows.start) },
            scores: work.scores.at,
            heads: word(d.index_heads),
            dim: word(d.index_dim),
            ratio: word(source.ratio),
            rows_per_block: word(source.per_block),
            blocks_stride: word(self.batch.stride),
            candidates_stride: word(d.candidate_blocks),
            candidate_size: word(size),
            count: word(count),
            scores_stride: word(stride),
            scale: 1.0 / ((d.index_dim as f32).sqrt() * (d.index_heads as f32).sqrt()),
        };
        self.queue.push(self.kernels.index_scores, &args, [word(count).div_ceil(LANES), n])?;
        let pick = TopkArgs {
            scores: work.scores.at,
            candidates,
            picks: work.picks.row(rows.start),
            n_picks: work.n_picks.row(rows.start),
            count: word(count),
            scores_stride: word(stride),
            k: word(d.index_topk),
            picks_stride: word(d.index_topk),
            candidates_stride: word(d.candidate_blocks),
            candidate_size: word(size),
        };
        self.queue.push(self.kernels.topk, &pick, [n, 1])?;
        if level != Level::Source {
            return Ok(());
        }
        let blocks = word(count.div_ceil(size));
        let best_stride = word(work.most_rows.div_ceil(size));
        let args = BlockBestArgs {
            scores: work.scores.at,
            rows: table,
            out: work.best.at,
            ratio: word(source.ratio),
            size: word(size),
            scores_stride: word(stride),
            count: blocks,
            out_stride: best_stride,
            pad: 0,
        };
        self.queue.push(self.kernels.block_best, &args, [blocks.div_ceil(LANES), n])?;
        let pick = TopkArgs {
            scores: work.best.at,
            candidates: 0,
            picks: work.candidates.row(rows.start),
            n_picks: work.n_candidates.row(rows.start),
            count: blocks,
            scores_stride: best_stride,
            k: word(d.candidate_blocks),
            picks_stride: word(d.candidate_blocks),
            ..pick
        };
        self.queue.push(self.kernels.topk, &pick, [n, 1])
    }

    /// [`GpuOps::score_and_pick`] on tensor cores, top-k in tiles.
    fn pick_wide(&mut self, level: Level, source: &Source, rows: Rows, wide: &Select) -> OpsResult {
        let spec = self.spec.clone();
        let (d, work, n) = (&spec.dims, &self.work, word(rows.len()));
        let size = d.candidate_size;
        let seen = self.count(source, &rows);
        let within = level == Level::Within;
        let count = match within {
            true => seen.div_ceil(size).min(d.candidate_blocks) * size,
            false => seen,
        };
        let of = |address: u64, there: bool| if there { address } else { 0 };
        let candidates = of(work.candidates.row(rows.start), within);
        let n_candidates = of(work.n_candidates.row(rows.start), within);
        let stride = word(work.most_rows.next_multiple_of(size.max(1)));
        let table = self.batch.table + (4 * ROW_WORDS * rows.start) as u64;
        let width = self.products.width();
        let (each, grid) = Select::grid(count, rows.len(), width);
        let by_tops = !within && Select::is_by_tops(count);
        let one_span = !within && self.batch.spans.iter().any(|span| span.has(&rows));
        let many = wide.many.filter(|_| one_span);
        let many = many.zip(Select::grid_of_many(count, rows.len(), width));
        let args = TileIndexArgs {
            q: wide.queries.row(rows.start),
            w: work.index_w.row(rows.start),
            keys: source.keys.at,
            rows: table,
            blocks: self.batch.blocks,
            candidates,
            n_candidates,
            scores: work.scores.at,
            tops: of(wide.tops.at, by_tops || many.is_some()),
            ratio: word(source.ratio),
            rows_per_block: word(source.per_block),
            blocks_stride: word(self.batch.stride),
            candidates_stride: word(d.candidate_blocks),
            candidate_size: word(size),
            count: word(count),
            scores_stride: stride,
            row_count: n,
            rows_each: word(each),
            scale: 1.0 / ((d.index_dim as f32).sqrt() * (d.index_heads as f32).sqrt()),
        };
        let (kernel, grid) = many.unwrap_or((wide.scores, grid));
        self.queue.push(kernel, &args, grid)?;
        let pick = TileTopkArgs {
            scores: work.scores.at,
            from: 0,
            rows: of(table, !within),
            candidates,
            n_candidates,
            ids: work.picks.row(rows.start),
            best: 0,
            n_picks: work.n_picks.row(rows.start),
            count: word(count),
            scores_stride: stride,
            k: word(d.index_topk),
            tiles: 1,
            ratio: word(source.ratio),
            unit: 1,
            candidates_stride: word(d.candidate_blocks),
            candidate_size: word(size),
            spread: 0,
            pad: 0,
        };
        match by_tops {
            false => wide.pick(&mut self.queue, &pick, n)?,
            true => wide.pick_by_tops(&mut self.queue, &pick, n)?,
        }
        if level != Level::Source {
            return Ok(());
        }
        let blocks = word(count.div_ceil(size));
        let best_stride = word(work.most_rows.div_ceil(size));
        let args = BlockBestArgs {
            scores: work.scores.at,
            rows: table,
            out: work.best.at,
            ratio: word(source.ratio),
            size: word(size),
            scores_stride: stride,
            count: blocks,
            out_stride: best_stride,
            pad: 0,
        };
        self.queue.push(self.kernels.block_best, &args, [blocks.div_ceil(LANES), n])?;
        let pick = TileTopkArgs {
            scores: work.best.at,
            ids: work.candidates.row(rows.start),
            n_picks: work.n_candidates.row(rows.start),
            count: blocks,
            scores_stride: best_stride,
            k: word(d.candidate_blocks),
            unit: word(size),
            ..pick
        };
        wide.pick(&mut self.queue, &pick, n)
    }

    /// Compressed rows that the furthest of the rows sees, up to a bound that stays the same while a
    /// taped round's context grows.
    fn count(&self, source: &Source, rows: &Rows) -> usize {
        let end = self.batch.spans.iter().filter(|span| span.first < rows.end).map(|span| {
            let last = rows.end.min(span.first + span.tokens.len());
            span.start + last - span.first
        });
        let seen = (end.max().unwrap_or(0) / source.ratio).max(1);
        let lanes = LANES as usize;
        let bound = match self.queue.is_taped() {
            true => seen.next_power_of_two().max(lanes),
            false => seen.next_multiple_of(lanes),
        };
        bound.min(self.work.most_rows)
    }
}
