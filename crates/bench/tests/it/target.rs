//! Servers that cannot be asked, replies that are not whole, and the single-stream figures.

use finback_bench::{Ask, BenchError, Target, compare, openai};
use serde_json::{Value, json};

use crate::fake::{Answer, address, own, reply, serve, sha, usual};

fn options() -> openai::Options {
    openai::Options { tokens: 8, reps: 2, temperatures: vec![0.0, 1.0] }
}

fn ask() -> Ask {
    Ask::fixed(true, 8, 0.0, 1)
}

#[test]
fn servers_that_are_not_there_are_named() {
    let error = Target::connect("localhost:1", None, None).unwrap_err();
    assert!(error.to_string().contains("found \"localhost:1\", accepted: http://"), "{error}");
    let error = Target::connect("http://127.0.0.1:1", None, None).unwrap_err().to_string();
    assert!(error.starts_with("http://127.0.0.1:1/v1/models: "), "{error}");
    assert_eq!(error.lines().count(), 1);
}

#[test]
fn the_first_model_is_asked_unless_one_is_given() {
    let echo = |path: &str, body: &Value| {
        usual(path, || Answer::Body(400, json!({"error": {"message": body["model"]}}).to_string()))
    };
    let said = |target: &Target| target.ask(&ask()).unwrap_err().to_string();
    assert!(said(&serve(echo)).ends_with("status 400: m"));
    let target = Target::connect(&address(echo), Some("mine".into()), None).unwrap();
    assert!(said(&target).ends_with("status 400: mine"));
    for (status, list) in [(404, ""), (200, "words"), (200, "{}"), (200, "{\"data\": [7]}")] {
        let none = serve(move |path, body| match path {
            "/v1/models" => Answer::Body(status, list.into()),
            _ => reply(body, &Value::Null),
        });
        assert_eq!(none.to_json()["model"], Value::Null, "{list}");
        assert!(none.ask(&ask()).is_ok(), "{list}");
    }
}

#[test]
fn replies_that_are_not_whole_are_errors() {
    let piece = json!({"choices": [{"delta": {"content": "a"}}]}).to_string();
    let finish = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}).to_string();
    let cases = [
        (vec![piece.clone(), finish], "ended before [DONE]"),
        (vec![piece.clone(), "[DONE]".into()], "has no finish_reason"),
        (vec![piece, "{".into()], "is not JSON"),
    ];
    for (events, wanted) in cases {
        let target = serve(move |path, _| usual(path, || Answer::Events(events.clone())));
        let error = target.ask(&ask()).unwrap_err();
        assert!(matches!(&error, BenchError::Reply { problem, .. } if problem.contains(wanted)));
    }
}

#[test]
fn a_cancelled_reply_ends_at_its_piece() {
    // The stream breaks after its third piece, which is not reached.
    let piece = json!({"choices": [{"text": "a"}]}).to_string();
    let target = serve(move |path, _| usual(path, || Answer::Events(vec![piece.clone(); 3])));
    let ask = Ask::fixed(false, 8, 0.0, 1);
    assert_eq!(target.cancel(&ask, 3), Ok(()));
    assert!(target.cancel(&ask, 4).is_err());
}

#[test]
fn single_streams_give_their_figures_and_what_is_missing() {
    let target = serve(|path, body| usual(path, || reply(body, &own(body, &sha('a')))));
    let report = openai::run(&target, &options(), &mut |_| ()).unwrap();
    let names: Vec<String> = report.cells.iter().map(openai::Cell::name).collect();
    assert_eq!(names, ["raw t=0", "chat t=0", "raw t=1", "chat t=1"]);
    for cell in &report.cells {
        assert_eq!(cell.token_sha, [Some(sha('a')), Some(sha('a'))]);
        assert_eq!((cell.ttft_s.len(), cell.tokens_per_round), (2, Some(1.75)));
    }
    let other = serve(|path, body| usual(path, || reply(body, &Value::Null)));
    let report = openai::run(&other, &options(), &mut |_| ()).unwrap();
    assert!(report.text().contains("replies without token_sha cannot be compared"));
}

#[test]
fn two_servers_are_compared_by_rate_and_by_reply() {
    let server =
        |digit| serve(move |path, body| usual(path, || reply(body, &own(body, &sha(digit)))));
    let (base, this, other) = (server('a'), server('a'), server('b'));
    let of = |this: &Target| compare::run(&base, this, &options(), &mut |_| ()).unwrap();
    let report = of(&this);
    assert_eq!(report.cells.len(), 4);
    let json = report.to_json(&base, &this);
    assert_eq!(json["cells"][0]["replies"], "equal");
    assert_eq!(json["runs"]["this"].as_array().unwrap().len(), 2);
    let page = report.html(&base, &this);
    assert!(page.contains(base.url()) && page.contains("<svg"), "{page}");
    assert_eq!(of(&other).to_json(&base, &other)["cells"][3]["replies"], "unequal");
    let silent = serve(|path, body| usual(path, || reply(body, &Value::Null)));
    assert_eq!(of(&silent).to_json(&base, &silent)["cells"][0]["replies"], "unverified");
}
