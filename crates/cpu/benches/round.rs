//! Rounds and prompts of a whole synthetic checkpoint of about 1 GB, against this machine's read
//! bandwidth measured in the same run.
//!
//! `cargo bench -p finback-cpu --bench round [-- --threads N] [--isa NAME] [--rows N]`; with
//! `--rows`, rounds of so many rows alone, for a profiler.

mod machine;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use finback_checkpoint::Checkpoint;
use finback_cpu::{CpuOps, CpuOptions};
use finback_model::inspect::{Census, RoundBytes};
use finback_model::synth::{self, SynthOptions, Vocabulary};
use finback_model::{Config, ModelRunner, Runner, Window, spec};
use finback_ops::{Limits, Numerics, Sampling, StepTimes, Timed};
use machine::Machine;

/// Rounds of a measurement, after one that is discarded.
const ROUNDS: usize = 40;
/// Rows of the measured prompt, run as one piece.
const PROMPT: usize = 512;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut machine = Machine::from_args()?;
    let read = machine.read_bandwidth()?;
    println!("read bandwidth        {:6.1} GB/s", read / 1e9);
    let dir = finback_testkit::temp_dir();
    let options = SynthOptions {
        layers: 4,
        hidden: 5120,
        heads: 64,
        head_dim: 512,
        rope_dim: 64,
        q_rank: 1280,
        o_groups: 8,
        o_rank: 1024,
        window: 128,
        index_heads: 32,
        index_dim: 128,
        index_topk: 512,
        experts: 12,
        experts_per_token: 6,
        intermediate: 2304,
        drafts: false,
        ..SynthOptions::default()
    };
    let config = synth::write(dir.path(), &options, &Vocabulary::bare(8192))?;
    let checkpoint = Checkpoint::open(dir.path())?;
    let bytes = RoundBytes::of(&config, &Census::of(&config, &checkpoint)?).total();
    println!(
        "checkpoint            {:6.0} MB, a one-row round reads {:.0} MB of it",
        checkpoint.mapped_bytes() as f64 / 1e6,
        bytes as f64 / 1e6
    );
    let mut bench = Bench::new(&checkpoint, &config, &machine)?;
    let only = machine::option("--rows").map(|n| n.parse()).transpose()?;
    for rows in only.map_or(vec![1, 6, 16], |n| vec![n]) {
        let time = bench.rounds(rows)?;
        println!(
            "{rows:2} rows a round       {:6.1} ms, {:5.1} GB/s of one row's bytes, {:3.0}% of bandwidth",
            time.as_secs_f64() * 1e3,
            bytes as f64 / time.as_secs_f64() / 1e9,
            100.0 * bytes as f64 / time.as_secs_f64() / read
        );
        bench.steps();
    }
    if only.is_some() {
        return Ok(());
    }
    let time = bench.prompt()?;
    println!("prompt of {PROMPT} tokens  {:6.1} tok/s", PROMPT as f64 / time.as_secs_f64());
    bench.steps();
    Ok(())
}

struct Bench {
    runner: ModelRunner,
    times: StepTimes,
    vocab: u32,
}

impl Bench {
    fn new(checkpoint: &Checkpoint, config: &Config, machine: &Machine) -> Result<Self, Failure> {
        let map = (0..config.vocab_size as u32).map(|id| {
            let distinct = config.engram.as_ref().map_or(1, |e| e.compressed_vocab_size as u32);
            id.min(distinct - 1)
        });
        let spec =
            Arc::new(spec::load(checkpoint, config, Some(map.collect()), Numerics::RELEASE)?);
        let logit_rows = ModelRunner::logit_rows(1);
        let limits = Limits { slots: 1, rows: PROMPT, logit_rows, context: 4096, blocks: 16 };
        let options = CpuOptions { threads: machine.threads(), isa: machine.isa() };
        let (ops, times) = Timed::new(CpuOps::new(spec.clone(), limits, options)?);
        let runner = ModelRunner::new(Box::new(ops), spec);
        Ok(Self { runner, times, vocab: config.vocab_size as u32 })
    }

    fn tokens(&self, n: usize) -> Vec<u32> {
        (0..n as u32).map(|i| (i * 2_654_435 + 11) % self.vocab).collect()
    }

    /// The median time of a round of `rows` new tokens after a short prompt.
    fn rounds(&mut self, rows: usize) -> Result<Duration, Failure> {
        let tokens = self.tokens(300 + (ROUNDS + 1) * rows);
        self.start(&tokens[..300])?;
        let mut times = Vec::new();
        for (i, window) in tokens[300..].chunks_exact(rows).enumerate() {
            if i == 1 {
                self.times.take();
            }
            let began = Instant::now();
            let window = Window {
                slot: 0,
                tokens: window,
                sampling: Sampling::GREEDY,
                adjust: &[],
                logits: false,
            };
            self.runner.windows(&[window])?;
            self.runner.keep(0, rows)?;
            times.push(began.elapsed());
        }
        times.remove(0);
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    fn start(&mut self, tokens: &[u32]) -> Result<(), Failure> {
        self.runner.release(0)?;
        self.runner.begin(0, tokens, 2048, 1)?;
        while self.runner.piece(0, PROMPT)? > 0 {}
        self.runner.finish(0, Sampling::GREEDY, &[], false)?;
        Ok(())
    }

    /// The better of two prompts.
    fn prompt(&mut self) -> Result<Duration, Failure> {
        let tokens = self.tokens(PROMPT);
        let mut best = Duration::MAX;
        for _ in 0..2 {
            self.times.take();
            let began = Instant::now();
            self.start(&tokens)?;
            best = best.min(began.elapsed());
        }
        Ok(best)
    }

    /// Where the time of the last measurement went.
    fn steps(&self) {
        let mut by_step: BTreeMap<&str, Duration> = BTreeMap::new();
        for time in self.times.take() {
            *by_step.entry(time.step).or_default() += time.took;
        }
        let all: Duration = by_step.values().sum();
        let mut shares: Vec<_> = by_step.into_iter().collect();
        shares.sort_by_key(|&(_, time)| std::cmp::Reverse(time));
        let shares: Vec<String> = shares
            .iter()
            .map(|(step, time)| (step, 100.0 * time.as_secs_f64() / all.as_secs_f64()))
            .filter(|(_, share)| *share >= 1.0)
            .map(|(step, share)| format!("{step} {share:.0}%"))
            .collect();
        println!("                      {}", shares.join(", "));
    }
}
