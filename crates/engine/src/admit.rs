//! From the queue to a slot: which kept prefix a prompt starts from, whether its blocks are free, and
//! what is kept of it later.

use std::sync::atomic::Ordering::Relaxed;

use finback_model::{RunnerError, SlotId, Snapshot, SnapshotId, Start};

use crate::cache::{Found, Prefix};
use crate::failure::{Failure, attempt};
use crate::live::{FromDisk, Job, Live, Phase};
use crate::scheduler::{Fatal, Scheduler};

/// A prompt is cut at marks from here on only: a piece more would cost a short one more than it saves.
const FIRST_MARK: usize = 64;

/// What came of trying to give a job a slot.
enum Begun {
    Yes,
    /// Too few blocks are free as long as others run.
    Waits,
    No(Failure),
}

impl Scheduler {
    /// Gives free slots to the requests that came first.
    pub(crate) fn admit(&mut self) -> Result<(), Fatal> {
        while let Some(slot) = self.slots.iter().position(Option::is_none) {
            if self.blocked {
                break;
            }
            let Some(mut job) = self.queue.pop_front() else { break };
            if !self.load(&mut job) {
                self.queue.push_front(job);
                break;
            }
            let mut found = match job.caches() {
                true => self.cache.find(&job.request.prompt),
                false => Found::default(),
            };
            match self.begin(slot, &job, &mut found) {
                Begun::Waits => {
                    // It waits at the head: nothing behind it takes the blocks it needs.
                    self.blocked = true;
                    self.queue.push_front(job);
                    break;
                }
                Begun::Yes => {
                    self.shared.waiting.fetch_sub(1, Relaxed);
                    self.shared.running.fetch_add(1, Relaxed);
                    self.place(slot, job, found);
                }
                Begun::No(failure) => {
                    self.shared.waiting.fetch_sub(1, Relaxed);
                    job.fail(failure.to_string());
                    if matches!(failure, Failure::Panic(_)) {
                        self.free(slot)?;
                    }
                }
            }
            self.shared.counters.pool(self.runner.pool());
        }
        Ok(())
    }

    /// Brings a prefix from the disk where it has a longer one than memory; `false` while it is read and
    /// others run meanwhile.
    fn load(&mut self, job: &mut Job) -> bool {
        let Some(disk) = &mut self.disk else { return true };
        if !job.caches() {
            return true;
        }
        let prompt = &job.request.prompt;
        let reading = match std::mem::replace(&mut job.disk, FromDisk::Asked) {
            FromDisk::Asked => return true,
            FromDisk::NotAsked => disk.begin(prompt, self.cache.find(prompt).prefix.restored),
            FromDisk::Reading(reading) => Some(*reading),
        };
        let Some(reading) = reading else { return true };
        if !reading.is_there() && self.slots.iter().any(Option::is_some) {
            job.disk = FromDisk::Reading(Box::new(reading));
            return false;
        }
        let Some((at, state)) = disk.end(prompt, reading) else {
            // A damaged one is dropped: a shorter one may serve.
            job.disk = FromDisk::NotAsked;
            return self.load(job);
        };
        self.import(prompt, at, &state);
        true
    }

    /// Keeps a prefix of `prompt` that the disk had.
    fn import(&mut self, prompt: &[u32], at: usize, state: &[u8]) {
        let known = self.cache.find(prompt);
        let ids = &prompt[..at];
        let snapshot = loop {
            match attempt(|| self.runner.import(ids, state)) {
                Ok(snapshot) => break snapshot,
                Err(Failure::Runner(RunnerError::Blocks { wanted, .. })) => {
                    let others_run = self.slots.iter().any(Option::is_some);
                    let dropped = self.make_room(wanted, &known, others_run);
                    let Some(dropped) = dropped else { return };
                    self.forget(&[dropped]);
                }
                Err(failure) => {
                    tracing::warn!(%failure, "a prefix on disk could not be restored");
                    return;
                }
            }
        };
        self.shared.counters.disk_read.fetch_add(1, Relaxed);
        self.keep_in_memory(ids, snapshot);
    }

    fn place(&mut self, slot: SlotId, job: Job, found: Found) {
        self.cache.used(&found);
        let prefix = (job.caches() && self.cache.is_on()).then_some(found.prefix);
        if let Some(prefix) = &prefix {
            self.shared.counters.prefix(job.request.prompt.len(), prefix);
        }
        let limit = Live::limit(&job.request, &self.info);
        self.arrivals += 1;
        let live = Live::new(job, limit, self.arrivals, prefix);
        if let Phase::Prompt { left } = live.phase
            && left > 0
        {
            // A hint: a prompt whose first piece was not announced runs as well.
            let _ = attempt(|| self.runner.stage(slot, 0, self.piece_rows(left)));
        }
        self.slots[slot] = Some(live);
    }

    /// Takes the slot; kept prefixes make room, the least worth first.
    fn begin(&mut self, slot: SlotId, job: &Job, found: &mut Found) -> Begun {
        let (prompt, head_rows) = (&job.request.prompt, Live::head_rows(&job.request));
        // A window of drafts may reach past the reply's last token.
        let limit = Live::limit(&job.request, &self.info);
        let positions = (prompt.len() + limit + self.options.draft_tokens).min(self.info.context);
        let stops = match job.caches() && self.cache.is_on() {
            true => stops(&job.request.marks, prompt.len()),
            false => Vec::new(),
        };
        loop {
            let from = found.snapshot.map(|snapshot| snapshot.id);
            let start = Start { head_rows, from, stops: &stops };
            let begun = attempt(|| self.runner.start(slot, prompt, positions, &start));
            let failure = match begun {
                Ok(()) => return Begun::Yes,
                Err(failure) => failure,
            };
            let others_run = self.slots.iter().any(Option::is_some);
            let full = match failure {
                Failure::Runner(RunnerError::Blocks { wanted, .. }) => Some(wanted),
                _ => None,
            };
            let dropped = match (full, from) {
                (Some(wanted), _) => self.make_room(wanted, found, others_run),
                // Whatever is wrong with a kept state, the prompt can run without it.
                (None, Some(_)) if !matches!(failure, Failure::Panic(_)) => {
                    tracing::warn!(%failure, "a kept prefix could not be restored");
                    self.cache.drop_found(found)
                }
                (None, _) => None,
            };
            let Some(dropped) = dropped else {
                return if full.is_some() && others_run {
                    Begun::Waits
                } else {
                    Begun::No(failure)
                };
            };
            self.forget(&[dropped]);
            if found.snapshot.is_some_and(|snapshot| snapshot.id == dropped) {
                // What was known when it came is still what a reply says of it.
                let Prefix { matched, kept, .. } = std::mem::take(&mut found.prefix);
                *found = self.cache.find(prompt);
                found.prefix = Prefix { matched, kept, ..found.prefix };
            }
        }
    }

    /// The kept prefix to drop for `wanted` blocks: none that this prompt or a waiting one would start
    /// from, unless nothing runs whose end would free some.
    fn make_room(&mut self, wanted: usize, found: &Found, others_run: bool) -> Option<SnapshotId> {
        let pool = self.runner.pool();
        if others_run && pool.free + pool.kept < wanted {
            return None;
        }
        let waiting = self.queue.iter().filter(|job| job.caches());
        let mut spared = self.cache.wanted(waiting.map(|job| job.request.prompt.as_slice()));
        spared.extend(found.node());
        let dropped = self.cache.drop_one(&spared);
        if dropped.is_some() || others_run {
            return dropped;
        }
        let own: Vec<_> = found.node().into_iter().collect();
        self.cache.drop_one(&own).or_else(|| self.cache.drop_found(found))
    }

    /// Drops snapshots that the cache has let go.
    fn forget(&mut self, snapshots: &[SnapshotId]) {
        for &snapshot in snapshots {
            if let Err(failure) = attempt(|| self.runner.forget(snapshot)) {
                tracing::warn!(%failure, "a kept prefix could not be dropped");
            }
        }
        let counters = &self.shared.counters;
        counters.cache_dropped.fetch_add(snapshots.len() as u64, Relaxed);
        self.count_cache();
    }

    pub(crate) fn count_cache(&self) {
        let (counters, (entries, bytes)) = (&self.shared.counters, self.cache.size());
        counters.cache_entries.store(entries, Relaxed);
        counters.cache_bytes.store(bytes, Relaxed);
    }

    /// Keeps the state of a prompt that has `left` rows to run, where one is wanted.
    pub(crate) fn keep_prompt(&mut self, slot: SlotId, left: usize) {
        let Some(live) = &self.slots[slot] else { return };
        let at = live.rows();
        let far = at - live.kept_at >= self.options.cache.every;
        if left == 0 || far || live.request().marks.contains(&at) {
            self.keep_state(slot);
        }
    }

    /// Keeps the state of a slot that has no window open.
    pub(crate) fn keep_state(&mut self, slot: SlotId) {
        let Some(live) = &mut self.slots[slot] else { return };
        let at = live.rows();
        if !self.cache.is_on() || !live.caches() || at == 0 {
            return;
        }
        let exact = matches!(live.phase, Phase::Prompt { left: 0 });
        let ids = live.ids();
        live.kept_at = at;
        if self.cache.has(&ids, exact) {
            return;
        }
        match attempt(|| self.runner.save(slot)) {
            Ok(snapshot) => self.keep(&ids, snapshot),
            // The reply does not need it, and the slot is as it was.
            Err(failure) => tracing::warn!(%failure, "a prefix could not be kept"),
        }
    }

    fn keep(&mut self, ids: &[u32], snapshot: Snapshot) {
        if let Some(disk) = &mut self.disk
            && disk.wants(ids, &snapshot)
        {
            let mut state = Vec::new();
            match attempt(|| self.runner.export(snapshot.id, &mut state)) {
                Ok(()) => disk.put(ids, &snapshot, state),
                Err(failure) => tracing::warn!(%failure, "a prefix could not be read for the disk"),
            }
        }
        self.keep_in_memory(ids, snapshot);
    }

    fn keep_in_memory(&mut self, ids: &[u32], snapshot: Snapshot) {
        let waiting = self.queue.iter().filter(|job| job.caches());
        let spared = self.cache.wanted(waiting.map(|job| job.request.prompt.as_slice()));
        let gone = self.cache.insert(ids, snapshot, &spared);
        self.forget(&gone);
        // The queue's head may share its blocks, and need fewer.
        self.blocked = false;
    }
}

/// Where the prompt's pieces end for the states to keep.
fn stops(marks: &[usize], prompt: usize) -> Vec<usize> {
    marks.iter().copied().filter(|mark| (FIRST_MARK..prompt).contains(mark)).collect()
}
