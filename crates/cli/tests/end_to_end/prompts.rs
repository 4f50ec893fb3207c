//! Long prompts over HTTP: in a small shared pool, from kept prefixes, and after a restart.

use std::path::Path;
use std::thread;

use serde_json::{Value, json};

use crate::support::{Server, failure, wait_for};

fn ids(seed: usize, count: usize) -> Vec<usize> {
    (0..count).map(|at| 5 + (at * 7 + at / 13 + at * at / 101 + seed * 31) % 900).collect()
}

fn request(prompt: &[usize], seed: usize) -> Value {
    let temperature = if seed.is_multiple_of(2) { 0.0 } else { 0.9 };
    json!({"prompt": prompt, "max_tokens": 12, "ignore_eos": true, "seed": seed,
        "temperature": temperature})
}

fn fresh(server: &Server, body: &Value) -> Value {
    let mut body = body.clone();
    body["cache"] = json!(false);
    let reply = server.post("/v1/completions", &body);
    assert_eq!(reply["finback"]["cache"], Value::Null);
    reply["finback"]["token_sha"].clone()
}

fn metric(server: &Server, name: &str) -> f64 {
    let page = server.request("GET", "/metrics", "").1;
    let line = page.lines().find(|line| line.starts_with(name) && line.contains('{'));
    let value = line.and_then(|line| line.rsplit(' ').next()).and_then(|value| value.parse().ok());
    value.unwrap_or_else(|| panic!("{name} in {page}"))
}

#[test]
fn requests_that_share_a_small_pool_have_the_replies_of_a_large_one() {
    let large = Server::start(&["--context", "1024", "--parallel", "1"]);
    let small = Server::start(&[
        "--context",
        "1024",
        "--parallel",
        "4",
        "--pool-tokens",
        "1536",
        "--prefill-chunk",
        "64",
        "--decode-share",
        "0.5",
    ]);
    assert!(small.banner.contains("pool: 1536 positions x 159 B = 0.2 MiB"), "{}", small.banner);
    let requests: Vec<Value> = (0..8).map(|n| request(&ids(n, 120 + 101 * n), n)).collect();
    let wanted: Vec<Value> = requests.iter().map(|body| fresh(&large, body)).collect();
    // Twice: the second time most begin with a kept prefix.
    for round in 0..2 {
        thread::scope(|scope| {
            for (n, (body, wanted)) in requests.iter().zip(&wanted).enumerate() {
                let small = &small;
                scope.spawn(move || {
                    let reply = small.post("/v1/completions", body);
                    assert_eq!(&reply["finback"]["token_sha"], wanted, "request {n}, {round}");
                });
            }
        });
    }
    // Every piece that ran alone was announced at its own size.
    let staged = |outcome: &str| {
        let labels = format!("{{model_name=\"finback-demo\",outcome=\"{outcome}\"");
        metric(&large, &format!("finback_staged_pieces_total{labels}"))
    };
    assert!(staged("hit") >= 8.0);
    assert_eq!(staged("miss"), 0.0);
    assert_eq!(metric(&small, "finback_kv_blocks_used"), 0.0);
    let rest = metric(&small, "finback_kv_blocks_kept") + metric(&small, "finback_kv_blocks_free");
    assert_eq!(rest, 6.0);
    // What never fits is refused before anything is sent.
    let server = Server::start(&["--context", "1024", "--parallel", "2", "--pool-tokens", "512"]);
    let body = request(&ids(1, 600), 1).to_string();
    let (status, text) = server.request("POST", "/v1/completions", &body);
    let error: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (status, &error["error"]["code"]),
        (400, &json!("context_length_exceeded")),
        "{text}"
    );
    let models = server.request("GET", "/v1/models", "").1;
    assert!(models.contains("\"max_model_len\":512"), "{models}");
}

#[test]
fn a_pool_that_cannot_be_is_refused_with_the_arithmetic() {
    let (code, text) =
        failure(&["plan", "--context", "1000", "--parallel", "2", "--pool-tokens", "4096"]);
    assert_eq!(code, 2);
    assert_eq!(
        text.trim(),
        "error: --pool-tokens: found \"4096\", accepted: 256 to 2048 (--parallel x --context: 2 x \
         1000, each rounded up to blocks of 256)"
    );
    let (code, text) = failure(&["plan", "--pool-tokens", "255"]);
    assert_eq!(code, 2);
    assert!(text.contains("--pool-tokens: found \"255\", accepted: "), "{text}");
}

/// A conversation as its client keeps it.
struct Talk {
    messages: Vec<Value>,
}

impl Talk {
    fn body(&self, content: &str) -> Value {
        let mut messages = self.messages.clone();
        messages.push(json!({"role": "user", "content": content}));
        json!({"messages": messages, "max_tokens": 20, "temperature": 0})
    }

    /// The reply with kept prefixes, which must be the one without.
    fn ask(&mut self, server: &Server, content: &str) -> Value {
        let body = self.body(content);
        let reply = server.post("/v1/chat/completions", &body);
        let mut alone = body;
        alone["cache"] = json!(false);
        let alone = server.post("/v1/chat/completions", &alone);
        assert_eq!(reply["finback"]["token_sha"], alone["finback"]["token_sha"], "{content}");
        assert_eq!(reply["choices"][0]["message"], alone["choices"][0]["message"]);
        self.messages.push(json!({"role": "user", "content": content}));
        self.messages.push(reply["choices"][0]["message"].clone());
        reply
    }
}

fn cached(reply: &Value) -> u64 {
    reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a count")
}

fn prompt(reply: &Value) -> u64 {
    reply["usage"]["prompt_tokens"].as_u64().expect("a count")
}

#[test]
fn a_second_turn_does_not_pay_for_the_first() {
    for thinking in ["on", "off"] {
        let server = Server::start(&["--context", "4096", "--thinking", thinking]);
        let system = json!({"role": "system", "content": "The sea is blue and wide. ".repeat(20)});
        let mut talk = Talk { messages: vec![system] };
        let long = "I saw a goose near the pond. ".repeat(60);
        let first = talk.ask(&server, &long);
        assert_eq!(cached(&first), 0);
        let second = talk.ask(&server, "What is near the pond?");
        // All but the first turn's reply and the new question; without thinking the reply too.
        assert!(cached(&second) + 4 >= prompt(&first), "{second}");
        if thinking == "off" {
            assert!(prompt(&second) - cached(&second) < 30, "{second}");
        }
        // The last message edited: all before it is there.
        talk.messages.truncate(3);
        let edited = talk.ask(&server, "And what is blue?");
        assert!(prompt(&edited) - cached(&edited) < 60, "{edited}");
        // Another first message: the system message is there.
        talk.messages.truncate(1);
        let other = talk.ask(&server, "Tell me of the sea.");
        assert!(cached(&other) > 64, "{other}");
        assert!(cached(&other) < prompt(&other));
    }
}

fn serve(dir: &Path, more: &[&str]) -> Server {
    let dir = dir.to_str().expect("UTF-8");
    Server::start(&[&["--context", "2048", "--prompt-cache-dir", dir], more].concat())
}

#[test]
fn prefixes_on_disk_outlive_the_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let bodies: Vec<Value> = [1, 2].map(|seed| request(&ids(seed, 900), seed)).into();
    let turn = |seed| request(&[ids(seed, 900), ids(9, 40)].concat(), seed);
    let (mut wanted, mut longer) = (Vec::new(), Vec::new());
    {
        let server = serve(dir.path(), &[]);
        for (n, body) in bodies.iter().enumerate() {
            wanted.push(fresh(&server, body));
            longer.push(fresh(&server, &turn(n + 1)));
            assert_eq!(cached(&server.post("/v1/completions", body)), 0);
        }
        // It is killed when dropped: what is written by then is whole. Both prompts and both replies.
        let written = "finback_prompt_disk_total{model_name=\"finback-demo\",outcome=\"written\"";
        wait_for(|| {
            server.post("/v1/completions", &request(&[5, 6], 1));
            metric(&server, written) >= 4.0
        });
    }
    std::fs::write(dir.path().join("half.part"), "torn").expect("writable");
    std::fs::write(dir.path().join("foreign.prefix"), "foreign").expect("writable");
    {
        let server = serve(dir.path(), &[]);
        assert!(!dir.path().join("half.part").exists());
        for (n, body) in bodies.iter().enumerate() {
            let reply = server.post("/v1/completions", body);
            assert_eq!((cached(&reply), &reply["finback"]["token_sha"]), (900, &wanted[n]));
            let reply = server.post("/v1/completions", &turn(n + 1));
            assert!(cached(&reply) >= 900);
            assert_eq!(reply["finback"]["token_sha"], longer[n]);
        }
    }
    // Other numerics have other states.
    let server = serve(dir.path(), &["--numerics", "plain"]);
    assert_eq!(metric(&server, "finback_prompt_disk_entries"), 0.0);
    assert_eq!(cached(&server.post("/v1/completions", &bodies[0])), 0);
}
