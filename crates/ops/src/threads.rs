//! Work of the host that is long enough for several threads, which end with it.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder};

/// Threads at most.
const THREADS: usize = 16;

/// How many of `count` things each thread takes, where so many are worth one.
pub fn share(count: usize, worth: usize) -> usize {
    if count <= worth {
        return worth;
    }
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS);
    count.div_ceil(threads).max(worth)
}

/// Does the work of each part, by as many threads as there are parts; where the system has fewer, each of
/// them takes more.
pub fn in_parts<T>(parts: impl ExactSizeIterator<Item = T> + Send, work: impl Fn(T) + Sync) {
    let others = parts.len().saturating_sub(1);
    let parts = Mutex::new(parts);
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        while let Some(part) = next() {
            work(part);
        }
    };
    thread::scope(|scope| {
        for _ in 0..others {
            if Builder::new().spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
}
