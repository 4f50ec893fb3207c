//! The fake runner: checks every call as a real one must, and remembers ids instead of state.

use std::collections::HashMap;

use finback_model::pool::{Holder, Pool, PoolUse};
use finback_model::{
    Choice, Draft, DraftRequest, Runner, RunnerError, RunnerInfo, RunnerResult, SlotId, Snapshot,
    SnapshotId, Staged, Start, Window,
};
use finback_ops::Sampling;

use super::{NextToken, adjusted, mix};

/// What a slot is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    /// Rows of the prompt that have run.
    Prompt {
        ran: usize,
    },
    Between,
    /// Ids of the open window.
    Open {
        window: Vec<u32>,
    },
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Prompt { .. } => "running its prompt",
            Self::Between => "between rounds",
            Self::Open { .. } => "holding an open window",
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Slot {
    state: State,
    /// The prompt, then every kept row.
    ids: Vec<u32>,
    positions: usize,
    head_rows: usize,
    stops: Vec<usize>,
    blocks: Vec<u32>,
    /// Rows of its prompt that were announced, the last two times.
    staged: Vec<(usize, usize)>,
}

/// What a snapshot holds.
#[derive(Debug, Clone)]
struct Kept {
    ids: Vec<u32>,
    least: usize,
    exact: bool,
    blocks: Vec<u32>,
}

/// The runner's calls, but [`Runner::info`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// [`Runner::start`].
    Begin,
    /// [`Runner::piece`].
    Piece,
    /// [`Runner::finish`].
    Finish,
    /// [`Runner::prompt_logits`].
    PromptLogits,
    /// [`Runner::windows`].
    Windows,
    /// [`Runner::keep`].
    Keep,
    /// [`Runner::draft`].
    Draft,
    /// [`Runner::release`].
    Release,
    /// [`Runner::save`].
    Save,
}

type Hook = Box<dyn FnMut(Call, &[SlotId]) -> RunnerResult<()> + Send>;

/// A [`Runner`] whose choices come from a function of the slot's ids.
pub struct FakeRunner {
    info: RunnerInfo,
    slots: Vec<Slot>,
    pool: Pool,
    kept: HashMap<SnapshotId, Kept>,
    saved: SnapshotId,
    staged: Staged,
    /// [`Snapshot::least`] of states in a prompt's middle is at most this much over their position.
    tail: usize,
    next: NextToken,
    /// Of 8 drafts, how many are right.
    right_of_8: u64,
    /// The raw confidence in a window's first draft; each after it has 1 less.
    confidence: f32,
    hook: Hook,
}

impl FakeRunner {
    /// A runner that offers `info` and chooses by `next`; drafts are right 5 times of 8.
    #[must_use]
    pub fn new(info: RunnerInfo, next: NextToken) -> Self {
        let slots = vec![Slot::default(); info.slots];
        Self {
            pool: Pool::new(info.blocks),
            kept: HashMap::new(),
            saved: 0,
            staged: Staged::default(),
            tail: 6,
            info,
            slots,
            next,
            right_of_8: 5,
            confidence: 0.0,
            hook: Box::new(|_, _| Ok(())),
        }
    }

    /// Of every 8 drafts, how many are right.
    #[must_use]
    pub fn right_drafts(mut self, of_8: u64) -> Self {
        self.right_of_8 = of_8;
        self
    }

    /// The raw confidence (a logit) in a window's first draft, 0 where not set; each draft after it
    /// has 1 less.
    #[must_use]
    pub fn confidence(mut self, first: f32) -> Self {
        self.confidence = first;
        self
    }

    /// Calls `hook` with the call and its slots before anything happens. It may block, to hold the
    /// engine at a point; its error becomes the call's, which then changes nothing.
    #[must_use]
    pub fn on_call(
        mut self,
        hook: impl FnMut(Call, &[SlotId]) -> RunnerResult<()> + Send + 'static,
    ) -> Self {
        self.hook = Box::new(hook);
        self
    }

    /// Small limits for tests: chunks of 4 rows, windows of 6, drafts of 5.
    #[must_use]
    pub fn small(slots: usize, context: usize, vocab: usize) -> RunnerInfo {
        RunnerInfo {
            slots,
            context,
            vocab,
            window_rows: 6,
            chunk_rows: 4,
            draft_tokens: 5,
            block_positions: 256,
            blocks: slots * context.div_ceil(256),
        }
    }

    fn slot(&mut self, slot: SlotId) -> RunnerResult<&mut Slot> {
        let slots = self.slots.len();
        self.slots.get_mut(slot).ok_or(RunnerError::NoSuchSlot { slot, slots })
    }

    fn check_id(&self, id: u32, position: usize) -> RunnerResult<()> {
        let vocab = self.info.vocab;
        if (id as usize) < vocab {
            Ok(())
        } else {
            Err(RunnerError::NoSuchToken { id, position, vocab })
        }
    }

    fn choice(
        &self,
        history: &[u32],
        sampling: &Sampling,
        adds: &[(u32, f32)],
        logits: bool,
    ) -> Choice {
        let token = (self.next)(history, sampling);
        let row = || {
            let mut row = vec![0.0; self.info.vocab];
            if let Some(id) = token {
                row[id as usize] = 1.0;
            }
            row
        };
        let chosen = token.map(|token| adjusted(token, adds));
        Choice { token: chosen, logits: logits.then(row) }
    }

    fn check_window(&self, window: &Window<'_>) -> RunnerResult<()> {
        let Window { slot, tokens, .. } = *window;
        let slots = self.slots.len();
        let found = self.slots.get(slot).ok_or(RunnerError::NoSuchSlot { slot, slots })?;
        if found.state != State::Between {
            return Err(wrong(slot, &found.state, "between rounds"));
        }
        check_rows("rows of a window", tokens.len(), self.info.window_rows)?;
        let positions = found.ids.len() + tokens.len();
        if positions > found.positions {
            return Err(RunnerError::Context { positions, context: found.positions });
        }
        let base = found.ids.len();
        tokens.iter().enumerate().try_for_each(|(row, &id)| self.check_id(id, base + row))
    }
}

impl Runner for FakeRunner {
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
        (self.hook)(Call::Begin, &[slot])?;
        let (context, head_rows) = (self.info.context, start.head_rows);
        check_rows("prompt tokens", prompt.len(), context)?;
        for (position, &id) in prompt.iter().enumerate() {
            self.check_id(id, position)?;
        }
        if positions > context || positions < prompt.len() {
            return Err(RunnerError::Context { positions, context });
        }
        let most = if start.from.is_some() { 1 } else { self.info.window_rows };
        check_rows("prompt rows with logits", head_rows, most)?;
        let taken = self.slot(slot)?;
        if taken.state != State::Idle {
            return Err(wrong(slot, &taken.state, "idle"));
        }
        let kept = match start.from {
            None => None,
            Some(id) => Some((id, self.kept.get(&id).ok_or(RunnerError::NoSuchSnapshot { id })?)),
        };
        let (mut ran, mut least, mut blocks) = (0, 0, Vec::new());
        if let Some((id, kept)) = kept {
            (ran, least) = (kept.ids.len(), kept.least);
            if !prompt.starts_with(&kept.ids) || !kept.show(id).serves(prompt.len()) {
                let reason = "what this prompt cannot start from".to_owned();
                return Err(RunnerError::WrongSnapshot { id, at: ran, reason });
            }
            blocks = self.pool.usable(&kept.blocks, ran / self.info.block_positions).to_vec();
        }
        let wanted = positions.div_ceil(self.info.block_positions) - blocks.len();
        let free = self.pool.usage().free;
        let fresh = self.pool.take(wanted);
        let fresh = fresh.ok_or(RunnerError::Blocks { wanted, free, blocks: self.info.blocks })?;
        self.pool.share(Holder::Slot, &blocks);
        blocks.extend(fresh);
        let stops = start.stops.iter().copied();
        let stops = stops.filter(|&at| at > ran && at >= least && at < prompt.len()).collect();
        let (state, ids) = (State::Prompt { ran }, prompt.to_vec());
        let staged = Vec::new();
        self.slots[slot] = Slot { state, ids, positions, head_rows, stops, blocks, staged };
        Ok(())
    }

    fn stage(&mut self, slot: SlotId, skip: usize, rows: usize) -> RunnerResult<()> {
        let found = self.slot(slot)?;
        let State::Prompt { ran } = found.state else {
            return Err(wrong(slot, &found.state, "running its prompt"));
        };
        let first = if skip == 0 { ran } else { found.end_of(ran, skip) };
        let rows = (first, found.end_of(first, rows));
        found.staged.push(rows);
        let old = found.staged.len().saturating_sub(2);
        found.staged.drain(..old);
        Ok(())
    }

    fn staged(&self) -> Staged {
        self.staged
    }

    fn piece(&mut self, slot: SlotId, rows: usize) -> RunnerResult<usize> {
        (self.hook)(Call::Piece, &[slot])?;
        check_rows("rows of a piece", rows, self.info.chunk_rows)?;
        let found = self.slot(slot)?;
        let length = found.ids.len();
        let State::Prompt { ran } = found.state else {
            return Err(wrong(slot, &found.state, "running its prompt"));
        };
        check_rows("rows of a piece", rows, length - ran)?;
        let end = found.end_of(ran, rows);
        found.state = State::Prompt { ran: end };
        match found.staged.contains(&(ran, end)) {
            true => self.staged.hits += 1,
            false => self.staged.misses += 1,
        }
        Ok(length - end)
    }

    fn finish(
        &mut self,
        slot: SlotId,
        sampling: Sampling,
        adjust: &[(u32, f32)],
        logits: bool,
    ) -> RunnerResult<Choice> {
        (self.hook)(Call::Finish, &[slot])?;
        let found = self.slot(slot)?;
        if found.state != (State::Prompt { ran: found.ids.len() }) {
            return Err(wrong(slot, &found.state, "at the end of its prompt"));
        }
        found.state = State::Between;
        Ok(self.choice(&self.slots[slot].ids, &sampling, adjust, logits))
    }

    fn prompt_logits(&mut self, slot: SlotId) -> RunnerResult<Vec<Vec<f32>>> {
        (self.hook)(Call::PromptLogits, &[slot])?;
        let found = self.slot(slot)?.clone();
        let len = found.ids.len();
        if found.state != (State::Prompt { ran: len }) {
            return Err(wrong(slot, &found.state, "at the end of its prompt"));
        }
        let row = |end| self.choice(&found.ids[..end], &Sampling::GREEDY, &[], true).logits;
        Ok((len - found.head_rows.min(len) + 1..=len).filter_map(row).collect())
    }

    fn windows(&mut self, windows: &[Window<'_>]) -> RunnerResult<Vec<Vec<Choice>>> {
        (self.hook)(Call::Windows, &windows.iter().map(|w| w.slot).collect::<Vec<_>>())?;
        for (index, window) in windows.iter().enumerate() {
            self.check_window(window)?;
            if windows[..index].iter().any(|other| other.slot == window.slot) {
                return Err(RunnerError::SlotTwice { slot: window.slot });
            }
        }
        let mut choices = Vec::new();
        for window in windows {
            let mut history = self.slots[window.slot].ids.clone();
            let mut rows = Vec::new();
            for (row, &id) in window.tokens.iter().enumerate() {
                history.push(id);
                let adds = window.adjust.get(row).map_or(&[][..], Vec::as_slice);
                rows.push(self.choice(&history, &window.sampling, adds, window.logits));
            }
            choices.push(rows);
            self.slots[window.slot].state = State::Open { window: window.tokens.to_vec() };
        }
        Ok(choices)
    }

    fn keep(&mut self, slot: SlotId, rows: usize) -> RunnerResult<()> {
        (self.hook)(Call::Keep, &[slot])?;
        let found = self.slot(slot)?;
        let State::Open { window } = &found.state else {
            return Err(wrong(slot, &found.state, "holding an open window"));
        };
        let held = window.len();
        if rows > held {
            return Err(RunnerError::KeepTooMany { slot, keep: rows, rows: held });
        }
        let kept = window[..rows].to_vec();
        found.ids.extend(kept);
        found.state = State::Between;
        Ok(())
    }

    fn draft(&mut self, requests: &[DraftRequest<'_>]) -> RunnerResult<Vec<Draft>> {
        (self.hook)(Call::Draft, &requests.iter().map(|r| r.slot).collect::<Vec<_>>())?;
        let count = self.info.draft_tokens;
        if count == 0 {
            return Err(RunnerError::NoDrafts);
        }
        let mut drafts = Vec::new();
        for request in requests {
            let found = self.slot(request.slot)?;
            if found.state != State::Between {
                return Err(wrong(request.slot, &found.state, "between rounds"));
            }
            let mut history = found.ids.clone();
            history.push(request.anchor);
            let mut tokens = Vec::new();
            for _ in 0..count {
                let right = (self.next)(&history, &request.sampling).unwrap_or(0);
                let right = adjusted(right, request.adjust);
                let luck = mix(&history, 0x5eed) % 8;
                let wrong = (right + 1) % self.info.vocab as u32;
                let token = if luck < self.right_of_8 { right } else { wrong };
                tokens.push(token);
                history.push(token);
            }
            let confidence = (0..count).map(|place| self.confidence - place as f32).collect();
            drafts.push(Draft { confidence, tokens });
        }
        Ok(drafts)
    }

    fn release(&mut self, slot: SlotId) -> RunnerResult<()> {
        (self.hook)(Call::Release, &[slot])?;
        let slot = std::mem::take(self.slot(slot)?);
        self.pool.give(Holder::Slot, &slot.blocks);
        Ok(())
    }

    fn save(&mut self, slot: SlotId) -> RunnerResult<Snapshot> {
        (self.hook)(Call::Save, &[slot])?;
        let tail = self.tail;
        let found = self.slot(slot)?;
        let (at, least, exact) = match found.state {
            State::Prompt { ran } if ran > 0 => {
                let (end, whole) = (found.ids.len(), found.stops.contains(&ran));
                let next = found.end_of(ran, end);
                let least = if whole || ran == end { ran } else { next.min(ran + tail) };
                (ran, least, ran == end)
            }
            State::Between => (found.ids.len(), found.ids.len(), false),
            _ => return Err(wrong(slot, &found.state, "between its rows")),
        };
        let ids = found.ids[..at].to_vec();
        let held = found.blocks.clone();
        let blocks = held[..at.div_ceil(self.info.block_positions)].to_vec();
        self.pool.share(Holder::Snapshot, &blocks);
        Ok(self.put(Kept { ids, least, exact, blocks }))
    }

    fn forget(&mut self, id: SnapshotId) -> RunnerResult<()> {
        let kept = self.kept.remove(&id).ok_or(RunnerError::NoSuchSnapshot { id })?;
        self.pool.give(Holder::Snapshot, &kept.blocks);
        Ok(())
    }

    fn export(&mut self, id: SnapshotId, out: &mut Vec<u8>) -> RunnerResult<()> {
        let kept = self.kept.get(&id).ok_or(RunnerError::NoSuchSnapshot { id })?;
        out.push(u8::from(kept.exact));
        out.extend((kept.least as u64).to_le_bytes());
        out.extend(kept.ids.iter().flat_map(|id| id.to_le_bytes()));
        Ok(())
    }

    fn import(&mut self, ids: &[u32], bytes: &[u8]) -> RunnerResult<Snapshot> {
        let bad = || RunnerError::BadSnapshot { reason: "other bytes".to_owned() };
        let (&exact, rest) = bytes.split_first().ok_or_else(bad)?;
        let (least, rest) = rest.split_first_chunk().ok_or_else(bad)?;
        let found: Vec<u32> = rest.as_chunks().0.iter().map(|id| u32::from_le_bytes(*id)).collect();
        if found != ids {
            return Err(bad());
        }
        let wanted = ids.len().div_ceil(self.info.block_positions);
        let free = self.pool.usage().free;
        let blocks = self.pool.take(wanted);
        let blocks =
            blocks.ok_or(RunnerError::Blocks { wanted, free, blocks: self.info.blocks })?;
        self.pool.share(Holder::Snapshot, &blocks);
        self.pool.give(Holder::Slot, &blocks);
        let least = u64::from_le_bytes(*least) as usize;
        Ok(self.put(Kept { ids: found, least, exact: exact == 1, blocks }))
    }
}

impl Slot {
    /// Where `rows` prompt rows from `at` on end: at a stop or the prompt's end at the latest.
    fn end_of(&self, at: usize, rows: usize) -> usize {
        let stop = self.stops.iter().copied().find(|&stop| stop > at);
        at.saturating_add(rows).min(stop.unwrap_or(self.ids.len()))
    }
}

impl Kept {
    fn show(&self, id: SnapshotId) -> Snapshot {
        let (at, exact) = (self.ids.len(), self.exact);
        Snapshot { id, at, least: self.least, exact, bytes: 100 }
    }
}

impl FakeRunner {
    fn put(&mut self, kept: Kept) -> Snapshot {
        let id = self.saved;
        self.saved += 1;
        let shown = kept.show(id);
        self.kept.insert(id, kept);
        shown
    }
}

fn wrong(slot: SlotId, state: &State, wanted: &'static str) -> RunnerError {
    RunnerError::WrongState { slot, found: state.name(), wanted }
}

fn check_rows(what: &'static str, found: usize, limit: usize) -> RunnerResult<()> {
    if (1..=limit).contains(&found) {
        Ok(())
    } else {
        Err(RunnerError::Rows { what, found, limit })
    }
}
