//! Several streams at once: their rates, and whether each reply is the one it would be alone.

mod report;
mod seen;

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::judge::{Tally, judge};
use crate::stats::{largest, mean, median};
use crate::{Ask, BenchResult, Reply, Say, Step, Target};
use seen::Seen;

/// Messages of failed replies that a cell keeps.
const ERRORS_KEPT: usize = 3;

/// What is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Streams at once, one cell a level.
    pub levels: Vec<usize>,
    /// Tokens of a reply.
    pub tokens: usize,
    /// Repetitions of each cell.
    pub reps: usize,
    /// Temperatures, one cell each.
    pub temperatures: Vec<f64>,
    /// Whether each reply is compared with the same request alone.
    pub alone: bool,
    /// Whether each reply is compared with the same request alone and undrafted.
    pub serial: bool,
    /// Whether the streams are of several kinds and lengths.
    pub mixed: bool,
    /// Time between the starts of two streams.
    pub stagger: Duration,
}

/// Figures of one level at one temperature.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Streams at once.
    pub streams: usize,
    /// Of every request.
    pub temperature: f64,
    /// Replies that were not whole.
    pub failed: usize,
    /// Whole replies in too few pieces for a rate, or without a token count.
    pub unmeasured: usize,
    /// Tokens a second of all streams, from the first start to the last piece; median of the
    /// repetitions.
    pub aggregate_tps: Option<f64>,
    /// Tokens a second of one stream after its first token; median.
    pub per_stream_tps: Option<f64>,
    /// Tokens a second of all streams while all of them decode; median of the repetitions.
    pub steady_tps: Option<f64>,
    /// The longest time to a first piece.
    pub ttft_s_max: Option<f64>,
    /// Tokens a model round; mean of the replies that say it.
    pub tokens_per_round: Option<f64>,
    /// Against the same request alone, where asked for.
    pub alone: Option<Tally>,
    /// Against the same request alone and undrafted, where asked for.
    pub serial: Option<Tally>,
    /// The first few messages of failed replies.
    pub errors: Vec<String>,
}

/// What was measured, and what could not be verified.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// In the order of levels, then of temperatures.
    pub cells: Vec<Cell>,
    /// What this server does not let one verify, a sentence each.
    pub unverified: Vec<String>,
}

/// Measures `target`.
pub fn run(target: &Target, options: &Options, say: Say<'_>) -> Report {
    let most = options.levels.iter().copied().max().unwrap_or(0);
    let kinds = usize::from(options.alone) + usize::from(options.serial);
    let cells = options.levels.len() * options.reps;
    let total = (options.temperatures.len() * (most * kinds + cells)) as u64;
    let mut done = 0;
    let mut step = |now: &str| {
        say(Step { done, total, now });
        done += 1;
    };
    let mut seen = Seen::default();
    let mut measured = Vec::new();
    for &temperature in &options.temperatures {
        let asks: Vec<Ask> =
            (0..most).map(|i| Ask::stream(i, options.mixed, options.tokens, temperature)).collect();
        let mut references = |wanted: bool, name: &str, ask: fn(&Ask) -> Ask| {
            wanted.then(|| -> Vec<BenchResult<Reply>> {
                let one = |(i, of): (usize, &Ask)| {
                    step(&format!("{name}, temperature {temperature}, request {i}"));
                    target.ask(&ask(of))
                };
                asks.iter().enumerate().map(one).collect()
            })
        };
        let alone = references(options.alone, "alone", Ask::clone);
        let serial = references(options.serial, "undrafted", |ask| ask.clone().undrafted());
        seen.references(alone.as_deref(), serial.as_deref());
        let alone = alone.map(|replies| replies.iter().map(hash).collect());
        let serial = serial.map(|replies| replies.iter().map(undrafted_hash).collect());
        for (at, &streams) in options.levels.iter().enumerate() {
            let mut runs = Vec::new();
            for rep in 0..options.reps {
                step(&format!("{streams} streams, temperature {temperature}, run {}", rep + 1));
                runs.push(together(target, &asks[..streams], options.stagger));
            }
            seen.replies(&runs);
            measured.push((at, cell(streams, temperature, &runs, &alone, &serial)));
        }
    }
    measured.sort_by_key(|(level, _)| *level);
    let cells = measured.into_iter().map(|(_, cell)| cell).collect();
    Report { cells, unverified: seen.unverified(options) }
}

/// One run of several streams: each stream's reply.
struct Run {
    replies: Vec<BenchResult<Reply>>,
}

/// Starts all of `asks` at a barrier, each `stagger` after the one before.
fn together(target: &Target, asks: &[Ask], stagger: Duration) -> Run {
    let barrier = Barrier::new(asks.len());
    thread::scope(|scope| {
        let streams: Vec<_> = (0u32..)
            .zip(asks)
            .map(|(i, ask)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    thread::sleep(stagger * i);
                    target.ask(ask)
                })
            })
            .collect();
        let join = |stream: thread::ScopedJoinHandle<'_, _>| match stream.join() {
            Ok(reply) => reply,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Run { replies: streams.into_iter().map(join).collect() }
    })
}

fn cell(
    streams: usize,
    temperature: f64,
    runs: &[Run],
    alone: &Option<Vec<Option<String>>>,
    serial: &Option<Vec<Option<String>>>,
) -> Cell {
    let whole = || runs.iter().flat_map(|run| run.replies.iter().flatten());
    let rates: Vec<f64> = whole().filter_map(Reply::decode_rate).collect();
    let rounds: Vec<f64> = whole().filter_map(Reply::tokens_per_round).collect();
    let of_runs =
        |rate: fn(&Run) -> Option<f64>| median(&runs.iter().filter_map(rate).collect::<Vec<f64>>());
    let mut errors: Vec<String> = Vec::new();
    for error in runs.iter().flat_map(|run| &run.replies).filter_map(|reply| reply.as_ref().err()) {
        let text = error.to_string();
        if errors.len() < ERRORS_KEPT && !errors.contains(&text) {
            errors.push(text);
        }
    }
    let whole_count = whole().count();
    Cell {
        streams,
        temperature,
        failed: streams * runs.len() - whole_count,
        unmeasured: whole_count - rates.len(),
        aggregate_tps: of_runs(aggregate),
        per_stream_tps: median(&rates),
        steady_tps: of_runs(steady),
        ttft_s_max: largest(whole().filter_map(|r| Some(r.first_piece()?.as_secs_f64()))),
        tokens_per_round: mean(&rounds),
        alone: alone.as_ref().map(|hashes| compare(runs, hashes)),
        serial: serial.as_ref().map(|hashes| compare(runs, hashes)),
        errors,
    }
}

/// Every reply against the reference of its stream.
fn compare(runs: &[Run], references: &[Option<String>]) -> Tally {
    let mut tally = Tally::default();
    for (reply, reference) in runs.iter().flat_map(|run| run.replies.iter().zip(references)) {
        tally.add(judge(hash(reply).as_deref(), reference.as_deref()));
    }
    tally
}

fn hash(reply: &BenchResult<Reply>) -> Option<String> {
    reply.as_ref().ok()?.token_sha.clone()
}

/// The hash of a reply that says it was not drafted.
fn undrafted_hash(reply: &BenchResult<Reply>) -> Option<String> {
    reply.as_ref().ok().filter(|reply| reply.drafts_offered == Some(0))?.token_sha.clone()
}

/// Tokens of all streams over the time from the first start to the last piece; all must be whole.
fn aggregate(run: &Run) -> Option<f64> {
    let whole: Vec<&Reply> = run.replies.iter().map(|r| r.as_ref().ok()).collect::<Option<_>>()?;
    let ends = whole.iter().map(|r| r.pieces.last().copied()).collect::<Option<Vec<_>>>()?;
    // By the streams' own clocks: another thread may look at its own long after they began.
    let (start, end) = (whole.iter().map(|reply| reply.sent).min()?, *ends.iter().max()?);
    let tokens = whole.iter().map(|reply| reply.tokens).sum::<Option<u64>>()?;
    let seconds = end.duration_since(start).as_secs_f64();
    (seconds > 0.0).then(|| tokens as f64 / seconds)
}

/// Tokens of all streams while all of them decode, over that time.
fn steady(run: &Run) -> Option<f64> {
    let whole: Vec<&Reply> = run.replies.iter().map(|r| r.as_ref().ok()).collect::<Option<_>>()?;
    let from = whole.iter().map(|r| r.pieces.first().copied()).collect::<Option<Vec<_>>>()?;
    let to = whole.iter().map(|r| r.pieces.last().copied()).collect::<Option<Vec<_>>>()?;
    let (from, to) = (*from.iter().max()?, *to.iter().min()?);
    let seconds = to.checked_duration_since(from)?.as_secs_f64();
    let tokens: f64 = whole.iter().map(|r| r.tokens_between(from, to)).sum::<Option<f64>>()?;
    (seconds > 0.0).then(|| tokens / seconds)
}
