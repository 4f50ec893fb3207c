//! What tokens become.

use finback_engine::{Event, FinishReason, Logprobs};
use finback_protocol::{Piece, Prepared, Progress, TokenSha};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{EOS, api, byte_ids, ids, play, streamed, timings, token, whole};

fn chat(fields: &Value) -> Prepared {
    let mut body = json!({"messages": [{"role": "user", "content": "Hi"}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    api().chat(body.to_string().as_bytes()).unwrap()
}

fn completion(fields: &Value) -> Prepared {
    let mut body = json!({"prompt": "a"});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    api().completion(body.to_string().as_bytes()).unwrap()
}

fn sha(ids: &[u32]) -> String {
    let mut sha = TokenSha::default();
    sha.extend(ids.iter().copied());
    sha.hex()
}

/// `field` of all deltas, joined.
fn joined(chunks: &[Value], field: &str) -> String {
    chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"][field].as_str()).collect()
}

#[test]
fn a_whole_chat_reply_has_reasoning_content_usage_and_runtime() {
    let reply = [ids("Let me think.</think>\n\nHello!"), vec![EOS]].concat();
    let prepared = chat(&json!({}));
    let prompt = prepared.request.prompt.len();
    let body = whole(prepared, &reply, FinishReason::Stop);
    let reasoning = ids("Let me think.").len();
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["model"], "demo");
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(
        body["choices"],
        json!([{"index": 0, "finish_reason": "stop", "logprobs": null, "message":
            {"role": "assistant", "content": "Hello!", "reasoning_content": "Let me think."}}])
    );
    let usage = &body["usage"];
    assert_eq!(usage["prompt_tokens"], prompt);
    assert_eq!(usage["completion_tokens"], reply.len());
    assert_eq!(usage["total_tokens"], prompt + reply.len());
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 4);
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], reasoning);
    let decode_rate = (reply.len() - 1) as f64 / 0.5;
    assert_eq!(
        body["finback"],
        json!({
            "token_sha": sha(&reply), "cached_tokens": 4,
            "cache": {"restored": 4, "matched": 6, "kept": [2, 4]}, "rounds": 4,
            "drafts": {"offered": 8, "accepted": 3, "by_position": [
                {"offered": 4, "accepted": 2}, {"offered": 4, "accepted": 1}]}, "numerics": "release",
            "timings": {"queue_s": 0.25, "prompt_s": 2.0, "decode_s": 0.5,
                "prompt_tokens_per_s": 5.0, "decode_tokens_per_s": decode_rate},
        })
    );
}

#[test]
fn a_stream_says_what_the_whole_reply_says() {
    let reply = [ids("Hm.</think>Grüße 🐋!"), vec![EOS]].concat();
    let body = whole(chat(&json!({})), &reply, FinishReason::Stop);
    let chunks = streamed(chat(&json!({"stream": true})), &reply, FinishReason::Stop);
    let message = &body["choices"][0]["message"];
    assert_eq!(joined(&chunks, "content"), message["content"].as_str().unwrap());
    assert_eq!(
        joined(&chunks, "reasoning_content"),
        message["reasoning_content"].as_str().unwrap()
    );
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let (last, rest) = chunks.split_last().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    assert_eq!(last["usage"], body["usage"]);
    assert_eq!(last["finback"], body["finback"]);
    for chunk in rest {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(chunk["id"], last["id"]);
        assert_eq!(chunk["choices"][0]["finish_reason"], Value::Null);
        assert!(chunk.get("usage").is_none() && chunk.get("finback").is_none());
    }
}

#[test]
fn usage_that_was_asked_for_has_a_chunk_of_its_own() {
    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let reply = [ids("</think>ok"), vec![EOS]].concat();
    for (prepared, finish) in [(chat(&options), "stop"), (completion(&options), "stop")] {
        let chunks = streamed(prepared, &reply, FinishReason::Stop);
        let [rest @ .., finished, last] = &chunks[..] else { panic!("{chunks:?}") };
        assert_eq!(finished["choices"][0]["finish_reason"], finish);
        assert_eq!(finished["usage"], Value::Null);
        assert_eq!(last["choices"], json!([]));
        assert_eq!(last["usage"]["completion_tokens"], reply.len());
        assert!(last["finback"]["token_sha"].is_string());
        assert!(rest.iter().all(|chunk| chunk.get("usage") == Some(&Value::Null)));
    }
}

#[test]
fn a_completion_is_all_the_tokens_say() {
    let reply = [ids("\n\nthe <think>whale</think>"), vec![EOS]].concat();
    let body = whole(completion(&json!({})), &reply, FinishReason::Stop);
    assert_eq!(body["object"], "text_completion");
    assert!(body["id"].as_str().unwrap().starts_with("cmpl-"));
    let text = "\n\nthe <think>whale</think>";
    assert_eq!(
        body["choices"],
        json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": "stop"}])
    );
    assert_eq!(body["usage"]["completion_tokens"], reply.len());
    assert_eq!(body["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
    let chunks = streamed(completion(&json!({"stream": true})), &reply, FinishReason::Stop);
    let streamed: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["text"].as_str()).collect();
    assert_eq!(streamed, text);
    let last = chunks.last().unwrap();
    assert_eq!((&last["usage"], &last["finback"]), (&body["usage"], &body["finback"]));
}

#[test]
fn ids_that_would_end_it_are_text_where_they_are_ignored() {
    let reply = [ids("a"), vec![EOS], ids("b")].concat();
    let prepared = completion(&json!({"ignore_eos": true}));
    let body = whole(prepared, &reply, FinishReason::Length);
    assert_eq!(body["choices"][0]["text"], "a<｜end▁of▁sentence｜>b");
    assert_eq!(body["choices"][0]["finish_reason"], "length");
}

#[test]
fn characters_split_over_tokens_arrive_whole() {
    let text = "日本 🐋é!";
    let reply = byte_ids(text.as_bytes());
    let chunks = streamed(completion(&json!({"stream": true})), &reply, FinishReason::Length);
    let pieces: Vec<&str> =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["text"].as_str()).collect();
    assert_eq!(pieces, ["日", "本", " ", "🐋", "é", "!", ""]);
    let mut reply = ids("</think>");
    reply.extend(byte_ids(text.as_bytes()));
    let chunks = streamed(chat(&json!({"stream": true})), &reply, FinishReason::Length);
    assert_eq!(joined(&chunks, "content"), text);
    assert!(!chunks.iter().any(|chunk| chunk.to_string().contains('\u{FFFD}')));
}

#[test]
fn an_unfinished_character_is_flushed_at_the_end_and_counted() {
    let mut reply = ids("</think>ok");
    reply.extend(byte_ids(&"🐋".as_bytes()[..3]));
    let body = whole(chat(&json!({})), &reply, FinishReason::Length);
    assert_eq!(body["choices"][0]["message"]["content"], "ok\u{FFFD}");
    assert_eq!(body["usage"]["completion_tokens"], reply.len());
    let reply = [byte_ids(&[0xF0, 0x9F]), vec![EOS]].concat();
    let body = whole(completion(&json!({})), &reply, FinishReason::Stop);
    assert_eq!(body["choices"][0]["text"], "\u{FFFD}");
}

#[test]
fn a_stop_string_ends_the_reply_before_it() {
    let reply = byte_ids("one, two, three, four".as_bytes());
    for stop in [json!("two"), json!(["zzz", "two, thr", ", thr"]), json!(["wo, t", "two"])] {
        let cut = if stop == json!(["wo, t", "two"]) || stop == json!("two") { 8 } else { 13 };
        let body = whole(completion(&json!({"stop": stop})), &reply, FinishReason::Length);
        let text = body["choices"][0]["text"].as_str().unwrap();
        assert_eq!(text, "one, ", "{stop}");
        assert_eq!(body["choices"][0]["finish_reason"], "stop");
        // The tokens up to the one that completed it, and no later one.
        assert_eq!(body["usage"]["completion_tokens"], cut);
        assert_eq!(body["finback"]["token_sha"], sha(&reply[..cut]));
        assert_eq!(body["finback"]["rounds"], 4, "counted by the engine with every token");
    }
}

#[test]
fn a_stop_string_works_across_pieces_and_not_inside_reasoning() {
    let mut reply = ids("END think</think>");
    reply.extend(ids("say EN"));
    reply.extend(ids("D and more"));
    let chunks =
        streamed(chat(&json!({"stream": true, "stop": "END"})), &reply, FinishReason::Length);
    assert_eq!(joined(&chunks, "content"), "say ");
    assert_eq!(joined(&chunks, "reasoning_content"), "END think");
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "stop");
}

#[test]
fn a_partial_stop_string_is_text_in_the_end() {
    let reply = [ids("</think>all EN"), vec![EOS]].concat();
    let chunks =
        streamed(chat(&json!({"stream": true, "stop": "END"})), &reply, FinishReason::Stop);
    assert_eq!(joined(&chunks, "content"), "all EN");
}

#[test]
fn tool_calls_are_parsed() {
    let call = "</think>I look.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n\
        <｜DSML｜ parameter name=\"city\" string=\"true\">Köln</｜DSML｜ parameter>\n\
        <｜DSML｜ parameter name=\"days\" string=\"false\">3</｜DSML｜ parameter>\n\
        </｜DSML｜ invoke>\n</｜DSML｜ calls>";
    let tools = json!({"tools": [{"type": "function", "function": {"name": "get_weather"}}]});
    let reply = [ids(call), vec![EOS]].concat();
    let body = whole(chat(&tools), &reply, FinishReason::Stop);
    let choice = &body["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], "I look.");
    let function = &choice["message"]["tool_calls"][0]["function"];
    assert_eq!(function["name"], "get_weather");
    assert_eq!(function["arguments"], r#"{"city": "Köln", "days": 3}"#);
    assert_eq!(body["usage"]["completion_tokens"], reply.len());
    // Without tools the same tokens are content.
    let body = whole(chat(&json!({})), &reply, FinishReason::Stop);
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert!(body["choices"][0]["message"]["content"].as_str().unwrap().contains("invoke"));
}

/// A reply to a request that names the tool `a` of two; its tokens go on inside the call.
fn named(more: &Value) -> Prepared {
    let tool = |name| json!({"type": "function", "function": {"name": name}});
    let mut body = json!({"tools": [tool("a"), tool("b")], "tool_choice": tool("a")});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    chat(&body)
}

const ARGUMENTS: &str = "<｜DSML｜ parameter name=\"x\" string=\"true\">one, two</｜DSML｜ parameter>\n\
    </｜DSML｜ invoke>";

#[test]
fn a_named_tool_is_the_only_one_that_is_called() {
    let again = format!("{ARGUMENTS}\n<｜DSML｜ invoke name=\"a\">\n</｜DSML｜ invoke>\n");
    let reply = [ids(&format!("{again}</｜DSML｜ calls>")), vec![EOS]].concat();
    let body = whole(named(&json!({})), &reply, FinishReason::Stop);
    let calls = |body: &Value| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let calls = body["choices"][0]["message"]["tool_calls"].as_array().unwrap();
        let functions = calls.iter().map(|call| &call["function"]);
        functions.map(|call| (text(&call["name"]), text(&call["arguments"]))).collect()
    };
    let first = ("a".to_owned(), r#"{"x": "one, two"}"#.to_owned());
    assert_eq!(calls(&body), [first.clone(), ("a".into(), "{}".into())]);
    assert_eq!(body["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(body["usage"]["completion_tokens"], reply.len());
    // A call of another ends the reply before it.
    let begun = ids(&format!("{ARGUMENTS}\n<｜DSML｜ invoke name=\"b\""));
    let reply = [begun.clone(), ids(&format!(">\n{ARGUMENTS}</｜DSML｜ calls>"))].concat();
    let body = whole(named(&json!({})), &reply, FinishReason::Length);
    assert_eq!(calls(&body), [first]);
    assert_eq!(body["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(body["finback"]["token_sha"], sha(&reply[..begun.len()]));
    let chunks = streamed(named(&json!({"stream": true})), &reply, FinishReason::Length);
    let names = chunks.iter().filter_map(|chunk| {
        chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["name"].as_str()
    });
    assert_eq!(names.collect::<Vec<_>>(), ["a"]);
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    // A reply that says nothing calls nothing.
    let body = whole(named(&json!({})), &[EOS], FinishReason::Stop);
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert!(body["choices"][0]["message"]["tool_calls"].is_null());
}

#[test]
fn a_stop_string_leaves_the_arguments_of_a_call_whole() {
    let reply = [ids(&format!("{ARGUMENTS}\n</｜DSML｜ calls>")), vec![EOS]].concat();
    let body = whole(named(&json!({"stop": [",", "one", "a"]})), &reply, FinishReason::Stop);
    let call = &body["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!((&call["name"], &call["arguments"]), (&"a".into(), &r#"{"x": "one, two"}"#.into()));
    assert_eq!(body["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn reasoning_that_never_ends_is_all_reasoning() {
    let reply = ids("one two three");
    let body = whole(chat(&json!({})), &reply, FinishReason::Length);
    let message = &body["choices"][0]["message"];
    assert_eq!(
        (&message["content"], &message["reasoning_content"]),
        (&json!(""), &json!("one two three"))
    );
    assert_eq!(body["usage"]["completion_tokens_details"]["reasoning_tokens"], reply.len());
    assert_eq!(body["choices"][0]["finish_reason"], "length");
}

#[test]
fn without_thinking_no_token_is_reasoning() {
    let reply = [ids("hello"), vec![EOS]].concat();
    let prepared = chat(&json!({"thinking": {"type": "disabled"}}));
    let body = whole(prepared, &reply, FinishReason::Stop);
    assert_eq!(body["choices"][0]["message"]["content"], "hello");
    assert_eq!(body["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
}

#[test]
fn an_engine_failure_fails_the_reply() {
    let mut output = chat(&json!({"stream": true})).output;
    output.push(Event::Started { cached_tokens: 0, prefix: None });
    let (chunks, progress) = output.push(Event::Failed { message: "the device is gone".into() });
    assert_eq!((chunks.len(), progress), (0, Progress::Failed("the device is gone".into())));
}

#[test]
fn reply_ids_differ() {
    let api = api();
    let body = br#"{"prompt": "a"}"#;
    let ids = [(); 3].map(|()| api.completion(body).unwrap().output.id().to_owned());
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
}

#[test]
fn a_terminal_gets_typed_pieces() {
    let body = json!({"messages": [{"role": "user", "content": "Hi"}]});
    let mut talk = api().talk(body).unwrap().output;
    let mut pieces = Vec::new();
    for id in ids("ab</think>yes") {
        pieces.extend(talk.push(token(id)).0);
    }
    assert_eq!(pieces.first(), Some(&Piece::Reasoning("a".into())));
    assert_eq!(pieces.last(), Some(&Piece::Content("es".into())));
    assert_eq!(talk.report().completion_tokens, ids("ab</think>yes").len());
}

proptest! {
    /// Whatever the tokens are: pieces and whole agree with each other and with plain decoding, up
    /// to the first stop string, and every token before its end is counted.
    #[test]
    fn any_tokens_decode_the_same_way(
        reply in prop::collection::vec(2u32..1024, 0..60),
        stop in prop::option::of("[a-e ]{1,3}"),
    ) {
        let text = crate::tokenizer().decode(&reply);
        let expected = match stop.as_deref().and_then(|stop| text.find(stop)) {
            Some(end) => &text[..end],
            None => &text[..],
        };
        let body = whole(completion(&json!({"stop": stop})), &reply, FinishReason::Length);
        prop_assert_eq!(body["choices"][0]["text"].as_str().unwrap(), expected);
        let mut output = completion(&json!({"stop": stop, "stream": true})).output;
        let (chunks, progress) = play(&mut output, &reply, FinishReason::Length);
        prop_assert_eq!(progress, Progress::Done);
        let pieces: String =
            chunks.iter().filter_map(|chunk| chunk["choices"][0]["text"].as_str()).collect();
        prop_assert_eq!(&pieces, expected);
        prop_assert_eq!(&chunks.last().unwrap()["usage"], &body["usage"]);
        if expected == text {
            prop_assert_eq!(body["usage"]["completion_tokens"].as_u64(), Some(reply.len() as u64));
            prop_assert_eq!(body["finback"]["token_sha"].as_str().unwrap(), sha(&reply));
        }
    }

    /// No body makes the conversion panic.
    #[test]
    fn any_bytes_are_answered(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let api = api();
        prop_assert!(api.chat(&body).is_err());
        prop_assert!(api.completion(&body).is_err());
    }
}

/// The chunks of a reply whose tokens each have a log-probability of minus their place, and a
/// likeliest token, `a`.
fn with_logprobs(prepared: Prepared, reply: &[u32]) -> (Vec<Value>, Value) {
    let count = prepared.request.logprobs.unwrap();
    let a = ids("a")[0];
    let mut output = prepared.output;
    let mut chunks = output.push(Event::Started { cached_tokens: 0, prefix: None }).0;
    for (place, &id) in reply.iter().enumerate() {
        let top = [(a, -0.25)].into_iter().take(count).collect();
        let logprobs = Some(Logprobs { own: -(place as f32), top });
        chunks
            .extend(output.push(Event::Token { id, logits: None, logprobs, timings: timings() }).0);
    }
    let end = Event::Finished { reason: FinishReason::Stop, timings: timings() };
    chunks.extend(output.push(end).0);
    let body = output.body();
    (chunks, body)
}

#[test]
fn chat_log_probabilities_have_bytes_and_their_place() {
    let reply = [ids("hm</think>"), byte_ids("\u{e9}!".as_bytes()), vec![EOS]].concat();
    let thought = ids("hm").len();
    let first = -(ids("hm</think>").len() as f32);
    let fields = json!({"logprobs": true, "top_logprobs": 1});
    let (_, body) = with_logprobs(chat(&fields), &reply);
    let top = json!([{"token": "a", "logprob": -0.25, "bytes": [97]}]);
    let logprobs = &body["choices"][0]["logprobs"];
    assert_eq!(
        logprobs["content"],
        json!([
            {"token": "\\xc3", "logprob": first, "bytes": [195], "top_logprobs": top},
            {"token": "\\xa9", "logprob": first - 1.0, "bytes": [169], "top_logprobs": top},
            {"token": "!", "logprob": first - 2.0, "bytes": [33], "top_logprobs": top},
        ])
    );
    assert_eq!(logprobs["reasoning_content"].as_array().unwrap().len(), thought);
    let fields = json!({"logprobs": true, "stream": true});
    let (chunks, _) = with_logprobs(chat(&fields), &reply);
    let streamed: Vec<&Value> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array())
        .flatten()
        .collect();
    assert_eq!(streamed.len(), 3);
    assert_eq!(streamed[2]["logprob"], first - 2.0);
    assert_eq!(streamed[2]["top_logprobs"], json!([]));
}

#[test]
fn completion_log_probabilities_are_lists_side_by_side() {
    let reply = byte_ids("\u{e9}b!".as_bytes());
    let (_, body) = with_logprobs(completion(&json!({"logprobs": 1})), &reply);
    assert_eq!(
        body["choices"][0]["logprobs"],
        json!({
            "tokens": ["\\xc3", "\\xa9", "b", "!"],
            "token_logprobs": [0.0, -1.0, -2.0, -3.0],
            "top_logprobs": [
                {"a": -0.25, "\\xc3": 0.0}, {"a": -0.25, "\\xa9": -1.0},
                {"a": -0.25, "b": -2.0}, {"a": -0.25, "!": -3.0}],
            "text_offset": [0, 1, 1, 2],
        })
    );
}

#[test]
fn a_token_that_a_stop_text_splits_is_reported_once() {
    // "b" waits as the start of a stop text, and "!" shows that it is none.
    let reply = byte_ids(b"ab!");
    for stream in [false, true] {
        let fields = json!({"logprobs": 0, "stop": ["bc"], "stream": stream});
        let (chunks, body) = with_logprobs(completion(&fields), &reply);
        let all = if stream { chunks } else { vec![body] };
        let tokens: Vec<&Value> = all
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["logprobs"]["tokens"].as_array())
            .flatten()
            .collect();
        assert_eq!(tokens, ["a", "b", "!"]);
    }
}

#[test]
fn a_reply_on_its_way_says_how_far_it_is() {
    let mut output = chat(&json!({"stream": true})).output;
    let prompt = output.report().prompt_tokens;
    let mut at = |event: Option<Event>| {
        event.into_iter().for_each(|event| drop(output.push(event)));
        let progress = output.report().progress();
        (progress["phase"].clone(), progress["prompt_done"].clone())
    };
    assert_eq!(at(None), (json!("queue"), json!(0)));
    let started = Event::Started { cached_tokens: 3, prefix: None };
    assert_eq!(at(Some(started)), (json!("prompt"), json!(3)));
    assert_eq!(at(Some(Event::Prompt { done: prompt })), (json!("prompt"), json!(prompt)));
    assert_eq!(at(Some(crate::token(5))).0, json!("reply"));
}
