//! [`Runner`] over any [`Ops`]: checks every call, owns the block tables, drives the passes.

mod kept;
mod prompt;

use std::collections::HashMap;
use std::sync::Arc;

use finback_ops::{Adjust, BLOCK_POSITIONS, Keep, ModelSpec, Ops, Penalties, Sampling, Span};

use crate::forward::{self, Extent, Reach};
use crate::pool::{Holder, Pool, PoolUse};
use crate::runner::{
    Choice, Draft, DraftRequest, Runner, RunnerError, RunnerInfo, RunnerResult, SlotId, Snapshot,
    SnapshotId, Staged, Start, Window,
};
use kept::{IdHash, Kept};
use prompt::Prompt;

/// Rows one window may have.
pub const WINDOW_ROWS: usize = 16;

/// Runs a model on a backend.
pub struct ModelRunner {
    ops: Box<dyn Ops>,
    spec: Arc<ModelSpec>,
    info: RunnerInfo,
    slots: Vec<Slot>,
    pool: Pool,
    kept: HashMap<SnapshotId, Kept>,
    next_snapshot: SnapshotId,
    staged: Staged,
    /// Rows that the layers above the last kv source run of any prompt, at most.
    tail: usize,
    /// Spans of the last window pass, by slot, until each is kept or released.
    open: Vec<(SlotId, Option<Keep>)>,
}

#[derive(Default)]
struct Slot {
    state: State,
    /// Positions whose rows are part of the state.
    len: usize,
    /// Of the ids at those positions.
    hash: IdHash,
    blocks: Vec<u32>,
}

#[derive(Default)]
enum State {
    #[default]
    Idle,
    Prompt(Prompt),
    Ready,
    Open {
        tokens: Vec<u32>,
    },
}

impl Slot {
    fn doing(&self) -> &'static str {
        match &self.state {
            State::Idle => "idle",
            State::Prompt(p) if self.len < p.len() => "running its prompt",
            State::Prompt(_) => "at its prompt's end",
            State::Ready => "ready",
            State::Open { .. } => "waiting for its window to be kept",
        }
    }
}

impl ModelRunner {
    /// A runner over a backend that was loaded with this spec.
    pub fn new(ops: Box<dyn Ops>, spec: Arc<ModelSpec>) -> Self {
        let limits = ops.limits();
        let info = RunnerInfo {
            slots: limits.slots,
            context: limits.context,
            vocab: spec.dims.vocab,
            window_rows: WINDOW_ROWS,
            chunk_rows: limits.rows,
            draft_tokens: spec.drafter.as_ref().map_or(0, |d| d.block),
            block_positions: BLOCK_POSITIONS,
            blocks: limits.blocks,
        };
        Self {
            slots: (0..info.slots).map(|_| Slot::default()).collect(),
            pool: Pool::new(info.blocks),
            kept: HashMap::new(),
            next_snapshot: 0,
            staged: Staged::default(),
            tail: Reach::new(&spec, 1).tail(),
            open: Vec::new(),
            ops,
            spec,
            info,
        }
    }

    /// Logit rows a backend must hold for this many slots: a window each, and one prompt end each.
    pub fn logit_rows(slots: usize) -> usize {
        slots * WINDOW_ROWS + slots
    }

    /// The bytes of a slot's state, for comparing two states.
    pub fn state(&mut self, slot: SlotId) -> RunnerResult<Vec<u8>> {
        self.exists(slot)?;
        let mut out = Vec::new();
        let s = &self.slots[slot];
        self.ops.read_state(slot, s.len, &s.blocks, &mut out)?;
        Ok(out)
    }

    /// One of the last pass's logit rows; a draft pass leaves its own, Markov term included.
    pub fn logit_row(&mut self, at: usize) -> RunnerResult<Vec<f32>> {
        let mut row = Vec::new();
        self.ops.read_logits(at, &mut row)?;
        Ok(row)
    }

    fn exists(&self, slot: SlotId) -> RunnerResult<()> {
        if slot >= self.info.slots {
            return Err(RunnerError::NoSuchSlot { slot, slots: self.info.slots });
        }
        Ok(())
    }

    fn wrong(&self, slot: SlotId, wanted: &'static str) -> RunnerError {
        RunnerError::WrongState { slot, found: self.slots[slot].doing(), wanted }
    }

    fn tokens_exist(&self, ids: &[u32], at: usize) -> RunnerResult<()> {
        match ids.iter().position(|&id| id as usize >= self.info.vocab) {
            None => Ok(()),
            Some(i) => Err(RunnerError::NoSuchToken {
                id: ids[i],
                position: at + i,
                vocab: self.info.vocab,
            }),
        }
    }

    /// What is added to a row's logits names tokens there are, and adds numbers.
    fn can_add(&self, slot: SlotId, adds: &[(u32, f32)]) -> RunnerResult<()> {
        let (position, vocab) = (self.slots[slot].len, self.info.vocab);
        for &(id, add) in adds {
            if id as usize >= vocab {
                return Err(RunnerError::NoSuchToken { id, position, vocab });
            }
            if !add.is_finite() {
                return Err(RunnerError::NotFinite { slot, id, add });
            }
        }
        Ok(())
    }

    /// No pass may begin while a window waits: its rows live in the workspace.
    fn none_open(&self) -> RunnerResult<()> {
        match self.open.iter().find(|(_, keep)| keep.is_none()) {
            None => Ok(()),
            Some(&(slot, _)) => Err(self.wrong(slot, "kept before another pass")),
        }
    }

    fn first_logits(&self, slot: SlotId) -> usize {
        self.info.slots * WINDOW_ROWS + slot
    }

    /// Each slot once, ready, with room for `rows` rows.
    fn ready(&self, slots: impl Iterator<Item = (SlotId, usize)>) -> RunnerResult<()> {
        let mut seen = vec![false; self.info.slots];
        for (slot, rows) in slots {
            self.exists(slot)?;
            if std::mem::replace(&mut seen[slot], true) {
                return Err(RunnerError::SlotTwice { slot });
            }
            let s = &self.slots[slot];
            if !matches!(s.state, State::Ready) {
                return Err(self.wrong(slot, "ready"));
            }
            let (positions, context) = (s.len + rows, self.info.context);
            if positions > context {
                return Err(RunnerError::Context { positions, context });
            }
            let wanted = positions.div_ceil(BLOCK_POSITIONS);
            if wanted > s.blocks.len() {
                return Err(RunnerError::Blocks {
                    wanted: wanted - s.blocks.len(),
                    free: 0,
                    blocks: self.info.blocks,
                });
            }
        }
        Ok(())
    }

    /// Once no window waits, makes the kept rows of all of them state, in one launch.
    fn flush(&mut self) -> RunnerResult<()> {
        if self.open.iter().any(|(_, keep)| keep.is_none()) {
            return Ok(());
        }
        let keeps: Vec<Keep> =
            self.open.drain(..).filter_map(|(_, keep)| keep).filter(|k| k.rows > 0).collect();
        if !keeps.is_empty() {
            self.ops.keep(&keeps, &vec![0; self.spec.rings()])?;
        }
        Ok(())
    }
}

impl Runner for ModelRunner {
    fn info(&self) -> &RunnerInfo {
        &self.info
    }

    fn pool(&self) -> PoolUse {
        self.pool.usage()
    }

    fn start(
        &mut self,
        slot: SlotId,
        prompt: &[u32],
        positions: usize,
        start: &Start<'_>,
    ) -> RunnerResult<()> {
        self.start_prompt(slot, prompt, positions, start)
    }

    fn stage(&mut self, slot: SlotId, skip: usize, rows: usize) -> RunnerResult<()> {
        self.stage_piece(slot, skip, rows)
    }

    fn staged(&self) -> Staged {
        self.staged
    }

    fn piece(&mut self, slot: SlotId, rows: usize) -> RunnerResult<usize> {
        self.run_piece(slot, rows)
    }

    fn finish(
        &mut self,
        slot: SlotId,
        sampling: Sampling,
        adjust: &[(u32, f32)],
        logits: bool,
    ) -> RunnerResult<Choice> {
        self.exists(slot)?;
        self.can_add(slot, adjust)?;
        let at = self.first_logits(slot);
        let s = &mut self.slots[slot];
        let State::Prompt(prompt) = &s.state else {
            return Err(self.wrong(slot, "at its prompt's end"));
        };
        if s.len < prompt.len() {
            return Err(self.wrong(slot, "at its prompt's end"));
        }
        let (mut chosen, mut adds) = (Vec::new(), Adjust::default());
        adds.push(adjust.iter().copied());
        self.ops.choose(at, &[(sampling, s.len)], &adds)?;
        self.ops.read_choices(&mut chosen)?;
        let row = read_row(self.ops.as_mut(), logits, at)?;
        s.state = State::Ready;
        Ok(Choice { token: chosen[0], logits: row })
    }

    fn prompt_logits(&mut self, slot: SlotId) -> RunnerResult<Vec<Vec<f32>>> {
        self.exists(slot)?;
        match &mut self.slots[slot].state {
            State::Prompt(prompt) => Ok(std::mem::take(&mut prompt.logits)),
            _ => Err(self.wrong(slot, "at its prompt's end")),
        }
    }

    fn windows(&mut self, windows: &[Window<'_>]) -> RunnerResult<Vec<Vec<Choice>>> {
        self.none_open()?;
        if windows.is_empty() {
            return Ok(Vec::new());
        }
        for w in windows {
            if w.tokens.is_empty() || w.tokens.len() > WINDOW_ROWS {
                let (what, found) = ("rows of a window", w.tokens.len());
                return Err(RunnerError::Rows { what, found, limit: WINDOW_ROWS });
            }
        }
        self.ready(windows.iter().map(|w| (w.slot, w.tokens.len())))?;
        for w in windows {
            self.tokens_exist(w.tokens, self.slots[w.slot].len)?;
            w.adjust.iter().try_for_each(|adds| self.can_add(w.slot, adds))?;
        }
        let spans: Vec<Span<'_>> = windows
            .iter()
            .map(|w| {
                let s = &self.slots[w.slot];
                Span { slot: w.slot, start: s.len, tokens: w.tokens, blocks: &s.blocks }
            })
            .collect();
        let rows = windows.iter().map(|w| w.tokens.len()).sum();
        self.ops.begin(&spans)?;
        let extent = Extent::whole(self.spec.layers.len());
        forward::target(self.ops.as_mut(), &self.spec, rows, &extent)?;
        self.ops.head(0..rows, 0)?;
        let params: Vec<_> = spans
            .iter()
            .zip(windows)
            .flat_map(|(span, w)| (0..w.tokens.len()).map(|i| (w.sampling, span.start + i + 1)))
            .collect();
        let mut adjust = Adjust::default();
        for w in windows {
            for i in 0..w.tokens.len() {
                adjust.push(w.adjust.get(i).into_iter().flatten().copied());
            }
        }
        self.ops.choose(0, &params, &adjust)?;
        let mut chosen = Vec::new();
        self.ops.read_choices(&mut chosen)?;
        let (mut at, mut out) = (0, Vec::with_capacity(windows.len()));
        for w in windows {
            let mut choices = Vec::with_capacity(w.tokens.len());
            for _ in w.tokens {
                let logits = read_row(self.ops.as_mut(), w.logits, at)?;
                choices.push(Choice { token: chosen[at], logits });
                at += 1;
            }
            out.push(choices);
        }
        for w in windows {
            self.slots[w.slot].state = State::Open { tokens: w.tokens.to_vec() };
        }
        self.open = windows.iter().map(|w| (w.slot, None)).collect();
        Ok(out)
    }

    fn keep(&mut self, slot: SlotId, rows: usize) -> RunnerResult<()> {
        self.exists(slot)?;
        let State::Open { tokens } = &self.slots[slot].state else {
            return Err(self.wrong(slot, "waiting for its window to be kept"));
        };
        if rows > tokens.len() {
            return Err(RunnerError::KeepTooMany { slot, keep: rows, rows: tokens.len() });
        }
        let hash = self.slots[slot].hash.and(&tokens[..rows]);
        if let Some(span) = self.open.iter().position(|&(s, _)| s == slot) {
            self.open[span].1 = Some(Keep { span, rows });
        }
        let s = &mut self.slots[slot];
        s.len += rows;
        s.hash = hash;
        s.state = State::Ready;
        self.flush()
    }

    fn draft(&mut self, requests: &[DraftRequest<'_>]) -> RunnerResult<Vec<Draft>> {
        let Some(drafter) = &self.spec.drafter else {
            return Err(RunnerError::NoDrafts);
        };
        self.none_open()?;
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        self.ready(requests.iter().map(|r| (r.slot, 0)))?;
        for r in requests {
            self.tokens_exist(&[r.anchor], self.slots[r.slot].len)?;
            self.can_add(r.slot, r.adjust)?;
        }
        let block = drafter.block;
        let ids: Vec<Vec<u32>> = requests
            .iter()
            .map(|r| {
                let mut ids = vec![drafter.noise; block];
                ids[0] = r.anchor;
                ids
            })
            .collect();
        let spans: Vec<Span<'_>> = requests
            .iter()
            .zip(&ids)
            .map(|(r, ids)| {
                let s = &self.slots[r.slot];
                Span { slot: r.slot, start: s.len, tokens: ids, blocks: &s.blocks }
            })
            .collect();
        let rows = block * requests.len();
        self.ops.begin_draft(&spans)?;
        forward::drafter(self.ops.as_mut(), &self.spec, rows)?;
        self.ops.draft_head(0..rows, 0)?;
        let params: Vec<(Sampling, Penalties)> =
            requests.iter().map(|r| (r.sampling, r.penalties)).collect();
        let mut adjust = Adjust::default();
        requests.iter().for_each(|r| adjust.push(r.adjust.iter().copied()));
        self.ops.draft_chain(0, &params, &adjust)?;
        let (mut tokens, mut confidence) = (Vec::new(), Vec::new());
        self.ops.read_drafts(&mut tokens, &mut confidence)?;
        Ok(tokens
            .chunks(block)
            .zip(confidence.chunks(block))
            .map(|(t, c)| Draft { tokens: t.to_vec(), confidence: c.to_vec() })
            .collect())
    }

    fn release(&mut self, slot: SlotId) -> RunnerResult<()> {
        self.exists(slot)?;
        let s = std::mem::take(&mut self.slots[slot]);
        self.pool.give(Holder::Slot, &s.blocks);
        if let Some(span) = self.open.iter().position(|&(open, _)| open == slot) {
            self.open[span].1 = Some(Keep { span, rows: 0 });
        }
        self.flush()
    }

    fn save(&mut self, slot: SlotId) -> RunnerResult<Snapshot> {
        self.save_slot(slot)
    }

    fn forget(&mut self, snapshot: SnapshotId) -> RunnerResult<()> {
        let kept = self.kept.remove(&snapshot);
        let kept = kept.ok_or(RunnerError::NoSuchSnapshot { id: snapshot })?;
        self.pool.give(Holder::Snapshot, &kept.blocks);
        Ok(())
    }

    fn export(&mut self, snapshot: SnapshotId, out: &mut Vec<u8>) -> RunnerResult<()> {
        self.export_kept(snapshot, out)
    }

    fn import(&mut self, ids: &[u32], bytes: &[u8]) -> RunnerResult<Snapshot> {
        self.import_kept(ids, bytes)
    }
}

fn read_row(ops: &mut dyn Ops, wanted: bool, at: usize) -> RunnerResult<Option<Vec<f32>>> {
    if !wanted {
        return Ok(None);
    }
    let mut row = Vec::new();
    ops.read_logits(at, &mut row)?;
    Ok(Some(row))
}
