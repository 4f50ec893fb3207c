//! Mixed load for minutes: cancels, disconnects, repeated requests that must repeat their replies.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::draw::Draw;
use crate::gauges::gauge;
use crate::judge::Tally;
use crate::{Ask, BenchError, BenchResult, Reply, Say, Step, Target};

/// Of 100 requests, those whose reply is cancelled after some pieces.
const CANCELS: usize = 15;
/// Of 100 requests, those whose connection is closed whatever has come.
const DISCONNECTS: usize = 5;
/// Requests that are repeated; half of them greedy.
const BODIES: usize = 16;
/// Messages of failed replies that are kept.
const ERRORS_KEPT: usize = 5;
/// A server that has drained is seen to have within this time.
const DRAIN: Duration = Duration::from_secs(30);

/// What is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// How long requests are sent.
    pub time: Duration,
    /// Requests that each stream sends at least, however long they take.
    pub least: usize,
    /// Requests at once.
    pub streams: usize,
    /// Tokens of the longest reply.
    pub tokens: usize,
    /// Keys what is drawn.
    pub seed: u64,
}

/// Whether anything still ran once every client had gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drained {
    /// The server says that nothing runs or waits.
    Yes,
    /// It says that something does.
    No(String),
    /// It does not say.
    Unverified(String),
}

/// What happened.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// Replies that were read whole.
    pub whole: usize,
    /// Replies that were cancelled.
    pub cancelled: usize,
    /// Connections that were closed.
    pub disconnected: usize,
    /// Requests that failed.
    pub failed: usize,
    /// The first few messages of them.
    pub errors: Vec<String>,
    /// Every whole reply against the first one to the same request: greedy requests.
    pub greedy: Tally,
    /// The same of sampled requests, whose seed is repeated too.
    pub sampled: Tally,
    /// How the server was left.
    pub drained: Option<Drained>,
    /// KV blocks that requests still held then, where the server counts them.
    pub blocks_left: Option<u64>,
}

/// Sends requests to `target` for a while, then each of them once more, alone, and looks whether it
/// is idle.
pub fn run(target: &Target, options: &Options, say: Say<'_>) -> Report {
    let (start, total) = (Instant::now(), options.time.as_secs());
    let shared = Mutex::new(State::default());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..options.streams)
            .map(|worker| {
                let draw = Draw::new(options.seed.wrapping_mul(1000).wrapping_add(worker as u64));
                let shared = &shared;
                scope.spawn(move || work(target, options, start + options.time, draw, shared))
            })
            .collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            let (done, now) = (start.elapsed().as_secs().min(total), lock(&shared).report.counts());
            say(Step { done, total, now: &now });
            thread::sleep(Duration::from_millis(200));
        }
    });
    let mut state = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Alone and after all that, every request still has its reply.
    let seen: Vec<usize> = state.first.keys().copied().collect();
    for body in seen {
        state.whole(body, target.ask(&request(body, options.tokens)));
    }
    state.report.drained = Some(drained(target));
    state.report.blocks_left = blocks_left(target);
    state.report
}

#[derive(Debug, Default)]
struct State {
    report: Report,
    /// The hash of the first whole reply to each request.
    first: BTreeMap<usize, String>,
}

fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One client: requests one after the other until `end`, and as many as are wanted at least.
fn work(target: &Target, options: &Options, end: Instant, mut draw: Draw, shared: &Mutex<State>) {
    let mut sent = 0;
    while sent < options.least || Instant::now() < end {
        sent += 1;
        let body = draw.below(BODIES);
        let mut ask = request(body, options.tokens);
        if draw.below(2) == 0 {
            ask = ask.undrafted();
        }
        let fate = draw.below(100);
        if fate < CANCELS {
            let result = target.cancel(&ask, 1 + draw.below(options.tokens));
            lock(shared).cancelled(result);
            continue;
        }
        if draw.below(2) == 0 {
            ask = ask.whole();
        }
        if fate < CANCELS + DISCONNECTS {
            target.leave(&ask, Duration::from_millis(1 + draw.below(300) as u64));
            lock(shared).report.disconnected += 1;
        } else {
            let result = target.ask(&ask);
            lock(shared).whole(body, result);
        }
    }
}

/// One of the repeated requests: even ones greedy, of several kinds and lengths.
fn request(body: usize, tokens: usize) -> Ask {
    let temperature = [0.0, 1.0, 0.0, 0.6][body % 4];
    Ask::stream(body / 2, true, tokens, temperature)
}

fn is_greedy(body: usize) -> bool {
    body.is_multiple_of(2)
}

impl State {
    fn cancelled(&mut self, result: BenchResult<()>) {
        match result {
            Ok(()) => self.report.cancelled += 1,
            Err(error) => self.report.fail(&error),
        }
    }

    fn whole(&mut self, body: usize, result: BenchResult<Reply>) {
        let reply = match result {
            Ok(reply) => reply,
            Err(error) => return self.report.fail(&error),
        };
        self.report.whole += 1;
        let tally =
            if is_greedy(body) { &mut self.report.greedy } else { &mut self.report.sampled };
        match (reply.token_sha, self.first.get(&body)) {
            (None, _) => tally.failed += 1,
            (Some(sha), None) => drop(self.first.insert(body, sha)),
            (Some(sha), Some(first)) if sha == *first => tally.equal += 1,
            (Some(_), Some(_)) => tally.unequal += 1,
        }
    }
}

/// Asks until the server says that it is idle, or for too long.
fn drained(target: &Target) -> Drained {
    let end = Instant::now() + DRAIN;
    loop {
        match load(target) {
            None => {
                let reason = "neither /health nor /metrics says how many requests run";
                return Drained::Unverified(reason.into());
            }
            Some((0, 0)) => return Drained::Yes,
            Some((running, waiting)) if Instant::now() >= end => {
                return Drained::No(format!(
                    "{running} run and {waiting} wait {} s after the last client left",
                    DRAIN.as_secs()
                ));
            }
            Some(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// KV blocks that requests hold; asked for again where there are some, as the last may be going.
fn blocks_left(target: &Target) -> Option<u64> {
    let ask = || {
        let blocks = gauge(&target.get("/metrics").ok()?, &["finback_kv_blocks_used"])?;
        Some(blocks as u64)
    };
    let end = Instant::now() + Duration::from_secs(1);
    loop {
        match ask() {
            Some(1..) if Instant::now() < end => thread::sleep(Duration::from_millis(50)),
            left => return left,
        }
    }
}

/// Requests that run and wait, as `/health` or else `/metrics` says.
fn load(target: &Target) -> Option<(u64, u64)> {
    let health = target.get("/health").ok();
    let health = health.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    if let Some(health) = &health
        && let Some(running) = health["running"].as_u64()
    {
        return Some((running, health["waiting"].as_u64().unwrap_or(0)));
    }
    load_in(&target.get("/metrics").ok()?)
}

/// The gauges of several servers for running and waiting requests.
fn load_in(metrics: &str) -> Option<(u64, u64)> {
    let running = gauge(
        metrics,
        &[
            "finback_requests_running",
            "vllm:num_requests_running",
            "sglang:num_running_reqs",
            "llamacpp:requests_processing",
        ],
    )?;
    let waiting = gauge(
        metrics,
        &[
            "finback_requests_waiting",
            "vllm:num_requests_waiting",
            "sglang:num_queue_reqs",
            "llamacpp:requests_deferred",
        ],
    );
    Some((running as u64, waiting.unwrap_or(0.0) as u64))
}

impl Report {
    fn fail(&mut self, error: &BenchError) {
        self.failed += 1;
        let text = error.to_string();
        if self.errors.len() < ERRORS_KEPT && !self.errors.contains(&text) {
            self.errors.push(text);
        }
    }

    /// Whether nothing failed, equal requests had equal replies, and the server is idle and holds no
    /// block of a request that has gone.
    #[must_use]
    pub fn passed(&self) -> bool {
        let unequal = self.sampled.unequal + self.sampled.failed;
        self.failed == 0
            && self.greedy.passed()
            && unequal == 0
            && self.drained == Some(Drained::Yes)
            && self.blocks_left.unwrap_or(0) == 0
    }

    /// One line on what is wrong: failed requests, repeated ones by verdict, how it was left.
    #[must_use]
    pub fn summary(&self) -> String {
        let Tally { equal, unequal, failed } = self.greedy;
        let others = self.sampled.unequal + self.sampled.failed;
        let drained = match &self.drained {
            Some(Drained::Yes) => "drained",
            Some(Drained::No(reason) | Drained::Unverified(reason)) => reason,
            None => "not looked whether it drained",
        };
        format!(
            "{} requests failed; greedy: {equal} equal, {unequal} unequal, {failed} without \
             token_sha; sampled: {others} not equal; {drained}; {}",
            self.failed,
            self.blocks()
        )
    }

    fn blocks(&self) -> String {
        match self.blocks_left {
            Some(blocks) => format!("{blocks} KV blocks still held"),
            None => "KV blocks not verified: /metrics does not count them".to_owned(),
        }
    }

    /// One line: what was sent and what came of it.
    #[must_use]
    pub fn counts(&self) -> String {
        format!(
            "{} whole, {} cancelled, {} disconnected, {} failed",
            self.whole, self.cancelled, self.disconnected, self.failed
        )
    }

    /// The report in lines.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("replies   {}\n", self.counts());
        for (name, tally) in [("greedy", self.greedy), ("sampled", self.sampled)] {
            let Tally { equal, unequal, failed } = tally;
            text.push_str(&format!(
                "{name:<9} {equal} equal to the first of their request, {unequal} unequal, \
                 {failed} without token_sha\n"
            ));
        }
        let drained = match &self.drained {
            Some(Drained::Yes) => "yes: nothing runs or waits",
            Some(Drained::No(reason)) => &format!("no: {reason}"),
            Some(Drained::Unverified(reason)) => &format!("not verified: {reason}"),
            None => "not looked at",
        };
        text.push_str(&format!("drained   {drained}\nleft      {}\n", self.blocks()));
        for error in &self.errors {
            text.push_str(&format!("failed: {error}\n"));
        }
        text
    }

    /// Everything, for scripts.
    #[must_use]
    pub fn to_json(&self, target: &Target) -> Value {
        let drained = match &self.drained {
            Some(Drained::Yes) => json!(true),
            Some(Drained::No(_)) => json!(false),
            Some(Drained::Unverified(_)) | None => json!("unverified"),
        };
        json!({
            "bench": "soak", "server": target.to_json(), "passed": self.passed(),
            "whole": self.whole, "cancelled": self.cancelled, "disconnected": self.disconnected,
            "failed": self.failed, "greedy": self.greedy.to_json(),
            "sampled": self.sampled.to_json(), "drained": drained,
            "kv_blocks_left": self.blocks_left, "errors": self.errors,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_differ_and_half_of_them_are_greedy() {
        let all: Vec<String> = (0..BODIES).map(|body| request(body, 32).body.to_string()).collect();
        for (i, body) in all.iter().enumerate() {
            assert!(!all[..i].contains(body), "{body}");
            assert_eq!(request(i, 32).body["temperature"] == 0.0, is_greedy(i));
        }
    }

    #[test]
    fn load_is_read_from_several_servers_metrics() {
        let vllm = "# HELP vllm:num_requests_running x\nvllm:num_requests_running{a=\"b c\"} 2.0\n\
                    vllm:num_requests_running{a=\"d\"} 1.0\nvllm:num_requests_waiting{a=\"b\"} 4.0\n";
        assert_eq!(load_in(vllm), Some((3, 4)));
        assert_eq!(load_in("llamacpp:requests_processing 0\n"), Some((0, 0)));
        assert_eq!(load_in("finback_requests_waiting 3\n"), None);
    }

    #[test]
    fn passing_needs_equal_greedy_replies_and_a_drained_server() {
        let good = Report {
            greedy: Tally { equal: 2, ..Tally::default() },
            drained: Some(Drained::Yes),
            ..Report::default()
        };
        assert!(good.passed());
        assert!(Report { blocks_left: Some(0), ..good.clone() }.passed());
        let worse: [fn(&mut Report); 7] = [
            |r| r.blocks_left = Some(1),
            |r| r.failed = 1,
            |r| r.greedy.unequal = 1,
            |r| r.greedy.failed = 1,
            |r| r.sampled.unequal = 1,
            |r| r.drained = Some(Drained::Unverified("x".into())),
            |r| r.drained = Some(Drained::No("x".into())),
        ];
        for spoil in worse {
            let mut report = good.clone();
            spoil(&mut report);
            assert!(!report.passed(), "{report:?}");
        }
    }
}
