//! How replies end that nothing fails: dropped, stopped, refused, whole.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use finback_engine::testing::{Call, FakeRunner, NextToken, hashed, serial_reply};
use finback_engine::{Engine, Event, FinishReason, Options, Refusal, Request, StartError};

use crate::{CONTEXT, VOCAB, check, drain, failure, fake, gate, request, start, wait_for};

const HOUR: Duration = Duration::from_secs(3600);

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
    assert_eq!(refused, Err(Refusal::Full { running: 0, waiting: 2, parallel: 1, queue: 1 }));
    drop(permits);
    for (id, reply) in (1..3).zip(&mut replies) {
        check(reply, &request(id));
    }
    wait_for(|| handle.load() == Default::default());
    check(&mut handle.submit(request(3)).unwrap(), &request(3));
}
