//! What a server holds while requests run: its pool by `/metrics`, its memory by `/proc`.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::gauges::gauge;
use crate::{BenchError, BenchResult, Target};

/// Between two looks.
const EVERY: Duration = Duration::from_millis(50);

/// Memory of a process, as Linux counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// What it has in memory that is no file: what it allocated and touched.
    pub allocated_bytes: u64,
    /// The most it had in memory since it began, the program and mapped weights included.
    pub all_bytes: u64,
}

/// The most that was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Peaks {
    /// KV blocks that requests held, where the server counts them.
    pub blocks: Option<u64>,
    /// KV blocks there are.
    pub blocks_total: Option<u64>,
    /// The largest share of the pool that requests held.
    pub pool_share: Option<f64>,
    /// Requests that waited at once.
    pub waiting: Option<u64>,
    /// Bytes the server says it planned to allocate.
    pub planned_bytes: Option<u64>,
    /// Memory of its process: the most of either figure that was seen.
    pub memory: Option<Memory>,
}

/// A server that is watched.
pub(super) struct Watch<'a> {
    target: &'a Target,
    pid: Option<u32>,
}

impl<'a> Watch<'a> {
    /// # Errors
    ///
    /// There is no process `pid` here whose memory can be read.
    pub(super) fn new(target: &'a Target, pid: Option<u32>) -> BenchResult<Self> {
        if let Some(pid) = pid {
            memory(pid).ok_or(BenchError::Process { pid })?;
        }
        Ok(Self { target, pid })
    }

    /// Looks while `work` runs, and once after it.
    pub(super) fn during<T>(&self, work: impl FnOnce() -> T) -> (T, Peaks) {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let mut peaks = Peaks::default();
                while !stop.load(Relaxed) {
                    self.look(&mut peaks);
                    thread::sleep(EVERY);
                }
                self.look(&mut peaks);
                peaks
            });
            let done = work();
            stop.store(true, Relaxed);
            match looks.join() {
                Ok(peaks) => (done, peaks),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    fn look(&self, peaks: &mut Peaks) {
        if let Ok(page) = self.target.get("/metrics") {
            peaks.take(&page);
        }
        if let Some(now) = self.pid.and_then(memory) {
            let before = peaks.memory.map_or(0, |memory| memory.allocated_bytes);
            let allocated_bytes = now.allocated_bytes.max(before);
            peaks.memory = Some(Memory { allocated_bytes, ..now });
        }
    }
}

impl Peaks {
    fn take(&mut self, page: &str) {
        let count = |names: &[&str]| gauge(page, names).map(|value| value as u64);
        let blocks = count(&["finback_kv_blocks_used"]);
        self.blocks = self.blocks.max(blocks);
        self.blocks_total = count(&["finback_kv_blocks"]).or(self.blocks_total);
        let share = gauge(
            page,
            &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"],
        );
        self.pool_share = match (self.pool_share, share) {
            (Some(before), Some(now)) => Some(before.max(now)),
            (before, now) => before.or(now),
        };
        let waiting = count(&[
            "finback_requests_waiting",
            "vllm:num_requests_waiting",
            "sglang:num_queue_reqs",
        ]);
        self.waiting = self.waiting.max(waiting);
        self.planned_bytes = count(&["finback_planned_bytes"]).or(self.planned_bytes);
    }
}

fn memory(pid: u32) -> Option<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    memory_in(&status)
}

/// The figures of a `/proc/PID/status`, which are in KiB.
fn memory_in(status: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    Some(Memory { allocated_bytes: bytes("RssAnon")?, all_bytes: bytes("VmHWM")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmPeak:\t  900 kB\nVmHWM:\t  512 kB\nRssAnon:\t   80 kB\n";
        let memory = Memory { allocated_bytes: 80 * 1024, all_bytes: 512 * 1024 };
        assert_eq!(memory_in(status), Some(memory));
        // A process that has ended keeps its entry for a while, without these lines.
        assert_eq!(memory_in("Name:\tx\nState:\tZ (zombie)\n"), None);
    }

    #[test]
    fn peaks_are_the_most_of_several_pages() {
        let page = |used: u32, waiting: u32| {
            format!(
                "finback_kv_blocks_used{{model_name=\"m\"}} {used}\nfinback_kv_blocks 80\n\
                 vllm:kv_cache_usage_perc {}\nfinback_requests_waiting {waiting}\n\
                 finback_planned_bytes{{model_name=\"m\"}} 12\n",
                f64::from(used) / 80.0
            )
        };
        let mut peaks = Peaks::default();
        for (used, waiting) in [(10, 3), (60, 2), (20, 0)] {
            peaks.take(&page(used, waiting));
        }
        // A page that cannot be read changes nothing.
        peaks.take("");
        let wanted = Peaks {
            blocks: Some(60),
            blocks_total: Some(80),
            pool_share: Some(0.75),
            waiting: Some(3),
            planned_bytes: Some(12),
            memory: None,
        };
        assert_eq!(peaks, wanted);
    }
}
