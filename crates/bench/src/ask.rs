//! The requests that benchmarks send.

use serde_json::{Value, json};

/// The seed of the first stream or repetition; the next ones follow.
pub(crate) const FIRST_SEED: u64 = 1234;
/// The text of the raw completion.
const RAW: &str = "def fibonacci(n):\n    \"\"\"Returns the first n Fibonacci numbers.\"\"\"\n";
/// The text of the chat message.
const CHAT: &str = "Explain in a few paragraphs how a GPU hides the latency of its memory.";

/// One request: its route and its body.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// The route under the server's address.
    pub path: &'static str,
    /// The body, without the model.
    pub body: Value,
}

impl Ask {
    /// A chat of one user message.
    #[must_use]
    pub fn chat(text: &str, tokens: usize, temperature: f64, seed: u64) -> Self {
        let body = json!({"messages": [{"role": "user", "content": text}]});
        Self { path: "/v1/chat/completions", body }.with(tokens, temperature, seed)
    }

    /// The continuation of a text.
    #[must_use]
    pub fn raw(text: &str, tokens: usize, temperature: f64, seed: u64) -> Self {
        Self { path: "/v1/completions", body: json!({"prompt": text}) }.with(
            tokens,
            temperature,
            seed,
        )
    }

    /// The fixed raw prompt, or with `chat` the fixed chat prompt.
    #[must_use]
    pub fn fixed(chat: bool, tokens: usize, temperature: f64, seed: u64) -> Self {
        if chat {
            Self::chat(CHAT, tokens, temperature, seed)
        } else {
            Self::raw(RAW, tokens, temperature, seed)
        }
    }

    /// The request of one of several streams: all of one shape, or with `mixed` every second one a
    /// raw completion, with prompts and replies of four lengths.
    #[must_use]
    pub fn stream(index: usize, mixed: bool, tokens: usize, temperature: f64) -> Self {
        let seed = FIRST_SEED + index as u64;
        if !mixed {
            let text = format!("Tell a story in which the number {index} matters.");
            return Self::chat(&text, tokens, temperature, seed);
        }
        let text = format!("The number {index} is of some interest. ").repeat(1 + 6 * (index % 4));
        let tokens = (tokens * (4 - index % 4)).div_ceil(4);
        if index.is_multiple_of(2) {
            Self::chat(&text, tokens, temperature, seed)
        } else {
            Self::raw(&text, tokens, temperature, seed)
        }
    }

    fn with(mut self, tokens: usize, temperature: f64, seed: u64) -> Self {
        let body = &mut self.body;
        body["max_tokens"] = json!(tokens);
        body["temperature"] = json!(temperature);
        if temperature > 0.0 {
            body["top_p"] = json!(0.95);
        }
        body["seed"] = json!(seed);
        body["ignore_eos"] = json!(true);
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
        self
    }

    /// The same request decoded without drafts.
    #[must_use]
    pub fn undrafted(mut self) -> Self {
        self.body["draft"] = json!(false);
        self
    }

    /// A greedy conversation without thinking, whose replies end where the model ends them.
    #[must_use]
    pub fn talk(messages: &Value, tokens: usize) -> Self {
        let body = json!({"messages": messages, "thinking": {"type": "disabled"}});
        let mut ask = Self { path: "/v1/chat/completions", body }.with(tokens, 0.0, FIRST_SEED);
        ask.body["ignore_eos"] = json!(false);
        ask
    }

    /// The same request without kept prefixes: none is used, none is made.
    #[must_use]
    pub fn uncached(mut self) -> Self {
        self.body["cache"] = json!(false);
        self
    }

    /// The same request answered in one piece.
    #[must_use]
    pub fn whole(mut self) -> Self {
        self.body["stream"] = json!(false);
        if let Some(body) = self.body.as_object_mut() {
            body.remove("stream_options");
        }
        self
    }

    /// Whether the reply comes in pieces.
    #[must_use]
    pub fn streams(&self) -> bool {
        self.body["stream"] == true
    }
}
