//! `GET /metrics`: counts and gauges as Prometheus text, in this server's names and, where one means
//! the same, in vLLM's.

use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use finback_engine::Lookups;

use crate::app::App;

/// How requests ended, in the order of [`Outcomes`].
const OUTCOMES: [&str; 7] =
    ["stop", "length", "stop_string", "tool_calls", "failed", "client_gone", "refused"];

/// Requests by how they ended.
#[derive(Debug, Default)]
pub(crate) struct Outcomes([AtomicU64; OUTCOMES.len()]);

impl Outcomes {
    /// Counts a request that ended so; a name that is none counts nowhere.
    pub(crate) fn count(&self, outcome: &str) {
        if let Some(at) = OUTCOMES.iter().position(|name| *name == outcome) {
            self.0[at].fetch_add(1, Relaxed);
        }
    }

    /// How many ended in one of these ways.
    fn of(&self, names: &[&str]) -> u64 {
        let counts = OUTCOMES.iter().zip(&self.0).filter(|(name, _)| names.contains(name));
        counts.map(|(_, count)| count.load(Relaxed)).sum()
    }
}

/// `GET /metrics`
pub(crate) async fn metrics(State(app): State<App>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, text(&app)).into_response()
}

fn text(app: &App) -> String {
    let (load, stats) = (app.engine.load(), app.engine.stats());
    let mut page = Page::new(&app.api.options().model);
    page.family("finback_requests_running", "gauge", "Requests that have a slot", load.running);
    page.again("vllm:num_requests_running", "gauge", load.running);
    page.family("finback_requests_waiting", "gauge", "Requests that wait for a slot", load.waiting);
    page.again("vllm:num_requests_waiting", "gauge", load.waiting);
    page.family("finback_kv_blocks_used", "gauge", "KV blocks held by requests", stats.kv_blocks);
    page.family("finback_kv_blocks", "gauge", "KV blocks there are", stats.kv_blocks_total);
    let share = stats.kv_blocks as f64 / stats.kv_blocks_total.max(1) as f64;
    page.again("vllm:kv_cache_usage_perc", "gauge", share);
    let (kept, free) = (stats.kv_blocks_kept, stats.kv_blocks_free);
    page.family("finback_kv_blocks_kept", "gauge", "KV blocks held by kept prefixes alone", kept);
    page.family("finback_kv_blocks_free", "gauge", "KV blocks nothing holds", free);
    if let Some(bytes) = app.planned {
        let help = "Bytes that the memory plan allocates at most, beside the program's own";
        page.family("finback_planned_bytes", "gauge", help, bytes);
    }
    let entries = stats.cache_entries;
    page.family("finback_prompt_cache_entries", "gauge", "Prefixes kept", entries);
    let (name, bytes) = ("finback_prompt_cache_bytes", stats.cache_bytes);
    page.family(name, "gauge", "Bytes of kept prefixes outside the KV pool", bytes);
    let (name, dropped) = ("finback_prompt_cache_dropped_total", stats.cache_dropped);
    page.family(name, "counter", "Kept prefixes dropped for others or for KV blocks", dropped);
    let (name, Lookups { hits, partial, misses }) = ("finback_prompt_cache_total", stats.prefixes);
    page.head(
        name,
        "counter",
        "Prompts by how much of what they share with kept prefixes they got",
    );
    for (outcome, count) in [("hit", hits), ("partial", partial), ("miss", misses)] {
        page.line(name, &[("outcome", &outcome)], count);
    }
    let (name, cached) = ("finback_cached_tokens_total", stats.cached_tokens);
    page.family(name, "counter", "Prompt tokens that were restored instead of run", cached);
    page.again("vllm:prefix_cache_queries_total", "counter", stats.asked_tokens);
    page.again("vllm:prefix_cache_hits_total", "counter", cached);
    let (name, staged) = ("finback_staged_pieces_total", stats.staged);
    page.head(name, "counter", "Prompt pieces by whether their host reads had begun before them");
    for (outcome, count) in [("hit", staged.hits), ("miss", staged.misses)] {
        page.line(name, &[("outcome", &outcome)], count);
    }
    let (entries, bytes) = (stats.disk_entries, stats.disk_bytes);
    page.family("finback_prompt_disk_entries", "gauge", "Prefixes kept on disk", entries);
    page.family("finback_prompt_disk_bytes", "gauge", "Bytes of their files", bytes);
    let name = "finback_prompt_disk_total";
    page.head(name, "counter", "Prefixes read from the disk, written to it, or not written");
    let (read, written) = (stats.disk_read, stats.disk_written);
    for (outcome, count) in [("read", read), ("written", written), ("failed", stats.disk_failed)] {
        page.line(name, &[("outcome", &outcome)], count);
    }
    let prompt = stats.prompt_tokens;
    page.family("finback_prompt_tokens_total", "counter", "Prompt tokens that were run", prompt);
    page.again("vllm:prompt_tokens_total", "counter", prompt);
    let reply = stats.reply_tokens;
    page.family("finback_reply_tokens_total", "counter", "Reply tokens", reply);
    page.again("vllm:generation_tokens_total", "counter", reply);
    page.family("finback_rounds_total", "counter", "Rounds of windows", stats.rounds);

    let places = || stats.drafts.iter().enumerate().filter(|(_, count)| count.offered > 0);
    let name = "finback_drafts_offered_total";
    page.head(name, "counter", "Drafts that were verified, by their place in a window");
    places().for_each(|(at, count)| page.line(name, &[("position", &at)], count.offered));
    let name = "finback_drafts_accepted_total";
    page.head(name, "counter", "Drafts that were right, by their place in a window");
    places().for_each(|(at, count)| page.line(name, &[("position", &at)], count.accepted));
    let windows = stats.drafted_windows;
    page.again("vllm:spec_decode_num_drafts_total", "counter", windows);
    let offered: u64 = places().map(|(_, count)| count.offered).sum();
    page.again("vllm:spec_decode_num_draft_tokens_total", "counter", offered);
    let accepted: u64 = places().map(|(_, count)| count.accepted).sum();
    page.again("vllm:spec_decode_num_accepted_tokens_total", "counter", accepted);
    let name = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
    page.head(name, "counter", "");
    places().for_each(|(at, count)| page.line(name, &[("position", &at)], count.accepted));

    let name = "finback_requests_total";
    page.head(name, "counter", "Requests by how they ended");
    for outcome in OUTCOMES {
        page.line(name, &[("outcome", &outcome)], app.outcomes.of(&[outcome]));
    }
    let name = "vllm:request_success_total";
    page.head(name, "counter", "");
    for (reason, ends) in [
        ("stop", &["stop", "stop_string", "tool_calls"][..]),
        ("length", &["length"]),
        ("abort", &["client_gone"]),
    ] {
        page.line(name, &[("finished_reason", &reason)], app.outcomes.of(ends));
    }
    page.text
}

/// A page as it grows; every line names the model.
struct Page {
    text: String,
    model: String,
}

// Writing to a string cannot fail, so the results are dropped.
impl Page {
    fn new(model: &str) -> Self {
        let model = model.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        Self { text: String::new(), model }
    }

    /// A family of one value.
    fn family(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.line(name, &[], value);
    }

    /// The family before under another server's name.
    fn again(&mut self, name: &str, kind: &str, value: impl Display) {
        self.family(name, kind, "", value);
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        if !help.is_empty() {
            let _ = writeln!(self.text, "# HELP {name} {help}");
        }
        let _ = writeln!(self.text, "# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        let _ = write!(self.text, "{name}{{model_name=\"{}\"", self.model);
        for (label, value) in labels {
            let _ = write!(self.text, ",{label}=\"{value}\"");
        }
        let _ = writeln!(self.text, "}} {value}");
    }
}
