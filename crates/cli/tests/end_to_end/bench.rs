//! `finback bench` against this binary's server, and against one that tells nothing of its tokens.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;

use serde_json::Value;

use crate::support::{Server, failure, finback, json, stdout, text};

fn demo() -> Server {
    Server::start(&["--context", "2048"])
}

#[test]
fn concurrent_replies_are_those_alone_and_those_undrafted() {
    let server = Server::start(&["--context", "2048", "--parallel", "4"]);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("report.json");
    let table = stdout(&[
        "bench",
        "concurrent",
        "--url",
        &server.url(),
        "--levels",
        "1,4",
        "--tokens",
        "8",
        "--reps",
        "1",
        "--alone",
        "--serial",
        "--mixed",
        "--stagger-ms",
        "5",
        "--json",
        file.to_str().expect("UTF-8"),
    ]);
    assert_eq!(table.matches("4/0/0").count(), 4, "two cells, alone and serial: {table}");
    let report = std::fs::read_to_string(&file).expect("written");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["passed"], true);
    let cells = report["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 4);
    for cell in cells {
        for against in ["alone", "serial"] {
            assert_eq!(cell[against]["equal"], cell["streams"], "{cell}");
        }
        assert!(cell["aggregate_tps"].as_f64().is_some_and(|rate| rate > 0.0), "{cell}");
    }
}

#[test]
fn single_streams_and_comparisons_give_figures_and_a_chart() {
    let server = demo();
    let url = server.url();
    let few = ["--tokens", "8", "--reps", "1", "--temperatures", "0"];
    let with = |head: &[&str], tail: &[&str]| {
        let all: Vec<String> =
            head.iter().chain(&few).chain(tail).map(ToString::to_string).collect();
        json(&all.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let report = with(&["bench", "openai", "--url", &format!("{url}/v1/")], &["--json"]);
    assert_eq!(report["server"]["owned_by"], "finback");
    assert_eq!(report["unverified"], serde_json::json!([]));
    assert!(report["cells"][1]["decode_tps_median"].as_f64().is_some_and(|rate| rate > 0.0));
    assert!(report["cells"][0]["tokens_per_round"].as_f64().is_some_and(|rate| rate >= 1.0));

    let directory = tempfile::tempdir().expect("a directory");
    let chart = directory.path().join("chart.html");
    let chart = chart.to_str().expect("UTF-8");
    // Two runs of one server: noise alone may pass the rule, so the exit code is not looked at.
    let mut args = vec!["bench", "compare", &url, &url, "--chart", chart, "--json"];
    args.extend(few);
    let report: Value = serde_json::from_slice(&finback(&args).stdout).expect("JSON");
    assert_eq!(report["cells"][0]["replies"], "equal");
    assert_eq!(report["runs"]["base"].as_array().map(Vec::len), Some(2));
    assert!(std::fs::read_to_string(chart).expect("written").contains("</svg>"));
}

#[test]
fn a_soak_ends_drained_with_one_hash_a_request() {
    let server = demo();
    let report = json(&[
        "bench",
        "soak",
        "--url",
        &server.url(),
        "--minutes",
        "0.1",
        "--tokens",
        "8",
        "--json",
    ]);
    assert_eq!(report["passed"], true);
    assert_eq!(
        (&report["drained"], &report["kv_blocks_left"]),
        (&Value::from(true), &Value::from(0))
    );
    assert!(report["greedy"]["equal"].as_u64().is_some_and(|equal| equal > 0), "{report}");
}

#[test]
fn prompts_are_cold_then_reused_with_the_replies_of_uncached_ones() {
    let server = demo();
    let url = server.url();
    let asked = ["bench", "cache", "--url", &url, "--long", "160", "--reply", "8"];
    let required = ["--require-cold", "--require-reuse", "--json"];
    let report = json(&[&asked[..], &required].concat());
    assert_eq!(report["qualified"], true);
    assert_eq!(report["unverified"], serde_json::json!([]));
    let rows = report["rows"].as_array().expect("rows");
    for (row, state) in rows.iter().zip(["cold", "reused", "reused", "cold", "reused", "reused"]) {
        assert_eq!((&row["state"], &row["reply"]), (&state.into(), &"equal".into()), "{row}");
        let tokens = row["prompt_tokens"].as_u64().expect("counted");
        assert!((130..220).contains(&tokens), "160 were asked for: {row}");
    }
    // A server that keeps nothing meets the first requirement alone.
    let server = Server::start(&["--context", "2048", "--prompt-cache-gib", "0"]);
    let url = server.url();
    let asked = ["bench", "cache", "--url", &url, "--long", "64", "--reply", "2"];
    assert!(stdout(&[&asked[..], &["--require-cold"]].concat()).ends_with("\nqualified\n"));
    let (code, message) = failure(&[&asked[..], &["--require-reuse"]].concat());
    assert_eq!(code, 1);
    assert!(message.contains("2 of 2 cold; later ones: 0 of 4 reused"), "{message}");
}

#[test]
fn a_reply_beside_a_long_prompt_is_the_one_it_is_alone_on_every_server() {
    let whole = Server::start(&["--context", "2048", "--parallel", "2", "--decode-share", "0"]);
    let turns = Server::start(&["--context", "2048", "--parallel", "2", "--prefill-chunk", "64"]);
    let urls = [whole.url(), turns.url()];
    // Whether the two meet is a matter of time, so neither the exit code nor such notes are looked at.
    let output = finback(&[
        "bench", "fill", "--url", &urls[0], "--url", &urls[1], "--long", "300", "--reply", "32",
        "--json",
    ]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let servers = report["servers"].as_array().expect("servers");
    for (server, url) in servers.iter().zip(&urls) {
        assert_eq!(server["server"]["url"], url.as_str());
        for note in server["unverified"].as_array().expect("notes") {
            let late = "the second request came too late to meet the first";
            assert!(note.as_str().is_some_and(|note| note.ends_with(late)), "{note}");
        }
        for row in server["rows"].as_array().expect("rows") {
            assert_eq!(row["long_state"], "cold", "{row}");
            assert!(row["gap_s_max"].as_f64() >= row["gap_s_p95"].as_f64(), "{row}");
            if row["arm"] != "alone" {
                assert_eq!(row["replies"]["equal"], 2, "{row}");
            }
        }
    }
}

#[test]
fn facts_in_prompts_that_share_a_small_pool_are_found_or_missed_as_alone() {
    // Two blocks: room for the longest of the prompts and its reply, or for two of the others.
    let server = Server::start(&["--context", "512", "--parallel", "4", "--pool-tokens", "512"]);
    let asked = [
        "bench",
        "capacity",
        "--url",
        &server.url(),
        "--prompts",
        "4",
        "--tokens",
        "128",
        "--huge",
        "256",
        "--reply",
        "32",
        "--seed",
        "3",
        "--alone",
        "--pid",
        &server.id().to_string(),
        "--json",
    ];
    // Whether the model finds every fact is its own matter, so the exit code is not looked at.
    let report: Value = serde_json::from_slice(&finback(&asked).stdout).expect("JSON");
    assert_eq!((&report["refused"], &report["failed"]), (&0.into(), &0.into()), "{report}");
    assert!(report["right"].as_u64() >= Some(3), "{report}");
    assert_eq!(report["alone"]["equal"], 4, "{report}");
    assert_eq!(report["pool"]["blocks"], 2);
    assert!(report["pool"]["blocks_max"].as_u64().is_some_and(|most| most <= 2), "{report}");
    // How many of them had to wait for long is a matter of the machine's speed.
    assert!(report["waited"].is_u64() && report["queue_s_max"].is_f64(), "{report}");
    assert!(report["memory"]["allocated_bytes_max"].as_u64() > Some(1 << 20), "{report}");
}

#[test]
fn a_server_without_hashes_is_measured_and_fails_what_was_to_be_compared() {
    let url = hashless();
    let asked = ["bench", "concurrent", "--url", &url, "--levels", "2", "--reps", "1"];
    let table = stdout(&asked);
    assert!(table.contains("not verified: 4 of 4 replies carry no token_sha"), "{table}");
    let output = finback(&[&asked[..], &["--alone"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    let wanted = format!("error: {url}: 0 replies failed; alone: 0 equal, 0 unequal, 4 failed");
    assert_eq!(message.lines().last(), Some(wanted.as_str()));

    let few = ["--tokens", "1", "--reps", "1", "--temperatures", "0"];
    let table = stdout(&[&["bench", "openai", "--url", &url][..], &few].concat());
    assert!(table.contains("replies without token_sha cannot be compared"), "{table}");
    // Which of the two is faster is noise.
    let output = finback(&[&["bench", "compare", &url, &url, "--json"][..], &few].concat());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cells = report["cells"].as_array().expect("cells");
    assert!(cells.iter().all(|cell| cell["replies"] == "unverified"), "{report}");
}

#[test]
fn mistakes_and_absent_servers_are_named() {
    let (code, message) = failure(&["bench", "soak", "--url", "localhost"]);
    assert_eq!(code, 2);
    assert!(message.contains("\"localhost\", accepted: http://HOST:PORT"), "{message}");
    assert_eq!(failure(&["bench", "compare", "http://127.0.0.1:1"]).0, 2);
    let (code, message) =
        failure(&["bench", "compare", "http://a", "http://b", "--chart", "chart.png"]);
    assert_eq!(code, 2);
    assert!(message.contains("--chart: found \"chart.png\""), "{message}");
    let (code, message) = failure(&["bench", "capacity", "--pid", "0"]);
    assert_eq!((code, message.contains("--pid: found \"0\", accepted: ")), (2, true), "{message}");
    let (code, message) = failure(&["bench", "fill", "--url", "http://127.0.0.1:1", "--url", "b"]);
    assert_eq!(code, 1);
    assert!(message.starts_with("error: http://127.0.0.1:1/v1/models: "), "{message}");
    let (code, message) = failure(&["bench", "openai", "--url", "http://127.0.0.1:1"]);
    assert_eq!(code, 1);
    assert!(message.starts_with("error: http://127.0.0.1:1/v1/models: "), "{message}");
}

/// A server that answers every POST with one streamed piece and no `finback` object.
fn hashless() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().expect("clones"));
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).expect("reads") > 0 {}
            for line in head.to_lowercase().lines() {
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.parse().expect("a length");
                }
            }
            reader.read_exact(&mut vec![0; length]).expect("a body");
            let events = "data: {\"choices\": [{\"text\": \"a\", \"finish_reason\": \"length\"}], \
                          \"usage\": {\"completion_tokens\": 1}}\n\ndata: [DONE]\n\n";
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\
                 connection: close\r\n\r\n{events}",
                events.len()
            )
            .expect("writes");
        }
    });
    url
}
