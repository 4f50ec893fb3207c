//! What the engine has done since its start, counted where it happens and read from any thread.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use finback_model::Staged;
use finback_model::pool::PoolUse;

use crate::cache::{DiskCounts, Prefix};
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
    /// KV blocks that kept prefixes alone hold.
    pub kv_blocks_kept: usize,
    /// KV blocks nothing holds.
    pub kv_blocks_free: usize,
    /// KV blocks there are.
    pub kv_blocks_total: usize,
    /// Prompt tokens that were restored instead of run.
    pub cached_tokens: u64,
    /// Tokens of the prompts that the prefix cache was asked for.
    pub asked_tokens: u64,
    /// Prompts that the prefix cache was asked for, by how much of them it had.
    pub prefixes: Lookups,
    /// Prefixes kept now.
    pub cache_entries: usize,
    /// Bytes they take outside the KV pool.
    pub cache_bytes: usize,
    /// Prefixes dropped for others or for blocks.
    pub cache_dropped: u64,
    /// Prefixes kept on disk now.
    pub disk_entries: usize,
    /// Bytes of their files.
    pub disk_bytes: usize,
    /// Prefixes brought back from the disk.
    pub disk_read: u64,
    /// Prefixes written to the disk.
    pub disk_written: u64,
    /// Prefixes that could not be written.
    pub disk_failed: u64,
    /// Prompt pieces by whether what they need from the host was announced.
    pub staged: Staged,
}

/// Prompts by what the prefix cache had of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lookups {
    /// All that they share with kept prefixes.
    pub hits: u64,
    /// Less than that, but some.
    pub partial: u64,
    /// Nothing.
    pub misses: u64,
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
    pub(crate) kv_blocks_kept: AtomicUsize,
    pub(crate) cached_tokens: AtomicU64,
    asked_tokens: AtomicU64,
    hits: AtomicU64,
    partial: AtomicU64,
    misses: AtomicU64,
    pub(crate) cache_entries: AtomicUsize,
    pub(crate) cache_bytes: AtomicUsize,
    pub(crate) cache_dropped: AtomicU64,
    pub(crate) disk_read: AtomicU64,
    staged_hits: AtomicU64,
    staged_misses: AtomicU64,
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

    /// Counts a prompt of so many tokens by what was known of it.
    pub(crate) fn prefix(&self, tokens: usize, prefix: &Prefix) {
        let Prefix { restored, matched, .. } = *prefix;
        let count = match restored {
            0 => &self.misses,
            _ if restored == matched => &self.hits,
            _ => &self.partial,
        };
        count.fetch_add(1, Relaxed);
        self.cached_tokens.fetch_add(restored as u64, Relaxed);
        self.asked_tokens.fetch_add(tokens as u64, Relaxed);
    }

    pub(crate) fn pool(&self, pool: PoolUse) {
        self.kv_blocks.store(pool.used, Relaxed);
        self.kv_blocks_kept.store(pool.kept, Relaxed);
    }

    pub(crate) fn staged(&self, staged: Staged) {
        self.staged_hits.store(staged.hits, Relaxed);
        self.staged_misses.store(staged.misses, Relaxed);
    }

    /// All of them; `disk` is what the disk tier counts, where there is one.
    pub(crate) fn read(&self, kv_blocks_total: usize, disk: Option<&DiskCounts>) -> Stats {
        let get = |count: &AtomicU64| count.load(Relaxed);
        let mut drafts = [DraftCount::default(); DRAFT_POSITIONS];
        for ((draft, offered), accepted) in drafts.iter_mut().zip(&self.offered).zip(&self.accepted)
        {
            *draft = DraftCount { offered: get(offered), accepted: get(accepted) };
        }
        let (used, kept) = (self.kv_blocks.load(Relaxed), self.kv_blocks_kept.load(Relaxed));
        Stats {
            prompt_tokens: get(&self.prompt_tokens),
            reply_tokens: get(&self.reply_tokens),
            rounds: get(&self.rounds),
            drafted_windows: get(&self.drafted_windows),
            drafts,
            kv_blocks: used,
            kv_blocks_kept: kept,
            // The two are read one after the other: their sum may be off for a moment.
            kv_blocks_free: kv_blocks_total.saturating_sub(used + kept),
            kv_blocks_total,
            cached_tokens: get(&self.cached_tokens),
            asked_tokens: get(&self.asked_tokens),
            prefixes: Lookups {
                hits: get(&self.hits),
                partial: get(&self.partial),
                misses: get(&self.misses),
            },
            cache_entries: self.cache_entries.load(Relaxed),
            cache_bytes: self.cache_bytes.load(Relaxed),
            cache_dropped: get(&self.cache_dropped),
            disk_entries: disk.map_or(0, |disk| disk.entries.load(Relaxed)),
            disk_bytes: disk.map_or(0, |disk| disk.bytes.load(Relaxed)),
            disk_read: get(&self.disk_read),
            disk_written: disk.map_or(0, |disk| get(&disk.written)),
            disk_failed: disk.map_or(0, |disk| get(&disk.failed)),
            staged: Staged { hits: get(&self.staged_hits), misses: get(&self.staged_misses) },
        }
    }
}
