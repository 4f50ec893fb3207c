//! Work of the host that is long enough for several threads, which end with it.

use std::num::NonZero;

/// Threads at most.
const THREADS: usize = 16;

/// How many of `count` things each thread takes, where so many are worth one.
pub fn share(count: usize, worth: usize) -> usize {
    if count <= worth {
        return worth;
    }
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(THREADS);
    count.div_ceil(threads).max(worth)
}
