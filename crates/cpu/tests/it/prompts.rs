//! Prompts in pieces, stopped, kept and resumed, against whole fresh ones: state, first choice, and the
//! tokens after it, with another stream decoding between.

use std::sync::Arc;

use finback_checkpoint::Checkpoint;
use finback_cpu::simd::Isa;
use finback_cpu::{CpuOps, CpuOptions};
use finback_model::pool::PoolUse;
use finback_model::{
    Choice, Config, ModelRunner, Runner, RunnerError, Snapshot, Start, Window, spec,
};
use finback_ops::{Limits, ModelSpec, Numerics, Sampling};
use finback_testkit::{checkpoint, token_map};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};

const CHUNK: usize = 300;
const CONTEXT: usize = 1024;
/// Greedy tokens after a prompt.
const TOKENS: usize = 8;
/// Longest prompt of a test.
const LONGEST: usize = 640;
/// The slot of the stream that decodes between.
const OTHER: usize = 1;

fn spec() -> Arc<ModelSpec> {
    let dir = checkpoint("full");
    let (ck, config) = (Checkpoint::open(&dir).unwrap(), Config::load(&dir).unwrap());
    Arc::new(spec::load(&ck, &config, Some(token_map("full")), Numerics::RELEASE).unwrap())
}

fn runner(spec: &Arc<ModelSpec>, blocks: usize) -> ModelRunner {
    let logit_rows = ModelRunner::logit_rows(2);
    let limits = Limits { slots: 2, rows: CHUNK, logit_rows, context: CONTEXT, blocks };
    let options = CpuOptions { threads: 1, isa: Isa::detect() };
    ModelRunner::new(Box::new(CpuOps::new(spec.clone(), limits, options).unwrap()), spec.clone())
}

fn ids(seed: u32, count: usize) -> Vec<u32> {
    (0..count as u32).map(|at| (at * 7 + at / 11 + at * at / 37 + seed * 131) % 512).collect()
}

/// What must not depend on how a prompt ran.
#[derive(PartialEq)]
struct Outcome {
    state: Vec<u8>,
    row: Vec<u32>,
    tokens: Vec<Option<u32>>,
    end: Vec<u8>,
}

fn one(r: &mut ModelRunner, slot: usize, token: u32) -> Choice {
    let window =
        Window { slot, tokens: &[token], sampling: Sampling::GREEDY, adjust: &[], logits: false };
    let choice = r.windows(&[window]).unwrap().remove(0).remove(0);
    r.keep(slot, 1).unwrap();
    choice
}

/// From a prompt's last row on.
fn outcome(r: &mut ModelRunner) -> Outcome {
    let state = r.state(0).unwrap();
    let mut choice = r.finish(0, Sampling::GREEDY, &[], true).unwrap();
    let row = choice.logits.take().unwrap().iter().map(|x| x.to_bits()).collect();
    let mut tokens = vec![choice.token];
    for _ in 0..TOKENS {
        tokens.push(one(r, 0, tokens.last().unwrap().unwrap()).token);
    }
    Outcome { state, row, tokens, end: r.state(0).unwrap() }
}

/// Runs a prompt in pieces of what `rows` gives, a row of the other stream between each two.
fn run(r: &mut ModelRunner, prompt: &[u32], start: &Start<'_>, rows: impl Fn(usize) -> usize) {
    r.release(0).unwrap();
    r.release(OTHER).unwrap();
    r.begin(OTHER, &[3], 400, 1).unwrap();
    r.piece(OTHER, 1).unwrap();
    r.finish(OTHER, Sampling::GREEDY, &[], false).unwrap();
    r.start(0, prompt, prompt.len() + TOKENS, start).unwrap();
    for piece in 0.. {
        if r.piece(0, rows(piece)).unwrap() == 0 {
            break;
        }
        if piece < 390 {
            one(r, OTHER, 5 + piece as u32 % 90);
        }
    }
}

fn whole(r: &mut ModelRunner, prompt: &[u32]) -> Outcome {
    r.release(0).unwrap();
    r.begin(0, prompt, prompt.len() + TOKENS, 1).unwrap();
    while r.piece(0, CHUNK).unwrap() > 0 {}
    outcome(r)
}

#[test]
fn pieces_equal_the_whole_prompt_with_another_stream_between() {
    let spec = spec();
    let mut r = runner(&spec, 8);
    for len in [130, 333, LONGEST] {
        let prompt = ids(len as u32, len);
        let wanted = whole(&mut r, &prompt);
        for rows in [1, 7, 64, 100, 300] {
            run(&mut r, &prompt, &Start::default(), |_| rows);
            assert!(outcome(&mut r) == wanted, "{len} tokens in pieces of {rows}");
        }
        let random = |piece: usize| 1 + (piece * 7919 + len) % 97;
        // Stops cut pieces and change nothing else.
        let start = Start { stops: &[40, 41, 128], ..Start::default() };
        run(&mut r, &prompt, &start, random);
        assert!(outcome(&mut r) == wanted, "{len} tokens in random pieces");
    }
}

#[test]
fn a_stop_has_the_state_of_a_prompt_that_ends_there() {
    let spec = spec();
    let mut r = runner(&spec, 8);
    let prompt = ids(1, 400);
    let stops = [60, 129, 256, 390];
    r.start(0, &prompt, 420, &Start { stops: &stops, ..Start::default() }).unwrap();
    for stop in stops {
        let mut left = prompt.len();
        while left > prompt.len() - stop {
            left = r.piece(0, 50).unwrap();
        }
        assert_eq!(left, prompt.len() - stop);
        let found = r.state(0).unwrap();
        r.begin(OTHER, &prompt[..stop], 420, 1).unwrap();
        while r.piece(OTHER, CHUNK).unwrap() > 0 {}
        assert!(r.state(OTHER).unwrap() == found, "{stop}");
        r.release(OTHER).unwrap();
    }
}

#[test]
fn a_state_on_the_way_serves_prompts_of_the_fewest_tokens_it_names() {
    let spec = spec();
    let (mut r, first) = (runner(&spec, 8), ids(1, 400));
    // The end is far, so that it is the layers' reach that counts: window 16, and 15 rows more for
    // each layer from the last kv source up but the top.
    let layers = spec.layers.len() - spec.sources.last().unwrap().layer;
    let reach = 16 + 15 * (layers - 1);
    for (at, stop) in [(100, 390), (100, 100 + reach / 2)] {
        r.start(0, &first, 420, &Start { stops: &[stop], ..Start::default() }).unwrap();
        r.piece(0, at).unwrap();
        let snapshot = r.save(0).unwrap();
        assert_eq!(snapshot.least, stop.min(at + reach));
        r.release(0).unwrap();
        let prompt = [&first[..at], &ids(9, snapshot.least - at)].concat();
        let wanted = whole(&mut r, &prompt);
        r.release(0).unwrap();
        let start = Start { from: Some(snapshot.id), ..Start::default() };
        r.start(0, &prompt, prompt.len() + TOKENS, &start).unwrap();
        while r.piece(0, 50).unwrap() > 0 {}
        assert!(outcome(&mut r) == wanted, "from {at}, on the way to {stop}");
        r.release(0).unwrap();
        r.forget(snapshot.id).unwrap();
    }
}

/// How a second prompt relates to a first of some length.
#[derive(Debug, Clone, Copy)]
enum Second {
    Same,
    OneMore,
    Longer,
    /// Its last tokens are others.
    Edited,
}

/// Runs a first prompt, keeping its state after every piece and after its reply, then a second one from
/// each of the states that serve it; every one equals a fresh run.
fn resumed(spec: &Arc<ModelSpec>, len: usize, stop: usize, second: Second, through_bytes: bool) {
    let mut r = runner(spec, 40);
    let first = ids(len as u32, len);
    let start = Start { stops: &[stop], ..Start::default() };
    r.start(0, &first, len + TOKENS, &start).unwrap();
    let mut kept: Vec<(Snapshot, Vec<u32>)> = Vec::new();
    while r.piece(0, 150).unwrap() > 0 {
        let snapshot = r.save(0).unwrap();
        kept.push((snapshot, first[..snapshot.at].to_vec()));
    }
    let end = r.save(0).unwrap();
    assert!(end.exact && end.at == len && end.least == len);
    kept.push((end, first.clone()));
    let mut token = r.finish(0, Sampling::GREEDY, &[], false).unwrap().token.unwrap();
    let mut said = first.clone();
    for _ in 0..TOKENS {
        said.push(token);
        token = one(&mut r, 0, token).token.unwrap();
    }
    kept.push((r.save(0).unwrap(), said.clone()));
    r.release(0).unwrap();

    let prompt = match second {
        Second::Same => first,
        Second::OneMore => [first, vec![11]].concat(),
        Second::Longer => [said, ids(7, 150)].concat(),
        Second::Edited => [&first[..len.min(stop)], &ids(9, 20)].concat(),
    };
    let wanted = whole(&mut runner(spec, 8), &prompt);
    let (mut used, mut bytes) = (0, Vec::new());
    for (mut snapshot, ids) in kept {
        if through_bytes {
            bytes.clear();
            r.export(snapshot.id, &mut bytes).unwrap();
            r.forget(snapshot.id).unwrap();
            snapshot = r.import(&ids, &bytes).unwrap();
        }
        if !prompt.starts_with(&ids) || !snapshot.serves(prompt.len()) {
            let start = Start { from: Some(snapshot.id), ..Start::default() };
            let refused = r.start(0, &prompt, prompt.len() + TOKENS, &start);
            assert!(matches!(refused, Err(RunnerError::WrongSnapshot { .. })), "{snapshot:?}");
        } else {
            used += 1;
            let start = Start { from: Some(snapshot.id), ..Start::default() };
            r.start(0, &prompt, prompt.len() + TOKENS, &start).unwrap();
            if snapshot.at < prompt.len() {
                while r.piece(0, 77).unwrap() > 0 {}
            }
            let found = outcome(&mut r);
            assert!(found == wanted, "{len} tokens, {second:?}, from {snapshot:?}");
            r.release(0).unwrap();
        }
        r.forget(snapshot.id).unwrap();
    }
    assert!(used > 0, "{len} tokens, {second:?}: nothing to start from");
    assert_eq!(r.pool(), PoolUse { free: 40, used: 0, kept: 0 });
}

#[test]
fn resumed_equals_fresh_around_every_border() {
    let spec = spec();
    // The window, 128, a block, a chunk and two blocks.
    let all = [Second::Same, Second::OneMore, Second::Longer, Second::Edited];
    for border in [16, 128, 256, 300, 512] {
        for (n, len) in (border - 1..=border + 1).enumerate() {
            // Each relation at every border, and each length with one of them at least.
            for second in if n == 1 { &all[..] } else { &all[(border + n) % 4..][..1] } {
                resumed(&spec, len, len - 1 - len / 5, *second, n == 1);
            }
        }
    }
}

#[test]
fn resumed_equals_fresh_anywhere() {
    let spec = spec();
    let second =
        prop::sample::select(vec![Second::Same, Second::OneMore, Second::Longer, Second::Edited]);
    let case = (2..LONGEST, 0.0..1.0f64, second, any::<bool>());
    TestRunner::new(Cases::with_cases(12))
        .run(&case, |(len, stop, second, bytes)| {
            let stop = 1 + ((len - 1) as f64 * stop) as usize;
            resumed(&spec, len, stop.min(len - 1).max(1), second, bytes);
            Ok(())
        })
        .unwrap();
}

#[test]
fn an_engram_reads_rows_that_were_announced_and_others_alike() {
    let spec = spec();
    let mut r = runner(&spec, 8);
    let prompt = ids(4, 300);
    let wanted = whole(&mut r, &prompt);
    let before = r.staged();
    assert_eq!(before.hits, 0);
    r.release(0).unwrap();
    r.begin(0, &prompt, prompt.len() + TOKENS, 1).unwrap();
    r.stage(0, 0, 70).unwrap();
    r.stage(0, 70, 80).unwrap();
    r.piece(0, 70).unwrap();
    r.stage(0, 80, 99).unwrap();
    r.piece(0, 80).unwrap();
    // Not as announced.
    r.piece(0, 50).unwrap();
    r.stage(0, 0, 100).unwrap();
    r.piece(0, 100).unwrap();
    let staged = r.staged();
    assert_eq!((staged.hits, staged.misses - before.misses), (3, 1));
    assert!(outcome(&mut r) == wanted);
    // What was announced for one stream is none of the next one's.
    r.release(0).unwrap();
    r.begin(0, &prompt, 320, 1).unwrap();
    r.piece(0, 50).unwrap();
    r.stage(0, 0, 50).unwrap();
    r.release(0).unwrap();
    let mut other = prompt.clone();
    other[49] = 500;
    let wanted = whole(&mut r, &other);
    r.release(0).unwrap();
    r.begin(0, &other, other.len() + TOKENS, 1).unwrap();
    r.piece(0, 50).unwrap();
    while r.piece(0, 50).unwrap() > 0 {}
    assert!(outcome(&mut r) == wanted);
}

#[test]
fn a_prefix_goes_on_in_its_own_block_and_serves_again() {
    let spec = spec();
    // Two blocks: none is left beside the snapshot's.
    let mut r = runner(&spec, 2);
    let first = ids(1, 300);
    r.begin(0, &first, 500, 1).unwrap();
    while r.piece(0, CHUNK).unwrap() > 0 {}
    let snapshot = r.save(0).unwrap();
    r.release(0).unwrap();
    for seed in [2, 3] {
        let prompt = [first.clone(), ids(seed, 90)].concat();
        let wanted = whole(&mut runner(&spec, 2), &prompt);
        let start = Start { from: Some(snapshot.id), ..Start::default() };
        r.start(0, &prompt, 500, &start).unwrap();
        assert_eq!(r.pool(), PoolUse { free: 0, used: 2, kept: 0 });
        while r.piece(0, 77).unwrap() > 0 {}
        assert!(outcome(&mut r) == wanted, "{seed}");
        r.release(0).unwrap();
    }
    // Where another writes behind its rows, they are copied.
    let mut r = runner(&spec, 4);
    r.begin(0, &first, 500, 1).unwrap();
    while r.piece(0, CHUNK).unwrap() > 0 {}
    let snapshot = r.save(0).unwrap();
    let start = Start { from: Some(snapshot.id), ..Start::default() };
    let prompt = [first, ids(4, 90)].concat();
    r.start(OTHER, &prompt, 500, &start).unwrap();
    assert_eq!(r.pool(), PoolUse { free: 1, used: 3, kept: 0 });
}

#[test]
fn wrong_snapshots_are_refused_and_change_nothing() {
    let spec = spec();
    let mut r = runner(&spec, 8);
    let prompt = ids(1, 300);
    r.begin(0, &prompt, 320, 1).unwrap();
    assert_eq!(
        r.save(0).unwrap_err().to_string(),
        "slot 0 is running its prompt, the call needs it between its rows"
    );
    r.piece(0, 30).unwrap();
    let early = r.save(0).unwrap();
    assert!(early.least > 30 && !early.exact);
    let free = r.pool().free;
    let mut refused = |prompt: &[u32], id, head_rows| {
        let start = Start { head_rows, from: Some(id), stops: &[] };
        r.start(OTHER, prompt, prompt.len(), &start).unwrap_err().to_string()
    };
    assert_eq!(refused(&prompt, 99, 1), "snapshot 99 does not exist");
    assert_eq!(
        refused(&prompt[..40], early.id, 1),
        format!(
            "snapshot 0 holds 30 positions of a prompt that has {} tokens or more, this one has 40",
            early.least
        )
    );
    let mut other = prompt.clone();
    other[7] += 1;
    assert_eq!(
        refused(&other, early.id, 1),
        "snapshot 0 holds 30 positions of other tokens than the prompt begins with"
    );
    assert_eq!(refused(&prompt, early.id, 2), "prompt rows with logits: 2, accepted are 1 to 1");
    assert_eq!(r.pool().free, free);
    assert_eq!(r.forget(99).unwrap_err().to_string(), "snapshot 99 does not exist");
    // Bytes that are cut off, too long, changed in their counts, or of other tokens.
    let mut bytes = Vec::new();
    r.export(early.id, &mut bytes).unwrap();
    let size = bytes.len();
    for cut in (0..200).chain([size / 2, size - 1]) {
        assert!(r.import(&prompt[..30], &bytes[..cut]).is_err(), "{cut}");
    }
    assert!(r.import(&prompt[..30], &[&bytes[..], &[0]].concat()).is_err());
    assert!(r.import(&prompt[..29], &bytes).is_err());
    for at in 0..32 {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        if let Ok(kept) = r.import(&prompt[..30], &changed) {
            // What it says of the prompts it serves is taken as it is; nothing else may pass.
            assert!((8..16).contains(&at), "{at}");
            r.forget(kept.id).unwrap();
        }
    }
    assert_eq!(r.pool().free, free);
    let again = r.import(&prompt[..30], &bytes).unwrap();
    assert_eq!(Snapshot { id: early.id, ..again }, early);
}
