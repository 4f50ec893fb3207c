//! What a body may not say, and how it is told.

use finback_protocol::Error;
use serde_json::{Value, json};

use crate::{api, tokenizer};

/// The error of a body with these fields beside a good prompt, on both routes where it is common.
fn refused(fields: &Value) -> Error {
    let mut body = json!({"prompt": "a"});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    api().completion(body.to_string().as_bytes()).expect_err(&format!("{fields} is refused"))
}

fn chat_refused(fields: &Value) -> Error {
    let mut body = json!({"messages": [{"role": "user", "content": "Hi"}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    api().chat(body.to_string().as_bytes()).expect_err(&format!("{fields} is refused"))
}

#[test]
fn malformed_parameters_are_named_on_both_routes() {
    let cases = [
        ("temperature", json!(true), "a number from 0 to 2"),
        ("temperature", json!("0.5"), "a number from 0 to 2"),
        ("temperature", json!(-0.1), "a number from 0 to 2"),
        ("temperature", json!(2.1), "a number from 0 to 2"),
        ("temperature", json!([1]), "a number from 0 to 2"),
        ("top_p", json!(0), "a number above 0, at most 1"),
        ("top_p", json!(1.01), "a number above 0, at most 1"),
        ("top_p", json!(false), "a number above 0, at most 1"),
        ("top_k", json!(1.5), "a whole number from 0 (all) to 4294967295, or -1 (all)"),
        ("top_k", json!(-2), "a whole number from 0 (all) to 4294967295, or -1 (all)"),
        (
            "top_k",
            json!(4_294_967_296u64),
            "a whole number from 0 (all) to 4294967295, or -1 (all)",
        ),
        ("min_p", json!(1.5), "a number from 0 to 1"),
        ("seed", json!(1.5), "a whole number from 0 to 18446744073709551615"),
        ("seed", json!(-1), "a whole number from 0 to 18446744073709551615"),
        ("seed", json!("7"), "a whole number from 0 to 18446744073709551615"),
        ("max_tokens", json!(0), "a whole number of at least 1"),
        ("max_tokens", json!(2.5), "a whole number of at least 1"),
        ("max_completion_tokens", json!("9"), "a whole number of at least 1"),
        ("ignore_eos", json!(1), "true or false"),
        ("stream", json!("true"), "true or false"),
        ("stream_options", json!(true), "an object"),
        ("stop", json!(""), "a text or a list of at most 16, none of them empty"),
        ("stop", json!(["a", ""]), "a text or a list of at most 16, none of them empty"),
        ("stop", json!([1]), "a text or a list of at most 16, none of them empty"),
        ("stop", json!({}), "a text or a list of at most 16, none of them empty"),
    ];
    for (field, value, accepted) in cases {
        for error in [refused(&json!({field: value})), chat_refused(&json!({field: value}))] {
            assert_eq!(error.to_string(), format!("{field} is {value}; accepted: {accepted}"));
            assert_eq!((error.param(), error.code()), (Some(field), "invalid_value"));
        }
    }
    let many = vec!["x"; 17];
    assert_eq!(refused(&json!({"stop": many})).param(), Some("stop"));
    let error = refused(&json!({"stream_options": {"include_usage": 1}}));
    assert_eq!(error.to_string(), "stream_options.include_usage is 1; accepted: true or false");
}

#[test]
fn two_limits_that_differ_are_refused() {
    let error = refused(&json!({"max_tokens": 3, "max_completion_tokens": 4}));
    assert_eq!(
        error.to_string(),
        "max_tokens is 3; accepted: the value of max_completion_tokens, 4, or only one of the two"
    );
    let body = br#"{"prompt": "a", "max_tokens": 3, "max_completion_tokens": 3}"#;
    assert_eq!(api().completion(body).unwrap().request.max_tokens, 3);
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    let common = [
        ("n", json!(2), "1"),
        ("n", json!("1"), "1"),
        ("best_of", json!(3), "1"),
        ("repetition_penalty", json!(1.1), "1"),
        ("min_tokens", json!(4), "0"),
        ("stop_token_ids", json!([3]), "an empty list"),
        ("prompt_logprobs", json!(1), "null"),
        ("guided_json", json!({}), "null"),
        ("echo", json!(true), "false"),
        ("suffix", json!("end"), "an empty text"),
        ("response_format", json!({"type": "json_object"}), "{\"type\":\"text\"}"),
        ("functions", json!([{}]), "an empty list"),
        ("modalities", json!(["audio"]), "[\"text\"]"),
        ("audio", json!({"voice": "x"}), "null"),
    ];
    let check = |error: Error, field: &str, value: &Value, accepted: &str| {
        let message =
            format!("{field} is {value}, which this server does not support; accepted: {accepted}");
        assert_eq!(error.to_string(), message);
        assert_eq!((error.param(), error.code()), (Some(field), "unsupported_value"));
    };
    for (field, value, accepted) in common {
        check(refused(&json!({field: value})), field, &value, accepted);
        check(chat_refused(&json!({field: value})), field, &value, accepted);
    }
    let (field, value) = ("top_logprobs", json!(5));
    check(refused(&json!({field: value})), field, &value, "0, with the count in logprobs");
}

#[test]
fn bad_prompts_name_the_place() {
    let id = "a token id, a whole number from 0 to 4294967295";
    let any = "a text, a list of token ids, or a list of one of these";
    for (prompt, message) in [
        (json!(5), format!("prompt is 5; accepted: {any}")),
        (json!({}), format!("prompt is {{}}; accepted: {any}")),
        (json!([1, -1]), format!("prompt[1] is -1; accepted: {id}")),
        (json!([4_294_967_296u64]), format!("prompt[0] is 4294967296; accepted: {id}")),
        (json!([[4_294_967_296u64]]), format!("prompt[0][0] is 4294967296; accepted: {id}")),
        (json!([[1, 2.5]]), format!("prompt[0][1] is 2.5; accepted: {id}")),
        (json!([[true]]), format!("prompt[0][0] is true; accepted: {id}")),
        (
            json!(["a", "b"]),
            "prompt[0] is \"a\"; accepted: a token id; a request has one prompt".to_owned(),
        ),
        (
            json!([[1], [2]]),
            "prompt[0] is [1]; accepted: a token id; a request has one prompt".to_owned(),
        ),
    ] {
        assert_eq!(refused(&json!({"prompt": prompt})).to_string(), message);
    }
    let error = api().completion(b"{}").unwrap_err();
    assert_eq!(error.to_string(), format!("prompt is missing; accepted: {any}"));
    assert_eq!((error.param(), error.code()), (Some("prompt"), "missing_field"));
}

#[test]
fn bad_messages_name_the_message() {
    for (messages, start) in [
        (json!(null), "messages is missing; accepted: a list of at least one message"),
        (json!([]), "messages is []; accepted: a list of at least one message"),
        (json!("Hi"), "messages is \"Hi\"; accepted: a list of at least one message"),
        (json!(["Hi"]), "messages[0] is \"Hi\"; accepted: an object with role and content"),
        (
            json!([{"role": "user", "content": "a"}, {"role": "ghost", "content": "b"}]),
            "messages[1] is {\"role\":\"ghost\",\"content\":\"b\"}; accepted: a message of the \
             chat format (unknown variant `ghost`",
        ),
        (
            json!([{"role": "two\nlines", "content": "b"}]),
            "messages[0] is {\"role\":\"two\\nlines\",\"content\":\"b\"}; accepted: a message of the chat \
             format (unknown variant `two lines`",
        ),
        (
            json!([{"role": "user"}]),
            "messages[0] is {\"role\":\"user\"}; accepted: a message of the chat format (missing",
        ),
        (
            json!([{"role": "user", "content": 7}]),
            "messages[0] is {\"role\":\"user\",\"content\":7}; accepted: a message",
        ),
        (
            json!([{"role": "tool", "content": "x", "tool_call_id": "1"}]),
            "messages cannot be converted: ",
        ),
        (
            json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url",
                "image_url": {"url": "https://example.org/a.png"}}]}]),
            "messages[0].content[1].type is \"image_url\", which this server does not support; \
             accepted: \"text\"",
        ),
        // However malformed.
        (
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": 7}]}]),
            "messages[0].content[0].type is \"image_url\", which this server does not support",
        ),
        (
            json!([{"role": "user", "content": [{"type": "text"}]}]),
            "messages[0] is {\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}; accepted: a message",
        ),
    ] {
        let error = chat_refused(&json!({"messages": messages})).to_string();
        assert!(error.starts_with(start), "{error}\n{start}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn the_other_fields_of_a_chat_are_named_too() {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    for (field, value) in [
        ("tools", json!("x")),
        ("tool_choice", json!({})),
        ("thinking", json!({"type": 5})),
        ("thinking", json!(true)),
        ("reasoning_effort", json!("much\nmore")),
        ("parallel_tool_calls", json!(-1)),
    ] {
        let error = chat_refused(&json!({"messages": messages, (field): value}));
        let start = format!("{field} is {value}; accepted: a value of the chat format (");
        assert!(error.to_string().starts_with(&start), "{error}\n{start}");
        assert_eq!((error.param(), error.code()), (Some(field), "invalid_value"));
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
}

#[test]
fn tools_that_make_no_conversation_are_named() {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}});
    let chosen = |name: &str| json!({"type": "function", "function": {"name": name}});
    let stray = json!([{"role": "tool", "content": "x", "tool_call_id": "1"}]);
    let off = json!({"type": "disabled"});
    for (fields, field, detail) in [
        (json!({"tools": [tool("a b")]}), "tools", "Invalid 'tools[0].function.name'"),
        (json!({"tools": [tool("a"), tool("a")]}), "tools", "Tool names must be unique."),
        (
            json!({"tools": [tool("a")], "tool_choice": chosen("b"), "thinking": off}),
            "tool_choice",
            "Invalid value for 'tool_call': no function named 'b'",
        ),
        (
            json!({"tools": [tool("a")], "messages": stray}),
            "messages",
            "Messages with role 'tool' must be a response",
        ),
    ] {
        let error = chat_refused(&fields);
        let start = format!("{field} cannot be converted: {detail}");
        assert!(error.to_string().starts_with(&start), "{error}\n{start}");
        let code = if field == "messages" { "invalid_messages" } else { "invalid_value" };
        assert_eq!((error.param(), error.code()), (Some(field), code));
    }
    for fields in [
        json!({"tool_choice": "required", "thinking": {"type": "enabled"}}),
        json!({"tool_choice": chosen("a"), "reasoning_effort": "low"}),
    ] {
        let mut fields = fields;
        fields["tools"] = json!([tool("a")]);
        let error = chat_refused(&fields);
        let text = error.to_string();
        assert!(text.starts_with("tool_choice is ") && text.contains("\"disabled\""), "{text}");
        assert_eq!((error.param(), error.code()), (Some("tool_choice"), "invalid_value"));
    }
}

#[test]
fn a_call_that_no_tool_can_answer_is_not_forced() {
    for choice in [json!("required"), json!({"type": "function", "function": {"name": "a"}})] {
        for tools in [Value::Null, json!([])] {
            let error = chat_refused(&json!({"tools": tools, "tool_choice": choice}));
            assert!(
                error.to_string().ends_with("accepted: \"none\" or \"auto\" without tools"),
                "{error}"
            );
            assert_eq!((error.param(), error.code()), (Some("tool_choice"), "invalid_value"));
        }
    }
}

#[test]
fn bodies_that_are_no_object_say_where() {
    let api = api();
    for (body, start) in [
        (&b""[..], "the request body is not JSON: EOF while parsing a value at line 1 column 0"),
        (b"{\"a\": 1,\n \"b\": NaN}", "the request body is not JSON: expected value at line 2"),
        (
            b"{\"temperature\": 1e999}",
            "the request body is not JSON: number out of range at line 1",
        ),
        (b"\xff", "the request body is not JSON: expected value at line 1 column 1"),
        (b"[1]", "the request body is [1]; accepted: a JSON object"),
    ] {
        for error in [api.chat(body).unwrap_err(), api.completion(body).unwrap_err()] {
            assert!(error.to_string().starts_with(start), "{error}");
            assert_eq!(error.code(), "invalid_json");
        }
    }
}

#[test]
fn a_text_that_must_fill_the_context_is_not_encoded() {
    let (api, tokenizer) = (api(), tokenizer());
    let spelling = (0..tokenizer.vocab_size() as u32)
        .map(|id| tokenizer.decode(&[id]))
        .max_by_key(String::len)
        .unwrap();
    // As many bytes as fit in one token fewer than the context: all of them can be taken.
    let body = |tokens: usize| json!({"prompt": spelling.repeat(tokens)}).to_string();
    let most = api.completion(body(4095).as_bytes()).unwrap();
    assert_eq!(most.request.prompt.len(), 4095);
    let error = api.completion(body(4096).as_bytes()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "this server's maximum context length is 4096 tokens; the prompt has {} bytes, which \
             are at least 4096 tokens, and leaves no room for a reply",
            4096 * spelling.len()
        )
    );
    assert_eq!((error.param(), error.code()), (None, "context_length_exceeded"));
    let text = "far too long ".repeat(2 << 20);
    let chat = json!({"messages": [{"role": "user", "content": text}]}).to_string();
    let error = api.chat(chat.as_bytes()).unwrap_err();
    assert!(matches!(error, Error::TooLong { context: 4096, .. }), "{error}");
}

#[test]
fn another_model_is_not_found() {
    for model in [json!("gpt-4"), json!(5)] {
        let error = refused(&json!({"model": model}));
        assert_eq!(
            error.to_string(),
            format!("the model {model} does not exist; this server serves \"demo\"")
        );
        assert_eq!((error.param(), error.code()), (Some("model"), "model_not_found"));
    }
}

#[test]
fn long_values_are_shortened() {
    let error = refused(&json!({"temperature": "9".repeat(1000)})).to_string();
    assert!(error.len() < 130 && error.contains('…'), "{error}");
}

#[test]
fn penalties_bias_and_log_probabilities_have_ranges() {
    let penalty = "a number from -2 to 2";
    for (fields, field, message) in [
        (
            json!({"presence_penalty": 2.5}),
            "presence_penalty",
            format!("is 2.5; accepted: {penalty}"),
        ),
        (
            json!({"frequency_penalty": "1"}),
            "frequency_penalty",
            format!("is \"1\"; accepted: {penalty}"),
        ),
        (
            json!({"logit_bias": {"5": 101}}),
            "logit_bias.5",
            "is 101; accepted: a number from -100 to 100".into(),
        ),
        (
            json!({"logit_bias": {"five": 1}}),
            "logit_bias",
            "is \"five\"; accepted: token ids as keys, without a sign or leading zeros".into(),
        ),
        (
            json!({"logit_bias": {"05": 1}}),
            "logit_bias",
            "is \"05\"; accepted: token ids as keys, without a sign or leading zeros".into(),
        ),
        (
            json!({"logit_bias": {"5": 1, "+5": 2}}),
            "logit_bias",
            "is \"+5\"; accepted: token ids as keys, without a sign or leading zeros".into(),
        ),
        (json!({"draft": 1}), "draft", "is 1; accepted: true or false".into()),
        (json!({"cache": "no"}), "cache", "is \"no\"; accepted: true or false".into()),
    ] {
        for error in [refused(&fields), chat_refused(&fields)] {
            assert_eq!(error.to_string(), format!("{field} {message}"));
            assert_eq!((error.param(), error.code()), (Some(field), "invalid_value"));
        }
    }
    let range = "a whole number from 0 to 20";
    let message = |error: Error| error.to_string();
    assert_eq!(
        message(refused(&json!({"logprobs": 21}))),
        format!("logprobs is 21; accepted: {range}")
    );
    assert_eq!(
        message(refused(&json!({"logprobs": true}))),
        format!("logprobs is true; accepted: {range}")
    );
    let fields = json!({"logprobs": true, "top_logprobs": 21});
    assert_eq!(message(chat_refused(&fields)), format!("top_logprobs is 21; accepted: {range}"));
    assert_eq!(
        message(chat_refused(&json!({"top_logprobs": 2}))),
        "top_logprobs is 2; accepted: 0, or \"logprobs\": true beside it"
    );
    assert_eq!(
        message(chat_refused(&json!({"logprobs": 1}))),
        "logprobs is 1; accepted: true or false"
    );
}
