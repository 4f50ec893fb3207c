//! The parameters that every route shares, and their defaults.

use finback_ops::{Penalties, Sampling};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::Error;
use crate::body::{Body, COMMON_UNSUPPORTED};

/// Stop strings one request may have.
const MOST_STOPS: usize = 16;

const TEMPERATURE: &str = "a number from 0 to 2";
const TOP_P: &str = "a number above 0, at most 1";
const TOP_K: &str = "a whole number from 0 (all) to 4294967295, or -1 (all)";
const MIN_P: &str = "a number from 0 to 1";
const PENALTY: &str = "a number from -2 to 2";

/// The field of `generation_config.json` with what chat templates take.
const TEMPLATE: &str = "default_chat_template_kwargs";

/// Likeliest tokens whose log-probabilities a request may ask for.
pub(crate) const MOST_LOGPROBS: u64 = 20;

/// Tokens one request may have a bias for.
const MOST_BIASES: usize = 1024;

/// What a request gets where it does not say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Defaults {
    /// Divides the logits; 0 is greedy.
    pub temperature: f32,
    /// Smallest probability mass kept; 1 keeps all.
    pub top_p: f32,
    /// Tokens kept; 0 keeps all.
    pub top_k: u32,
    /// Least share of the largest probability; 0 keeps all.
    pub min_p: f32,
    /// Whether a chat reply begins with reasoning.
    pub thinking: bool,
}

impl Default for Defaults {
    /// The release's: temperature 1, no filter, thinking on.
    fn default() -> Self {
        Self { temperature: 1.0, top_p: 1.0, top_k: 0, min_p: 0.0, thinking: true }
    }
}

impl Defaults {
    /// The release's defaults with the values of a checkpoint's `generation_config.json`: its sampling
    /// fields, and `enable_thinking` of its `default_chat_template_kwargs`.
    ///
    /// # Errors
    ///
    /// A field of that file whose value no request might have either. The message has the field;
    /// the file is the caller's to name.
    pub fn from_generation_config(config: &Value) -> Result<Self, Error> {
        let Value::Object(fields) = config else {
            return Err(Error::value("the file", config, "a JSON object"));
        };
        let mut fields = Body::from(fields.clone());
        let own = SamplingFields::take(&mut fields)?;
        let thinking = match fields.take(TEMPLATE) {
            None => None,
            Some(Value::Object(template)) => Body::from(template).flag("enable_thinking")?,
            Some(other) => return Err(Error::value(TEMPLATE, &other, "a JSON object")),
        };
        let base = Self::default();
        Ok(Self {
            temperature: own.temperature.unwrap_or(base.temperature),
            top_p: own.top_p.unwrap_or(base.top_p),
            top_k: own.top_k.unwrap_or(base.top_k),
            min_p: own.min_p.unwrap_or(base.min_p),
            thinking: thinking.unwrap_or(base.thinking),
        })
    }
}

/// The sampling fields of a body.
#[derive(Debug, Clone, Copy, Default)]
struct SamplingFields {
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<u32>,
    min_p: Option<f32>,
}

impl SamplingFields {
    fn take(body: &mut Body) -> Result<Self, Error> {
        let temperature = body.number("temperature", 0.0..=2.0, TEMPERATURE)?;
        // The range is closed: its lower end is the least number above 0.
        let top_p = body.number("top_p", f64::from_bits(1)..=1.0, TOP_P)?;
        let top_k = match body.take("top_k") {
            None => None,
            Some(value) if value.as_i64() == Some(-1) => Some(0),
            Some(value) => Some(
                value
                    .as_u64()
                    .and_then(|k| u32::try_from(k).ok())
                    .ok_or_else(|| Error::value("top_k", &value, TOP_K))?,
            ),
        };
        let min_p = body.number("min_p", 0.0..=1.0, MIN_P)?;
        Ok(Self {
            temperature: temperature.map(|x| x as f32),
            // A number above 0 stays one in single precision.
            top_p: top_p.map(|x| (x as f32).max(f32::MIN_POSITIVE)),
            top_k,
            min_p: min_p.map(|x| x as f32),
        })
    }
}

/// The parameters of one request, checked.
#[derive(Debug)]
pub(crate) struct Params {
    sampling: SamplingFields,
    seed: Option<u64>,
    pub(crate) penalties: Penalties,
    /// What is added to logits: each id once.
    pub(crate) bias: Vec<(u32, f32)>,
    /// Whether rounds may carry drafts.
    pub(crate) drafts: bool,
    /// Whether kept prefixes may be used and made.
    pub(crate) cache: bool,
    /// Log-probabilities, and how many of the likeliest tokens; each route has its own fields.
    pub(crate) logprobs: Option<usize>,
    /// Reply tokens at most; `None` for what the context has left.
    pub(crate) max_tokens: Option<usize>,
    /// Texts that end the reply, none of them empty.
    pub(crate) stop: Vec<String>,
    /// Whether end tokens are tokens like any other.
    pub(crate) ignore_eos: bool,
    /// Whether the reply is sent in pieces.
    pub(crate) stream: bool,
    /// Whether a stream ends with a chunk that has nothing but the usage.
    pub(crate) include_usage: bool,
}

impl Params {
    /// Takes the shared fields out of `body` and refuses those that nobody acts on.
    pub(crate) fn take(body: &mut Body) -> Result<Self, Error> {
        body.refuse(COMMON_UNSUPPORTED)?;
        let sampling = SamplingFields::take(body)?;
        let seed = body.integer("seed", 0, "a whole number from 0 to 18446744073709551615")?;
        let presence = body.number("presence_penalty", -2.0..=2.0, PENALTY)?;
        let frequency = body.number("frequency_penalty", -2.0..=2.0, PENALTY)?;
        let max_tokens = max_tokens(body)?;
        Ok(Self {
            sampling,
            seed,
            penalties: Penalties {
                presence: presence.unwrap_or(0.0) as f32,
                frequency: frequency.unwrap_or(0.0) as f32,
            },
            bias: bias(body)?,
            drafts: body.flag("draft")?.unwrap_or(true),
            cache: body.flag("cache")?.unwrap_or(true),
            logprobs: None,
            max_tokens,
            stop: stop(body)?,
            ignore_eos: body.flag("ignore_eos")?.unwrap_or(false),
            stream: body.flag("stream")?.unwrap_or(false),
            include_usage: include_usage(body)?,
        })
    }

    /// How this request's tokens are chosen: its own values, then the defaults, and without a seed
    /// one made from the prompt, so that the same request has the same reply.
    pub(crate) fn sampling(&self, defaults: &Defaults, prompt: &[u32]) -> Sampling {
        Sampling {
            temperature: self.sampling.temperature.unwrap_or(defaults.temperature),
            top_k: self.sampling.top_k.unwrap_or(defaults.top_k),
            top_p: self.sampling.top_p.unwrap_or(defaults.top_p),
            min_p: self.sampling.min_p.unwrap_or(defaults.min_p),
            seed: self.seed.unwrap_or_else(|| prompt_seed(prompt)),
        }
    }
}

/// The seed of a prompt: the first 8 bytes, little-endian, of the SHA-256 of its ids as
/// little-endian `u32`.
#[must_use]
pub fn prompt_seed(prompt: &[u32]) -> u64 {
    let mut hash = Sha256::new();
    for id in prompt {
        hash.update(id.to_le_bytes());
    }
    hash.finalize().iter().take(8).rev().fold(0, |seed, &byte| seed << 8 | u64::from(byte))
}

fn max_tokens(body: &mut Body) -> Result<Option<usize>, Error> {
    const ACCEPTED: &str = "a whole number of at least 1";
    let old = body.integer("max_tokens", 1, ACCEPTED)?;
    let new = body.integer("max_completion_tokens", 1, ACCEPTED)?;
    if let (Some(old), Some(new)) = (old, new)
        && old != new
    {
        return Err(Error::Value {
            field: "max_tokens".to_owned(),
            found: old.to_string(),
            accepted: format!("the value of max_completion_tokens, {new}, or only one of the two"),
        });
    }
    Ok(old.or(new).map(|n| usize::try_from(n).unwrap_or(usize::MAX)))
}

fn bias(body: &mut Body) -> Result<Vec<(u32, f32)>, Error> {
    let accepted = format!(
        "an object of at most {MOST_BIASES} token ids, each with a number from -100 to 100"
    );
    let Some(value) = body.take("logit_bias") else { return Ok(Vec::new()) };
    let Some(entries) = value.as_object().filter(|entries| entries.len() <= MOST_BIASES) else {
        return Err(Error::value("logit_bias", &value, accepted));
    };
    let mut bias = Vec::new();
    for (key, value) in entries {
        // "05" would be a second name of 5.
        let id = key.parse().ok().filter(|id: &u32| id.to_string() == *key).ok_or_else(|| {
            let accepted = "token ids as keys, without a sign or leading zeros";
            Error::value("logit_bias", &Value::from(key.as_str()), accepted)
        })?;
        let add = value.as_f64().filter(|add| (-100.0..=100.0).contains(add)).ok_or_else(|| {
            Error::value(format!("logit_bias.{key}"), value, "a number from -100 to 100")
        })?;
        bias.push((id, add as f32));
    }
    bias.sort_unstable_by_key(|&(id, _)| id);
    Ok(bias)
}

fn stop(body: &mut Body) -> Result<Vec<String>, Error> {
    let Some(value) = body.take("stop") else { return Ok(Vec::new()) };
    let accepted = format!("a text or a list of at most {MOST_STOPS}, none of them empty");
    let texts: Option<Vec<String>> = match &value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(items) if items.len() <= MOST_STOPS => {
            items.iter().map(|item| item.as_str().map(str::to_owned)).collect()
        }
        _ => None,
    };
    texts
        .filter(|texts| texts.iter().all(|text| !text.is_empty()))
        .ok_or_else(|| Error::value("stop", &value, accepted))
}

fn include_usage(body: &mut Body) -> Result<bool, Error> {
    match body.take("stream_options") {
        None => Ok(false),
        Some(Value::Object(options)) => {
            match options.get("include_usage").filter(|value| !value.is_null()) {
                None => Ok(false),
                Some(Value::Bool(include)) => Ok(*include),
                Some(other) => {
                    Err(Error::value("stream_options.include_usage", other, "true or false"))
                }
            }
        }
        Some(other) => Err(Error::value("stream_options", &other, "an object")),
    }
}
