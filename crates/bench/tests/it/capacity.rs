//! What counts as answered, refused, waited for and held.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use finback_bench::capacity::{Options, Outcome, Report, run};
use finback_bench::{BenchError, Tally, Target};
use serde_json::{Value, json};

use crate::fake::{Answer, events, said, serve, sha, usual};

const OPTIONS: Options = Options {
    prompts: 4,
    tokens: 200,
    huge: 400,
    reply: 8,
    alone: false,
    seed: Some(1),
    pid: None,
};

fn measure(target: &Target, options: &Options) -> Report {
    run(target, options, &mut |_| ()).unwrap()
}

/// The answer to the question at the end; nothing where there is none.
fn found(body: &Value) -> String {
    let text = said(body);
    let Some((_, question)) = text.rsplit_once("What is the ") else { return String::new() };
    let fact = format!("The {} is ", question.trim_end_matches('?'));
    text.split_once(&fact).map_or(String::new(), |(_, rest)| rest[..5].to_owned())
}

fn answer(body: &Value, text: &str, hash: &str, queue_s: f64) -> Answer {
    let usage = json!({"prompt_tokens": said(body).len() / 4, "completion_tokens": 8});
    let own = json!({"token_sha": hash, "timings": {"queue_s": queue_s}});
    Answer::Events(events(text, &usage, &own))
}

fn is_question(body: &Value) -> bool {
    said(body).ends_with('?')
}

#[test]
fn every_needle_found_passes_with_waits_pool_and_memory() {
    let target = serve(|path, body| match path {
        "/metrics" => Answer::Body(
            200,
            "finback_kv_blocks_used 30\nfinback_kv_blocks 40\nvllm:kv_cache_usage_perc 0.75\n\
             finback_requests_waiting 2\nfinback_planned_bytes 1000\n"
                .into(),
        ),
        _ => usual(path, || answer(body, &found(body), &sha('a'), 0.5)),
    });
    let options = Options { alone: true, pid: Some(std::process::id()), ..OPTIONS };
    let report = measure(&target, &options);
    assert!(report.passed(), "{}", report.text());
    assert_eq!((report.count("right"), report.waited()), (4, 4));
    assert_eq!(report.alone, Tally { equal: 4, ..Tally::default() });
    assert_eq!((report.peaks.blocks, report.peaks.blocks_total), (Some(30), Some(40)));
    assert_eq!(report.peaks.planned_bytes, Some(1000));
    // This process takes more than a thousand bytes.
    assert!(report.memory_ratio().is_some_and(|ratio| ratio > 1.0));
    assert_eq!(report.unverified, Vec::<String>::new());
    let tokens: Vec<u64> = report.rows.iter().filter_map(|row| row.tokens).collect();
    assert!((380..430).contains(&tokens[0]) && (180..220).contains(&tokens[1]), "{tokens:?}");
    let json = report.to_json(&target);
    assert_eq!((&json["right"], &json["queue_s_max"]), (&json!(4), &json!(0.5)));
    assert!(report.text().contains("at most 30 of 40 blocks"), "{}", report.text());
    // The same seed asks the same, another one something else.
    let sizes = |report: Report| report.rows.iter().map(|row| row.tokens).collect::<Vec<_>>();
    let again = sizes(measure(&target, &options));
    assert_eq!(sizes(report), again);
    assert_ne!(sizes(measure(&target, &Options { seed: Some(2), ..options })), again);
}

#[test]
fn wrong_refused_and_failed_prompts_are_told_apart() {
    let count = AtomicUsize::new(0);
    let target = serve(move |path, body| {
        usual(path, || match is_question(body).then(|| count.fetch_add(1, SeqCst)) {
            Some(0) => answer(body, "I do not know.", &sha('a'), 0.0),
            Some(1) => Answer::Body(429, json!({"error": {"message": "too many"}}).to_string()),
            Some(2) => Answer::Events(vec![json!({"error": {"message": "broke"}}).to_string()]),
            // The wrong one again, alone, has the same tokens.
            _ => answer(body, &found(body), &sha('a'), 0.0),
        })
    });
    let report = measure(&target, &OPTIONS);
    assert!(!report.passed());
    // Which of them came first is the machine's matter.
    let only =
        |is: fn(&Outcome) -> bool| report.rows.iter().filter(|row| is(&row.outcome)).count() == 1;
    assert!(only(|it| matches!(it, Outcome::Wrong(text) if text.ends_with("I do not know."))));
    assert!(only(|it| matches!(it, Outcome::Refused(text) if text.contains("too many"))));
    assert!(only(|it| matches!(it, Outcome::Failed(text) if text.contains("broke"))));
    assert!(only(|it| *it == Outcome::Right), "{report:?}");
    assert_eq!(
        report.summary(),
        "4 prompts: 1 right, 1 wrong, 1 refused, 1 failed; alone: 1 equal, 0 unequal, 0 without \
         token_sha"
    );
    let text = report.text();
    assert!(text.contains("\nrefused: prompt ") && text.contains("--pid was not given"), "{text}");
}

#[test]
fn right_answers_in_other_tokens_than_alone_fail() {
    let target = serve(|path, body| {
        let hash = sha(if body["cache"] == false { 'b' } else { 'a' });
        usual(path, || answer(body, &found(body), &hash, 0.0))
    });
    assert!(measure(&target, &OPTIONS).passed(), "nothing was to be compared");
    let report = measure(&target, &Options { alone: true, ..OPTIONS });
    assert_eq!((report.count("right"), report.alone.unequal), (4, 4));
    assert!(!report.passed());
}

#[test]
fn a_process_that_is_not_there_is_named_before_anything_is_sent() {
    let count = AtomicUsize::new(0);
    let target = serve(move |path, body| {
        usual(path, || {
            assert_eq!(count.fetch_add(1, SeqCst), usize::MAX, "nothing is sent");
            answer(body, "", &sha('a'), 0.0)
        })
    });
    let options = Options { pid: Some(u32::MAX), ..OPTIONS };
    let error = run(&target, &options, &mut |_| ()).unwrap_err();
    assert_eq!(error, BenchError::Process { pid: u32::MAX });
    assert!(error.to_string().starts_with("--pid: found 4294967295, accepted: the id of"));
}
