//! A reply as a client sees it: when its pieces came, and what it says it took.

use std::time::{Duration, Instant};

use serde_json::Value;

/// Pieces of text from which a decode rate is taken at least.
const PIECES_MIN: usize = 4;

/// One reply, whole or as far as it was read.
#[derive(Debug, Clone)]
pub struct Reply {
    /// When the request was sent.
    pub sent: Instant,
    /// When each piece of text came.
    pub pieces: Vec<Instant>,
    /// The answer's text, without its reasoning.
    pub text: String,
    /// Prompt tokens, where the server counts them.
    pub prompt_tokens: Option<u64>,
    /// Prompt tokens that were restored instead of run, where the server tells.
    pub cached_tokens: Option<u64>,
    /// Seconds it waited for a slot, where the server tells.
    pub queue_s: Option<f64>,
    /// Reply tokens, where the server counts them.
    pub tokens: Option<u64>,
    /// The hash of the reply's tokens: 64 hexadecimal digits, where the server sends it.
    pub token_sha: Option<String>,
    /// Model rounds after the prompt, where the server counts them.
    pub rounds: Option<u64>,
    /// Drafted tokens that were verified, where the server counts them.
    pub drafts_offered: Option<u64>,
    /// Why it ended, once it has.
    pub finish: Option<String>,
}

impl Reply {
    pub(crate) fn new(sent: Instant) -> Self {
        Self {
            sent,
            pieces: Vec::new(),
            text: String::new(),
            prompt_tokens: None,
            cached_tokens: None,
            queue_s: None,
            tokens: None,
            token_sha: None,
            rounds: None,
            drafts_offered: None,
            finish: None,
        }
    }

    /// Takes an event of a stream, or the whole reply, which came at `at`.
    ///
    /// # Errors
    ///
    /// The message of an error that was sent instead.
    pub(crate) fn take(&mut self, event: &Value, at: Instant) -> Result<(), String> {
        if !event["error"].is_null() {
            return Err(format!("broke off: {}", message(event)));
        }
        let choice = &event["choices"][0];
        if has_text(choice) {
            self.pieces.push(at);
        }
        let parts = [&choice["text"], &choice["delta"]["content"], &choice["message"]["content"]];
        self.text.extend(parts.into_iter().filter_map(Value::as_str));
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finish = Some(reason.to_owned());
        }
        let (usage, own) = (&event["usage"], &event["finback"]);
        self.tokens = usage["completion_tokens"].as_u64().or(self.tokens);
        self.prompt_tokens = usage["prompt_tokens"].as_u64().or(self.prompt_tokens);
        let cached = [
            &usage["prompt_tokens_details"]["cached_tokens"],
            &usage["prompt_cache_hit_tokens"],
            &own["cached_tokens"],
        ];
        self.cached_tokens = cached.into_iter().find_map(Value::as_u64).or(self.cached_tokens);
        self.queue_s = own["timings"]["queue_s"].as_f64().or(self.queue_s);
        if let Some(sha) = own["token_sha"].as_str().filter(|sha| is_sha(sha)) {
            self.token_sha = Some(sha.to_owned());
        }
        self.rounds = own["rounds"].as_u64().or(self.rounds);
        self.drafts_offered = own["drafts"]["offered"].as_u64().or(self.drafts_offered);
        Ok(())
    }

    /// From sending the request to the first piece of text.
    #[must_use]
    pub fn first_piece(&self) -> Option<Duration> {
        self.pieces.first().map(|first| first.duration_since(self.sent))
    }

    /// From sending the request to the last piece of text.
    #[must_use]
    pub fn last_piece(&self) -> Option<Duration> {
        self.pieces.last().map(|last| last.duration_since(self.sent))
    }

    /// Seconds between one piece of text and the next.
    #[must_use]
    pub fn gaps_s(&self) -> Vec<f64> {
        self.pieces.windows(2).map(|two| two[1].duration_since(two[0]).as_secs_f64()).collect()
    }

    /// Tokens after the first, a second, from the first piece to the last; `None` where too few
    /// pieces came or the tokens were not counted.
    #[must_use]
    pub fn decode_rate(&self) -> Option<f64> {
        let (first, last) = (self.pieces.first()?, self.pieces.last()?);
        let seconds = last.duration_since(*first).as_secs_f64();
        let tokens = self.tokens?.checked_sub(1)?;
        (self.pieces.len() >= PIECES_MIN && seconds > 0.0).then(|| tokens as f64 / seconds)
    }

    /// Tokens after the first, a model round.
    #[must_use]
    pub fn tokens_per_round(&self) -> Option<f64> {
        let (tokens, rounds) = (self.tokens?.checked_sub(1)?, self.rounds?);
        (rounds > 0).then(|| tokens as f64 / rounds as f64)
    }

    /// Tokens that came from `from` to `to`, each piece counting for as many as the others.
    pub(crate) fn tokens_between(&self, from: Instant, to: Instant) -> Option<f64> {
        let share = self.tokens? as f64 / self.pieces.len() as f64;
        let inside = self.pieces.iter().filter(|piece| **piece > from && **piece <= to).count();
        share.is_finite().then_some(inside as f64 * share)
    }
}

/// The words of an error body in any of the usual forms.
pub(crate) fn message(body: &Value) -> String {
    let error = &body["error"];
    let text = error["message"].as_str().or(error.as_str()).or(body["message"].as_str());
    text.map_or_else(|| body.to_string(), str::to_owned)
}

fn has_text(choice: &Value) -> bool {
    let filled = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let said = |part: &Value| {
        filled(&part["content"])
            || filled(&part["reasoning_content"])
            || filled(&part["reasoning"])
            || part["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty())
    };
    filled(&choice["text"]) || said(&choice["delta"]) || said(&choice["message"])
}

fn is_sha(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pieces_tokens_and_figures_are_read_from_any_route() {
        let sent = Instant::now();
        let at = |ms: u64| sent + Duration::from_millis(ms);
        let mut reply = Reply::new(sent);
        let mut take = |event: Value, ms| reply.take(&event, at(ms)).unwrap();
        take(json!({"choices": [{"delta": {"role": "assistant"}}], "usage": null}), 10);
        take(json!({"choices": [{"delta": {"reasoning_content": "a"}}]}), 100);
        take(json!({"choices": [{"delta": {"content": "b"}}]}), 200);
        take(json!({"choices": [{"text": "c"}]}), 300);
        take(json!({"choices": [{"message": {"content": "d"}, "finish_reason": "length"}]}), 500);
        take(
            json!({"choices": [], "usage": {"completion_tokens": 9, "prompt_tokens": 5},
                "finback": {"token_sha": "0".repeat(64), "rounds": 4, "drafts": {"offered": 7},
                    "cached_tokens": 3, "timings": {"queue_s": 0.25}}}),
            600,
        );
        assert_eq!((reply.text.as_str(), reply.queue_s), ("bcd", Some(0.25)));
        assert_eq!((reply.prompt_tokens, reply.cached_tokens), (Some(5), Some(3)));
        assert_eq!(reply.gaps_s(), [0.1, 0.1, 0.2]);
        assert_eq!(reply.last_piece(), Some(Duration::from_millis(500)));
        assert_eq!(reply.first_piece(), Some(Duration::from_millis(100)));
        assert_eq!(reply.decode_rate(), Some(20.0));
        assert_eq!(reply.tokens_per_round(), Some(2.0));
        assert_eq!(reply.drafts_offered, Some(7));
        assert_eq!(reply.finish.as_deref(), Some("length"));
        assert_eq!(reply.tokens_between(at(100), at(300)), Some(4.5));
    }

    #[test]
    fn cached_tokens_are_read_where_they_are_a_count() {
        let cached = |usage: Value| {
            let mut reply = Reply::new(Instant::now());
            reply.take(&json!({"usage": usage}), reply.sent).unwrap();
            reply.cached_tokens
        };
        assert_eq!(cached(json!({"prompt_tokens_details": {"cached_tokens": 0}})), Some(0));
        assert_eq!(cached(json!({"prompt_cache_hit_tokens": 7})), Some(7));
        for wrong in [json!(-1), json!(true), json!("0"), json!(null), json!(0.5)] {
            assert_eq!(cached(json!({"prompt_tokens_details": {"cached_tokens": wrong}})), None);
        }
    }

    #[test]
    fn a_hash_of_another_form_is_missing_and_few_pieces_give_no_rate() {
        let mut reply = Reply::new(Instant::now());
        for wrong in [json!("abc"), json!(7), json!("g".repeat(64)), json!(null)] {
            reply.take(&json!({"finback": {"token_sha": wrong}}), reply.sent).unwrap();
        }
        assert_eq!(reply.token_sha, None);
        assert_eq!((reply.decode_rate(), reply.tokens_per_round()), (None, None));
        let error = reply.take(&json!({"error": {"message": "out of luck"}}), reply.sent);
        assert_eq!(error, Err("broke off: out of luck".to_owned()));
    }
}
