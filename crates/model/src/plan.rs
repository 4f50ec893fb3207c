//! Whether a model starts in a given memory, and the arithmetic in words. Allocates nothing.

use finback_ops::BLOCK_POSITIONS;

use crate::config::Config;
use crate::inspect::{Census, StateBytes};
use crate::names::{Class, Weight};

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
    /// Whether the routed experts stay in the map, which the device reads then.
    pub experts_on_host: bool,
    /// Bytes of the device's memory that a step's experts take where the others are on the host; `None`
    /// where they cannot be there.
    pub places_bytes: Option<u64>,
    /// Bytes of the host's memory there are beside a device's.
    pub host_bytes: u64,
    /// What a device has of the weights where several share them; all else is then on each.
    pub shared: Option<Shared>,
}

/// A device's part of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared {
    /// Devices.
    pub gpus: usize,
    /// Bytes of the target's weights on each.
    pub target: u64,
    /// Bytes of the drafter's.
    pub drafts: u64,
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
    /// Mapped, and locked in host memory for a device that reads it there.
    Locked,
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
        None if request.device => weigh_on_device(config, census, &plan, request),
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
    let locked = if r.device && r.experts_on_host { experts(census) } else { [0; 2] };
    let drafts = census.bytes(|w| w.class == Class::Drafts) - locked[1];
    let target = census.bytes(|w| w.class != Class::Drafts) - tables - locked[0];
    let (target, drafts) = r.shared.map_or((target, drafts), |s| (s.target, s.drafts));
    let stored = r.shared.map_or("as stored".into(), |s| format!("a GPU's part of {}", s.gpus));
    let item = |name, bytes, kind, how| PlanItem { name, bytes, kind, how };
    let (weights, cache) = match r.device {
        true => (Kind::Allocated, Kind::Host),
        false => (Kind::Mapped, Kind::Allocated),
    };
    let rest = if locked[0] > 0 { ", without routed experts" } else { "" };
    let mut items = vec![item(
        "weights",
        target,
        weights,
        format!("{} layers, embedding and head, {stored}{rest}", config.num_hidden_layers),
    )];
    let used = if r.drafts { locked[0] + locked[1] } else { locked[0] };
    if used > 0 {
        let how = format!("{} a layer, read by the device over the bus", config.n_routed_experts);
        items.push(item("routed experts", used, Kind::Locked, how));
        let how = "the experts of a step, on the device".to_owned();
        items.push(item("expert places", r.places_bytes.unwrap_or(0), Kind::Allocated, how));
    }
    if let Some(engram) = &config.engram {
        let rows: usize = engram.num_embeddings.iter().sum();
        let how = format!("{rows} rows in {} tables, read by row", engram.layer_ids.len());
        items.push(item("Engram tables", tables, Kind::ByRow, how));
    }
    let ring = |layers: usize| {
        format!("{layers} layers x {window} rows x {} B x {slots} slots", state.window_row)
    };
    if let Some(d) = config.drafts.as_ref().filter(|_| r.drafts) {
        let how = format!("{} draft blocks, {stored}{rest}", d.layers);
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
        return Some(format!(
            "a context of {}, accepted: up to {most}, what the model was made for",
            r.context
        ));
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

/// Bytes of the routed experts, of the target and of the draft blocks.
fn experts(census: &Census) -> [u64; 2] {
    let routed = |w: &Weight| w.name.contains(".ffn.experts.");
    [
        census.bytes(|w| w.class == Class::Experts),
        census.bytes(|w| w.class == Class::Drafts && routed(w)),
    ]
}

/// A device holds all of it or none: nothing is read from the disk in a round. Routed experts may lie on
/// the host, whose memory holds all of those.
fn weigh_on_device(
    config: &Config,
    census: &Census,
    plan: &Plan,
    request: &PlanRequest,
) -> (Verdict, String) {
    let (memory, host) = (request.memory_bytes, request.host_bytes);
    let (allocated, locked) = (plan.bytes(Kind::Allocated), plan.bytes(Kind::Locked));
    let [sum, all, experts, here] = [allocated, memory, locked, host].map(human);
    let device = request
        .shared
        .map_or("the device".into(), |shared| format!("each of {} GPUs", shared.gpus));
    if allocated <= memory && locked > host {
        let text =
            format!("{experts} of routed experts to lock is more than {here} of host memory");
        return (Verdict::Refused, text);
    }
    if allocated <= memory {
        let on_host = if locked > 0 {
            format!(", {experts} to lock of {here} of host memory")
        } else {
            String::new()
        };
        return (Verdict::Fits, format!("{sum} to allocate of {all} free on {device}{on_host}"));
    }
    let large = plan.items.iter().filter(|item| item.kind == Kind::Allocated);
    let parts: Vec<String> =
        large.map(|item| format!("{} {}", item.name, human(item.bytes))).collect();
    let mut text = format!("{} = {sum} is more than {all} free on {device}", parts.join(" + "));
    if !request.experts_on_host && request.places_bytes.is_some() {
        // The same with what `--experts-on host` changes.
        let other = PlanRequest { experts_on_host: true, ..*request };
        let items = items(config, census, &other, plan.blocks);
        let of = |kind| human(items.iter().filter(|i| i.kind == kind).map(|i| i.bytes).sum());
        let (wanted, lock) = (of(Kind::Allocated), of(Kind::Locked));
        text += &format!(
            "; --experts-on host needs {wanted} there and locks {lock} of {here} of host memory"
        );
    }
    (Verdict::Refused, text)
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
mod tests;
