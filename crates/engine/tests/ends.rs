//! How requests and the engine end: cancels, faults, panics, stops. Never a hang, never a neighbour.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use finback_engine::testing::{Call, FakeRunner, NextToken, hashed, serial_reply};
use finback_engine::{
    DraftCount, Engine, Event, FinishReason, Options, Prefill, Refusal, Reply, Request, StartError,
    Timings,
};
use finback_model::{RunnerError, RunnerResult, SlotId};
use finback_ops::OpsError;

const CONTEXT: usize = 64;
const VOCAB: usize = 50;
const HOUR: Duration = Duration::from_secs(3600);

fn fake(slots: usize) -> FakeRunner {
    FakeRunner::new(FakeRunner::small(slots, CONTEXT, VOCAB), hashed(VOCAB))
}

fn start(runner: FakeRunner, parallel: usize) -> Engine {
    Engine::start(Box::new(runner), Options { parallel, draft_tokens: 0, ..Options::default() })
        .unwrap()
}

fn request(first: u32) -> Request {
    Request::greedy(vec![first, 2, 3, 4, 5], 20)
}

fn drain(reply: &mut Reply) -> (Vec<u32>, Event) {
    let mut tokens = Vec::new();
    while let Some(event) = reply.next_blocking() {
        match event {
            Event::Token { id, .. } => tokens.push(id),
            Event::Finished { .. } | Event::Failed { .. } => return (tokens, event),
            _ => {}
        }
    }
    panic!("the reply ended without a last event");
}

fn failure(reply: &mut Reply) -> String {
    match drain(reply).1 {
        Event::Failed { message } => message,
        other => panic!("{other:?} instead of a failure"),
    }
}

/// Holds if the reply is whole and the serial one.
fn check(reply: &mut Reply, request: &Request) {
    let (tokens, last) = drain(reply);
    let (want, reason) = serial_reply(&hashed(VOCAB), CONTEXT, request);
    assert_eq!(tokens, want);
    assert!(matches!(last, Event::Finished { reason: r, .. } if Some(r) == reason), "{last:?}");
}

/// Lets one held call through.
type Permits = SyncSender<()>;
type Count = Arc<AtomicUsize>;

/// A hook that lets one call of a kind through for each permit, and counts those that began.
fn gate(held: Call) -> (Permits, Count, impl FnMut(Call, &[SlotId]) -> RunnerResult<()> + Send) {
    let (permits, gate): (Permits, Receiver<()>) = sync_channel(1000);
    let count = Count::default();
    let counter = Arc::clone(&count);
    let hook = move |call, _: &[SlotId]| {
        if call == held {
            counter.fetch_add(1, SeqCst);
            // Without its permits the gate stands open.
            let _ = gate.recv();
        }
        Ok(())
    };
    (permits, count, hook)
}

fn wait_for(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_dropped_reply_stops_within_a_round_and_frees_its_slot() {
    let (permits, rounds, hook) = gate(Call::Windows);
    let engine = start(fake(1).on_call(hook), 1);
    let handle = engine.handle();
    let mut reply = handle.submit(request(1)).unwrap();
    for _ in 0..3 {
        permits.send(()).unwrap();
    }
    // Started, the first choice, three rounds; the fourth is held at the gate.
    (0..5).for_each(|_| drop(reply.next_blocking()));
    wait_for(|| rounds.load(SeqCst) == 4);
    drop(reply);
    let mut next = handle.submit(request(9)).unwrap();
    permits.send(()).unwrap();
    drop(next.next_blocking());
    wait_for(|| rounds.load(SeqCst) == 5);
    drop(permits);
    check(&mut next, &request(9));
    // Four rounds of the first, and one for each of the 19 tokens after the second's first.
    assert_eq!(rounds.load(SeqCst), 4 + 19);
}

#[test]
fn a_reply_dropped_in_its_prompt_stops_within_a_piece() {
    let (permits, pieces, hook) = gate(Call::Piece);
    let engine = start(fake(1).on_call(hook), 1);
    let handle = engine.handle();
    let mut reply = handle.submit(Request::greedy(vec![1; 40], 5)).unwrap();
    drop(reply.next_blocking());
    wait_for(|| pieces.load(SeqCst) == 1);
    drop(reply);
    drop(permits);
    check(&mut handle.submit(request(2)).unwrap(), &request(2));
    // One piece of the first prompt's ten, two of the second's five rows.
    assert_eq!(pieces.load(SeqCst), 3);
}

#[test]
fn a_reply_dropped_in_the_queue_never_begins() {
    let (permits, begun, hook) = gate(Call::Begin);
    let engine = start(fake(1).on_call(hook), 1);
    let handle = engine.handle();
    let mut first = handle.submit(request(1)).unwrap();
    wait_for(|| begun.load(SeqCst) == 1);
    let second = handle.submit(request(2)).unwrap();
    let mut third = handle.submit(request(3)).unwrap();
    assert_eq!(handle.load().waiting, 3);
    drop(second);
    drop(permits);
    check(&mut first, &request(1));
    check(&mut third, &request(3));
    assert_eq!(begun.load(SeqCst), 2);
}

#[test]
fn a_row_of_nan_fails_its_request_and_no_other() {
    let plain = hashed(VOCAB);
    let next: NextToken = Arc::new(move |history, sampling| {
        if history[0] == 13 && history.len() == 9 { None } else { plain(history, sampling) }
    });
    let runner = FakeRunner::new(FakeRunner::small(2, CONTEXT, VOCAB), next);
    let engine = Engine::start(
        Box::new(runner),
        Options { parallel: 2, draft_tokens: 5, ..Options::default() },
    )
    .unwrap();
    let handle = engine.handle();
    let (mut bad, mut good) =
        (handle.submit(request(13)).unwrap(), handle.submit(request(1)).unwrap());
    let (tokens, last) = drain(&mut bad);
    assert_eq!(tokens, serial_reply(&hashed(VOCAB), CONTEXT, &request(13)).0[..4]);
    let Event::Failed { message } = last else { panic!("{last:?}") };
    assert_eq!(message, "the logits for position 9 hold a NaN or an infinity");
    check(&mut good, &request(1));
}

/// Fails the `at`-th call of a kind.
fn fault(
    kind: Call,
    at: usize,
    error: fn(SlotId) -> RunnerError,
) -> impl FnMut(Call, &[SlotId]) -> RunnerResult<()> + Send {
    let mut seen = 0;
    move |call, slots| {
        seen += usize::from(call == kind);
        if call == kind && seen == at {
            seen += 1;
            return Err(error(*slots.last().unwrap()));
        }
        Ok(())
    }
}

fn broken(_: SlotId) -> RunnerError {
    OpsError::Failed { backend: "fake", step: "attend", reason: "it broke".into() }.into()
}

#[test]
fn a_device_error_fails_its_requests_and_the_engine_goes_on() {
    for call in [Call::Begin, Call::Piece, Call::Finish, Call::Windows, Call::Keep, Call::Draft] {
        let runner = fake(1).on_call(fault(call, 1, broken));
        let options = Options { parallel: 1, draft_tokens: 3, ..Options::default() };
        let engine = Engine::start(Box::new(runner), options).unwrap();
        let handle = engine.handle();
        let message = failure(&mut handle.submit(request(1)).unwrap());
        assert_eq!(message, "the fake backend failed in attend: it broke", "{call:?}");
        check(&mut handle.submit(request(1)).unwrap(), &request(1));
    }
}

#[test]
fn an_error_that_names_a_slot_spares_the_others() {
    let named = |slot| RunnerError::WrongState { slot, found: "odd", wanted: "even" };
    let (permits, begun, mut gate) = gate(Call::Begin);
    let mut fault = fault(Call::Windows, 3, named);
    let hook = move |call, slots: &[SlotId]| gate(call, slots).and_then(|()| fault(call, slots));
    let engine = start(fake(3).on_call(hook), 3);
    let handle = engine.handle();
    let mut replies: Vec<_> = (1..4).map(|id| handle.submit(request(id)).unwrap()).collect();
    wait_for(|| begun.load(SeqCst) == 1 && handle.load().waiting == 3);
    drop(permits);
    let failed: Vec<bool> = (1..4)
        .zip(&mut replies)
        .map(|(id, reply)| {
            let (tokens, last) = drain(reply);
            let whole = tokens == serial_reply(&hashed(VOCAB), CONTEXT, &request(id)).0;
            let failed = matches!(last, Event::Failed { .. });
            assert_ne!(whole, failed);
            failed
        })
        .collect();
    assert_eq!(failed.iter().filter(|&&f| f).count(), 1);
}

#[test]
fn a_request_without_free_blocks_waits_while_another_runs() {
    let full = |_| RunnerError::Blocks { wanted: 2, free: 1, blocks: 4 };
    let (permits, _, mut gate) = gate(Call::Piece);
    let mut blocks = fault(Call::Begin, 2, full);
    let hook = move |call, slots: &[SlotId]| gate(call, slots).and_then(|()| blocks(call, slots));
    let engine = start(fake(2).on_call(hook), 2);
    let handle = engine.handle();
    let mut replies: Vec<_> = (1..4).map(|id| handle.submit(request(id)).unwrap()).collect();
    drop(permits);
    for (id, reply) in (1..4).zip(&mut replies) {
        check(reply, &request(id));
    }
    let engine = start(fake(2).on_call(fault(Call::Begin, 1, full)), 2);
    let message = failure(&mut engine.handle().submit(request(1)).unwrap());
    assert_eq!(message, "2 KV blocks are needed, 1 of 4 are free");
}

#[test]
fn a_panic_costs_the_requests_of_its_call_alone() {
    let calls = [Call::Begin, Call::Piece, Call::Finish, Call::Draft, Call::Windows, Call::Keep];
    for kind in calls {
        let mut seen = 0;
        let hook = move |call, _: &[SlotId]| {
            seen += usize::from(call == kind);
            assert!(call != kind || seen != 1, "a bug in the runner");
            Ok(())
        };
        let options = Options { parallel: 1, draft_tokens: 3, ..Options::default() };
        let engine = Engine::start(Box::new(fake(1).on_call(hook)), options).unwrap();
        let handle = engine.handle();
        let mut first = handle.submit(request(1)).unwrap();
        let mut second = handle.submit(request(2)).unwrap();
        let message = failure(&mut first);
        assert!(message.starts_with("the model's code panicked: "), "{kind:?}: {message}");
        assert!(message.contains("a bug in the runner"), "{message}");
        check(&mut second, &request(2));
        wait_for(|| handle.load() == Default::default());
        assert_eq!(handle.stats().kv_blocks, 0);
    }
}

#[test]
fn a_panic_in_a_round_costs_the_request_at_fault_alone() {
    for kind in [Call::Draft, Call::Windows] {
        let (permits, begun, mut gate) = gate(Call::Begin);
        let mut seen = 0;
        let hook = move |call, slots: &[SlotId]| {
            gate(call, slots)?;
            seen += usize::from(call == kind);
            // From the third on: in company, and again alone.
            assert!(call != kind || seen < 3 || !slots.contains(&1), "a bug in slot 1");
            Ok(())
        };
        let options =
            Options { parallel: 3, draft_tokens: 3, plain_streams: 9, ..Options::default() };
        let engine = Engine::start(Box::new(fake(3).on_call(hook)), options).unwrap();
        let handle = engine.handle();
        let mut replies: Vec<_> = (1..4).map(|id| handle.submit(request(id)).unwrap()).collect();
        wait_for(|| begun.load(SeqCst) == 1 && handle.load().waiting == 3);
        drop(permits);
        let message = failure(&mut replies[1]);
        assert!(message.contains("a bug in slot 1"), "{kind:?}: {message}");
        check(&mut replies[0], &request(1));
        check(&mut replies[2], &request(3));
        wait_for(|| handle.load() == Default::default());
        check(&mut handle.submit(request(9)).unwrap(), &request(9));
    }
}

#[test]
fn a_panic_in_a_prompt_spares_the_replies_that_run() {
    let hook = move |call, slots: &[SlotId]| {
        assert!(call != Call::Piece || slots[0] != 1, "a bug in slot 1");
        Ok(())
    };
    let engine = start(fake(2).on_call(hook), 2);
    let handle = engine.handle();
    let mut good = handle.submit(request(1)).unwrap();
    let mut bad = handle.submit(request(2)).unwrap();
    assert!(failure(&mut bad).contains("a bug in slot 1"));
    check(&mut good, &request(1));
}

#[test]
fn rows_that_could_not_be_kept_fail_every_request_of_the_round() {
    let (permits, begun, mut gate) = gate(Call::Begin);
    let mut fault = fault(Call::Keep, 3, broken);
    let hook = move |call, slots: &[SlotId]| gate(call, slots).and_then(|()| fault(call, slots));
    // Both prompts run before the first round, however long they take.
    let prefill = Prefill { decode_share: 0.0, ..Prefill::default() };
    let options = Options { parallel: 2, draft_tokens: 0, prefill, ..Options::default() };
    let engine = Engine::start(Box::new(fake(2).on_call(hook)), options).unwrap();
    let handle = engine.handle();
    let mut replies: Vec<_> = (1..3).map(|id| handle.submit(request(id)).unwrap()).collect();
    wait_for(|| begun.load(SeqCst) == 1 && handle.load().waiting == 2);
    drop(permits);
    for (id, reply) in (1..).zip(&mut replies) {
        let (tokens, last) = drain(reply);
        let Event::Failed { message } = last else { panic!("{last:?}") };
        assert_eq!(message, "the fake backend failed in attend: it broke");
        let want = serial_reply(&hashed(VOCAB), CONTEXT, &request(id)).0;
        assert!(!tokens.is_empty() && tokens == want[..tokens.len()]);
    }
    check(&mut handle.submit(request(9)).unwrap(), &request(9));
}

#[test]
fn a_panic_while_a_slot_is_freed_ends_the_engine_with_its_reason() {
    let hook = move |call, _: &[SlotId]| {
        assert_ne!(call, Call::Release, "a bug in the runner");
        Ok(())
    };
    let (permits, _, mut gate) = gate(Call::Begin);
    let hook = move |call, slots: &[SlotId]| gate(call, slots).and_then(|()| hook(call, slots));
    let engine = start(fake(1).on_call(hook), 1);
    let handle = engine.handle();
    let mut running = handle.submit(request(1)).unwrap();
    let mut waiting = handle.submit(request(2)).unwrap();
    drop(permits);
    check(&mut running, &request(1));
    let message = failure(&mut waiting);
    assert!(
        message.starts_with("slot 0 could not be freed: the model's code panicked"),
        "{message}"
    );
    assert!(message.contains("a bug in the runner"), "{message}");
    assert!(waiting.next_blocking().is_none());
    wait_for(|| handle.load() == Default::default());
    let Err(Refusal::Stopped { reason }) = handle.submit(request(3)) else { panic!("taken") };
    assert!(reason.starts_with("slot 0 could not be freed: "));
    drop(engine);
}

#[test]
fn a_slot_that_cannot_be_freed_stops_the_engine_with_the_reason() {
    let engine = start(fake(1).on_call(fault(Call::Release, 1, broken)), 1);
    let handle = engine.handle();
    check(&mut handle.submit(request(1)).unwrap(), &request(1));
    wait_for(|| handle.stopped().is_some());
    let reason = "slot 0 could not be freed: the fake backend failed in attend: it broke";
    assert_eq!(handle.stopped(), Some(reason));
}

#[test]
fn a_stop_with_grace_lets_running_replies_finish() {
    let (permits, rounds, hook) = gate(Call::Windows);
    let engine = start(fake(1).on_call(hook), 1);
    let handle = engine.handle();
    let mut running = handle.submit(request(1)).unwrap();
    let mut waiting = handle.submit(request(2)).unwrap();
    wait_for(|| rounds.load(SeqCst) == 1);
    handle.stop(HOUR);
    let refused = handle.submit(request(3)).map(|_| ());
    assert_eq!(refused, Err(Refusal::Stopped { reason: "server is stopping".into() }));
    drop(permits);
    check(&mut running, &request(1));
    assert_eq!(failure(&mut waiting), "server is stopping");
    engine.stop(HOUR);
}

#[test]
fn a_stop_ends_running_replies_after_its_grace_and_a_second_one_sooner() {
    let (permits, rounds, hook) = gate(Call::Windows);
    let engine = start(fake(1).on_call(hook), 1);
    let handle = engine.handle();
    let mut running = handle.submit(request(1)).unwrap();
    wait_for(|| rounds.load(SeqCst) == 1);
    handle.stop(HOUR);
    handle.stop(Duration::ZERO);
    drop(permits);
    assert_eq!(failure(&mut running), "server is stopping");
    assert_eq!(rounds.load(SeqCst), 1);
    drop(engine);
    assert!(handle.submit(request(1)).is_err());
}

#[test]
fn what_can_never_run_is_refused_at_submit() {
    let engine = start(fake(1), 1);
    let submit = |prompt: Vec<u32>, max_tokens| {
        engine.handle().submit(Request::greedy(prompt, max_tokens)).map(|_| ()).unwrap_err()
    };
    assert_eq!(submit(vec![], 1), Refusal::EmptyPrompt);
    assert_eq!(submit(vec![1], 0), Refusal::NoTokens);
    let outside = Refusal::NoSuchToken { id: 50, index: 1, vocab: VOCAB };
    assert_eq!(submit(vec![49, 50], 1), outside);
    assert_eq!(submit(vec![1; 64], 1), Refusal::Context { context: 64, prompt: 64 });
    let rows = Request { prompt_logits: 7, ..request(1) };
    let refused = engine.handle().submit(rows).map(|_| ());
    assert_eq!(refused, Err(Refusal::PromptLogits { found: 7, limit: 6 }));
    for parallel in [0, 2] {
        let options = Options { parallel, draft_tokens: 0, ..Options::default() };
        let Err(error) = Engine::start(Box::new(fake(1)), options) else { panic!("started") };
        assert!(matches!(error, StartError::Parallel { slots: 1, .. }));
    }
}

#[test]
fn the_last_position_of_the_context_is_used() {
    let engine = start(fake(1), 1);
    let long = Request::greedy(vec![1; 63], 10);
    let (tokens, last) = drain(&mut engine.handle().submit(long).unwrap());
    assert_eq!(tokens.len(), 1);
    assert!(matches!(last, Event::Finished { reason: FinishReason::Length, .. }));
}

#[test]
fn logit_rows_come_where_they_are_asked_for() {
    for (prompt_logits, want) in [(0, None), (1, Some(1)), (3, Some(3)), (6, Some(5))] {
        let engine = start(fake(1), 1);
        let asked = Request { logits: prompt_logits == 3, prompt_logits, ..request(1) };
        let mut reply = engine.handle().submit(asked.clone()).unwrap();
        let (mut shown, mut tokens) = (None, Vec::new());
        while let Some(event) = reply.next_blocking() {
            match event {
                Event::PromptLogits { rows } => shown = Some(rows),
                Event::Token { id, logits, .. } => {
                    assert_eq!(logits.is_some(), asked.logits);
                    assert!(logits.is_none_or(|row| row[id as usize] == 1.0));
                    tokens.push(id);
                }
                _ => {}
            }
        }
        assert_eq!(shown.as_ref().map(Vec::len), want);
        // The last of them is the first token's.
        assert!(shown.is_none_or(|rows| rows.last().unwrap()[tokens[0] as usize] == 1.0));
    }
}

#[test]
fn right_drafts_take_fewer_rounds_and_wrong_ones_no_fewer_tokens() {
    let rounds = |right, draft_tokens| {
        let runner = Box::new(fake(1).right_drafts(right));
        let engine =
            Engine::start(runner, Options { parallel: 1, draft_tokens, ..Options::default() })
                .unwrap();
        let (tokens, last) = drain(&mut engine.handle().submit(request(1)).unwrap());
        assert_eq!(tokens, serial_reply(&hashed(VOCAB), CONTEXT, &request(1)).0);
        let Event::Finished { timings, .. } = last else { panic!("{last:?}") };
        assert_eq!(timings.prompt_tokens, 5);
        (timings.rounds, timings.drafted, timings.accepted)
    };
    assert_eq!(rounds(8, 0), (19, 0, 0));
    // 19 tokens after the first: 6, 6, 6, and one that needs no draft.
    assert_eq!(rounds(8, 5), (4, 15, 15));
    assert_eq!(rounds(8, 2), (7, 12, 12));
    let (taken, drafted, accepted) = rounds(0, 5);
    assert_eq!((taken, accepted), (19, 0));
    assert!(drafted > 19);
}

#[test]
fn replies_are_awaited_too() {
    let engine = start(fake(1), 1);
    let mut reply = engine.handle().submit(request(1)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let tokens = runtime.block_on(async {
        let mut tokens = Vec::new();
        while let Some(event) = reply.next().await {
            if let Event::Token { id, .. } = event {
                tokens.push(id);
            }
        }
        tokens
    });
    assert_eq!(tokens, serial_reply(&hashed(VOCAB), CONTEXT, &request(1)).0);
}

#[test]
fn requests_run_in_the_order_they_came() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&order);
    let plain = hashed(VOCAB);
    let next: NextToken = Arc::new(move |history, sampling| {
        log.lock().unwrap().push(history[0]);
        plain(history, sampling)
    });
    let engine = start(FakeRunner::new(FakeRunner::small(1, CONTEXT, VOCAB), next), 1);
    let mut replies: Vec<_> =
        (0..8).map(|id| engine.handle().submit(request(id)).unwrap()).collect();
    replies.iter_mut().for_each(|reply| drop(drain(reply)));
    let mut seen = order.lock().unwrap().clone();
    seen.dedup();
    assert_eq!(seen, (0..8).collect::<Vec<_>>());
}

#[test]
fn a_full_queue_refuses_and_takes_again_once_there_is_room() {
    let (permits, begun, hook) = gate(Call::Begin);
    let options = Options { parallel: 1, queue: 1, ..Options::default() };
    let engine = Engine::start(Box::new(fake(1).on_call(hook)), options).unwrap();
    let handle = engine.handle();
    let mut replies: Vec<_> = (1..3).map(|id| handle.submit(request(id)).unwrap()).collect();
    wait_for(|| begun.load(SeqCst) == 1);
    let refused = handle.submit(request(3)).map(|_| ());
    assert_eq!(refused, Err(Refusal::Full { waiting: 2, limit: 1 }));
    drop(permits);
    for (id, reply) in (1..3).zip(&mut replies) {
        check(reply, &request(id));
    }
    wait_for(|| handle.load() == Default::default());
    check(&mut handle.submit(request(3)).unwrap(), &request(3));
}

/// Timings of a reply to `request` that is the serial one.
fn timings(runner: FakeRunner, options: Options, request: &Request) -> Timings {
    let engine = Engine::start(Box::new(runner), options).unwrap();
    let (tokens, last) = drain(&mut engine.handle().submit(request.clone()).unwrap());
    assert_eq!(tokens, serial_reply(&hashed(VOCAB), CONTEXT, request).0);
    let Event::Finished { timings, .. } = last else { panic!("{last:?}") };
    let stats = engine.handle().stats();
    assert_eq!((stats.prompt_tokens, stats.reply_tokens), (5, 20));
    assert_eq!((stats.rounds, stats.drafts), (timings.rounds as u64, timings.drafts));
    timings
}

#[test]
fn drafts_are_counted_by_their_place() {
    let options = Options { parallel: 1, draft_tokens: 5, ..Options::default() };
    let took = timings(fake(1).right_drafts(8), options, &request(1));
    // 6, 6, 6, and the last token needs no draft.
    let full = DraftCount { offered: 3, accepted: 3 };
    assert_eq!(took.drafts[..5], [full; 5]);
    assert_eq!(took.drafts[5..], [DraftCount::default(); 10]);
    let took = timings(fake(1).right_drafts(0), options, &request(1));
    assert_eq!(took.drafts[0], DraftCount { offered: 18, accepted: 0 });
}

#[test]
fn a_request_rounds_and_many_streams_go_without_drafts() {
    let options = Options { parallel: 1, draft_tokens: 5, ..Options::default() };
    let plain = Request { drafts: false, ..request(1) };
    assert_eq!(timings(fake(1).right_drafts(8), options, &plain).drafted, 0);
    let options = Options { plain_streams: 1, ..options };
    assert_eq!(timings(fake(1).right_drafts(8), options, &request(1)).drafted, 0);
    let options = Options { plain_streams: 2, ..options };
    assert_eq!(timings(fake(1).right_drafts(8), options, &request(1)).drafted, 15);
}

#[test]
fn a_window_ends_where_the_drafter_is_not_sure() {
    // Raw confidences 2, 1, 0, -1, -2: probabilities 0.88, 0.73, 0.5, 0.27, 0.12.
    let most = |draft_confidence| {
        let options = Options { draft_tokens: 5, draft_confidence, ..Options::default() };
        let took = timings(fake(1).right_drafts(8).confidence(2.0), options, &request(1));
        took.drafts.iter().filter(|count| count.offered > 0).count()
    };
    assert_eq!([0.0, 0.2, 0.5, 0.6, 0.9].map(most), [5, 4, 3, 2, 0]);
}

#[test]
fn log_probabilities_are_the_rows_own_whatever_is_added_or_drafted() {
    let ln_total = (49.0 + 1f32.exp()).ln();
    let seen = |draft_tokens: usize, bias: Vec<(u32, f32)>| {
        let options = Options { draft_tokens, ..Options::default() };
        let engine = Engine::start(Box::new(fake(1)), options).unwrap();
        let request = Request { logprobs: Some(2), bias, ..request(1) };
        let mut reply = engine.handle().submit(request).unwrap();
        let mut seen = Vec::new();
        while let Some(event) = reply.next_blocking() {
            if let Event::Token { id, logits, logprobs, .. } = event {
                assert!(logits.is_none());
                seen.push((id, logprobs.unwrap()));
            }
        }
        seen
    };
    let plain = seen(0, vec![]);
    assert_eq!(plain.len(), 20);
    for (id, logprobs) in &plain {
        assert!((logprobs.own - (1.0 - ln_total)).abs() < 1e-5);
        assert_eq!(logprobs.top[0], (*id, logprobs.own));
        assert_eq!(logprobs.top[1].0, u32::from(*id == 0));
    }
    assert_eq!(seen(5, vec![]), plain);
    // Token 7 is forced; its row says it was as unlikely as any other.
    let forced = seen(3, vec![(7, 50.0)]);
    for (id, logprobs) in &forced {
        assert_eq!(*id, 7);
        let likeliest = logprobs.top[0].0 == 7;
        assert!(likeliest || (logprobs.own - -ln_total).abs() < 1e-5);
    }
}
