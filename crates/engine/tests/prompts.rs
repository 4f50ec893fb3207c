//! Prompts beside replies: turns by a clock that tests set, blocks that are waited for, kept prefixes.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use finback_engine::testing::{Call, FakeRunner, hashed, serial_reply};
use finback_engine::{
    CacheOptions, Clock, Engine, Event, Options, Order, Parts, Prefill, Prefix, Reply, Request,
    StartError,
};
use finback_model::{RunnerError, RunnerInfo, RunnerResult, SlotId};
use finback_ops::Sampling;
use proptest::prelude::*;

const CONTEXT: usize = 2048;
const VOCAB: usize = 50;

fn info(slots: usize, blocks: usize) -> RunnerInfo {
    RunnerInfo { chunk_rows: 64, blocks, ..FakeRunner::small(slots, CONTEXT, VOCAB) }
}

fn ids(seed: u32, count: usize) -> Vec<u32> {
    (0..count as u32).map(|at| (at * 7 + at / 11 + seed * 13) % VOCAB as u32).collect()
}

/// A reply's tokens and what the cache had of its prompt.
fn drain(reply: &mut Reply) -> (Vec<u32>, Option<Prefix>) {
    let (mut tokens, mut seen) = (Vec::new(), None);
    while let Some(event) = reply.next_blocking() {
        match event {
            Event::Started { prefix, cached_tokens } => {
                assert_eq!(cached_tokens, prefix.as_ref().map_or(0, |prefix| prefix.restored));
                seen = prefix;
            }
            Event::Token { id, .. } => tokens.push(id),
            Event::Finished { .. } => return (tokens, seen),
            Event::Failed { message } => panic!("{message}"),
            _ => {}
        }
    }
    panic!("the reply ended without a last event");
}

fn serial(request: &Request) -> Vec<u32> {
    serial_reply(&hashed(VOCAB), CONTEXT, request).0
}

/// Time that passes as tests say.
#[derive(Debug, Clone, Default)]
struct Set(Arc<AtomicU64>);

impl Clock for Set {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(SeqCst))
    }
}

/// The calls that took time, in order: the slot of a piece, `None` for a round.
type Log = Arc<Mutex<Vec<Option<SlotId>>>>;

/// An engine whose pieces take 100 ms and whose rounds take 10 ms. The first request fails, once the
/// second value says that it has begun and the third one has been dropped.
fn timed(slots: usize, prefill: Prefill) -> (Engine, Log, Receiver<()>, SyncSender<()>) {
    let (clock, log) = (Set::default(), Log::default());
    let (permit, gate): (_, Receiver<()>) = sync_channel(1);
    let (begun, first) = sync_channel(1);
    let (time, calls) = (clock.clone(), Arc::clone(&log));
    let mut held = Some((begun, gate));
    let hook = move |call, at: &[SlotId]| -> RunnerResult<()> {
        let took = match call {
            Call::Begin => {
                let Some((begun, gate)) = held.take() else { return Ok(()) };
                begun.send(()).unwrap();
                let _ = gate.recv();
                return Err(RunnerError::NoDrafts);
            }
            Call::Piece => 100,
            Call::Windows => 10,
            _ => return Ok(()),
        };
        time.0.fetch_add(took, SeqCst);
        calls.lock().unwrap().push((call == Call::Piece).then(|| at[0]));
        Ok(())
    };
    let runner = FakeRunner::new(info(slots, 8 * slots), hashed(VOCAB)).on_call(hook);
    let options = Options { parallel: slots, prefill, ..Options::default() };
    let parts = Parts { clock: Some(Box::new(clock)), ..Parts::default() };
    (Engine::start_with(Box::new(runner), options, parts).unwrap(), log, first, permit)
}

/// Runs requests that are all there when the engine first looks for some; the calls they made.
fn calls(slots: usize, prefill: Prefill, requests: &[Request]) -> Vec<Option<SlotId>> {
    let (engine, log, first, permit) = timed(slots, prefill);
    let handle = engine.handle();
    let _fails = handle.submit(Request::greedy(ids(0, 1), 1)).unwrap();
    first.recv().unwrap();
    let mut replies: Vec<Reply> =
        requests.iter().map(|request| handle.submit(request.clone()).unwrap()).collect();
    drop(permit);
    for (request, reply) in requests.iter().zip(&mut replies) {
        assert_eq!(drain(reply).0, serial(request));
    }
    log.lock().unwrap().clone()
}

/// Waits until the engine is as wanted.
fn wait_for(what: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !what() {
        assert!(Instant::now() < deadline, "waited too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn replies_get_their_share_of_the_time_beside_a_long_prompt() {
    // Ten pieces beside a reply of 500 rounds.
    let requests = [Request::greedy(ids(1, 10), 501), Request::greedy(ids(2, 640), 2)];
    for (decode_share, rounds) in [(0.25, 4), (0.5, 10), (0.9, 90), (0.0, 0)] {
        let prefill = Prefill { decode_share, ..Prefill::default() };
        let calls = calls(2, prefill, &requests);
        let long: Vec<usize> = (0..calls.len()).filter(|&at| calls[at] == Some(1)).collect();
        assert_eq!(long.len(), 10, "{decode_share}");
        for pair in long.windows(2).take(2) {
            assert_eq!(pair[1] - pair[0] - 1, rounds, "{decode_share}");
        }
    }
}

#[test]
fn pieces_are_smaller_while_replies_decode() {
    let requests = [Request::greedy(ids(1, 10), 400), Request::greedy(ids(2, 640), 2)];
    let prefill = Prefill { budget: 16, ..Prefill::default() };
    let count = |calls: Vec<Option<SlotId>>| calls.iter().filter(|at| **at == Some(1)).count();
    assert_eq!(count(calls(2, prefill, &requests)), 640 / 16);
    // Without a reply beside it the chunk counts.
    let alone = [requests[1].clone()];
    let chunk = Prefill { chunk: 40, ..prefill };
    assert_eq!(calls(1, chunk, &alone).iter().flatten().count(), 640 / 40);
}

#[test]
fn the_shortest_prompt_is_next_and_a_long_one_is_not_passed_over_for_ever() {
    let long = Request::greedy(ids(1, 640), 1);
    let short = |n| Request::greedy(ids(n, 64 * 3), 1);
    let requests: Vec<Request> = std::iter::once(long).chain((2..9).map(short)).collect();
    let order = |order| calls(8, Prefill { order, ..Prefill::default() }, &requests);
    let fcfs: Vec<SlotId> = order(Order::Fcfs).into_iter().flatten().collect();
    assert_eq!(fcfs[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
    let srpt: Vec<SlotId> = order(Order::Srpt).into_iter().flatten().collect();
    // Eight pieces of others, then one of each that was passed over as often.
    assert_eq!(srpt[..9], [1, 1, 1, 2, 2, 2, 3, 3, 0]);
}

#[test]
fn a_share_that_leaves_prompts_no_time_is_refused() {
    for found in [1.0, -0.1, f64::NAN] {
        let prefill = Prefill { decode_share: found, ..Prefill::default() };
        let runner = FakeRunner::new(info(1, 8), hashed(VOCAB));
        let refused = Engine::start(Box::new(runner), Options { prefill, ..Options::default() });
        assert!(matches!(refused, Err(StartError::DecodeShare { .. })), "{found}");
    }
}

#[test]
fn the_next_piece_is_announced_at_its_own_size() {
    let runner = FakeRunner::new(info(1, 8), hashed(VOCAB));
    let engine = Engine::start(Box::new(runner), Options::default()).unwrap();
    let request = Request { marks: vec![70, 100], ..Request::greedy(ids(1, 333), 3) };
    drain(&mut engine.handle().submit(request).unwrap());
    let staged = engine.handle().stats().staged;
    assert_eq!((staged.hits, staged.misses), (6, 0));
}

fn cached(slots: usize, blocks: usize, every: usize) -> Engine {
    let runner = FakeRunner::new(info(slots, blocks), hashed(VOCAB));
    let cache = CacheOptions { bytes: 1 << 20, every };
    let options = Options { parallel: slots, draft_tokens: 5, cache, ..Options::default() };
    Engine::start(Box::new(runner), options).unwrap()
}

fn ask(engine: &Engine, request: &Request) -> Prefix {
    let (tokens, prefix) = drain(&mut engine.handle().submit(request.clone()).unwrap());
    assert_eq!(tokens, serial(request));
    prefix.unwrap()
}

#[test]
fn a_prompt_begins_where_it_differs_from_what_was_kept() {
    let engine = cached(1, 8, usize::MAX);
    let first = Request { marks: vec![150, 298], ..Request::greedy(ids(1, 300), 20) };
    assert_eq!(ask(&engine, &first), Prefix::default());
    // The same again: nothing is left to run.
    assert_eq!(
        ask(&engine, &first),
        Prefix { restored: 300, matched: 300, kept: vec![150, 298, 300] }
    );
    // The reply and a new turn behind it: what the reply did not run is its last token.
    let turn: Vec<u32> = [first.prompt.clone(), serial(&first), ids(9, 30)].concat();
    let prefix = ask(&engine, &Request::greedy(turn, 5));
    assert_eq!((prefix.restored, prefix.matched), (319, 319));
    assert_eq!(prefix.kept, [150, 298, 300, 319]);
    // Another last message.
    let mut edited = first.prompt.clone();
    edited[200] += 1;
    let prefix = ask(&engine, &Request::greedy(edited, 5));
    assert_eq!(prefix, Prefix { restored: 150, matched: 200, kept: vec![150] });
    // Another reply's beginning.
    let mut other = first.prompt[..299].to_vec();
    other[298] += 1;
    other.push(7);
    assert_eq!(ask(&engine, &Request::greedy(other, 5)).restored, 298);
    let stats = engine.handle().stats();
    assert_eq!((stats.prefixes.hits, stats.prefixes.partial, stats.prefixes.misses), (3, 1, 1));
    assert_eq!(stats.cached_tokens, 300 + 319 + 150 + 298);
    assert_eq!(stats.kv_blocks, 0);
    assert_eq!(stats.kv_blocks_kept + stats.kv_blocks_free, stats.kv_blocks_total);
    // One that wants no cache neither uses nor makes any.
    let entries = stats.cache_entries;
    let alone = Request { cache: false, ..first };
    let (tokens, prefix) = drain(&mut engine.handle().submit(alone.clone()).unwrap());
    assert_eq!((tokens, prefix), (serial(&alone), None));
    assert_eq!(engine.handle().stats().cache_entries, entries);
}

#[test]
fn a_long_prompt_is_kept_on_its_way_and_a_broken_one_as_far_as_it_ran() {
    let engine = cached(1, 8, 256);
    ask(&engine, &Request::greedy(ids(1, 700), 1));
    let mut edited = ids(1, 700);
    edited[600] += 1;
    let prefix = ask(&engine, &Request::greedy(edited, 1));
    assert_eq!((prefix.restored, prefix.matched), (512, 600));
    // Dropped in its third piece; what has run by then is there for the next try.
    let (pieces, gate): (SyncSender<()>, Receiver<()>) = sync_channel(100);
    let (held, third): (SyncSender<()>, Receiver<()>) = sync_channel(100);
    let mut seen = 0;
    let hook = move |call, _: &[SlotId]| {
        seen += usize::from(call == Call::Piece);
        if call == Call::Piece && seen == 3 {
            held.send(()).unwrap();
            let _ = gate.recv();
        }
        Ok(())
    };
    let runner = FakeRunner::new(info(1, 8), hashed(VOCAB)).on_call(hook);
    let cache = CacheOptions { bytes: 1 << 20, every: usize::MAX };
    let options = Options { cache, ..Options::default() };
    let engine = Engine::start(Box::new(runner), options).unwrap();
    let request = Request::greedy(ids(3, 500), 4);
    let reply = engine.handle().submit(request.clone()).unwrap();
    third.recv().unwrap();
    drop(reply);
    drop(pieces);
    assert_eq!(ask(&engine, &request).restored, 192);
}

#[test]
fn kept_prefixes_give_way_to_requests_and_what_waits_waits_its_turn() {
    // Four blocks: two kept prompts of two blocks each, then one that needs three.
    let engine = cached(2, 4, usize::MAX);
    ask(&engine, &Request::greedy(ids(1, 500), 1));
    ask(&engine, &Request::greedy(ids(2, 500), 1));
    assert_eq!(engine.handle().stats().kv_blocks_kept, 4);
    ask(&engine, &Request::greedy(ids(3, 600), 100));
    assert!(engine.handle().stats().cache_dropped > 0);
    // Two that do not fit together, and a small one behind them.
    let requests: Vec<Request> = [(4, 700), (5, 700), (6, 20)]
        .map(|(seed, tokens)| Request::greedy(ids(seed, tokens), 60))
        .into();
    let handle = engine.handle();
    let mut replies: Vec<Reply> =
        requests.iter().map(|request| handle.submit(request.clone()).unwrap()).collect();
    for (request, reply) in requests.iter().zip(&mut replies) {
        assert_eq!(drain(reply).0, serial(request));
    }
    wait_for(|| handle.stats().kv_blocks == 0);
    let stats = handle.stats();
    assert_eq!(stats.kv_blocks_kept + stats.kv_blocks_free, 4);
}

#[test]
fn a_conversation_that_fills_the_pool_goes_on_where_it_was() {
    let engine = cached(1, 4, usize::MAX);
    let first = Request::greedy(ids(1, 500), 400);
    assert_eq!(ask(&engine, &first), Prefix::default());
    let turn = [first.prompt.clone(), serial(&first), ids(9, 30)].concat();
    let prefix = ask(&engine, &Request::greedy(turn, 60));
    assert_eq!(prefix, Prefix { restored: 899, matched: 899, kept: vec![500, 899] });
    // Rows of later prefixes lie in the block that its prefix ends in; those have to go.
    let edited = [first.prompt, ids(8, 30)].concat();
    assert_eq!(ask(&engine, &Request::greedy(edited, 400)).restored, 500);
    // A shorter prefix in the same block makes way too.
    let other = Request::greedy([ids(1, 500), ids(7, 3)].concat(), 500);
    let engine = cached(1, 4, usize::MAX);
    ask(&engine, &Request { marks: vec![300], ..Request::greedy(ids(1, 500), 1) });
    let prefix = ask(&engine, &other);
    assert_eq!((prefix.restored, prefix.matched), (500, 500));
}

#[test]
fn a_request_that_waits_for_blocks_shares_those_of_a_prompt_that_is_kept_meanwhile() {
    // Six blocks: the first takes five, four of which the second shares once they are kept.
    let (permits, gate): (SyncSender<()>, Receiver<()>) = sync_channel(1000);
    let (unsubmitted, submitted): (SyncSender<()>, Receiver<()>) = sync_channel(1);
    let begun = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&begun);
    let hook = move |call, _: &[SlotId]| {
        match call {
            Call::Begin => {
                let _ = submitted.recv();
                count.fetch_add(1, SeqCst);
            }
            Call::Windows => drop(gate.recv()),
            _ => {}
        }
        Ok(())
    };
    let runner = FakeRunner::new(info(2, 6), hashed(VOCAB)).on_call(hook);
    let cache = CacheOptions { bytes: 1 << 20, every: usize::MAX };
    let options = Options { parallel: 2, cache, ..Options::default() };
    let engine = Engine::start(Box::new(runner), options).unwrap();
    // Dropped before the engine, which else waits at a gate where this test fails.
    let (permits, unsubmitted) = (permits, unsubmitted);
    let first = Request::greedy(ids(1, 1030), 200);
    let second = Request::greedy([ids(1, 1030), ids(2, 20)].concat(), 30);
    let mut replies: Vec<Reply> =
        [&first, &second].map(|request| engine.handle().submit(request.clone()).unwrap()).into();
    // Both wait before a round of the first runs, which would hold the engine at its gate.
    drop(unsubmitted);
    // No round of the first reply has run: nothing ends, and yet the second begins.
    wait_for(|| engine.handle().load().running == 2);
    let started = replies[1].next_blocking();
    let Some(Event::Started { cached_tokens, .. }) = started else { panic!("{started:?}") };
    assert_eq!(cached_tokens, 1030);
    // Once each, and once more for what was kept.
    assert_eq!(begun.load(SeqCst), 3);
    drop(permits);
    for (request, reply) in [first, second].iter().zip(&mut replies) {
        assert_eq!(drain(reply).0, serial(request));
    }
}

/// A prompt that grows from another one's beginning, or a new one.
fn request() -> impl Strategy<Value = Request> {
    let marks = prop::collection::btree_set(1..600usize, 0..3);
    let sampled = (any::<bool>(), 0..2u64);
    (0..3u32, 0..600usize, 1..300usize, 1..40usize, marks, sampled).prop_map(
        |(seed, shared, own, max_tokens, marks, (greedy, key))| Request {
            marks: marks.into_iter().collect(),
            sampling: match greedy {
                true => Sampling::GREEDY,
                false => Sampling { temperature: 1.0, seed: key, ..Sampling::GREEDY },
            },
            end_tokens: vec![7],
            ..Request::greedy([ids(seed, shared), ids(9, own)].concat(), max_tokens)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_reply_is_the_serial_one_whatever_is_kept(
        requests in prop::collection::vec((request(), any::<bool>()), 1..24),
        slots in 1..4usize,
        blocks in 5..16usize,
        every in prop_oneof![Just(256usize), Just(64)],
        entries in 1..12usize,
    ) {
        let runner = FakeRunner::new(info(slots, blocks), hashed(VOCAB));
        let cache = CacheOptions { bytes: entries * 2000, every };
        let options = Options { parallel: slots, draft_tokens: 5, cache, ..Options::default() };
        let engine = Engine::start(Box::new(runner), options).unwrap();
        let handle = engine.handle();
        std::thread::scope(|scope| {
            let mut clients = Vec::new();
            for (request, leaves) in &requests {
                let mut reply = handle.submit(request.clone()).unwrap();
                clients.push(scope.spawn(move || match leaves {
                    true => {
                        (0..4).for_each(|_| drop(reply.next_blocking()));
                        None
                    }
                    false => Some(drain(&mut reply).0),
                }));
            }
            for ((request, _), client) in requests.iter().zip(clients) {
                if let Some(tokens) = client.join().unwrap() {
                    prop_assert_eq!(tokens, serial(request));
                }
            }
            Ok(())
        })?;
        engine.stop(Duration::from_secs(60));
        let stats = handle.stats();
        prop_assert_eq!(stats.kv_blocks, 0);
        prop_assert_eq!(stats.kv_blocks_kept + stats.kv_blocks_free, blocks);
        prop_assert!(stats.cache_bytes <= entries * 2000);
    }
}
