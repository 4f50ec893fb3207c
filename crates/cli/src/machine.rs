//! What this machine offers, as far as the standard library and /proc tell.

use std::fs;

/// Cores this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Memory in bytes: all of it, and what can be used without swapping; `None` where unknown.
pub fn memory() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let (total, available) = (field_kib(&text, "MemTotal:")?, field_kib(&text, "MemAvailable:")?);
    // A container's limit is tighter than the machine's memory where there is one.
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let used = fs::read_to_string("/sys/fs/cgroup/memory.current").ok();
    let bytes = |text: Option<String>| text?.trim().parse::<u64>().ok();
    Some(match (bytes(limit), bytes(used)) {
        (Some(limit), Some(used)) if limit < total => {
            (limit, available.min(limit.saturating_sub(used)))
        }
        _ => (total, available),
    })
}

/// Bytes that this process has allocated and touched; 0 where unknown.
pub fn allocated() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    field_kib(&text, "RssAnon:").unwrap_or(0)
}

fn field_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    let kib: u64 = line[name.len()..].trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024)
}

/// The processor's name; its architecture where it has none.
pub fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name"));
    match name.and_then(|rest| rest.split_once(':')) {
        Some((_, name)) => name.trim().into(),
        None => std::env::consts::ARCH.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_meminfo() {
        let text = "MemTotal:       24593296 kB\nMemAvailable:   1024 kB\n";
        assert_eq!(field_kib(text, "MemAvailable:"), Some(1 << 20));
        assert_eq!(field_kib(text, "Swap:"), None);
    }
}
