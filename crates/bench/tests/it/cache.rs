//! What counts as cold, reused and qualified.

use std::sync::Mutex;

use finback_bench::cache::{Options, Report, State, run};
use finback_bench::{Target, Verdict};
use serde_json::{Value, json};

use crate::fake::{Answer, events, said, serve, sha, usual};

const REQUIRED: Options = Options { long: 100, reply: 8, require_cold: true, require_reuse: true };
const FREE: Options = Options { require_cold: false, require_reuse: false, ..REQUIRED };

fn measure(target: &Target, options: &Options) -> Report {
    run(target, options, &mut |_| ()).unwrap()
}

/// A server of 4 characters a token whose answer is `reply` of the request and its restored tokens.
fn server(keeps: bool, reply: impl Fn(&Value, u64) -> Answer + Send + Sync + 'static) -> Target {
    let kept: Mutex<Vec<String>> = Mutex::default();
    serve(move |path, body| {
        usual(path, || {
            let text = said(body);
            let mut kept = kept.lock().unwrap();
            let alike = |other: &String| {
                let same = text.bytes().zip(other.bytes()).take_while(|(a, b)| a == b);
                same.count()
            };
            let most = kept.iter().map(alike).max().unwrap_or(0);
            // As servers do, this one keeps no prefix of a few tokens.
            let cached = if body["cache"] == false || most < 100 { 0 } else { most as u64 / 4 };
            if keeps && body["cache"] != false {
                kept.push(text);
            }
            reply(body, cached)
        })
    })
}

fn tells(body: &Value, cached: u64, own: &Value) -> Answer {
    let usage = json!({
        "prompt_tokens": said(body).len() / 4 + 3,
        "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": cached},
    });
    Answer::Events(events("word", &usage, own))
}

fn names(report: &Report) -> Vec<(&str, State, Verdict)> {
    report.rows.iter().map(|row| (row.name, row.state, row.reply)).collect()
}

#[test]
fn first_requests_are_cold_and_later_ones_reuse_what_was_kept() {
    let target = server(true, |body, cached| tells(body, cached, &json!({"token_sha": sha('a')})));
    let report = measure(&target, &REQUIRED);
    let (cold, reused, equal) = (State::Cold, State::Reused, Verdict::Equal);
    assert_eq!(
        names(&report),
        [
            ("first", cold, equal),
            ("repeat", reused, equal),
            ("tail", reused, equal),
            ("first turn", cold, equal),
            ("second turn", reused, equal),
            ("edited turn", reused, equal),
        ]
    );
    assert!(report.qualified() && report.unverified.is_empty(), "{}", report.text());
    assert!(report.rows.iter().all(|row| row.times_sooner().is_some_and(|times| times > 0.0)));
    let first = &report.rows[0];
    let tokens = first.prompt_tokens.unwrap();
    assert!((95..125).contains(&tokens), "100 tokens were asked for: {tokens}");
    let json = report.to_json(&target);
    assert_eq!((&json["qualified"], &json["rows"][1]["state"]), (&json!(true), &json!("reused")));
    assert_eq!(json["rows"][0]["cached_tokens"], 0);
}

#[test]
fn a_server_that_keeps_nothing_fails_where_reuse_is_required() {
    let target = server(false, |body, cached| tells(body, cached, &json!({"token_sha": sha('a')})));
    let report = measure(&target, &REQUIRED);
    assert!(!report.qualified());
    assert!(report.summary().starts_with("first requests: 2 of 2 cold; later ones: 0 of 4 reused"));
    assert!(measure(&target, &Options { require_reuse: false, ..REQUIRED }).qualified());
}

#[test]
fn a_server_that_is_never_cold_fails_where_cold_is_required_and_has_no_reference() {
    let target = server(true, |body, _| tells(body, 5, &json!({"token_sha": sha('a')})));
    let report = measure(&target, &REQUIRED);
    assert_eq!(names(&report)[0], ("first", State::Reused, Verdict::Failed));
    assert!(!report.qualified());
    assert!(measure(&target, &Options { require_cold: false, ..REQUIRED }).qualified());
    assert!(report.text().contains("not verified: 6 of 6 replies to \"cache\": false do not say"));
}

#[test]
fn another_reply_from_the_cache_is_never_qualified() {
    let target = server(true, |body, cached| {
        let hash = sha(if cached > 0 { 'b' } else { 'a' });
        tells(body, cached, &json!({"token_sha": hash}))
    });
    let report = measure(&target, &FREE);
    assert_eq!(names(&report)[0].2, Verdict::Equal);
    assert_eq!(names(&report)[4].2, Verdict::Unequal);
    assert!(!report.qualified() && report.summary().ends_with("unequal to uncached ones: 4"));
    assert!(report.text().ends_with("\nnot qualified\n"));
}

#[test]
fn what_a_server_does_not_tell_is_unverified_and_meets_no_requirement() {
    for cached in [json!(null), json!(true), json!(-1), json!(1_000_000)] {
        let target = server(true, move |body, _| {
            let usage = json!({"prompt_tokens": said(body).len() / 4,
                "prompt_tokens_details": {"cached_tokens": cached}});
            Answer::Events(events("word", &usage, &Value::Null))
        });
        let report = measure(&target, &FREE);
        let told = (State::Unverified, Verdict::Failed);
        assert!(report.rows.iter().all(|row| (row.state, row.reply) == told), "{report:?}");
        assert!(report.qualified());
        assert!(!measure(&target, &Options { require_cold: false, ..REQUIRED }).qualified());
        assert!(!measure(&target, &Options { require_reuse: false, ..REQUIRED }).qualified());
        let text = report.text();
        assert!(text.contains("6 of 6 replies do not say how much was restored"), "{text}");
        assert!(text.contains("12 of 12 replies carry no token_sha"), "{text}");
    }
}
