//! What a soak accepts.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use finback_bench::Target;
use finback_bench::soak::{Drained, Options, Report, run};
use serde_json::{Value, json};

use crate::fake::{Answer, own, reply, serve, sha, usual};

fn soak(target: &Target) -> Report {
    // A number of requests instead of a time: on any machine the same are sent.
    let options = Options { time: Duration::ZERO, least: 40, streams: 3, tokens: 8, seed: 1 };
    run(target, &options, &mut |_| ())
}

/// A hash that depends on the request alone, whatever its form.
fn right(body: &Value) -> String {
    let mixed = format!("{}{}", body["seed"], body["temperature"]);
    let digit = mixed.bytes().fold(7u32, |h, b| h * 31 % 1009 + u32::from(b)) % 16;
    sha(char::from_digit(digit, 16).unwrap())
}

#[test]
fn repeated_requests_with_one_hash_and_an_idle_server_pass() {
    let target = serve(|path, body| usual(path, || reply(body, &own(body, &right(body)))));
    let report = soak(&target);
    assert!(report.passed(), "{}", report.text());
    assert_eq!(report.drained, Some(Drained::Yes));
    assert!(report.cancelled > 0 && report.disconnected > 0 && report.greedy.equal > 20);
    let all = (report.whole + report.cancelled + report.disconnected) as f64;
    let share = report.cancelled as f64 / all;
    assert!((0.05..0.3).contains(&share), "{share} of {all}");
}

#[test]
fn replies_that_change_fail() {
    // Those of greedy requests alone.
    let count = AtomicUsize::new(0);
    let target = serve(move |path, body| {
        usual(path, || {
            let nth = count.fetch_add(1, SeqCst);
            let odd = body["temperature"] == 0.0;
            reply(body, &own(body, &if odd { format!("{nth:064x}") } else { right(body) }))
        })
    });
    let report = soak(&target);
    assert!(report.greedy.unequal > 20, "{report:?}");
    assert_eq!((report.greedy.equal, report.sampled.unequal), (0, 0));
    assert!(report.sampled.equal > 20 && !report.passed());
}

#[test]
fn missing_hashes_and_unknown_or_busy_servers_fail() {
    let target = serve(|path, body| usual(path, || reply(body, &Value::Null)));
    let report = soak(&target);
    assert!(report.greedy.failed > 0 && !report.passed());
    assert!(report.summary().contains("0 equal, 0 unequal"), "{}", report.summary());

    let silent = serve(|path, body| match path {
        "/health" | "/metrics" => Answer::Body(404, String::new()),
        _ => usual(path, || reply(body, &own(body, &right(body)))),
    });
    let report = soak(&silent);
    assert!(matches!(report.drained, Some(Drained::Unverified(_))), "{report:?}");
    assert!(!report.passed());
    assert_eq!(report.to_json(&silent)["drained"], json!("unverified"));

    let plain = serve(|path, body| match path {
        "/health" => Answer::Body(200, "OK".into()),
        "/metrics" => Answer::Body(200, "vllm:num_requests_running 0\n".into()),
        _ => usual(path, || reply(body, &own(body, &right(body)))),
    });
    let report = soak(&plain);
    assert_eq!((&report.drained, report.blocks_left), (&Some(Drained::Yes), None));
    assert!(report.passed() && report.text().contains("KV blocks not verified"), "{report:?}");
}

#[test]
fn a_block_that_a_gone_request_holds_fails() {
    let leaky = serve(|path, body| match path {
        "/metrics" => Answer::Body(200, "finback_kv_blocks_used{model_name=\"m\"} 2\n".into()),
        _ => usual(path, || reply(body, &own(body, &right(body)))),
    });
    let report = soak(&leaky);
    assert_eq!((&report.drained, report.blocks_left), (&Some(Drained::Yes), Some(2)));
    assert!(!report.passed() && report.summary().ends_with("; 2 KV blocks still held"));
}
