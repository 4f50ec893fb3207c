//! The thread team: one fork and join costs microseconds, so that every step can afford one.
//!
//! Workers spin for a while after a task, since the next usually follows at once, then park; an
//! idle team uses no CPU. A fork is one store that the workers watch, a join one counter that the
//! caller watches; nothing is allocated or locked. Whoever sleeps says so in a flag first and looks
//! again, so a wake-up is never lost. Work is taken piece by piece, so that a worker whose core
//! does something else holds nothing up.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

mod gate;
mod sync;

use gate::{Gate, Task};

/// A parallel section that did not finish.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TeamError {
    /// The task panicked on a worker; the others ended theirs.
    #[error("worker {worker} of {threads} panicked: {message}")]
    Panicked {
        /// Index of the first worker that panicked.
        worker: usize,
        /// Workers in the team.
        threads: usize,
        /// The panic's message, where it is text.
        message: String,
    },
    /// The system gave no thread.
    #[error("no thread for worker {worker} of {threads}: {message}")]
    NoThread {
        /// Index of the worker that could not start.
        worker: usize,
        /// Workers asked for.
        threads: usize,
        /// The system's reason.
        message: String,
    },
}

/// A fixed set of workers. The caller of [`Team::each`] is worker 0.
#[derive(Debug)]
pub struct Team {
    gate: Arc<Gate>,
    handles: Vec<JoinHandle<()>>,
}

impl Team {
    /// A team of `threads` workers (at least one), the caller among them.
    ///
    /// # Errors
    /// [`TeamError::NoThread`] when the system refuses a thread.
    pub fn new(threads: usize) -> Result<Team, TeamError> {
        let threads = threads.max(1);
        let gate = Arc::new(Gate::new(threads - 1));
        let mut team = Team { gate, handles: Vec::with_capacity(threads - 1) };
        for worker in 1..threads {
            let gate = team.gate.clone();
            let handle = std::thread::Builder::new()
                .name(format!("team-{worker}"))
                .spawn(move || work(&gate, worker))
                .map_err(|e| TeamError::NoThread { worker, threads, message: e.to_string() })?;
            team.handles.push(handle);
        }
        Ok(team)
    }

    /// Workers, the caller included.
    pub fn threads(&self) -> usize {
        self.handles.len() + 1
    }

    /// Runs `task` on the caller, where there is nothing to share.
    ///
    /// # Errors
    /// As [`Team::each`].
    pub fn alone(&self, task: impl FnOnce()) -> Result<(), TeamError> {
        catch_unwind(AssertUnwindSafe(task)).map_err(|payload| TeamError::Panicked {
            worker: 0,
            threads: self.threads(),
            message: message(payload),
        })
    }

    /// Runs `task(worker, index)` for every index below `count`, some at a time taken by the next free
    /// worker, in ascending order; no two calls at once have the same worker.
    ///
    /// # Errors
    /// [`TeamError::Panicked`] when the task panicked on some worker; indices that no other worker
    /// takes are then not run. The team stays usable.
    pub fn each(
        &mut self,
        count: usize,
        task: impl Fn(usize, usize) + Sync,
    ) -> Result<(), TeamError> {
        let (next, threads) = (AtomicUsize::new(0), self.threads());
        self.share(|worker| {
            while let Some(indices) = take(&next, count, threads) {
                indices.for_each(|index| task(worker, index));
            }
        })
    }

    /// Runs `task(worker)` on the caller, and on the workers that come before it has ended there.
    fn share(&mut self, task: impl Fn(usize) + Sync) -> Result<(), TeamError> {
        let own = || catch_unwind(AssertUnwindSafe(|| task(0))).map_err(|payload| (0, payload));
        let result = if self.handles.is_empty() {
            own()
        } else {
            // The fork ends before this call does, as its guard waits for every worker.
            let fork = self.gate.fork(Task::new(&task), &self.handles);
            let result = own();
            let others = fork.join();
            result.and(others)
        };
        result.map_err(|(worker, payload)| TeamError::Panicked {
            worker,
            threads: self.threads(),
            message: message(payload),
        })
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.gate.close(&self.handles);
        for handle in self.handles.drain(..) {
            // Workers catch the panics of tasks: a join cannot fail.
            let _ = handle.join();
        }
    }
}

/// The next indices below `count`: fewer the fewer are left, as taking some costs a cache line's way
/// between two cores.
fn take(next: &AtomicUsize, count: usize, threads: usize) -> Option<Range<usize>> {
    let share = |at: usize| (count.saturating_sub(at) / (4 * threads)).max(1);
    let taken = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| {
        (at < count).then(|| at + share(at))
    });
    taken.ok().map(|at| at..at + share(at))
}

/// The life of worker `worker`.
fn work(gate: &Gate, worker: usize) {
    let mut epoch = 0;
    while let Some(task) = gate.wait(worker - 1, &mut epoch) {
        let result = catch_unwind(AssertUnwindSafe(|| task.call(worker)));
        gate.done(worker, result.err());
    }
}

/// The text of a panic.
fn message(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => match payload.downcast::<&str>() {
            Ok(text) => (*text).to_owned(),
            Err(_) => "(not text)".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests;
