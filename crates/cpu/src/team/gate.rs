//! Where a team meets: how a fork reaches the workers, and a join the caller.
#![allow(unsafe_code)]

use std::any::Any;
use std::marker::PhantomData;

// Named through the parent, so that a model checker can stand in for the system.
use super::sync::{
    AtomicBool, AtomicU32, JoinHandle, Mutex, Ordering, SPINS, Slot, Thread, current, fence, park,
    spin_loop,
};

/// What a worker's panic carried, and which worker it was.
type Panic = (usize, Box<dyn Any + Send>);

/// A borrowed task without its lifetime. [`Fork`] keeps the borrow alive.
#[derive(Clone, Copy)]
pub(super) struct Task {
    data: *const (),
    call: unsafe fn(*const (), usize),
}

// SAFETY: the task behind the pointer is `Sync` and outlives its fork (see `Fork`).
unsafe impl Send for Task {}

impl Task {
    pub(super) fn new<F: Fn(usize) + Sync>(task: &F) -> Task {
        /// # Safety
        /// `data` points to a live `F`.
        unsafe fn call<F: Fn(usize)>(data: *const (), worker: usize) {
            // SAFETY: the caller vouches for it.
            unsafe { (*data.cast::<F>())(worker) }
        }
        Task { data: std::ptr::from_ref(task).cast(), call: call::<F> }
    }

    /// Runs the task as `worker`. Only called between `Gate::wait` and `Gate::done`.
    pub(super) fn call(self, worker: usize) {
        // SAFETY: `Gate::wait` counts the worker in, and a fork waits for those.
        unsafe { (self.call)(self.data, worker) }
    }
}

/// A value alone on its cache lines, so that waiters do not disturb each other.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Alone<T>(T);

/// The bit of the state that lets workers in.
const OPEN: u32 = 1 << 31;

/// The meeting point of one caller and its workers.
pub(super) struct Gate {
    /// Counts forks; workers watch it.
    epoch: Alone<AtomicU32>,
    /// Workers at the current task, and [`OPEN`] while more may come; the caller watches it.
    state: Alone<AtomicU32>,
    /// Written by the caller while the state is 0, read by workers that are counted in it.
    task: Slot<Option<Task>>,
    /// Set once, before the last epoch.
    ended: Alone<AtomicBool>,
    /// One for each worker: it is parked or about to be.
    asleep: Box<[Alone<AtomicBool>]>,
    /// The caller, while it is parked or about to be.
    caller: Mutex<Option<Thread>>,
    caller_asleep: Alone<AtomicBool>,
    panic: Mutex<Option<Panic>>,
}

// SAFETY: `task` is written only while `state` is 0 and read only while it is not; everything else
// is atomic or locked.
unsafe impl Sync for Gate {}
// SAFETY: the task it may hold is only called inside a fork; the rest is `Send`.
unsafe impl Send for Gate {}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("workers", &self.asleep.len()).finish_non_exhaustive()
    }
}

impl Gate {
    pub(super) fn new(workers: usize) -> Gate {
        Gate {
            epoch: Alone::default(),
            state: Alone::default(),
            task: Slot::new(None),
            ended: Alone::default(),
            asleep: (0..workers).map(|_| Alone::default()).collect(),
            caller: Mutex::new(None),
            caller_asleep: Alone::default(),
            panic: Mutex::new(None),
        }
    }

    /// Offers `task` to the workers. The caller must join before the task's borrow ends.
    pub(super) fn fork<'a>(&'a self, task: Task, handles: &'a [JoinHandle<()>]) -> Fork<'a> {
        debug_assert_eq!(self.state.0.load(Ordering::Relaxed), 0);
        // SAFETY: no worker is counted in, so none reads the task.
        unsafe { self.task.set(Some(task)) };
        // Publishes the task, also to a worker that comes late for the fork before.
        self.state.0.store(OPEN, Ordering::Release);
        self.call(handles);
        Fork { gate: self, borrow: PhantomData }
    }

    /// Ends every worker.
    pub(super) fn close(&self, handles: &[JoinHandle<()>]) {
        self.ended.0.store(true, Ordering::Relaxed);
        self.call(handles);
    }

    /// Starts an epoch and wakes the workers.
    fn call(&self, handles: &[JoinHandle<()>]) {
        self.epoch.0.fetch_add(1, Ordering::Release);
        // With the fence of `wait_until`: either the worker sees the new epoch before it parks, or
        // this thread sees its flag.
        fence(Ordering::SeqCst);
        for (asleep, handle) in self.asleep.iter().zip(handles) {
            if asleep.0.load(Ordering::Relaxed) {
                handle.thread().unpark();
            }
        }
    }

    /// Waits for a fork and takes part in it, until [`Gate::done`]; `None` when the team ends.
    pub(super) fn wait(&self, worker: usize, epoch: &mut u32) -> Option<Task> {
        let asleep = &self.asleep[worker].0;
        loop {
            wait_until(asleep, || self.epoch.0.load(Ordering::Acquire) != *epoch);
            *epoch = self.epoch.0.load(Ordering::Acquire);
            if self.ended.0.load(Ordering::Relaxed) {
                return None;
            }
            if self.enter() {
                // SAFETY: this worker is counted in.
                return unsafe { self.task.get() };
            }
        }
    }

    /// Counts a worker in, unless the caller has closed the fork.
    fn enter(&self) -> bool {
        let mut state = self.state.0.load(Ordering::Relaxed);
        while state & OPEN != 0 {
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            match self.state.0.compare_exchange_weak(state, state + 1, success, failure) {
                Ok(_) => return true,
                Err(found) => state = found,
            }
        }
        false
    }

    /// Reports that a worker is done with the task.
    pub(super) fn done(&self, worker: usize, panic: Option<Box<dyn Any + Send>>) {
        if let Some(payload) = panic {
            // The lock is never held across a panic.
            let mut first = self.panic.lock().unwrap_or_else(|e| e.into_inner());
            if first.as_ref().is_none_or(|(other, _)| *other > worker) {
                *first = Some((worker, payload));
            }
        }
        if self.state.0.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // With the fence of `wait_until`, as in `open`.
        fence(Ordering::SeqCst);
        if self.caller_asleep.0.load(Ordering::Relaxed)
            && let Some(caller) = &*self.caller.lock().unwrap_or_else(|e| e.into_inner())
        {
            caller.unpark();
        }
    }

    /// Lets no more workers in and waits for those that are.
    fn wait_for_workers(&self) {
        self.state.0.fetch_and(!OPEN, Ordering::AcqRel);
        let idle = || self.state.0.load(Ordering::Acquire) == 0;
        for _ in 0..SPINS {
            if idle() {
                return;
            }
            spin_loop();
        }
        *self.caller.lock().unwrap_or_else(|e| e.into_inner()) = Some(current());
        wait_until(&self.caller_asleep.0, idle);
    }
}

/// Spins, then parks, until `ready`. Whoever makes it ready unparks this thread if `asleep` is set.
fn wait_until(asleep: &AtomicBool, ready: impl Fn() -> bool) {
    for _ in 0..SPINS {
        if ready() {
            return;
        }
        spin_loop();
    }
    asleep.store(true, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    while !ready() {
        park();
    }
    asleep.store(false, Ordering::Relaxed);
}

/// A task in flight. Dropping it waits for the workers too, so the task's borrow stays valid even
/// when the caller's own part unwinds.
pub(super) struct Fork<'a> {
    gate: &'a Gate,
    borrow: PhantomData<&'a ()>,
}

impl Fork<'_> {
    /// Waits until every worker that came is done; an error is the first worker's panic. One that
    /// comes later finds the fork closed: the caller never waits for a thread that has no core.
    pub(super) fn join(self) -> Result<(), Panic> {
        self.gate.wait_for_workers();
        let first = self.gate.panic.lock().unwrap_or_else(|e| e.into_inner()).take();
        first.map_or(Ok(()), Err)
    }
}

impl Drop for Fork<'_> {
    fn drop(&mut self) {
        self.gate.wait_for_workers();
    }
}
