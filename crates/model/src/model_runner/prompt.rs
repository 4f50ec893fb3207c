//! A prompt on its way: where it starts, its pieces, and what they need from the host.

use finback_ops::{BLOCK_POSITIONS, Keep, Span};

use super::{ModelRunner, Slot, State, WINDOW_ROWS};
use crate::forward::{self, Reach};
use crate::model_runner::kept::IdHash;
use crate::pool::Holder;
use crate::runner::{RunnerError, RunnerResult, SlotId, Start};

/// A slot's prompt until its first choice.
pub(super) struct Prompt {
    ids: Vec<u32>,
    reach: Reach,
    /// Where pieces end and the state is whole, ascending; the last is the prompt's end.
    stops: Vec<usize>,
    /// Rows whose logits the caller reads, at the prompt's end.
    head_rows: usize,
    pub(super) logits: Vec<Vec<f32>>,
}

impl Prompt {
    /// Its tokens.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The end that rows from `at` on run for.
    fn end_after(&self, at: usize) -> usize {
        self.stops.iter().copied().find(|&stop| stop > at).unwrap_or(self.ids.len())
    }

    /// Tokens a prompt has at least that starts from this one's state at `at`. `tail` is
    /// [`Reach::tail`] of any prompt.
    ///
    /// Above the last kv source, layer l has run the rows from `end - input[l]` on. A prompt of n
    /// tokens reads those from `n - input[l]` on: all there once n reaches `end`, and none of them
    /// before `at` once n reaches `at + tail`.
    pub(super) fn least(&self, at: usize, tail: usize) -> usize {
        match at == self.ids.len() || self.stops.contains(&at) {
            true => at,
            false => self.end_after(at).min(at + tail),
        }
    }
}

impl ModelRunner {
    pub(super) fn start_prompt(
        &mut self,
        slot: SlotId,
        prompt: &[u32],
        positions: usize,
        start: &Start<'_>,
    ) -> RunnerResult<()> {
        self.exists(slot)?;
        if !matches!(self.slots[slot].state, State::Idle) {
            return Err(self.wrong(slot, "idle"));
        }
        self.tokens_exist(prompt, 0)?;
        let (context, positions) = (self.info.context, positions.max(prompt.len()));
        if prompt.is_empty() || positions > context {
            let what = "prompt tokens";
            return Err(match prompt.len() {
                0 => RunnerError::Rows { what, found: 0, limit: context },
                _ => RunnerError::Context { positions, context },
            });
        }
        let limit = if start.from.is_some() { 1 } else { WINDOW_ROWS };
        if start.head_rows == 0 || start.head_rows > limit {
            let what = "prompt rows with logits";
            return Err(RunnerError::Rows { what, found: start.head_rows, limit });
        }
        let (at, least) = match start.from {
            None => (0, 0),
            Some(id) => self.check_kept(id, prompt)?,
        };
        let mut table = match start.from {
            None => Vec::new(),
            Some(id) => self.usable(id)?,
        };
        let wanted = positions.div_ceil(BLOCK_POSITIONS) - table.len();
        let (free, blocks) = (self.pool.usage().free, self.info.blocks);
        let Some(fresh) = self.pool.take(wanted) else {
            return Err(RunnerError::Blocks { wanted, free, blocks });
        };
        let first = fresh.first().copied();
        // The slot holds them from here on, so that a release frees them whatever happens next.
        self.slots[slot].blocks = fresh;
        let restored = match start.from {
            None => self.ops.reset(slot).map_err(RunnerError::from),
            Some(id) => self.restore(slot, id, table.len(), first),
        };
        let fresh = std::mem::take(&mut self.slots[slot].blocks);
        if let Err(error) = restored {
            self.pool.give(Holder::Slot, &fresh);
            return Err(error);
        }
        self.pool.share(Holder::Slot, &table);
        table.extend(fresh);
        let stops = start.stops.iter().copied();
        // A stop that the snapshot's rows do not reach to could not be whole.
        let stops = stops.filter(|&stop| stop > at && stop >= least && stop < prompt.len());
        self.slots[slot] = Slot {
            state: State::Prompt(Prompt {
                ids: prompt.to_vec(),
                reach: Reach::new(&self.spec, start.head_rows),
                stops: stops.collect(),
                head_rows: start.head_rows,
                logits: Vec::new(),
            }),
            len: at,
            hash: IdHash::default().and(&prompt[..at]),
            blocks: table,
        };
        Ok(())
    }

    pub(super) fn run_piece(&mut self, slot: SlotId, rows: usize) -> RunnerResult<usize> {
        self.exists(slot)?;
        self.none_open()?;
        let wanted_logits = self.first_logits(slot);
        let s = &mut self.slots[slot];
        let State::Prompt(prompt) = &mut s.state else {
            return Err(self.wrong(slot, "running its prompt"));
        };
        let left = prompt.len() - s.len;
        if rows == 0 || rows > self.info.chunk_rows {
            let what = "rows of a prompt piece";
            return Err(RunnerError::Rows { what, found: rows, limit: self.info.chunk_rows });
        }
        if left == 0 {
            return Err(self.wrong(slot, "running its prompt"));
        }
        let end = prompt.end_after(s.len);
        let rows = rows.min(end - s.len);
        let extent = prompt.reach.piece(end, s.len, rows);
        let tokens = &prompt.ids[s.len..s.len + rows];
        self.ops.begin(&[Span { slot, start: s.len, tokens, blocks: &s.blocks }])?;
        match self.ops.was_staged() {
            None => {}
            Some(true) => self.staged.hits += 1,
            Some(false) => self.staged.misses += 1,
        }
        forward::target(self.ops.as_mut(), &self.spec, rows, &extent)?;
        if prompt.head_rows > 1 {
            let head = (prompt.ids.len() - prompt.head_rows.min(prompt.ids.len()))
                .saturating_sub(s.len)
                .min(rows);
            for row in head..rows {
                self.ops.head(row..row + 1, wanted_logits)?;
                let mut logits = Vec::new();
                self.ops.read_logits(wanted_logits, &mut logits)?;
                prompt.logits.push(logits);
            }
        } else if rows == left {
            self.ops.head(rows - 1..rows, wanted_logits)?;
        }
        self.ops.keep(&[Keep { span: 0, rows }], &extent.computed_from(&self.spec))?;
        s.hash = s.hash.and(&prompt.ids[s.len..s.len + rows]);
        s.len += rows;
        Ok(left - rows)
    }

    pub(super) fn stage_piece(
        &mut self,
        slot: SlotId,
        skip: usize,
        rows: usize,
    ) -> RunnerResult<()> {
        self.exists(slot)?;
        let s = &self.slots[slot];
        let State::Prompt(prompt) = &s.state else {
            return Err(self.wrong(slot, "running its prompt"));
        };
        // Both end where a piece would.
        let first = s.len.saturating_add(skip).min(prompt.end_after(s.len));
        let first = if skip == 0 { s.len } else { first };
        let last = first.saturating_add(rows).min(prompt.end_after(first));
        if first >= last {
            return Ok(());
        }
        self.ops.stage(slot, first, &prompt.ids[..first], &prompt.ids[first..last])?;
        Ok(())
    }
}
