//! What counts as equal, unequal, failed and unverified among concurrent replies.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use finback_bench::concurrent::{Options, Report, run};
use finback_bench::{Tally, Target};
use serde_json::{Value, json};

use crate::fake::{Answer, own, reply, serve, sha, usual};

fn options() -> Options {
    Options {
        levels: vec![1, 3],
        tokens: 8,
        reps: 2,
        temperatures: vec![0.0],
        alone: true,
        serial: true,
        mixed: false,
        stagger: Duration::ZERO,
    }
}

fn measure(target: &Target) -> Report {
    run(target, &options(), &mut |_| ())
}

fn tally(equal: usize, unequal: usize, failed: usize) -> Option<Tally> {
    Some(Tally { equal, unequal, failed })
}

/// A hash that depends on the request alone.
fn right(body: &Value) -> String {
    sha(char::from_digit(body["seed"].as_u64().unwrap() as u32 % 10, 10).unwrap())
}

#[test]
fn equal_replies_pass_and_every_figure_is_there() {
    let target = serve(|path, body| usual(path, || reply(body, &own(body, &right(body)))));
    let report = measure(&target);
    assert!(report.passed(), "{}", report.text());
    assert_eq!(report.unverified, Vec::<String>::new());
    let [one, three] = &report.cells[..] else { panic!("{report:?}") };
    assert_eq!((one.alone, one.serial), (tally(2, 0, 0), tally(2, 0, 0)));
    assert_eq!((three.alone, three.serial), (tally(6, 0, 0), tally(6, 0, 0)));
    assert!(three.aggregate_tps.is_some_and(|rate| rate > 0.0));
    assert!(three.ttft_s_max.is_some());
    assert_eq!(three.tokens_per_round, Some(1.75));
    assert_eq!(report.to_json(&target)["passed"], true);
    assert_eq!(report.to_json(&target)["server"]["owned_by"], "fake");
}

#[test]
fn one_other_hash_in_company_is_unequal_and_fails() {
    // The 3 requests alone and the 3 undrafted ones come first; the last one in company differs.
    let count = AtomicUsize::new(0);
    let target = serve(move |path, body| {
        usual(path, || {
            let last = count.fetch_add(1, SeqCst) == 6 + 2 + 6 - 1;
            let hash = if last { sha('f') } else { right(body) };
            reply(body, &own(body, &hash))
        })
    });
    let report = measure(&target);
    assert!(!report.passed());
    assert_eq!(report.cells[0].alone, tally(2, 0, 0));
    assert_eq!(report.cells[1].alone, tally(5, 1, 0));
    assert_eq!(report.cells[1].serial, tally(5, 1, 0));
    assert_eq!(
        report.summary(),
        "0 replies failed; alone: 7 equal, 1 unequal, 0 failed; serial: 7 equal, 1 unequal, 0 failed"
    );
}

#[test]
fn drafts_that_change_tokens_are_unequal_to_serial_alone() {
    let target = serve(|path, body| {
        usual(path, || {
            let hash = if body["draft"] == false { sha('e') } else { right(body) };
            reply(body, &own(body, &hash))
        })
    });
    let report = measure(&target);
    assert!(!report.passed());
    assert_eq!(report.cells[1].alone, tally(6, 0, 0));
    assert_eq!(report.cells[1].serial, tally(0, 6, 0));
}

#[test]
fn missing_hashes_fail_on_either_side_and_are_said() {
    let target = serve(|path, body| usual(path, || reply(body, &Value::Null)));
    let report = measure(&target);
    assert!(!report.passed());
    assert_eq!(report.cells[1].alone, tally(0, 0, 6));
    assert_eq!(report.cells[1].serial, tally(0, 0, 6));
    assert!(report.text().contains("not verified: 14 of 14 replies carry no token_sha"));
    // The rates are measured all the same.
    assert!(report.cells[1].aggregate_tps.is_some());

    // Only the references have hashes.
    let count = AtomicUsize::new(0);
    let target = serve(move |path, body| {
        usual(path, || {
            let alone = count.fetch_add(1, SeqCst) < 6;
            let hash = if alone { right(body) } else { "short".into() };
            reply(body, &own(body, &hash))
        })
    });
    assert_eq!(measure(&target).cells[1].alone, tally(0, 0, 6));
}

#[test]
fn a_server_that_does_not_say_it_left_drafts_out_is_no_serial_reference() {
    for offered in [json!(3), Value::Null] {
        let target = serve(move |path, body| {
            let own = json!({"token_sha": right_of(body), "drafts": {"offered": offered}});
            usual(path, || reply(body, &own))
        });
        let report = measure(&target);
        assert_eq!(report.cells[1].alone, tally(6, 0, 0));
        assert_eq!(report.cells[1].serial, tally(0, 0, 6));
        assert!(report.text().contains("do not say that no draft was offered"), "{report:?}");
    }
}

/// As [`right`], for bodies that may be null.
fn right_of(body: &Value) -> String {
    if body.is_null() { String::new() } else { right(body) }
}

#[test]
fn comparisons_not_asked_for_and_undrafted_company_are_said() {
    let target = serve(|path, body| {
        usual(path, || reply(body, &json!({"token_sha": sha('a'), "drafts": {"offered": 0}})))
    });
    let without = Options { alone: false, serial: false, ..options() };
    let report = run(&target, &without, &mut |_| ());
    assert!(report.passed());
    assert_eq!((report.cells[0].alone, report.cells[0].serial), (None, None));
    assert_eq!(report.unverified.len(), 2, "{report:?}");
    let report = measure(&target);
    assert!(report.text().contains("says nothing of drafts"), "{}", report.text());
}

#[test]
fn failed_replies_fail_their_comparisons_and_name_their_reason() {
    let count = AtomicUsize::new(0);
    let target = serve(move |path, body| {
        usual(path, || match count.fetch_add(1, SeqCst) {
            0..6 => reply(body, &own(body, &right(body))),
            n if n % 2 == 0 => {
                Answer::Body(503, json!({"error": {"message": "too busy"}}).to_string())
            }
            _ => Answer::Events(vec![json!({"error": {"message": "broke"}}).to_string()]),
        })
    });
    let report = measure(&target);
    assert!(!report.passed());
    assert_eq!(report.cells[1].failed, 6);
    assert_eq!(report.cells[1].alone, tally(0, 0, 6));
    assert_eq!(report.cells[1].errors.len(), 2);
    let text = report.text();
    assert!(text.contains("status 503: too busy") && text.contains("broke off: broke"), "{text}");
}

#[test]
fn progress_ends_at_its_total() {
    let target = serve(|path, body| usual(path, || reply(body, &own(body, &right(body)))));
    let mut seen = Vec::new();
    run(&target, &options(), &mut |step| seen.push((step.done, step.total)));
    assert_eq!(seen, (0..10).map(|done| (done, 10)).collect::<Vec<_>>());
}
