//! The engine thread's loop: commands in, then one step at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;

use finback_model::{Runner, RunnerInfo, RunnerResult, SlotId};

use crate::cache::{Disk, PrefixCache};
use crate::clock::{Clock, Wall};
use crate::failure::attempt;
use crate::handle::{Options, Parts, STOPPING, Shared};
use crate::live::{End, Job, Live, Phase};
use crate::prefill::{Prefill, Turns, Waiting};
use crate::profile::{Pass, Profile};

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum Command {
    Submit(Job),
    Stop { at: Instant },
}

/// Why the thread must end although nobody asked it to.
pub(crate) type Fatal = String;

/// What the engine does next.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Piece(SlotId),
    Round,
}

/// Everything the engine thread owns.
pub(crate) struct Scheduler {
    pub(crate) runner: Box<dyn Runner>,
    pub(crate) info: RunnerInfo,
    pub(crate) options: Options,
    pub(crate) slots: Vec<Option<Live>>,
    pub(crate) queue: VecDeque<Job>,
    commands: Receiver<Command>,
    pub(crate) shared: Arc<Shared>,
    /// Where the times of passes go, if anywhere.
    pub(crate) profile: Option<Profile>,
    stop_at: Option<Instant>,
    clock: Box<dyn Clock>,
    turns: Turns,
    pub(crate) cache: PrefixCache,
    /// Where prefixes are kept beyond this engine's life.
    pub(crate) disk: Option<Disk>,
    /// Whether the queue's head waits for blocks: until some are freed or a prefix is kept.
    pub(crate) blocked: bool,
    /// Requests that have got a slot so far.
    pub(crate) arrivals: u64,
}

impl Scheduler {
    pub(crate) fn new(
        runner: Box<dyn Runner>,
        options: Options,
        parts: Parts,
        commands: Receiver<Command>,
        shared: Arc<Shared>,
    ) -> Self {
        let info = runner.info().clone();
        let slots = std::iter::repeat_with(|| None).take(options.parallel).collect();
        Self {
            runner,
            info,
            options,
            slots,
            queue: VecDeque::new(),
            commands,
            shared,
            profile: parts.profile,
            stop_at: None,
            clock: parts.clock.unwrap_or_else(|| Box::new(Wall::default())),
            turns: Turns::default(),
            cache: PrefixCache::new(options.cache.bytes),
            disk: None,
            blocked: false,
            arrivals: 0,
        }
    }

    /// Runs until it is told to stop and nothing runs, or until the runner cannot go on.
    pub(crate) fn run(&mut self) -> Result<(), Fatal> {
        loop {
            self.listen();
            self.sweep()?;
            self.admit()?;
            let began = self.clock.now();
            match self.pick() {
                Some(Step::Piece(slot)) => {
                    self.piece(slot)?;
                    let took = self.clock.now().saturating_sub(began);
                    self.turns.piece(took, &self.options.prefill);
                }
                Some(Step::Round) => {
                    self.round()?;
                    self.turns.round(self.clock.now().saturating_sub(began));
                }
                None if self.stop_at.is_some() => return Ok(()),
                None => {}
            }
        }
    }

    /// Takes every command there is; waits for one where nothing runs.
    fn listen(&mut self) {
        if self.stop_at.is_none() && self.queue.is_empty() && self.slots.iter().all(Option::is_none)
        {
            match self.commands.recv() {
                Ok(command) => self.obey(command),
                Err(_) => self.stop_at = Some(Instant::now()),
            }
        }
        loop {
            match self.commands.try_recv() {
                Ok(command) => self.obey(command),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.stop_at.get_or_insert_with(Instant::now);
                    return;
                }
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit(job) => self.queue.push_back(job),
            Command::Stop { at } => {
                self.stop_at = Some(self.stop_at.map_or(at, |earlier| earlier.min(at)));
            }
        }
    }

    /// Drops what nobody waits for, and on the way out what may not run on.
    fn sweep(&mut self) -> Result<(), Fatal> {
        if self.stop_at.is_some() {
            for job in self.queue.drain(..) {
                self.shared.waiting.fetch_sub(1, Relaxed);
                job.fail(STOPPING.to_owned());
            }
        }
        self.queue.retain(|job| {
            let keep = !job.cancelled();
            // Whoever is the head now may need less.
            self.blocked &= keep;
            self.shared.waiting.fetch_sub(usize::from(!keep), Relaxed);
            keep
        });
        let cut_off = self.stop_at.is_some_and(|at| Instant::now() >= at);
        for slot in 0..self.slots.len() {
            match &self.slots[slot] {
                Some(live) if live.cancelled() => self.end(slot, End::Cancelled)?,
                Some(_) if cut_off => self.end(slot, End::Failed(STOPPING.to_owned()))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Whose turn it is.
    fn pick(&mut self) -> Option<Step> {
        let waiting = |(slot, live): (SlotId, &Option<Live>)| {
            let Live { phase, arrival, passed_over, .. } = *live.as_ref()?;
            let Phase::Prompt { left } = phase else { return None };
            Some(Waiting { slot, left, arrival, passed_over })
        };
        let prompts: Vec<Waiting> = self.slots.iter().enumerate().filter_map(waiting).collect();
        let decoding = self.decoding();
        let Some(next) = self.turns.next(&prompts, decoding, &self.options.prefill) else {
            return decoding.then_some(Step::Round);
        };
        for prompt in prompts {
            if let Some(live) = &mut self.slots[prompt.slot] {
                let own = prompt.slot == next.slot;
                live.passed_over = if own { 0 } else { prompt.passed_over + 1 };
            }
        }
        Some(Step::Piece(next.slot))
    }

    fn decoding(&self) -> bool {
        self.slots.iter().flatten().any(|live| live.phase == Phase::Decode)
    }

    /// Rows of the next piece of a prompt that has `left` of them.
    pub(crate) fn piece_rows(&self, left: usize) -> usize {
        let Prefill { chunk, budget, .. } = self.options.prefill;
        let most = if self.decoding() { chunk.min(budget) } else { chunk };
        left.min(most.clamp(1, self.info.chunk_rows))
    }

    /// Runs the slot's next prompt rows, and its first choice after the last of them.
    fn piece(&mut self, slot: SlotId) -> Result<(), Fatal> {
        let mut pass = Pass::begin("prompt");
        let ran = attempt(|| self.run_piece(slot, &mut pass));
        if let Some(profile) = &self.profile {
            profile.add(pass);
        }
        match ran {
            Ok(None) => Ok(()),
            Ok(Some(end)) => self.end(slot, end),
            Err(failure) => self.end(slot, End::Failed(failure.to_string())),
        }
    }

    fn run_piece(&mut self, slot: SlotId, pass: &mut Pass) -> RunnerResult<Option<End>> {
        let Some(live) = &self.slots[slot] else { return Ok(None) };
        let Phase::Prompt { left } = live.phase else { return Ok(None) };
        if left > 0 {
            self.run_rows(slot, left)?;
        }
        let Some(live) = &mut self.slots[slot] else { return Ok(None) };
        let Phase::Prompt { left: still } = live.phase else { return Ok(None) };
        (pass.streams, pass.rows) = (1, left - still);
        pass.mark("rows");
        if still > 0 {
            return Ok(None);
        }
        live.phase = Phase::Decode;
        let rows = Live::head_rows(live.request());
        if rows > 1 {
            live.show_prompt(self.runner.prompt_logits(slot)?);
        }
        let only_row = rows == 1 && live.request().prompt_logits > 0;
        let logits = live.wants_logits() || only_row;
        let sampling = live.request().sampling;
        let choice = self.runner.finish(slot, sampling, &live.adds(&[]), logits)?;
        if only_row {
            live.show_prompt(choice.logits.iter().cloned().collect());
        }
        let said = u64::from(choice.token.is_some());
        self.shared.counters.reply_tokens.fetch_add(said, Relaxed);
        let end = live.say(choice);
        pass.mark("first token");
        Ok(end)
    }

    /// Runs the next of the `left` rows of the slot's prompt.
    fn run_rows(&mut self, slot: SlotId, left: usize) -> RunnerResult<()> {
        let rows = self.piece_rows(left);
        // A stop may end this piece early: then the next has as many rows again.
        self.runner.stage(slot, rows, rows)?;
        let still = self.runner.piece(slot, rows)?;
        let counters = &self.shared.counters;
        counters.prompt_tokens.fetch_add((left - still) as u64, Relaxed);
        counters.staged(self.runner.staged());
        if let Some(live) = &mut self.slots[slot] {
            live.phase = Phase::Prompt { left: still };
            live.show_progress();
        }
        self.keep_prompt(slot, still);
        Ok(())
    }

    /// Ends the slot's request and frees the slot, in the order that lets its reader find it free.
    pub(crate) fn end(&mut self, slot: SlotId, end: End) -> Result<(), Fatal> {
        if matches!(end, End::Finished(_) | End::Cancelled) {
            self.keep_state(slot);
        }
        let freed = self.free(slot);
        self.blocked = false;
        self.shared.counters.pool(self.runner.pool());
        self.count_cache();
        if let Some(live) = self.slots[slot].take() {
            self.shared.running.fetch_sub(1, Relaxed);
            live.end(end);
        }
        freed
    }

    /// Makes the slot a fresh one, whatever it was doing.
    pub(crate) fn free(&mut self, slot: SlotId) -> Result<(), Fatal> {
        attempt(|| self.runner.release(slot))
            .map_err(|failure| format!("slot {slot} could not be freed: {failure}"))
    }
}
