//! What a long prompt beside a short reply is found to cost, and what passes.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use finback_bench::Target;
use finback_bench::cache::State;
use finback_bench::fill::{Arm, Options, Report, json_of, run, text_of};
use serde_json::{Value, json};

use crate::fake::{Answer, events, own, said, serve, sha, slowly, usual};

const LONG: Duration = Duration::from_millis(200);
const EACH: Duration = Duration::from_millis(15);

fn measure(target: &Target) -> Report {
    run(target, &Options { long: 1000, reply: 8 }, &mut |_| ()).unwrap()
}

fn usage(body: &Value) -> Value {
    let tokens = said(body).len() / 4;
    json!({"prompt_tokens": tokens, "prompt_tokens_details": {"cached_tokens": 0}})
}

fn is_long(body: &Value) -> bool {
    said(body).len() > 2000
}

/// The requests that meet, by their place among all: two that count tokens and two alone come before.
const REPLY_FIRST: usize = 4;
const LONG_FIRST: std::ops::Range<usize> = 6..8;

/// A server whose long prompts take a while. Requests that are to meet do, however slow the machine: each
/// waits for the other. `hash` is told whether a request is one of those of the last arm.
fn slow(hash: impl Fn(&Value, bool) -> Value + Send + Sync + 'static) -> Target {
    let came = Arc::new((Mutex::new(0), Condvar::new()));
    serve(move |path, body| {
        usual(path, || {
            let mut count = came.0.lock().unwrap();
            let nth = *count;
            *count += 1;
            came.1.notify_all();
            drop(count);
            // The event before which it waits, and for how many requests.
            let meets = match nth {
                REPLY_FIRST => Some((7, REPLY_FIRST + 2)),
                nth if LONG_FIRST.contains(&nth) => Some((0, LONG_FIRST.end)),
                _ => None,
            };
            let came = Arc::clone(&came);
            let own_pace = slowly(if is_long(body) { LONG } else { Duration::ZERO }, EACH);
            let pace = move |event| {
                own_pace(event);
                if let Some((_, wanted)) = meets.filter(|(at, _)| *at == event) {
                    let count = came.0.lock().unwrap();
                    drop(came.1.wait_while(count, |count| *count < wanted).unwrap());
                }
            };
            let own = hash(body, LONG_FIRST.contains(&nth));
            Answer::Paced(Box::new(pace), events("word", &usage(body), &own))
        })
    })
}

#[test]
fn both_arms_meet_and_have_the_replies_of_the_requests_alone() {
    let target = slow(|body, _| own(body, &sha('a')));
    let report = measure(&target);
    assert!(report.passed(), "{}: {report:?}", report.summary());
    assert_eq!(report.unverified, Vec::<String>::new());
    let arms: Vec<Arm> = report.rows.iter().map(|row| row.arm).collect();
    assert_eq!(arms, [Arm::Alone, Arm::ReplyFirst, Arm::LongFirst]);
    for row in &report.rows {
        assert_eq!(row.long_state, State::Cold);
        assert!(row.long_tokens.is_some_and(|tokens| (900..1100).contains(&tokens)), "{row:?}");
        assert!(row.long_first_s.is_some_and(|time| time >= LONG.as_secs_f64()));
        // Seven gaps between eight pieces.
        assert!(row.reply_s.is_some_and(|time| time >= 7.0 * EACH.as_secs_f64()), "{row:?}");
        // How far apart they are when a slow machine reads them is its own matter.
        assert!(row.gap_s_p95 >= Some(0.0) && row.gap_s_p95 <= row.gap_s_max, "{row:?}");
        assert!(row.gap_s_max <= row.reply_s, "{row:?}");
    }
    let text = text_of(&[(&target, report.clone())]);
    assert_eq!(text.matches("2/0/0").count(), 2, "{text}");
    let json = json_of(&[(&target, report)]);
    assert_eq!(json["passed"], true);
    assert_eq!(json["servers"][0]["rows"][0]["long_over_alone"], 1.0);
    assert!(json["servers"][0]["rows"][1]["reply_over_alone"].is_number());
}

#[test]
fn a_reply_that_company_changes_fails() {
    // A short request beside a long one that came first says other tokens.
    let target =
        slow(|body, second| own(body, &sha(if second && !is_long(body) { 'b' } else { 'a' })));
    let report = measure(&target);
    let unequal: Vec<usize> =
        report.rows.iter().filter_map(|row| Some(row.replies?.unequal)).collect();
    assert_eq!(unequal, [0, 1]);
    assert!(!report.passed() && report.summary().starts_with("replies: 3 equal, 1 unequal"));
}

#[test]
fn missing_hashes_and_restored_prompts_are_said() {
    let target = slow(|_, _| Value::Null);
    let report = measure(&target);
    assert!(!report.passed());
    assert!(report.unverified.iter().any(|note| note.contains("without token_sha")));
    assert!(report.rows[1].reply_s.is_some(), "measured all the same");

    let warm = serve(|path, body| {
        usual(path, || {
            let mut usage = usage(body);
            usage["prompt_tokens_details"]["cached_tokens"] = json!(4);
            let own = own(body, &sha('a'));
            Answer::Paced(slowly(LONG / 10, EACH / 10), events("word", &usage, &own))
        })
    });
    let notes = measure(&warm).unverified.join("\n");
    assert_eq!(notes.matches("part of the long prompt was restored").count(), 3, "{notes}");
}

#[test]
fn requests_that_do_not_meet_measure_nothing() {
    // A reply of one piece is over before the long prompt can come.
    let target = serve(|path, body| {
        let own = own(body, &sha('a'));
        let one = || events("word", &usage(body), &own).split_off(7);
        usual(path, || Answer::Paced(slowly(LONG / 10, EACH / 10), one()))
    });
    let report = measure(&target);
    assert!(!report.rows[1].met && !report.passed(), "{report:?}");
    assert!(report.summary().starts_with("replies: 4 equal, 0 unequal"), "{}", report.summary());
    assert!(report.unverified.iter().any(|note| note.contains("came too late")), "{report:?}");
}
