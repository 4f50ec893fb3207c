//! Snapshots of slots: what they hold, and their bytes outside this process.

use finback_ops::BLOCK_POSITIONS;

use super::{ModelRunner, State};
use crate::pool::Holder;
use crate::runner::{RunnerError, RunnerResult, SlotId, Snapshot, SnapshotId};

/// A slot's state at one moment.
pub(super) struct Kept {
    at: usize,
    least: usize,
    hash: IdHash,
    /// The first hold `at` positions; rows behind those belong to whoever wrote them.
    pub(super) blocks: Vec<u32>,
    /// What the backend keeps outside the pool.
    outside: Vec<u8>,
    /// The logit row after the last position, where that was a prompt's end; else empty.
    logits: Vec<f32>,
}

/// Tells token sequences apart (FNV-1a, a word at a time): a snapshot of other tokens is a caller's
/// mistake, which must not become a wrong reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IdHash(u64);

impl Default for IdHash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl IdHash {
    /// The hash with more ids behind.
    pub(super) fn and(self, ids: &[u32]) -> Self {
        let mix = |hash: u64, &id: &u32| (hash ^ u64::from(id)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(ids.iter().fold(self.0, mix))
    }
}

impl Kept {
    fn show(&self, id: SnapshotId) -> Snapshot {
        let bytes = self.outside.len() + 4 * self.logits.len();
        let exact = !self.logits.is_empty();
        Snapshot { id, at: self.at, least: self.least, exact, bytes }
    }
}

impl ModelRunner {
    fn kept(&self, id: SnapshotId) -> RunnerResult<&Kept> {
        self.kept.get(&id).ok_or(RunnerError::NoSuchSnapshot { id })
    }

    fn put(&mut self, kept: Kept) -> Snapshot {
        let id = self.next_snapshot;
        self.next_snapshot += 1;
        let shown = kept.show(id);
        self.kept.insert(id, kept);
        shown
    }

    /// A snapshot's positions and least prompt, where `prompt` may start from it.
    pub(super) fn check_kept(
        &self,
        id: SnapshotId,
        prompt: &[u32],
    ) -> RunnerResult<(usize, usize)> {
        let kept = self.kept(id)?;
        let wrong = |reason| RunnerError::WrongSnapshot { id, at: kept.at, reason };
        if !kept.show(id).serves(prompt.len()) {
            let least = kept.least.max(kept.at + usize::from(kept.logits.is_empty()));
            let (what, found) = ("a prompt that has", prompt.len());
            return Err(wrong(format!("{what} {least} tokens or more, this one has {found}")));
        }
        if IdHash::default().and(&prompt[..kept.at]) != kept.hash {
            return Err(wrong("other tokens than the prompt begins with".to_owned()));
        }
        Ok((kept.at, kept.least))
    }

    /// A snapshot's blocks that a slot may start with; rows of one behind them must be copied.
    pub(super) fn usable(&self, id: SnapshotId) -> RunnerResult<Vec<u32>> {
        let kept = self.kept(id)?;
        Ok(self.pool.usable(&kept.blocks, kept.at / BLOCK_POSITIONS).to_vec())
    }

    /// Gives an idle slot a snapshot's state. Where `usable` of its blocks are not all, the rows of
    /// the one behind are copied to `fresh`.
    pub(super) fn restore(
        &mut self,
        slot: SlotId,
        id: SnapshotId,
        usable: usize,
        fresh: Option<u32>,
    ) -> RunnerResult<()> {
        let row = self.first_logits(slot);
        let kept = self.kept.get(&id).ok_or(RunnerError::NoSuchSnapshot { id })?;
        self.ops.write_slot(slot, &kept.outside)?;
        if let (Some(&from), Some(to)) = (kept.blocks.get(usable), fresh) {
            self.ops.copy_block(from, to)?;
        }
        if !kept.logits.is_empty() {
            self.ops.write_logits(row, &kept.logits)?;
        }
        Ok(())
    }

    pub(super) fn save_slot(&mut self, slot: SlotId) -> RunnerResult<Snapshot> {
        self.exists(slot)?;
        let row = self.first_logits(slot);
        let s = &self.slots[slot];
        let (mut logits, at) = (Vec::new(), s.len);
        let least = match &s.state {
            State::Prompt(prompt) if at > 0 => {
                if at == prompt.len() {
                    self.ops.read_logits(row, &mut logits)?;
                }
                prompt.least(at, self.tail)
            }
            State::Ready => at,
            _ => return Err(self.wrong(slot, "between its rows")),
        };
        let mut outside = Vec::new();
        self.ops.read_slot(slot, &mut outside)?;
        let blocks = s.blocks[..at.div_ceil(BLOCK_POSITIONS)].to_vec();
        let hash = s.hash;
        self.pool.share(Holder::Snapshot, &blocks);
        Ok(self.put(Kept { at, least, hash, blocks, outside, logits }))
    }

    /// Five words (positions, least prompt, bytes outside, logits, hash), then what they count and
    /// the closed rows.
    pub(super) fn export_kept(&mut self, id: SnapshotId, out: &mut Vec<u8>) -> RunnerResult<()> {
        let kept = self.kept.get(&id).ok_or(RunnerError::NoSuchSnapshot { id })?;
        let counts = [kept.at, kept.least, kept.outside.len(), kept.logits.len()];
        out.extend(counts.iter().flat_map(|&count| (count as u64).to_le_bytes()));
        out.extend(kept.hash.0.to_le_bytes());
        out.extend(&kept.outside);
        out.extend(kept.logits.iter().flat_map(|x| x.to_le_bytes()));
        Ok(self.ops.read_rows(kept.at, &kept.blocks, out)?)
    }

    pub(super) fn import_kept(&mut self, ids: &[u32], bytes: &[u8]) -> RunnerResult<Snapshot> {
        let bad = |reason: &str| RunnerError::BadSnapshot { reason: reason.to_owned() };
        let (words, rest) = bytes.split_at_checked(40).ok_or_else(|| bad("it has no head"))?;
        let mut words = words.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        let mut word = || words.next().unwrap_or_default();
        let counts = [word(), word(), word(), word()].map(|n| usize::try_from(n).ok());
        let hash = IdHash(word());
        let [Some(at), Some(least), Some(outside), Some(row)] = counts else {
            return Err(bad("a count is too large"));
        };
        let fits = at == ids.len() && at > 0 && at <= self.info.context && least >= at;
        if !fits || hash != IdHash::default().and(ids) {
            return Err(bad("it is of other tokens, or of more than a stream can hold"));
        }
        if row != 0 && row != self.info.vocab {
            return Err(bad("its logits are not of this vocabulary"));
        }
        let (outside, rest) = rest.split_at_checked(outside).ok_or_else(|| bad("it is cut off"))?;
        let (row, rows) = rest.split_at_checked(4 * row).ok_or_else(|| bad("it is cut off"))?;
        let (wanted, blocks) = (at.div_ceil(BLOCK_POSITIONS), self.info.blocks);
        let free = self.pool.usage().free;
        let taken = self.pool.take(wanted).ok_or(RunnerError::Blocks { wanted, free, blocks })?;
        let written = self.ops.write_rows(at, &taken, rows);
        self.pool.share(Holder::Snapshot, &taken);
        self.pool.give(Holder::Slot, &taken);
        if let Err(error) = written {
            self.pool.give(Holder::Snapshot, &taken);
            return Err(bad(&error.to_string()));
        }
        let logits = row.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
        Ok(self.put(Kept { at, least, hash, blocks: taken, outside: outside.to_vec(), logits }))
    }
}
