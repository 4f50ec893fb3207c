//! Bodies nobody would write: any JSON in any field is answered, with one line where it is refused.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::api;

const FIELDS: [&str; 26] = [
    "model",
    "messages",
    "prompt",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "max_tokens",
    "max_completion_tokens",
    "stop",
    "ignore_eos",
    "stream",
    "stream_options",
    "n",
    "echo",
    "suffix",
    "logprobs",
    "logit_bias",
    "tools",
    "tool_choice",
    "thinking",
    "reasoning_effort",
    "response_format",
    "parallel_tool_calls",
    "modalities",
];

/// Values that are nearly right are worth more than random ones.
fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-3i64..40).prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        prop::sample::select(vec![
            "user",
            "assistant",
            "system",
            "tool",
            "text",
            "function",
            "auto",
            "required",
            "none",
            "enabled",
            "<｜User｜>",
            "object",
            "image_url",
            "data:image/png;base64,AAAA",
        ])
        .prop_map(Value::from),
    ]
}

fn key() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "role",
        "content",
        "type",
        "text",
        "name",
        "function",
        "parameters",
        "tool_calls",
        "id",
        "arguments",
        "tool_call_id",
        "prefix",
        "reasoning_content",
        "image_url",
        "url",
        "strict",
        "include_usage",
        "properties",
        "$ref",
        "required",
    ])
    .prop_map(str::to_owned)
}

fn anything() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..5)
                .prop_map(|fields| fields.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_json_in_any_field_is_answered(
        fields in prop::collection::vec((prop::sample::select(FIELDS.to_vec()), anything()), 0..4),
    ) {
        let api = api();
        let mut body = json!({"prompt": "a", "messages": [{"role": "user", "content": "Hi"}]});
        for (field, value) in fields {
            body[field] = value;
        }
        let bytes = body.to_string();
        for answer in [api.chat(bytes.as_bytes()), api.completion(bytes.as_bytes())] {
            match answer {
                Ok(prepared) => prop_assert!(prepared.request.max_tokens >= 1),
                Err(error) => {
                    let message = error.to_string();
                    prop_assert_eq!(message.lines().count(), 1, "{}", message);
                    prop_assert!(message.chars().count() < 2000, "{}", message);
                }
            }
        }
    }
}
