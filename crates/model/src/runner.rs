//! The engine's only door to the model: slots, prompts in pieces, windows of rows, drafts.
//!
//! A slot's life: [`Runner::start`] with the whole prompt, [`Runner::piece`] until no row is left,
//! [`Runner::finish`] for the first choice, then rounds of [`Runner::windows`] each followed by
//! [`Runner::keep`], and [`Runner::release`]. Calls out of that order are errors and change nothing.
//!
//! Between its calls a slot's state can be kept: [`Runner::save`] gives a [`Snapshot`], from which
//! another prompt that begins with the same tokens may start.

use finback_ops::{OpsError, Penalties, Sampling};

use crate::pool::PoolUse;

/// Index of a slot, below [`RunnerInfo::slots`].
pub type SlotId = usize;

/// What a runner offers; constant over its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerInfo {
    /// Streams that can hold state at once.
    pub slots: usize,
    /// Positions one stream can hold.
    pub context: usize,
    /// Token ids are below this.
    pub vocab: usize,
    /// Rows one window may have.
    pub window_rows: usize,
    /// Rows one prompt piece may have.
    pub chunk_rows: usize,
    /// Tokens one draft pass proposes; 0 where the checkpoint has no draft blocks.
    pub draft_tokens: usize,
    /// Positions of one KV block.
    pub block_positions: usize,
    /// KV blocks in the pool.
    pub blocks: usize,
}

/// Names a snapshot of one runner; never used again for another.
pub type SnapshotId = u64;

/// A slot's kept state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub id: SnapshotId,
    /// Positions it holds.
    pub at: usize,
    /// Tokens a prompt must have at least to start from it: the rows above the last kv source that
    /// a shorter one reads were not run. No prompt of `at` tokens starts from one without the
    /// logits of its last row, which only a snapshot at a prompt's end has.
    pub least: usize,
    /// Whether a prompt of exactly `at` tokens may start from it.
    pub exact: bool,
    /// Bytes it takes outside the pool.
    pub bytes: usize,
}

impl Snapshot {
    /// Whether a prompt of `tokens`, which begins with the snapshot's, may start from it.
    #[must_use]
    pub fn serves(&self, tokens: usize) -> bool {
        tokens >= self.least && tokens + usize::from(self.exact) > self.at
    }
}

/// Where a prompt begins, and what is wanted on its way.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// Last prompt rows whose logits are computed, 1 to [`RunnerInfo::window_rows`]; only the last
    /// one's, the usual 1, is needed for a reply, and only that with a snapshot.
    pub head_rows: usize,
    /// State that stands for the prompt's first tokens.
    pub from: Option<SnapshotId>,
    /// Positions within the prompt, ascending, where a piece ends and the state is as whole as that
    /// of a prompt which ends there. Those too near to `from` are left out.
    pub stops: &'a [usize],
}

impl Default for Start<'_> {
    fn default() -> Self {
        Self { head_rows: 1, from: None, stops: &[] }
    }
}

/// Prompt pieces by whether what they need from the host (Engram rows) was being fetched before they
/// began. Both are 0 where a model needs nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Staged {
    /// Announced by [`Runner::stage`] at the very rows that ran.
    pub hits: u64,
    /// Not announced, or for other rows.
    pub misses: u64,
}

/// The token chosen for one row.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The chosen id, or `None` where the row's logits hold a NaN or an infinity.
    pub token: Option<u32>,
    /// The row's logits `[vocab]`, where they were asked for.
    pub logits: Option<Vec<f32>>,
}

/// Rows of one slot in a round: its newest token and its drafts.
#[derive(Debug, Clone, Copy)]
pub struct Window<'a> {
    /// The slot; at most one window of a slot in a round.
    pub slot: SlotId,
    /// Ids at the slot's next positions, 1 to [`RunnerInfo::window_rows`].
    pub tokens: &'a [u32],
    /// How the token after each row is chosen.
    pub sampling: Sampling,
    /// What is added to logits before each row's choice, by row: id, once a row, and a finite number.
    /// Empty where nothing is added in any row.
    pub adjust: &'a [Vec<(u32, f32)>],
    /// Whether the rows' logits are returned, with nothing added.
    pub logits: bool,
}

/// One draft pass of a slot.
#[derive(Debug, Clone, Copy)]
pub struct DraftRequest<'a> {
    /// The slot, with no window open.
    pub slot: SlotId,
    /// The newest token, which the target has not run yet.
    pub anchor: u32,
    /// How drafts are chosen: with the same noise as the target's choice at the same position.
    pub sampling: Sampling,
    /// What is added to logits before each draft is chosen, as in [`Window::adjust`].
    pub adjust: &'a [(u32, f32)],
    /// What each draft takes off itself in the rows after it; a draft that `adjust` names counts as
    /// said before.
    pub penalties: Penalties,
}

/// What a draft pass proposes.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// Proposed ids for the positions after the anchor's, [`RunnerInfo::draft_tokens`] of them.
    pub tokens: Vec<u32>,
    /// The drafter's raw confidence (a logit) in each.
    pub confidence: Vec<f32>,
}

/// Why a call was refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunnerError {
    /// A slot id at or above the count.
    #[error("slot {slot} does not exist: this runner has {slots}")]
    NoSuchSlot {
        /// The slot asked for.
        slot: SlotId,
        /// Slots there are.
        slots: usize,
    },
    /// The slot is not in the state the call needs.
    #[error("slot {slot} is {found}, the call needs it {wanted}")]
    WrongState {
        /// The slot asked for.
        slot: SlotId,
        /// What it is doing.
        found: &'static str,
        /// What the call needs.
        wanted: &'static str,
    },
    /// A slot named twice in one round.
    #[error("slot {slot} appears twice in one round")]
    SlotTwice {
        /// The slot.
        slot: SlotId,
    },
    /// A token id outside the vocabulary.
    #[error("token id {id} at position {position} is outside the vocabulary of {vocab}")]
    NoSuchToken {
        /// The id.
        id: u32,
        /// Where it would stand.
        position: usize,
        /// Ids there are.
        vocab: usize,
    },
    /// Something added to a logit that is no number.
    #[error("slot {slot}: {add} is added to the logit of token {id}; accepted is a finite number")]
    NotFinite {
        /// The slot.
        slot: SlotId,
        /// The token.
        id: u32,
        /// What was to be added.
        add: f32,
    },
    /// A count over its limit or below one.
    #[error("{what}: {found}, accepted are 1 to {limit}")]
    Rows {
        /// What was counted.
        what: &'static str,
        /// The count.
        found: usize,
        /// The most accepted.
        limit: usize,
    },
    /// More rows kept than the window had.
    #[error("slot {slot}: keeping {keep} rows of a window of {rows}")]
    KeepTooMany {
        /// The slot.
        slot: SlotId,
        /// Rows to keep.
        keep: usize,
        /// Rows the window had.
        rows: usize,
    },
    /// More positions than a stream can hold.
    #[error("{positions} positions exceed the context of {context}")]
    Context {
        /// Positions asked for.
        positions: usize,
        /// Positions a stream can hold.
        context: usize,
    },
    /// Too few free KV blocks.
    #[error("{wanted} KV blocks are needed, {free} of {blocks} are free")]
    Blocks {
        /// Blocks asked for.
        wanted: usize,
        /// Blocks free.
        free: usize,
        /// Blocks in the pool.
        blocks: usize,
    },
    /// A snapshot that is not there.
    #[error("snapshot {id} does not exist")]
    NoSuchSnapshot {
        /// Its name.
        id: SnapshotId,
    },
    /// A snapshot of other tokens, or one that a prompt of this length cannot start from.
    #[error("snapshot {id} holds {at} positions of {reason}")]
    WrongSnapshot {
        /// Its name.
        id: SnapshotId,
        /// Positions it holds.
        at: usize,
        /// What is wrong with them.
        reason: String,
    },
    /// Bytes that are no snapshot of this runner's.
    #[error("a kept state cannot be read: {reason}")]
    BadSnapshot {
        /// What was found and what is accepted.
        reason: String,
    },
    /// The checkpoint has no draft blocks.
    #[error("this checkpoint has no draft blocks")]
    NoDrafts,
    /// The device failed.
    #[error(transparent)]
    Device(#[from] OpsError),
}

/// Result of a runner call.
pub type RunnerResult<T> = Result<T, RunnerError>;

/// Runs the model for several slots; one thread owns it.
///
/// Every value a row produces depends on the row and its slot's earlier rows alone: not on other
/// rows in the call, on how a prompt was cut, or on rows that were not kept.
pub trait Runner: Send {
    /// What this runner offers.
    fn info(&self) -> &RunnerInfo;

    /// What holds the KV pool's blocks.
    fn pool(&self) -> PoolUse;

    /// Takes an idle slot for `prompt` (not empty) and reserves KV blocks for `positions` in all,
    /// prompt and reply and one window of drafts included. Blocks that a snapshot's rows fill are
    /// shared with it.
    fn start(
        &mut self,
        slot: SlotId,
        prompt: &[u32],
        positions: usize,
        start: &Start<'_>,
    ) -> RunnerResult<()>;

    /// [`Runner::start`] from nothing.
    fn begin(
        &mut self,
        slot: SlotId,
        prompt: &[u32],
        positions: usize,
        head_rows: usize,
    ) -> RunnerResult<()> {
        self.start(slot, prompt, positions, &Start { head_rows, ..Start::default() })
    }

    /// Begins to fetch what a piece of `rows` rows needs from the host, once a piece of `skip` rows
    /// (0 for none) has run. A hint: pieces need not come as announced.
    fn stage(&mut self, slot: SlotId, skip: usize, rows: usize) -> RunnerResult<()>;

    /// How many pieces ran as announced.
    fn staged(&self) -> Staged;

    /// Runs the next rows of the slot's prompt, `rows` of them or fewer where a stop or the end
    /// comes first; returns the rows still left.
    fn piece(&mut self, slot: SlotId, rows: usize) -> RunnerResult<usize>;

    /// Chooses the token after a prompt whose rows have all run, with `adjust` (id, finite number)
    /// added to its logits.
    fn finish(
        &mut self,
        slot: SlotId,
        sampling: Sampling,
        adjust: &[(u32, f32)],
        logits: bool,
    ) -> RunnerResult<Choice>;

    /// After the last piece and before [`Runner::finish`]: the logit rows of the last `head_rows`
    /// prompt rows, where more than one was asked for.
    fn prompt_logits(&mut self, slot: SlotId) -> RunnerResult<Vec<Vec<f32>>>;

    /// Runs one window of each of several slots in one launch; a choice for every row. Where it fails
    /// or panics every slot is as it was, and so after [`Runner::draft`].
    fn windows(&mut self, windows: &[Window<'_>]) -> RunnerResult<Vec<Vec<Choice>>>;

    /// Keeps the first `rows` rows of the slot's open window and closes it.
    fn keep(&mut self, slot: SlotId, rows: usize) -> RunnerResult<()>;

    /// Drafts from each slot's newest token, one pass for all.
    fn draft(&mut self, requests: &[DraftRequest<'_>]) -> RunnerResult<Vec<Draft>>;

    /// Frees the slot and its blocks, whatever it was doing; an idle slot stays idle.
    fn release(&mut self, slot: SlotId) -> RunnerResult<()>;

    /// Keeps the state of a slot that has no window open; the slot goes on.
    fn save(&mut self, slot: SlotId) -> RunnerResult<Snapshot>;

    /// Drops a snapshot and what it alone holds.
    fn forget(&mut self, snapshot: SnapshotId) -> RunnerResult<()>;

    /// Appends a snapshot's bytes, for a runner of the same checkpoint, backend and numerics.
    fn export(&mut self, snapshot: SnapshotId, out: &mut Vec<u8>) -> RunnerResult<()>;

    /// Makes a snapshot of bytes that [`Runner::export`] gave for these `ids`; it takes free blocks.
    fn import(&mut self, ids: &[u32], bytes: &[u8]) -> RunnerResult<Snapshot>;
}
