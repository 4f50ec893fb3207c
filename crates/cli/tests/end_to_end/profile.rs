//! `--profile-rounds`: the table, and the trace as Chrome's viewers read it.

use std::time::Instant;

use serde_json::Value;

use crate::support::{finback, text};

struct Event {
    name: String,
    row: u64,
    begin: f64,
    end: f64,
    args: Value,
}

fn events(trace: &Value) -> Vec<Event> {
    let all = trace["traceEvents"].as_array().expect("events");
    let complete = all.iter().filter(|event| event["ph"] == "X");
    complete
        .map(|event| {
            let number = |field: &str| event[field].as_f64().expect("a number");
            assert_eq!(event["pid"], 1);
            assert!(number("dur") >= 0.0, "{event}");
            Event {
                name: event["name"].as_str().expect("a name").to_owned(),
                row: event["tid"].as_u64().expect("a row"),
                begin: number("ts"),
                end: number("ts") + number("dur"),
                args: event["args"].clone(),
            }
        })
        .collect()
}

#[test]
fn a_profile_is_a_table_and_a_trace_whose_times_add_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("trace.json");
    let name = file.to_str().expect("UTF-8");
    let start = Instant::now();
    let output = finback(&[
        "run",
        "--prompt-ids",
        "5,9,2,11",
        "--context",
        "1024",
        "--max-tokens",
        "40",
        "--ignore-eos",
        "--seed",
        "3",
        "--json",
        "--profile-rounds",
        name,
    ]);
    let whole = start.elapsed().as_secs_f64();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let reply: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let trace: Value =
        serde_json::from_slice(&std::fs::read(&file).expect("written")).expect("JSON");
    let events = events(&trace);
    let row = |row: u64| events.iter().filter(move |event| event.row == row);
    let inside = |outer: &Event, inner: &Event| {
        // Times are rounded to what a double holds of microseconds.
        inner.begin >= outer.begin - 0.01 && inner.end <= outer.end + 0.01
    };

    let rounds: Vec<&Event> = row(1).filter(|pass| pass.name == "round").collect();
    assert_eq!(rounds.len() as u64, reply["rounds"].as_u64().expect("a count"));
    assert_eq!(row(1).count(), rounds.len() + 1, "and one prompt piece");
    let (mut all_steps, mut all_passes) = (0.0, 0.0);
    for pass in row(1) {
        assert!(pass.args["rows"].as_u64().is_some_and(|rows| rows > 0), "{:?}", pass.args);
        assert_eq!(pass.args["streams"], 1);
        let length = pass.end - pass.begin;
        // Phases follow each other from the pass's begin to its end.
        let phases: f64 = row(2).filter(|p| inside(pass, p)).map(|p| p.end - p.begin).sum();
        assert!((phases - length).abs() < 1.0, "{phases} of {length} us");
        // Steps are parts of it; what is left is the host's.
        let steps: f64 = row(3).filter(|p| inside(pass, p)).map(|p| p.end - p.begin).sum();
        assert!(steps > 0.0 && steps <= length + 1.0, "{steps} of {length} us");
        (all_steps, all_passes) = (all_steps + steps, all_passes + length);
    }
    assert!(all_steps > 0.0 && all_steps <= all_passes + 1.0, "{all_steps} of {all_passes} us");
    assert!(row(1).zip(row(1).skip(1)).all(|(a, b)| a.end <= b.begin + 0.01), "one by one");
    // From the first token to the last: inside the passes, which are inside the command's own time.
    let (first, last) = (row(1).next().expect("one"), row(1).next_back().expect("one"));
    let took = (last.end - first.begin) / 1e6;
    let decode = reply["timings"]["decode_s"].as_f64().expect("a time");
    assert!(decode <= took && took <= whole, "{decode} s of {took} s of {whole} s");
    for phase in ["draft", "verify", "keep", "say", "first token"] {
        assert!(row(2).any(|event| event.name == phase), "{phase}");
    }
    for step in ["experts", "attend", "head", "choose (sampling)", "draft_chain"] {
        assert!(row(3).any(|event| event.name == step), "{step}");
        assert!(said.contains(step), "{step} in {said}");
    }

    assert!(said.contains(&format!("round: {} passes, ", rounds.len())), "{said}");
    assert!(said.contains(&format!("the first {} passes are in {name}", row(1).count())), "{said}");
    // The shares of a kind of pass are all of it.
    let shares: f64 = said
        .lines()
        .skip_while(|line| !line.starts_with("round: "))
        .skip(2)
        .take_while(|line| line.starts_with("  "))
        .map(|line| line.trim_end_matches('%').rsplit(' ').next().expect("a word"))
        .map(|share| share.parse::<f64>().expect("a share"))
        .sum();
    assert!((98.0..102.0).contains(&shares), "{shares}% in {said}");
}
