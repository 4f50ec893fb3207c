//! A request body as named fields. A field that is null counts as absent; fields nobody asks for
//! are ignored.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::Error;

/// The fields of a body that have not been taken yet.
#[derive(Debug)]
pub(crate) struct Body(Map<String, Value>);

impl From<Map<String, Value>> for Body {
    fn from(fields: Map<String, Value>) -> Self {
        Self(fields)
    }
}

impl Body {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        Self::from_value(serde_json::from_slice(bytes).map_err(Error::Json)?)
    }

    pub(crate) fn from_value(value: Value) -> Result<Self, Error> {
        match value {
            Value::Object(fields) => Ok(Self(fields)),
            other => Err(Error::NotAnObject { found: crate::error::shown(&other) }),
        }
    }

    /// Takes a field out.
    pub(crate) fn take(&mut self, field: &str) -> Option<Value> {
        self.0.remove(field).filter(|value| !value.is_null())
    }

    pub(crate) fn put(&mut self, field: &str, value: Value) {
        self.0.insert(field.to_owned(), value);
    }

    pub(crate) fn get_mut(&mut self, field: &str) -> Option<&mut Value> {
        self.0.get_mut(field)
    }

    pub(crate) fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    pub(crate) fn flag(&mut self, field: &str) -> Result<Option<bool>, Error> {
        self.typed(field, "true or false", Value::as_bool)
    }

    /// A number in `range`. JSON knows no NaN and no infinity.
    pub(crate) fn number(
        &mut self,
        field: &str,
        range: RangeInclusive<f64>,
        accepted: &str,
    ) -> Result<Option<f64>, Error> {
        self.typed(field, accepted, |value| value.as_f64().filter(|x| range.contains(x)))
    }

    /// A whole number of at least `min`, written without a fraction.
    pub(crate) fn integer(
        &mut self,
        field: &str,
        min: u64,
        accepted: &str,
    ) -> Result<Option<u64>, Error> {
        self.typed(field, accepted, |value| value.as_u64().filter(|&x| x >= min))
    }

    /// A whole number in `range`, written without a fraction.
    pub(crate) fn whole(
        &mut self,
        field: &str,
        range: RangeInclusive<u64>,
        accepted: &str,
    ) -> Result<Option<u64>, Error> {
        self.typed(field, accepted, |value| value.as_u64().filter(|x| range.contains(x)))
    }

    fn typed<T>(
        &mut self,
        field: &str,
        accepted: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.take(field) else { return Ok(None) };
        read(&value).map(Some).ok_or_else(|| Error::value(field, &value, accepted))
    }

    /// Refuses the first of `fields` that is set to something else than its neutral values.
    pub(crate) fn refuse(&mut self, fields: &[Neutral]) -> Result<(), Error> {
        for &(field, accepted, is_neutral) in fields {
            if let Some(value) = self.take(field)
                && !is_neutral(&value)
            {
                return Err(Error::unsupported(field, &value, accepted));
            }
        }
        Ok(())
    }
}

/// A field this server does not act on, the values that ask for nothing, and a test for them.
pub(crate) type Neutral = (&'static str, &'static str, fn(&Value) -> bool);

/// Fields of other servers' requests that would change a reply.
pub(crate) const COMMON_UNSUPPORTED: &[Neutral] = &[
    ("n", "1", is_one),
    ("best_of", "1", is_one),
    ("repetition_penalty", "1", is_one),
    ("min_tokens", "0", is_zero),
    ("stop_token_ids", "an empty list", is_empty),
    ("prompt_logprobs", "null", never),
    ("use_beam_search", "false", is_false),
    ("echo", "false", is_false),
    ("suffix", "an empty text", is_empty),
    ("response_format", "{\"type\":\"text\"}", |value| value["type"] == "text"),
    ("functions", "an empty list", is_empty),
    ("function_call", "\"none\" or \"auto\"", |value| *value == "none" || *value == "auto"),
    ("audio", "null", never),
    ("modalities", "[\"text\"]", |value| *value == serde_json::json!(["text"])),
    ("guided_json", "null", never),
    ("guided_regex", "null", never),
    ("guided_choice", "null", never),
    ("guided_grammar", "null", never),
    ("structured_outputs", "null", never),
];

pub(crate) fn is_one(value: &Value) -> bool {
    value.as_f64() == Some(1.0)
}

pub(crate) fn is_zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

pub(crate) fn is_false(value: &Value) -> bool {
    *value == Value::Bool(false)
}

pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

pub(crate) fn never(_: &Value) -> bool {
    false
}
