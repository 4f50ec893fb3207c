//! Whether a model starts in a given memory, and the arithmetic in words. Allocates nothing.

use finback_ops::BLOCK_POSITIONS;

use crate::config::Config;
use crate::inspect::{Census, StateBytes};
use crate::names::Class;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanRequest {
    /// Streams at once.
    pub slots: usize,
    /// Positions of one stream.
    pub context: usize,
    /// Positions of the KV pool, all streams together.
    pub pool_positions: usize,
    /// Bytes that kept prefixes may take outside the pool.
    pub cache_bytes: u64,
    /// Bytes of the backend's workspace, which the backend computes.
    pub workspace_bytes: u64,
    /// Whether the draft blocks are used.
    pub drafts: bool,
    /// Bytes of memory there are for it.
    pub memory_bytes: u64,
    /// Whether that memory is a device's: weights are copied there whole, kept prefixes stay outside.
    pub device: bool,
}

/// How an item takes memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Allocated at start.
    Allocated,
    /// Mapped from the checkpoint and read whole: best kept in memory, dropped by the system when
    /// it has to.
    Mapped,
    /// Mapped and read by row: takes next to no memory.
    ByRow,
    /// Allocated in host memory, where the rest is a device's.
    Host,
}

/// One line of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanItem {
    /// What it is.
    pub name: &'static str,
    /// Its bytes.
    pub bytes: u64,
    /// How it takes memory.
    pub kind: Kind,
    /// How the bytes come about.
    pub how: String,
}

/// Whether it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All of it stays in memory.
    Fits,
    /// It starts, but the weights are larger than what is left: rounds read them from the disk.
    FitsFromDisk,
    /// It does not start.
    Refused,
}

/// A plan: what takes how much, and whether it fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Every item once, in the order of a listing.
    pub items: Vec<PlanItem>,
    /// Whether it starts.
    pub verdict: Verdict,
    /// The verdict's reason, with its arithmetic, in one line.
    pub reason: String,
    /// Blocks of the KV pool.
    pub blocks: usize,
    /// Bytes of one position of it.
    pub position_bytes: f64,
}

impl Plan {
    /// Bytes of the items of one kind.
    pub fn bytes(&self, kind: Kind) -> u64 {
        self.items.iter().filter(|i| i.kind == kind).map(|i| i.bytes).sum()
    }
}

/// Plans a start.
pub fn plan(config: &Config, census: &Census, request: &PlanRequest) -> Plan {
    let blocks = request.pool_positions.div_ceil(BLOCK_POSITIONS);
    let items = items(config, census, request, blocks);
    let (verdict, reason) = (Verdict::Refused, String::new());
    let position_bytes = StateBytes::of(config).kv_per_position();
    let mut plan = Plan { items, verdict, reason, blocks, position_bytes };
    (plan.verdict, plan.reason) = match refusal(config, request, blocks) {
        Some(reason) => (Verdict::Refused, reason),
        None if request.device => weigh_on_device(&plan, request.memory_bytes),
        None => weigh(&plan, request.memory_bytes),
    };
    plan
}

/// Positions of the pool that `request` asks for, cut to what its memory holds beside everything else:
/// beside the weights too where those fit, and one context in any case.
pub fn pool_that_fits(config: &Config, census: &Census, request: &PlanRequest) -> usize {
    let none = Plan {
        items: items(config, census, request, 0),
        verdict: Verdict::Refused,
        reason: String::new(),
        blocks: 0,
        position_bytes: 0.0,
    };
    let left = request.memory_bytes.saturating_sub(none.bytes(Kind::Allocated));
    let mapped = none.bytes(Kind::Mapped);
    let left = if mapped < left { left - mapped } else { left };
    let (least, most) = (
        request.context.div_ceil(BLOCK_POSITIONS),
        request.pool_positions.div_ceil(BLOCK_POSITIONS),
    );
    // A model without compressed rows takes nothing of the pool.
    let fit = left.checked_div(StateBytes::of(config).block).unwrap_or(u64::MAX);
    usize::try_from(fit).unwrap_or(usize::MAX).clamp(least.min(most), most) * BLOCK_POSITIONS
}

fn items(config: &Config, census: &Census, r: &PlanRequest, blocks: usize) -> Vec<PlanItem> {
    let state = StateBytes::of(config);
    let (slots, window) = (r.slots as u64, config.sliding_window);
    let tables = census.table_bytes();
    let drafts = census.bytes(|w| w.class == Class::Drafts);
    let target = census.bytes(|w| w.class != Class::Drafts) - tables;
    let item = |name, bytes, kind, how| PlanItem { name, bytes, kind, how };
    let (weights, cache) = match r.device {
        true => (Kind::Allocated, Kind::Host),
        false => (Kind::Mapped, Kind::Allocated),
    };
    let mut items = vec![item(
        "weights",
        target,
        weights,
        format!("{} layers, embedding and head, as stored", config.num_hidden_layers),
    )];
    if let Some(engram) = &config.engram {
        let rows: usize = engram.num_embeddings.iter().sum();
        let how = format!("{rows} rows in {} tables, read by row", engram.layer_ids.len());
        items.push(item("Engram tables", tables, Kind::ByRow, how));
    }
    let ring = |layers: usize| {
        format!("{layers} layers x {window} rows x {} B x {slots} slots", state.window_row)
    };
    if let Some(d) = config.drafts.as_ref().filter(|_| r.drafts) {
        let how = format!("{} draft blocks, as stored", d.layers);
        items.push(item("drafter weights", drafts, weights, how));
        let bytes = slots * state.draft_rings;
        items.push(item("drafter rings", bytes, Kind::Allocated, ring(d.layers)));
    }
    let how =
        format!("{blocks} blocks x {BLOCK_POSITIONS} positions x {} B", state.kv_per_position());
    items.push(item("KV pool", blocks as u64 * state.block, Kind::Allocated, how));
    let how = ring(config.num_hidden_layers);
    items.push(item("window rings", slots * state.rings, Kind::Allocated, how));
    let how = format!("{} B x {slots} slots", state.open_groups);
    items.push(item("open groups", slots * state.open_groups, Kind::Allocated, how));
    if r.cache_bytes > 0 {
        let how = "kept prefixes outside the pool, at most".to_owned();
        items.push(item("prefix cache", r.cache_bytes, cache, how));
    }
    let how = "the backend's buffers of one pass".to_owned();
    items.push(item("workspace", r.workspace_bytes, Kind::Allocated, how));
    items
}

/// What no memory would help.
fn refusal(config: &Config, r: &PlanRequest, blocks: usize) -> Option<String> {
    let most = config.max_position_embeddings;
    let pool = blocks * BLOCK_POSITIONS;
    if r.slots == 0 || r.context == 0 {
        return Some(format!("{} slots of {} positions: at least 1 of each", r.slots, r.context));
    }
    if r.context > most {
        return Some(format!("a context of {}: the model was made for {most}", r.context));
    }
    if r.context > pool {
        return Some(format!(
            "a pool of {pool} positions: too small for one context of {}",
            r.context
        ));
    }
    let state = StateBytes::of(config);
    let one = state.rings + state.open_groups + if r.drafts { state.draft_rings } else { 0 };
    (1..one).contains(&r.cache_bytes).then(|| {
        let [cache, one] = [r.cache_bytes, one].map(human);
        format!(
            "a prefix cache (--prompt-cache-gib) of {cache}: one prefix takes {one} outside the pool; \
             0 keeps none"
        )
    })
}

fn weigh(plan: &Plan, memory: u64) -> (Verdict, String) {
    let (allocated, mapped) = (plan.bytes(Kind::Allocated), plan.bytes(Kind::Mapped));
    let [a, m, all] = [allocated, mapped, memory].map(human);
    if allocated > memory {
        let pool = plan.items.iter().find(|item| item.name == "KV pool");
        let pool = pool.map_or(String::new(), |pool| {
            format!(", of which the KV pool (--pool-tokens) is {}: {}", human(pool.bytes), pool.how)
        });
        return (Verdict::Refused, format!("{a} to allocate is more than {all} of memory{pool}"));
    }
    if allocated + mapped > memory {
        let left = human(memory - allocated);
        let text = format!(
            "{a} to allocate leaves {left} of {all} for {m} of weights: rounds read them from disk"
        );
        return (Verdict::FitsFromDisk, text);
    }
    let sum = human(allocated + mapped);
    (Verdict::Fits, format!("{a} to allocate + {m} of weights = {sum} of {all}"))
}

/// A device holds all of it or none: nothing is read from the disk in a round.
fn weigh_on_device(plan: &Plan, memory: u64) -> (Verdict, String) {
    let allocated = plan.bytes(Kind::Allocated);
    let [sum, all] = [allocated, memory].map(human);
    if allocated <= memory {
        return (Verdict::Fits, format!("{sum} to allocate of {all} free on the device"));
    }
    let large = plan.items.iter().filter(|item| item.kind == Kind::Allocated);
    let parts: Vec<String> =
        large.map(|item| format!("{} {}", item.name, human(item.bytes))).collect();
    let parts = parts.join(" + ");
    (Verdict::Refused, format!("{parts} = {sum} is more than {all} free on the device"))
}

/// Bytes for a reader, in decimal units, three digits or so.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::tests::release;

    fn request() -> PlanRequest {
        PlanRequest {
            slots: 4,
            context: 65536,
            pool_positions: 131_072,
            cache_bytes: 0,
            workspace_bytes: 1_000_000_000,
            drafts: true,
            memory_bytes: 400_000_000_000,
            device: false,
        }
    }

    fn release_plan(request: PlanRequest) -> Plan {
        plan(&release(), &Census::released(&release()), &request)
    }

    #[test]
    fn every_byte_is_counted_once() {
        let p = release_plan(request());
        let census = Census::released(&release());
        let stored: u64 = census.bytes(|_| true);
        assert_eq!(p.bytes(Kind::Mapped) + p.bytes(Kind::ByRow), stored);
        let want = 131_072 * 890 + 4 * 43 * 128 * 528 + 4 * 12288 + 1_000_000_000;
        assert_eq!(p.bytes(Kind::Allocated), want);
        assert_eq!(p.blocks, 512);
        let pool = p.items.iter().find(|i| i.name == "KV pool").unwrap();
        assert_eq!(pool.how, "512 blocks x 256 positions x 890 B");
        let plain = release_plan(PlanRequest { drafts: false, ..request() });
        assert!(plain.items.iter().all(|i| !i.name.starts_with("drafter")));
    }

    #[test]
    fn verdicts_say_their_arithmetic() {
        let p = release_plan(request());
        assert_eq!(p.verdict, Verdict::Fits, "{}", p.reason);
        assert!(p.reason.starts_with("1.13 GB to allocate + "), "{}", p.reason);

        let p = release_plan(PlanRequest { memory_bytes: 24_000_000_000, ..request() });
        assert_eq!(p.verdict, Verdict::FitsFromDisk);
        assert!(p.reason.starts_with("1.13 GB to allocate leaves 22.9 GB of 24.0 GB for "));

        let p = release_plan(PlanRequest { memory_bytes: 1_000_000_000, ..request() });
        assert_eq!(p.verdict, Verdict::Refused);
        assert_eq!(
            p.reason,
            "1.13 GB to allocate is more than 1.00 GB of memory, of which the KV pool (--pool-tokens) \
             is 117 MB: 512 blocks x 256 positions x 890 B"
        );
    }

    #[test]
    fn a_device_holds_the_weights_or_refuses_them() {
        let request = |memory_bytes| PlanRequest {
            memory_bytes,
            device: true,
            cache_bytes: 5_000_000,
            ..request()
        };
        let p = release_plan(request(400_000_000_000));
        let host = release_plan(super::tests::request());
        let held = host.bytes(Kind::Allocated) + host.bytes(Kind::Mapped);
        assert_eq!((p.verdict, p.bytes(Kind::Allocated)), (Verdict::Fits, held), "{}", p.reason);
        assert_eq!((p.bytes(Kind::Mapped), p.bytes(Kind::Host)), (0, 5_000_000));
        assert_eq!(release_plan(request(held)).verdict, Verdict::Fits);
        let p = release_plan(request(held - 1));
        assert_eq!(p.verdict, Verdict::Refused);
        assert!(p.reason.starts_with("weights ") && p.reason.contains(" + workspace 1.00 GB = "));
        assert!(p.reason.ends_with(" free on the device"), "{}", p.reason);
    }

    #[test]
    fn a_pool_is_cut_to_what_memory_holds() {
        let fits = |memory_bytes| {
            let request = PlanRequest { memory_bytes, ..request() };
            pool_that_fits(&release(), &Census::released(&release()), &request)
        };
        assert_eq!(fits(400_000_000_000), 131_072);
        assert_eq!(fits(u64::MAX), 131_072);
        let rest = 4 * 43 * 128 * 528 + 4 * 12288 + 1_000_000_000;
        // Weights do not fit anyway: they leave the pool what is not allocated.
        assert_eq!(fits(rest + 300 * 256 * 890), 300 * 256);
        assert_eq!(fits(rest + 300 * 256 * 890 - 1), 299 * 256);
        // One context stays, and is refused by the plan.
        assert_eq!(fits(rest), 65536);
        let cached = PlanRequest {
            cache_bytes: 256 * 890,
            memory_bytes: rest + 300 * 256 * 890,
            ..request()
        };
        let cached = pool_that_fits(&release(), &Census::released(&release()), &cached);
        assert_eq!(cached, 299 * 256);
    }

    #[test]
    fn requests_that_cannot_work_are_refused_by_name() {
        let say = |r: PlanRequest| {
            let p = release_plan(r);
            assert_eq!(p.verdict, Verdict::Refused);
            p.reason
        };
        assert_eq!(
            say(PlanRequest { slots: 0, ..request() }),
            "0 slots of 65536 positions: at least 1 of each"
        );
        assert_eq!(
            say(PlanRequest { context: 2_000_000, ..request() }),
            "a context of 2000000: the model was made for 1048576"
        );
        assert_eq!(
            say(PlanRequest { pool_positions: 1000, ..request() }),
            "a pool of 1024 positions: too small for one context of 65536"
        );
        let plan = release_plan(PlanRequest { cache_bytes: 1_000_000, ..request() });
        assert_eq!(
            plan.reason,
            "a prefix cache (--prompt-cache-gib) of 1.00 MB: one prefix takes 2.92 MB outside the pool; \
             0 keeps none"
        );
    }

    #[test]
    fn bytes_read_well() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (9_994, "9.99 kB"),
            (9_995, "10.0 kB"),
            (99_949, "99.9 kB"),
            (99_950, "100 kB"),
            (999_499, "999 kB"),
            (999_500, "1.00 MB"),
            (12_900_000_000, "12.9 GB"),
            (u64::MAX, "18447 PB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(human(bytes), text);
        }
    }
}
