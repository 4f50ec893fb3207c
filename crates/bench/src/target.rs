//! A server under test.

use std::io::{BufReader, Read};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::{Agent, AgentBuilder, Request, Response};

use crate::sse::Events;
use crate::{Ask, BenchError, BenchResult, Reply, reply};

/// No server that answers at all waits longer with the next byte.
const READ_TIMEOUT: Duration = Duration::from_secs(600);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an error body that are quoted at most.
const QUOTED: u64 = 2000;

/// An OpenAI-compatible server.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its address, without `/v1`.
    url: String,
    agent: Agent,
    key: Option<String>,
    model: Option<String>,
    owner: Option<String>,
}

impl Target {
    /// Asks the server at `url` for its models; requests name `model`, else the first of them.
    ///
    /// # Errors
    ///
    /// An address that is none, or a server that does not answer. One that has no model list is
    /// taken: its requests then name no model where none is given.
    pub fn connect(url: &str, model: Option<String>, key: Option<String>) -> BenchResult<Self> {
        let url = address(url).ok_or_else(|| BenchError::Url { found: url.to_owned() })?;
        let agent = AgentBuilder::new()
            .timeout_connect(CONNECT_TIMEOUT)
            .timeout_read(READ_TIMEOUT)
            // A connection a request: all streams begin alike, and dropping one ends its request.
            .max_idle_connections(0)
            .redirects(0)
            .user_agent(concat!("finback-bench/", env!("CARGO_PKG_VERSION")))
            .build();
        let mut target = Self { url, agent, key, model, owner: None };
        let list: Value = match target.get("/v1/models") {
            Ok(text) => serde_json::from_str(&text).unwrap_or_default(),
            Err(BenchError::Status { .. }) => Value::Null,
            Err(error) => return Err(error),
        };
        let word = |field: &str| list["data"][0][field].as_str().map(str::to_owned);
        target.owner = word("owned_by");
        target.model = target.model.or(word("id"));
        Ok(target)
    }

    /// What a report says of it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({"url": self.url, "model": self.model, "owned_by": self.owner})
    }

    /// Its address, without `/v1`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The body of a GET.
    ///
    /// # Errors
    ///
    /// No answer, or one with an error status.
    pub fn get(&self, path: &str) -> BenchResult<String> {
        let url = format!("{}{path}", self.url);
        let answer = self.headers(self.agent.get(&url)).call();
        let answer = answer.map_err(|error| failed(&url, error))?;
        answer
            .into_string()
            .map_err(|error| BenchError::Transport { url, reason: error.to_string() })
    }

    /// Asks and reads the reply to its end.
    ///
    /// # Errors
    ///
    /// A refusal, a broken connection, or a reply that is not whole.
    pub fn ask(&self, ask: &Ask) -> BenchResult<Reply> {
        self.ask_hearing(ask, |_| ())
    }

    /// As [`Target::ask`]; `hear` gets the reply after each of its events.
    ///
    /// # Errors
    ///
    /// As [`Target::ask`].
    pub fn ask_hearing(&self, ask: &Ask, mut hear: impl FnMut(&Reply)) -> BenchResult<Reply> {
        let reply = self.read(ask, None, |reply| {
            hear(reply);
            true
        })?;
        match reply.finish {
            Some(_) => Ok(reply),
            None => Err(self.broken(ask, "has no finish_reason".into())),
        }
    }

    /// Asks for a streamed reply and goes away after `pieces` of its text, if it has that many.
    ///
    /// # Errors
    ///
    /// As [`Target::ask`], up to that piece.
    pub fn cancel(&self, ask: &Ask, pieces: usize) -> BenchResult<()> {
        self.read(ask, None, |reply| reply.pieces.len() < pieces).map(drop)
    }

    /// Asks and goes away after `time`, whatever has come by then.
    pub fn leave(&self, ask: &Ask, time: Duration) {
        // Whether the reply was faster than that does not matter.
        let _ = self.read(ask, Some(time), |_| true);
    }

    /// Reads a reply to its end, or as long as it is to `go_on` after an event.
    fn read(
        &self,
        ask: &Ask,
        limit: Option<Duration>,
        mut go_on: impl FnMut(&Reply) -> bool,
    ) -> BenchResult<Reply> {
        let sent = Instant::now();
        let answer = self.post(ask, limit)?;
        let mut reply = Reply::new(sent);
        if !ask.streams() {
            let text = answer.into_string().map_err(|error| self.cut(ask, &error))?;
            self.take(ask, &mut reply, &text)?;
            return Ok(reply);
        }
        for event in Events::new(BufReader::new(answer.into_reader())) {
            let data = event.map_err(|error| self.cut(ask, &error))?;
            if data == "[DONE]" {
                return Ok(reply);
            }
            self.take(ask, &mut reply, &data)?;
            if !go_on(&reply) {
                return Ok(reply);
            }
        }
        Err(self.broken(ask, "ended before [DONE]".into()))
    }

    fn take(&self, ask: &Ask, reply: &mut Reply, text: &str) -> BenchResult<()> {
        let at = Instant::now();
        let value = serde_json::from_str(text)
            .map_err(|error| self.broken(ask, format!("is not JSON: {error}")))?;
        reply.take(&value, at).map_err(|problem| self.broken(ask, problem))
    }

    fn post(&self, ask: &Ask, limit: Option<Duration>) -> BenchResult<Response> {
        let url = self.url_of(ask);
        let mut body = ask.body.clone();
        if let Some(model) = &self.model {
            body["model"] = json!(model);
        }
        let request = self.headers(self.agent.post(&url)).set("content-type", "application/json");
        let request = match limit {
            Some(limit) => request.timeout(limit),
            None => request,
        };
        request.send_string(&body.to_string()).map_err(|error| failed(&url, error))
    }

    fn headers(&self, request: Request) -> Request {
        // A compressed stream would come in the compressor's pieces.
        let request = request.set("accept-encoding", "identity");
        match &self.key {
            Some(key) => request.set("authorization", &format!("Bearer {key}")),
            None => request,
        }
    }

    fn url_of(&self, ask: &Ask) -> String {
        format!("{}{}", self.url, ask.path)
    }

    fn broken(&self, ask: &Ask, problem: String) -> BenchError {
        BenchError::Reply { url: self.url_of(ask), problem }
    }

    fn cut(&self, ask: &Ask, error: &std::io::Error) -> BenchError {
        self.broken(ask, format!("was cut: {error}"))
    }
}

/// `http://host:port` of an address with or without a slash or `/v1` at its end.
fn address(url: &str) -> Option<String> {
    let url = url.trim().trim_end_matches('/');
    let url = url.strip_suffix("/v1").unwrap_or(url).trim_end_matches('/');
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let plain = |c: char| !c.is_whitespace() && !matches!(c, '?' | '#');
    (!rest.is_empty() && !rest.starts_with('/') && rest.chars().all(plain)).then(|| url.to_owned())
}

fn failed(url: &str, error: ureq::Error) -> BenchError {
    match error {
        ureq::Error::Status(status, answer) => {
            let mut text = String::new();
            // A body that breaks off is quoted as far as it came.
            let _ = answer.into_reader().take(QUOTED).read_to_string(&mut text);
            let message = match serde_json::from_str::<Value>(&text) {
                Ok(body) => reply::message(&body),
                Err(_) => text.lines().next().unwrap_or_default().to_owned(),
            };
            BenchError::Status { url: url.to_owned(), status, message }
        }
        ureq::Error::Transport(transport) => {
            // Its own text begins with the address.
            let text = transport.to_string();
            let reason = text.strip_prefix(&format!("{url}: ")).unwrap_or(&text).to_owned();
            BenchError::Transport { url: url.to_owned(), reason }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lose_their_ends() {
        for url in ["http://a:1", "http://a:1/", "http://a:1/v1", " http://a:1/v1/ "] {
            assert_eq!(address(url).as_deref(), Some("http://a:1"), "{url}");
        }
        assert_eq!(address("https://a/b/v1").as_deref(), Some("https://a/b"));
        for bad in ["a:1", "http://", "ftp://a", "http:///v1", "http://a b", "http://a?x=1", ""] {
            assert_eq!(address(bad), None, "{bad:?}");
        }
    }
}
