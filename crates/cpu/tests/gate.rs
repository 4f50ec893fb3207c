//! The team's gate under a model checker: every interleaving of a few forks and joins.
#![allow(unsafe_code)]

use std::sync::Arc;

/// The checker's stand-ins for the system.
mod sync {
    pub(super) use loom::hint::spin_loop;
    pub(super) use loom::sync::Mutex;
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
    pub(super) use loom::thread::{JoinHandle, Thread, current, park};

    /// Spinning only repeats a state.
    pub(super) const SPINS: u32 = 1;

    /// Fails the model when two users meet in it.
    pub(super) struct Slot<T>(loom::cell::UnsafeCell<T>);

    impl<T: Copy> Slot<T> {
        pub(super) fn new(value: T) -> Slot<T> {
            Slot(loom::cell::UnsafeCell::new(value))
        }

        /// # Safety
        /// The checker looks after it.
        pub(super) unsafe fn get(&self) -> T {
            // SAFETY: a concurrent write fails the model.
            self.0.with(|value| unsafe { *value })
        }

        /// # Safety
        /// The checker looks after it.
        pub(super) unsafe fn set(&self, value: T) {
            // SAFETY: a concurrent access fails the model.
            self.0.with_mut(|place| unsafe { *place = value });
        }
    }
}

#[path = "../src/team/gate.rs"]
mod gate;

use gate::{Gate, Task};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};

/// A counter that only one thread may touch at a time.
struct Counter(UnsafeCell<u32>);

// SAFETY: a concurrent access fails the model.
unsafe impl Sync for Counter {}

impl Counter {
    fn add(&self) {
        // SAFETY: as above.
        self.0.with_mut(|count| unsafe { *count += 1 });
    }

    fn get(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|count| unsafe { *count })
    }
}

/// Runs `forks` forks over `workers` workers, then ends them.
fn forks_and_joins(workers: usize, forks: u32) {
    let gate = Arc::new(Gate::new(workers));
    // Workers that took part in the last fork: they panic, as far as the gate knows.
    let last = Arc::new(AtomicU32::new(0));
    let now = Arc::new(AtomicU32::new(0));
    let handles: Vec<_> = (0..workers)
        .map(|worker| {
            let (gate, last, now) = (gate.clone(), last.clone(), now.clone());
            loom::thread::spawn(move || {
                let mut epoch = 0;
                while let Some(task) = gate.wait(worker, &mut epoch) {
                    task.call(worker + 1);
                    let panics = now.load(Ordering::Relaxed) == forks;
                    last.fetch_add(u32::from(panics), Ordering::Relaxed);
                    gate.done(worker, panics.then(|| Box::new(()) as Box<_>));
                }
            })
        })
        .collect();
    let counters: Vec<Counter> = (0..=workers).map(|_| Counter(UnsafeCell::new(0))).collect();
    for fork in 1..=forks {
        now.store(fork, Ordering::Relaxed);
        let next = AtomicU32::new(0);
        let task = |_: usize| {
            // As `Team::each`: whoever is there takes what is left.
            while let Some(counter) = counters.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                counter.add();
            }
        };
        let offered = gate.fork(Task::new(&task), &handles);
        task(0);
        let joined = offered.join();
        let came = last.load(Ordering::Relaxed) > 0;
        assert_eq!(joined.is_err(), came);
        // After the join every worker's write is seen, and none is at work.
        assert!(counters.iter().all(|counter| counter.get() == fork));
    }
    // The model ends when every thread has. Not joined: the checker takes a late wake-up, which the
    // gate allows, for the end of a thread.
    gate.close(&handles);
}

/// Tries every schedule with at most `switches` forced switches; all of them would take hours.
fn check(switches: usize, workers: usize, forks: u32) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.check(move || forks_and_joins(workers, forks));
}

#[test]
fn one_worker_never_misses_a_fork_nor_the_caller_a_join() {
    check(3, 1, 2);
}

#[test]
fn two_workers_meet_the_caller() {
    check(2, 2, 1);
}
