//! The engine seen from outside its thread: start, submit, read a reply, stop.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use finback_model::{Runner, RunnerInfo};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::cache::{Disk, DiskCounts, DiskOptions};
use crate::clock::Clock;
use crate::failure::panic_text;
use crate::live::{FromDisk, Job};
use crate::prefill::Prefill;
use crate::profile::Profile;
use crate::request::{Event, Refusal, Request};
use crate::scheduler::{Command, Scheduler};
use crate::stats::{Counters, Stats};

/// The reason given to replies and submitters once [`Handle::stop`] was called.
pub(crate) const STOPPING: &str = "server is stopping";

/// How the engine runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Requests that run at once, 1 to the runner's slots.
    pub parallel: usize,
    /// Drafts a window may carry; 0 decodes one token a round. Cut to what the runner offers.
    pub draft_tokens: usize,
    /// From this many decoding requests on, rounds are plain and no draft pass runs.
    pub plain_streams: usize,
    /// A window ends before the first draft whose probability of being right, as the drafter sees
    /// it, is below this; 0 cuts none.
    pub draft_confidence: f32,
    /// Requests that may wait for a slot.
    pub queue: usize,
    /// How prompts take turns with replies and with each other.
    pub prefill: Prefill,
    /// What is kept of prompts and replies for later prompts.
    pub cache: CacheOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            parallel: 1,
            draft_tokens: 0,
            plain_streams: usize::MAX,
            draft_confidence: 0.0,
            queue: usize::MAX,
            prefill: Prefill::default(),
            cache: CacheOptions::default(),
        }
    }
}

/// How much the prefix cache keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheOptions {
    /// Bytes outside the KV pool; 0 keeps nothing.
    pub bytes: usize,
    /// A long prompt is kept on its way once it is this many tokens beyond the last kept place.
    pub every: usize,
}

impl Default for CacheOptions {
    /// Nothing is kept.
    fn default() -> Self {
        Self { bytes: 0, every: usize::MAX }
    }
}

/// Why the engine could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A share of time that leaves prompts none.
    #[error("decode_share is {found}, accepted are 0 to under 1")]
    DecodeShare {
        /// The share asked for.
        found: f64,
    },
    /// More requests at once than slots, or none.
    #[error("parallel is {found}, accepted are 1 to {slots} (the runner's slots)")]
    Parallel {
        /// Requests at once asked for.
        found: usize,
        /// Slots there are.
        slots: usize,
    },
    /// The directory of kept prefixes cannot be used.
    #[error("{}: kept prefixes cannot be stored there: {error}", dir.display())]
    Disk {
        /// The directory.
        dir: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The system gave no thread.
    #[error("the engine's thread could not start")]
    Thread(#[from] std::io::Error),
}

/// Requests in the engine at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests that wait for a slot.
    pub waiting: usize,
    /// Requests that have a slot.
    pub running: usize,
}

/// What an engine works with beside its runner.
#[derive(Debug, Default)]
pub struct Parts {
    /// Where the times of its passes go.
    pub profile: Option<Profile>,
    /// Where kept prefixes outlive the engine, if anywhere.
    pub disk: Option<DiskOptions>,
    /// By which prompts and replies share the time; the machine's own where there is none.
    pub clock: Option<Box<dyn Clock>>,
}

/// What the thread and its handles share.
#[derive(Debug)]
pub(crate) struct Shared {
    info: RunnerInfo,
    options: Options,
    pub(crate) counters: Counters,
    /// What the disk tier counts, where there is one.
    disk: Option<Arc<DiskCounts>>,
    /// Why no new request is taken; set once.
    stopped: OnceLock<String>,
    pub(crate) waiting: AtomicUsize,
    pub(crate) running: AtomicUsize,
}

impl Shared {
    /// Takes no request from now on; the first reason stays.
    pub(crate) fn stop(&self, reason: &str) {
        // A second reason is dropped: the first is what began the end.
        let _ = self.stopped.set(reason.to_owned());
    }

    fn reason(&self) -> &str {
        self.stopped.get().map_or("the engine's thread has ended", String::as_str)
    }
}

/// The engine's thread. Dropping it ends running replies at once and waits for the thread.
#[derive(Debug)]
pub struct Engine {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts the thread that owns `runner`.
    ///
    /// # Errors
    /// [`StartError`] where `options` do not fit the runner.
    pub fn start(runner: Box<dyn Runner>, options: Options) -> Result<Self, StartError> {
        Self::start_with(runner, options, Parts::default())
    }

    /// [`Engine::start`] with other parts than the usual.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn start_with(
        runner: Box<dyn Runner>,
        options: Options,
        mut parts: Parts,
    ) -> Result<Self, StartError> {
        let info = runner.info().clone();
        if options.parallel == 0 || options.parallel > info.slots {
            return Err(StartError::Parallel { found: options.parallel, slots: info.slots });
        }
        let found = options.prefill.decode_share;
        if !(0.0..1.0).contains(&found) {
            return Err(StartError::DecodeShare { found });
        }
        let disk = parts.disk.take().map(Disk::open).transpose()?;
        let (commands, inbox) = channel();
        let shared = Arc::new(Shared {
            info,
            options,
            counters: Counters::default(),
            disk: disk.as_ref().map(Disk::counts),
            stopped: OnceLock::new(),
            waiting: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
        });
        let handle = Handle { commands, shared: Arc::clone(&shared) };
        let thread = std::thread::Builder::new().name("engine".into()).spawn(move || {
            let mut scheduler = Scheduler::new(runner, options, parts, inbox, Arc::clone(&shared));
            scheduler.disk = disk;
            // A panic leaves the runner in an unknown state: nothing may use it again.
            let end = catch_unwind(AssertUnwindSafe(|| scheduler.run()));
            let reason = match end {
                Ok(Ok(())) => STOPPING.to_owned(),
                Ok(Err(fatal)) => fatal,
                Err(panic) => format!("the engine panicked: {}", panic_text(&*panic)),
            };
            shared.stop(&reason);
            if reason != STOPPING {
                tracing::error!(reason, "the engine has ended");
            }
            // Closes every reply, which then reads the reason. Caught, as a drop may panic too.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(scheduler)));
            shared.waiting.store(0, Relaxed);
            shared.running.store(0, Relaxed);
        })?;
        Ok(Self { handle, thread: Some(thread) })
    }

    /// A way to submit from any thread; it does not keep the engine alive.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Stops as [`Handle::stop`] and waits for the thread.
    pub fn stop(self, grace: Duration) {
        self.handle.stop(grace);
        self.join();
    }

    fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            // The thread catches its panics, so there is nothing to learn from the result.
            let _ = thread.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.handle.stop(Duration::ZERO);
            let _ = thread.join();
        }
    }
}

/// Sends requests to the engine; clones share it.
#[derive(Debug, Clone)]
pub struct Handle {
    commands: Sender<Command>,
    shared: Arc<Shared>,
}

impl Handle {
    /// What the runner offers: context, vocabulary, slots.
    #[must_use]
    pub fn info(&self) -> &RunnerInfo {
        &self.shared.info
    }

    /// Requests waiting and running now.
    #[must_use]
    pub fn load(&self) -> Load {
        Load {
            waiting: self.shared.waiting.load(Relaxed),
            running: self.shared.running.load(Relaxed),
        }
    }

    /// What was done since the start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.counters.read(self.shared.info.blocks, self.shared.disk.as_deref())
    }

    /// Whether the engine takes no request because it was told to stop.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stopped() == Some(STOPPING)
    }

    /// Why the engine takes no request, where it takes none.
    #[must_use]
    pub fn stopped(&self) -> Option<&str> {
        self.shared.stopped.get().map(String::as_str)
    }

    /// Checks `request` and puts it at the end of the queue.
    ///
    /// # Errors
    /// [`Refusal`] where it can never run; nothing was started then.
    pub fn submit(&self, request: Request) -> Result<Reply, Refusal> {
        if let Some(reason) = self.stopped() {
            return Err(Refusal::Stopped { reason: reason.to_owned() });
        }
        self.check(&request)?;
        self.enter()?;
        let (events, receiver) = unbounded_channel();
        let job = Job { request, events, submitted: Instant::now(), disk: FromDisk::default() };
        if self.commands.send(Command::Submit(job)).is_err() {
            self.shared.waiting.fetch_sub(1, Relaxed);
            return Err(Refusal::Stopped { reason: self.shared.reason().to_owned() });
        }
        Ok(Reply { events: receiver, shared: Arc::clone(&self.shared), ended: false })
    }

    /// Refuses new requests, fails the waiting ones, and after `grace` those that still run.
    ///
    /// Returns at once; a second call with a shorter grace brings the end nearer.
    pub fn stop(&self, grace: Duration) {
        self.shared.stop(STOPPING);
        // Where the thread has ended already there is nothing left to stop.
        let _ = self.commands.send(Command::Stop { at: Instant::now() + grace });
    }

    /// Counts one more request that waits, where one more may: free slots take theirs out again.
    fn enter(&self) -> Result<(), Refusal> {
        let Options { parallel, queue, .. } = self.shared.options;
        let Shared { waiting, running, .. } = &*self.shared;
        let room = |waiting: usize| {
            let inside = waiting + running.load(Relaxed);
            (inside < parallel.saturating_add(queue)).then_some(waiting + 1)
        };
        match waiting.fetch_update(Relaxed, Relaxed, room) {
            Ok(_) => Ok(()),
            Err(waiting) => {
                let running = running.load(Relaxed);
                Err(Refusal::Full { running, waiting, parallel, queue })
            }
        }
    }

    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let RunnerInfo { context, vocab, window_rows, .. } = self.shared.info;
        let prompt = request.prompt.len();
        if prompt == 0 {
            return Err(Refusal::EmptyPrompt);
        }
        if request.max_tokens == 0 {
            return Err(Refusal::NoTokens);
        }
        if let Some(index) = request.prompt.iter().position(|&id| id as usize >= vocab) {
            return Err(Refusal::NoSuchToken { id: request.prompt[index], index, vocab });
        }
        if let Some(&(id, _)) = request.bias.iter().find(|&&(id, _)| id as usize >= vocab) {
            return Err(Refusal::NoSuchBias { id, vocab });
        }
        if prompt >= context {
            return Err(Refusal::Context { context, prompt });
        }
        if request.prompt_logits > window_rows {
            return Err(Refusal::PromptLogits { found: request.prompt_logits, limit: window_rows });
        }
        Ok(())
    }
}

/// The events of one request, the last of them `Finished` or `Failed`. Dropping it cancels.
#[derive(Debug)]
pub struct Reply {
    events: UnboundedReceiver<Event>,
    shared: Arc<Shared>,
    ended: bool,
}

impl Reply {
    /// The next event; `None` after the last.
    pub async fn next(&mut self) -> Option<Event> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`Reply::next`] for hand-written streams.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let event = ready!(self.events.poll_recv(cx));
        Poll::Ready(self.settle(event))
    }

    /// The next event, waited for on this thread, which must not be one of a runtime's.
    pub fn next_blocking(&mut self) -> Option<Event> {
        let event = self.events.blocking_recv();
        self.settle(event)
    }

    /// Gives a reply that the engine's end cut off its `Failed`.
    fn settle(&mut self, event: Option<Event>) -> Option<Event> {
        if self.ended {
            return None;
        }
        let event =
            event.unwrap_or_else(|| Event::Failed { message: self.shared.reason().to_owned() });
        self.ended = matches!(event, Event::Finished { .. } | Event::Failed { .. });
        Some(event)
    }
}
