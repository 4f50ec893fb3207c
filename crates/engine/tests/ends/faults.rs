//! What fails: a row, a call, a slot, the engine.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use finback_engine::testing::{Call, FakeRunner, NextToken, hashed, serial_reply};
use finback_engine::{Engine, Event, Options, Prefill, Refusal};
use finback_model::{RunnerError, RunnerResult, SlotId};
use finback_ops::OpsError;

use crate::{CONTEXT, VOCAB, check, drain, failure, fake, gate, request, start, wait_for};

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
    // The first reply decodes, and is in no hurry, until the second request is there.
    let (permits, rounds, mut gate) = gate(Call::Windows);
    let hook = move |call, slots: &[SlotId]| {
        gate(call, slots)?;
        assert!(call != Call::Piece || slots[0] != 1, "a bug in slot 1");
        Ok(())
    };
    let engine = start(fake(2).on_call(hook), 2);
    let handle = engine.handle();
    let mut good = handle.submit(request(1)).unwrap();
    wait_for(|| rounds.load(SeqCst) == 1);
    let mut bad = handle.submit(request(2)).unwrap();
    drop(permits);
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
