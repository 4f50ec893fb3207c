//! Where the time of rounds and prompt pieces goes: phases on the host, and the device's steps in them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use finback_ops::{StepTime, StepTimes};

/// Passes that are kept one by one; those after them count in the totals alone.
const KEPT: usize = 1000;

/// Collects the times of an engine's passes; clones share it.
#[derive(Debug, Clone)]
pub struct Profile {
    steps: StepTimes,
    inner: Arc<Mutex<Passes>>,
}

/// What a [`Profile`] has collected.
#[derive(Debug, Clone, Default)]
pub struct Passes {
    /// The first passes, in order.
    pub kept: Vec<Pass>,
    /// Over all passes: by kind of pass, phase, and step or [`HOST`].
    pub totals: BTreeMap<(&'static str, &'static str, &'static str), Total>,
    /// Passes of each kind, with their time from begin to end.
    pub passes: BTreeMap<&'static str, Total>,
}

/// The name under which a phase's time outside the device's steps is counted.
pub const HOST: &str = "host";

/// Calls and their time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// How many.
    pub calls: u64,
    /// Wall time.
    pub took: Duration,
}

impl Total {
    fn add(&mut self, took: Duration) {
        self.calls += 1;
        self.took += took;
    }
}

/// One round or prompt piece.
#[derive(Debug, Clone)]
pub struct Pass {
    /// `round` or `prompt`.
    pub kind: &'static str,
    /// When it began.
    pub began: Instant,
    /// Requests in it.
    pub streams: usize,
    /// Rows the target ran.
    pub rows: usize,
    /// Its phases in order: name and end; each begins where the one before it ended.
    pub phases: Vec<(&'static str, Instant)>,
    /// The device's steps in it.
    pub steps: Vec<StepTime>,
}

impl Pass {
    pub(crate) fn begin(kind: &'static str) -> Self {
        let (phases, steps) = (Vec::new(), Vec::new());
        Self { kind, began: Instant::now(), streams: 0, rows: 0, phases, steps }
    }

    /// Ends a phase.
    pub(crate) fn mark(&mut self, phase: &'static str) {
        self.phases.push((phase, Instant::now()));
    }

    /// Its phases: name, begin and end.
    pub fn spans(&self) -> impl Iterator<Item = (&'static str, Instant, Instant)> {
        let begins = std::iter::once(self.began).chain(self.phases.iter().map(|phase| phase.1));
        begins.zip(&self.phases).map(|(begin, &(name, end))| (name, begin, end))
    }
}

impl Profile {
    /// A profile that reads its steps from `steps`.
    #[must_use]
    pub fn new(steps: StepTimes) -> Self {
        Self { steps, inner: Arc::default() }
    }

    /// What was collected so far.
    #[must_use]
    pub fn passes(&self) -> Passes {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn add(&self, mut pass: Pass) {
        // Steps of a pass that failed were never taken: they began before this one.
        pass.steps = self.steps.take();
        pass.steps.retain(|step| step.began >= pass.began);
        let mut passes = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        for (phase, begin, end) in pass.spans() {
            let mut host = end - begin;
            for step in pass.steps.iter().filter(|step| step.began >= begin && step.began < end) {
                host = host.saturating_sub(step.took);
                passes.totals.entry((pass.kind, phase, step.step)).or_default().add(step.took);
            }
            passes.totals.entry((pass.kind, phase, HOST)).or_default().add(host);
        }
        let end = pass.phases.last().map_or(pass.began, |phase| phase.1);
        passes.passes.entry(pass.kind).or_default().add(end - pass.began);
        if passes.kept.len() < KEPT {
            passes.kept.push(pass);
        }
    }
}
