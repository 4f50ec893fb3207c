//! What rounds carry: drafts, logits, log-probabilities.

use finback_engine::testing::{FakeRunner, hashed, serial_reply};
use finback_engine::{DraftCount, Engine, Event, Options, Request, Timings};

use crate::{CONTEXT, VOCAB, drain, fake, request, start};

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
