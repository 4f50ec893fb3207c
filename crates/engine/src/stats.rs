//! What the engine has done since its start, counted where it happens and read from any thread.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::request::{DRAFT_POSITIONS, DraftCount};

/// Counts since the start, and what is held now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Prompt tokens that were run.
    pub prompt_tokens: u64,
    /// Reply tokens that were said.
    pub reply_tokens: u64,
    /// Rounds of windows.
    pub rounds: u64,
    /// Windows with drafts.
    pub drafted_windows: u64,
    /// Drafts by their place in a window.
    pub drafts: [DraftCount; DRAFT_POSITIONS],
    /// KV blocks that requests hold now.
    pub kv_blocks: usize,
    /// KV blocks there are.
    pub kv_blocks_total: usize,
}

/// [`Stats`] as the engine's thread writes them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) prompt_tokens: AtomicU64,
    pub(crate) reply_tokens: AtomicU64,
    pub(crate) rounds: AtomicU64,
    pub(crate) drafted_windows: AtomicU64,
    offered: [AtomicU64; DRAFT_POSITIONS],
    accepted: [AtomicU64; DRAFT_POSITIONS],
    pub(crate) kv_blocks: AtomicUsize,
}

impl Counters {
    /// Counts a window of `offered` drafts of which the first `accepted` were right.
    pub(crate) fn window(&self, offered: usize, accepted: usize) {
        self.drafted_windows.fetch_add(u64::from(offered > 0), Relaxed);
        for (counts, drafts) in [(&self.offered, offered), (&self.accepted, accepted)] {
            for count in counts.iter().take(drafts) {
                count.fetch_add(1, Relaxed);
            }
        }
    }

    pub(crate) fn read(&self, kv_blocks_total: usize) -> Stats {
        let get = |count: &AtomicU64| count.load(Relaxed);
        let mut drafts = [DraftCount::default(); DRAFT_POSITIONS];
        for ((draft, offered), accepted) in drafts.iter_mut().zip(&self.offered).zip(&self.accepted)
        {
            *draft = DraftCount { offered: get(offered), accepted: get(accepted) };
        }
        Stats {
            prompt_tokens: get(&self.prompt_tokens),
            reply_tokens: get(&self.reply_tokens),
            rounds: get(&self.rounds),
            drafted_windows: get(&self.drafted_windows),
            drafts,
            kv_blocks: self.kv_blocks.load(Relaxed),
            kv_blocks_total,
        }
    }
}
