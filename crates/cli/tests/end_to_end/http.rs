//! The server: streamed as whole as in the terminal, refusals, disconnects, the queue, its end.

use std::io::BufRead;

use serde_json::{Value, json};

use crate::support::{Server, json as command_json, read_response, wait_for};

/// The demo with room enough for these tests.
fn demo() -> Server {
    Server::start(&["--context", "2048"])
}

fn sha(reply: &Value) -> &str {
    reply["finback"]["token_sha"].as_str().expect("token_sha")
}

#[test]
fn the_banner_says_what_one_needs() {
    let server = demo();
    for wanted in ["http://127.0.0.1:", "/v1/chat/completions", "KV", "weights"] {
        assert!(server.banner.contains(wanted), "{wanted} in {}", server.banner);
    }
    let (status, models) = server.request("GET", "/v1/models", "");
    assert_eq!(status, 200);
    let models: Value = serde_json::from_str(&models).expect("JSON");
    let id = models["data"][0]["id"].as_str().expect("an id");
    assert!(server.banner.contains(id), "{id} in {}", server.banner);
    assert_eq!(server.request("GET", "/health", "").0, 200);
}

#[test]
fn a_reply_is_the_same_streamed_whole_and_in_the_terminal() {
    let server = demo();
    let messages = json!([{"role": "user", "content": "Hello there"}]);
    let body = json!({"messages": messages, "max_tokens": 24, "temperature": 0.8, "seed": 7});
    let whole = server.post("/v1/chat/completions", &body);
    let usage = &whole["usage"];
    assert_eq!(
        usage["total_tokens"].as_u64(),
        Some(
            usage["prompt_tokens"].as_u64().expect("a count")
                + usage["completion_tokens"].as_u64().expect("a count")
        )
    );

    let mut streamed = body;
    streamed["stream"] = json!(true);
    streamed["stream_options"] = json!({"include_usage": true});
    let events = server.stream("/v1/chat/completions", &streamed);
    let joined = |field: &str| -> String {
        events.iter().filter_map(|event| event["choices"][0]["delta"][field].as_str()).collect()
    };
    let message = &whole["choices"][0]["message"];
    for field in ["content", "reasoning_content"] {
        assert_eq!(joined(field), message[field].as_str().unwrap_or_default(), "{field}");
    }
    let with = |key: &str| {
        let found = events.iter().rev().find(|event| event[key].is_object());
        found.unwrap_or_else(|| panic!("an event with {key}"))
    };
    assert_eq!(sha(with("finback")), sha(&whole));
    assert_eq!(with("usage")["usage"]["completion_tokens"], usage["completion_tokens"]);

    let run = command_json(&[
        "run",
        "Hello there",
        "--context",
        "2048",
        "--max-tokens",
        "24",
        "--temperature",
        "0.8",
        "--seed",
        "7",
        "--json",
    ]);
    assert_eq!(run["token_sha"], sha(&whole));
    assert_eq!(run["completion_tokens"], usage["completion_tokens"]);
    assert_eq!(run["prompt_tokens"], usage["prompt_tokens"]);
}

#[test]
fn a_forced_call_is_the_same_streamed_and_whole() {
    let server = demo();
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let tool = json!({"name": "get_weather", "description": "The weather", "parameters": schema});
    let mut body = json!({
        "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
        "tools": [{"type": "function", "function": tool}],
        "max_tokens": 64,
        "temperature": 0,
    });
    for choice in
        [json!("required"), json!({"type": "function", "function": {"name": "get_weather"}})]
    {
        body["tool_choice"] = choice;
        body["stream"] = json!(false);
        let whole = server.post("/v1/chat/completions", &body);
        let call = &whole["choices"][0]["message"]["tool_calls"][0]["function"];
        assert_eq!(call["name"], "get_weather", "{whole}");
        body["stream"] = json!(true);
        let events = server.stream("/v1/chat/completions", &body);
        let arguments: String = events
            .iter()
            .map(|event| &event["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"])
            .filter_map(Value::as_str)
            .collect();
        assert_eq!(call["arguments"], arguments.as_str());
        let last = events.iter().find(|event| event["finback"].is_object()).expect("the last");
        assert_eq!(sha(last), sha(&whole));
    }
}

#[test]
fn a_prompt_of_ids_is_the_same_in_the_terminal() {
    let server = demo();
    let body = json!({"prompt": [5, 9, 2], "max_tokens": 32, "temperature": 0, "ignore_eos": true});
    let whole = server.post("/v1/completions", &body);
    assert_eq!(whole["usage"]["prompt_tokens"], 3);
    assert_eq!(whole["usage"]["completion_tokens"], 32);
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    let run = command_json(&[
        "run",
        "--prompt-ids",
        "5,9,2",
        "--context",
        "2048",
        "--max-tokens",
        "32",
        "--temperature",
        "0",
        "--ignore-eos",
        "--json",
    ]);
    assert_eq!(run["token_sha"], sha(&whole));
}

#[test]
fn bad_requests_are_refused_in_openai_shape() {
    let server = demo();
    let chat = |more: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
        for (key, value) in more.as_object().expect("an object") {
            body[key] = value.clone();
        }
        ("/v1/chat/completions", body.to_string())
    };
    let cases = [
        (chat(json!({"temperature": -1})), "temperature"),
        (chat(json!({"temperature": "warm"})), "temperature"),
        (chat(json!({"top_p": 1.5})), "top_p"),
        (chat(json!({"top_k": 1.5})), "top_k"),
        (chat(json!({"min_p": true})), "min_p"),
        (chat(json!({"max_tokens": 0})), "max_tokens"),
        (chat(json!({"seed": 0.5})), "seed"),
        (chat(json!({"messages": []})), "messages"),
        (("/v1/completions", json!({"prompt": [4_294_967_296_u64]}).to_string()), "prompt"),
        (("/v1/completions", json!({"prompt": []}).to_string()), "prompt"),
        (("/v1/completions", "{\"prompt\": ".into()), "JSON"),
    ];
    for ((path, body), word) in cases {
        let (status, text) = server.request("POST", path, &body);
        assert_eq!(status, 400, "{body}: {text}");
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(message.contains(word), "{word} in {message}");
        assert!(answer["error"]["type"].is_string(), "{text}");
    }
    let long = json!({"prompt": vec![5; 3000], "max_tokens": 1});
    let (status, text) = server.request("POST", "/v1/completions", &long.to_string());
    assert_eq!(status, 400);
    assert!(text.contains("2048") && text.contains("3000"), "{text}");
    let after = server.post("/v1/completions", &json!({"prompt": [5], "max_tokens": 1}));
    assert_eq!(after["usage"]["completion_tokens"], 1);
}

#[test]
fn a_client_that_leaves_frees_the_slot() {
    let server = Server::start(&["--context", "16384"]);
    let short = json!({"prompt": [7, 7], "max_tokens": 4, "temperature": 0});
    let wanted = server.post("/v1/completions", &short);
    let running = || -> Value {
        serde_json::from_str(&server.request("GET", "/health", "").1).expect("JSON")
    };
    for stream in [true, false] {
        let endless = json!({
            "prompt": [5, 9, 2], "max_tokens": 16000, "seed": 1, "ignore_eos": true,
            "stream": stream,
        });
        let mut left = server.open("POST", "/v1/completions", &endless.to_string());
        if stream {
            let mut line = String::new();
            while !line.starts_with("data: ") {
                line.clear();
                assert!(left.read_line(&mut line).expect("readable") > 0);
            }
        }
        wait_for(|| running()["running"] == 1);
        drop(left);
        wait_for(|| running()["running"] == 0);
        // To its end it would say them all.
        let page = server.request("GET", "/metrics", "").1;
        let gone = "finback_requests_total{model_name=\"finback-demo\",outcome=\"client_gone\"} ";
        let gone = page.lines().find_map(|line| line.strip_prefix(gone)).expect("a count");
        assert_eq!(gone, if stream { "1" } else { "2" }, "{page}");
        assert_eq!(sha(&server.post("/v1/completions", &short)), sha(&wanted));
    }
}

#[test]
fn requests_that_wait_have_the_replies_of_those_that_do_not() {
    let server = Server::start(&["--context", "2048", "--parallel", "1"]);
    let bodies: Vec<String> = (0..4)
        .map(|i| json!({"prompt": [5 + i], "max_tokens": 60, "ignore_eos": true}).to_string())
        .collect();
    let ask = |body: &String| server.open("POST", "/v1/completions", body);
    let read = |reader| -> Value {
        let (status, text) = read_response(reader);
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).expect("JSON")
    };
    let alone: Vec<Value> = bodies.iter().map(|body| read(ask(body))).collect();
    let readers: Vec<_> = bodies.iter().map(ask).collect();
    for (reader, alone) in readers.into_iter().zip(&alone) {
        assert_eq!(sha(&read(reader)), sha(alone));
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_it_by_itself() {
    // The banner's last line is enough: whoever has read it may end the server.
    let mut server = demo();
    let id = server.id().to_string();
    assert!(
        std::process::Command::new("kill").args(["-INT", &id]).status().expect("kill").success()
    );
    assert!(server.wait().success());
}
