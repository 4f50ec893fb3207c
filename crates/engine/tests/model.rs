//! Replies of a real model equal those it gives alone and undrafted, whatever runs beside them.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use finback_checkpoint::Checkpoint;
use finback_cpu::simd::Isa;
use finback_cpu::{CpuOps, CpuOptions};
use finback_engine::{CacheOptions, Engine, Event, Options, Reply, Request, Timings};
use finback_model::{Config, ModelRunner, spec};
use finback_ops::{Limits, Numerics, Sampling};
use finback_testkit::{cases, checkpoint, token_map};

fn engine(slots: usize, draft_tokens: usize, cache: CacheOptions) -> Engine {
    let dir = checkpoint("full");
    let ck = Checkpoint::open(&dir).unwrap();
    let config = Config::load(&dir).unwrap();
    let spec = spec::load(&ck, &config, Some(token_map("full")), Numerics::RELEASE).unwrap();
    let spec = Arc::new(spec);
    let logit_rows = ModelRunner::logit_rows(slots);
    // Few blocks: now and then a request waits for another's.
    let limits = Limits { slots, rows: 64, logit_rows, context: 512, blocks: slots.max(2) };
    let options = CpuOptions { threads: 1, isa: Isa::detect() };
    let ops = CpuOps::new(spec.clone(), limits, options).unwrap();
    let runner = ModelRunner::new(Box::new(ops), spec);
    let options = Options { parallel: slots, draft_tokens, cache, ..Options::default() };
    Engine::start(Box::new(runner), options).unwrap()
}

/// Prompts of 1 to 300 tokens, greedy and sampled with every filter.
fn requests() -> Vec<Request> {
    let samplings = [
        Sampling::GREEDY,
        Sampling { temperature: 0.7, seed: 5, ..Sampling::GREEDY },
        Sampling { temperature: 1.0, top_k: 40, top_p: 0.9, min_p: 0.02, seed: 6 },
    ];
    let full = cases().into_iter().filter(|case| case.checkpoint == "full");
    let request = |(i, prompt): (usize, Vec<u32>)| Request {
        sampling: samplings[i % samplings.len()],
        end_tokens: vec![1, 77],
        marks: vec![prompt.len() / 3, prompt.len() - 1],
        ..Request::greedy(prompt, 12 + 9 * i)
    };
    full.map(|case| case.prompt).enumerate().map(request).collect()
}

fn drain(reply: &mut Reply) -> (Vec<u32>, Timings) {
    let mut tokens = Vec::new();
    while let Some(event) = reply.next_blocking() {
        match event {
            Event::Token { id, .. } => tokens.push(id),
            Event::Finished { timings, .. } => return (tokens, timings),
            Event::Failed { message } => panic!("{message}"),
            _ => {}
        }
    }
    panic!("the reply ended without a last event");
}

#[test]
fn replies_are_the_same_in_company_drafted_and_after_cancels() {
    let requests = requests();
    let (none, kept) = (CacheOptions::default(), CacheOptions { bytes: 1 << 22, every: 64 });
    let alone: Vec<Vec<u32>> = requests
        .iter()
        .map(|request| drain(&mut engine(1, 0, none).handle().submit(request.clone()).unwrap()).0)
        .collect();
    assert!(alone.iter().all(|tokens| tokens.len() > 5));
    for (slots, draft_tokens, cache) in
        [(1, 5, none), (3, 0, none), (3, 5, none), (4, 2, kept), (2, 5, kept)]
    {
        let engine = engine(slots, draft_tokens, cache);
        let handle = engine.handle();
        let mut drafted = 0;
        for _ in 0..2 {
            let submit = |request: &Request| handle.submit(request.clone()).unwrap();
            let mut replies: Vec<Reply> = requests.iter().map(submit).collect();
            // One is cancelled after its third event, wherever it is then.
            let mut cancelled = submit(&requests[3]);
            (0..3).for_each(|_| drop(cancelled.next_blocking()));
            drop(cancelled);
            for (reply, want) in replies.iter_mut().zip(&alone) {
                let (tokens, timings) = drain(reply);
                assert_eq!(&tokens, want, "{slots} slots, {draft_tokens} drafts, {cache:?}");
                drafted += timings.drafted;
            }
        }
        assert_eq!(drafted > 0, draft_tokens > 0);
        // What is left of kept prefixes by then depends on who ran beside whom; this does not.
        for _ in 0..2 {
            assert_eq!(drain(&mut handle.submit(requests[0].clone()).unwrap()).0, alone[0]);
        }
        let stats = handle.stats();
        assert_eq!(stats.cached_tokens > 0, cache == kept);
        assert_eq!(stats.staged.misses, 0, "{slots} slots");
    }
}
