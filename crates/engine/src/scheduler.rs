//! The engine thread's loop: commands in, then one step at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;

use finback_model::{Runner, RunnerError, RunnerInfo, RunnerResult, SlotId};

use crate::failure::{Failure, attempt};
use crate::handle::{Options, STOPPING, Shared};
use crate::live::{End, Job, Live, Phase};
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
    queue: VecDeque<Job>,
    commands: Receiver<Command>,
    pub(crate) shared: Arc<Shared>,
    /// Where the times of passes go, if anywhere.
    pub(crate) profile: Option<Profile>,
    stop_at: Option<Instant>,
    /// Whether the last step was a prompt piece, so that a round is due.
    round_due: bool,
}

impl Scheduler {
    pub(crate) fn new(
        runner: Box<dyn Runner>,
        options: Options,
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
            profile: None,
            stop_at: None,
            round_due: false,
        }
    }

    /// Runs until it is told to stop and nothing runs, or until the runner cannot go on.
    pub(crate) fn run(&mut self) -> Result<(), Fatal> {
        loop {
            self.listen();
            self.sweep()?;
            self.admit()?;
            match self.pick() {
                Some(Step::Piece(slot)) => self.piece(slot)?,
                Some(Step::Round) => self.round()?,
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

    /// Gives free slots to the requests that came first.
    fn admit(&mut self) -> Result<(), Fatal> {
        while let Some(slot) = self.slots.iter().position(Option::is_none) {
            let Some(job) = self.queue.pop_front() else { break };
            let limit = Live::limit(&job.request, &self.info);
            // A window of drafts may reach past the reply's last token.
            let positions = (job.request.prompt.len() + limit + self.options.draft_tokens)
                .min(self.info.context);
            let head_rows = Live::head_rows(&job.request);
            let begun =
                attempt(|| self.runner.begin(slot, &job.request.prompt, positions, head_rows));
            let others_run = self.slots.iter().any(Option::is_some);
            if others_run && matches!(begun, Err(Failure::Runner(RunnerError::Blocks { .. }))) {
                // It waits at the head: nothing behind it takes the blocks it needs.
                self.queue.push_front(job);
                break;
            }
            self.shared.waiting.fetch_sub(1, Relaxed);
            match begun {
                Ok(()) => {
                    let blocks = positions.div_ceil(self.info.block_positions);
                    self.shared.running.fetch_add(1, Relaxed);
                    self.shared.counters.kv_blocks.fetch_add(blocks, Relaxed);
                    self.slots[slot] = Some(Live::new(job, limit, blocks));
                }
                Err(failure) => {
                    job.fail(failure.to_string());
                    if matches!(failure, Failure::Panic(_)) {
                        self.free(slot)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Pieces and rounds take turns where there is both; prompts go in slot order.
    fn pick(&mut self) -> Option<Step> {
        let phase = |live: &Option<Live>| live.as_ref().map(|live| live.phase);
        let prompt =
            self.slots.iter().position(|live| matches!(phase(live), Some(Phase::Prompt { .. })));
        let decoding = self.slots.iter().any(|live| phase(live) == Some(Phase::Decode));
        match prompt {
            Some(slot) if !(decoding && self.round_due) => {
                self.round_due = true;
                Some(Step::Piece(slot))
            }
            _ => {
                self.round_due = false;
                decoding.then_some(Step::Round)
            }
        }
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
        let Some(live) = &mut self.slots[slot] else { return Ok(None) };
        let Phase::Prompt { left } = live.phase else { return Ok(None) };
        let rows = left;
        let left = self.runner.piece(slot, left.min(self.info.chunk_rows))?;
        self.shared.counters.prompt_tokens.fetch_add((rows - left) as u64, Relaxed);
        (pass.streams, pass.rows) = (1, rows - left);
        pass.mark("rows");
        live.phase = Phase::Prompt { left };
        if left > 0 {
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

    /// Ends the slot's request and frees the slot, in the order that lets its reader find it free.
    pub(crate) fn end(&mut self, slot: SlotId, end: End) -> Result<(), Fatal> {
        let freed = self.free(slot);
        if let Some(live) = self.slots[slot].take() {
            self.shared.running.fetch_sub(1, Relaxed);
            self.shared.counters.kv_blocks.fetch_sub(live.blocks, Relaxed);
            live.end(end);
        }
        freed
    }

    /// Makes the slot a fresh one, whatever it was doing.
    fn free(&mut self, slot: SlotId) -> Result<(), Fatal> {
        attempt(|| self.runner.release(slot))
            .map_err(|failure| format!("slot {slot} could not be freed: {failure}"))
    }
}
