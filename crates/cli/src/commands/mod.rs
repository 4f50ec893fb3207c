//! One module per command.

mod bench;
mod chat;
mod contract;
mod doctor;
mod inspect;
mod plan;
mod run;
mod serve;
mod synth;

use std::io::IsTerminal;

use anyhow::Context;
use tracing_subscriber::EnvFilter;

use crate::interrupt::Interrupt;
use crate::settings::table::{LOG_JSON, LOG_LEVEL};
use crate::settings::{Command, Values};

/// Runs `command`.
pub fn dispatch(command: Command, values: &Values) -> anyhow::Result<()> {
    log(command, values);
    match command {
        Command::Serve => runtime()?.block_on(serve::run(values)),
        Command::Run => runtime()?.block_on(run::run(values)),
        Command::Chat => runtime()?.block_on(chat::run(values)),
        Command::Inspect => inspect::run(values),
        Command::Plan => plan::run(values),
        Command::Synth => synth::run(values),
        Command::Doctor => doctor::run(values),
        Command::Contract => contract::run(values),
        Command::BenchConcurrent => interruptible(|| bench::concurrent(values)),
        Command::BenchOpenai => interruptible(|| bench::openai(values)),
        Command::BenchCompare => interruptible(|| bench::compare(values)),
        Command::BenchSoak => interruptible(|| bench::soak(values)),
        Command::BenchCache => interruptible(|| bench::cache(values)),
        Command::BenchFill => interruptible(|| bench::fill(values)),
        Command::BenchCapacity => interruptible(|| bench::capacity(values)),
        Command::BenchRound => interruptible(|| bench::round(values)),
    }
}

/// Runs what has temporary files; a signal that ends the program removes them.
fn interruptible(run: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        Interrupt::listen().await;
        run()
    })
}

/// Stack of a thread that reads requests. What checks the schemas of tools recurses, and built with little
/// optimization it takes more than the usual 2 MiB.
const STACK: usize = 16 << 20;

/// Its threads go on while the main one waits for a line of input.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(STACK)
        .enable_all()
        .build()
        .context("the runtime's threads")
}

fn log(command: Command, values: &Values) {
    let usual = if command == Command::Serve { "info" } else { "warn" };
    let level = values.get(&LOG_LEVEL).unwrap_or_else(|| usual.into());
    let log = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(level))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    if values.get(&LOG_JSON) {
        log.json().init();
    } else {
        log.with_target(false).init();
    }
}
