//! The fake runner: checks every call as a real one must, and remembers ids instead of state.

use finback_model::{
    Choice, Draft, DraftRequest, Runner, RunnerError, RunnerInfo, RunnerResult, SlotId, Window,
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
}

/// The runner's calls, but [`Runner::info`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// [`Runner::begin`].
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
}

type Hook = Box<dyn FnMut(Call, &[SlotId]) -> RunnerResult<()> + Send>;

/// A [`Runner`] whose choices come from a function of the slot's ids.
pub struct FakeRunner {
    info: RunnerInfo,
    slots: Vec<Slot>,
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
        Self { info, slots, next, right_of_8: 5, confidence: 0.0, hook: Box::new(|_, _| Ok(())) }
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

    fn begin(
        &mut self,
        slot: SlotId,
        prompt: &[u32],
        positions: usize,
        head_rows: usize,
    ) -> RunnerResult<()> {
        (self.hook)(Call::Begin, &[slot])?;
        let context = self.info.context;
        check_rows("prompt tokens", prompt.len(), context)?;
        for (position, &id) in prompt.iter().enumerate() {
            self.check_id(id, position)?;
        }
        if positions > context || positions < prompt.len() {
            return Err(RunnerError::Context { positions, context });
        }
        check_rows("prompt rows with logits", head_rows, self.info.window_rows)?;
        let taken = self.slot(slot)?;
        if taken.state != State::Idle {
            return Err(wrong(slot, &taken.state, "idle"));
        }
        *taken =
            Slot { state: State::Prompt { ran: 0 }, ids: prompt.to_vec(), positions, head_rows };
        Ok(())
    }

    fn piece(&mut self, slot: SlotId, rows: usize) -> RunnerResult<usize> {
        (self.hook)(Call::Piece, &[slot])?;
        check_rows("rows of a piece", rows, self.info.chunk_rows)?;
        let found = self.slot(slot)?;
        let length = found.ids.len();
        match &mut found.state {
            State::Prompt { ran } if *ran + rows <= length => {
                *ran += rows;
                Ok(length - *ran)
            }
            State::Prompt { ran } => Err(RunnerError::Rows {
                what: "rows of a piece",
                found: rows,
                limit: length - *ran,
            }),
            state => Err(wrong(slot, state, "running its prompt")),
        }
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
        *self.slot(slot)? = Slot::default();
        Ok(())
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
