//! Reads typed fields out of a JSON object; a refusal names the field, its value and what is accepted.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{LoadError, LoadResult};

/// One JSON object of the config, and how to call it in messages.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    pub file: &'a Path,
    /// Dotted path of the object with its trailing dot; empty for the top level.
    pub path: &'a str,
    pub map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// The value of a field, where it is there and not null.
    pub fn get(&self, field: &str) -> Option<&'a Value> {
        self.map.get(field).filter(|v| !v.is_null())
    }

    pub fn refuse(&self, field: &str, found: impl Display, wanted: impl Into<String>) -> LoadError {
        LoadError::config(self.file, format!("{}{field}", self.path), found.to_string(), wanted)
    }

    /// A whole number in `range`; `default` stands in where the field is absent.
    pub fn count(
        &self,
        field: &str,
        range: RangeInclusive<usize>,
        default: Option<usize>,
    ) -> LoadResult<usize> {
        let wanted = || format!("a whole number from {} to {}", range.start(), range.end());
        match (self.get(field), default) {
            (None, Some(value)) => Ok(value),
            (None, None) => Err(self.refuse(field, "nothing", wanted())),
            (Some(value), _) => as_count(value)
                .filter(|n| range.contains(n))
                .ok_or_else(|| self.refuse(field, short(value), wanted())),
        }
    }

    /// A token id of a vocabulary of `vocab`.
    pub fn token(&self, field: &str, vocab: usize, default: Option<usize>) -> LoadResult<u32> {
        let id = self.count(field, 0..=vocab - 1, default)?;
        // Vocabularies are bounded below 2^31.
        Ok(id as u32)
    }

    /// A token id, where the field is there.
    pub fn optional_token(&self, field: &str, vocab: usize) -> LoadResult<Option<u32>> {
        self.get(field).map(|_| self.token(field, vocab, None)).transpose()
    }

    /// One token id or a list of them; none where the field is absent.
    pub fn tokens(&self, field: &str, vocab: usize) -> LoadResult<Vec<u32>> {
        match self.get(field) {
            Some(Value::Array(_)) => {
                let ids = self.counts(field, 0..=vocab - 1)?;
                Ok(ids.into_iter().map(|id| id as u32).collect())
            }
            _ => Ok(self.optional_token(field, vocab)?.into_iter().collect()),
        }
    }

    /// A finite number that `accepts` takes.
    pub fn number(
        &self,
        field: &str,
        wanted: &str,
        accepts: impl Fn(f64) -> bool,
        default: Option<f64>,
    ) -> LoadResult<f64> {
        match (self.get(field), default) {
            (None, Some(value)) => Ok(value),
            (None, None) => Err(self.refuse(field, "nothing", wanted)),
            (Some(value), _) => value
                .as_f64()
                .filter(|n| n.is_finite() && accepts(*n))
                .ok_or_else(|| self.refuse(field, short(value), wanted)),
        }
    }

    /// [`Fields::number`] that is computed with in single precision: 0 there only if it is 0 here.
    pub fn single(
        &self,
        field: &str,
        wanted: &str,
        accepts: impl Fn(f64) -> bool,
        default: Option<f64>,
    ) -> LoadResult<f64> {
        let number = self.number(field, wanted, accepts, default)?;
        let size = number.abs() as f32;
        if number == 0.0 || (f32::MIN_POSITIVE..=f32::MAX).contains(&size) {
            return Ok(number);
        }
        let wanted = format!("{wanted} that single precision holds, 1.2e-38 to 3.4e38");
        Err(self.refuse(field, format!("{number:e}"), wanted))
    }

    pub fn flag(&self, field: &str, default: bool) -> LoadResult<bool> {
        match self.get(field) {
            None => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            Some(value) => Err(self.refuse(field, short(value), "true or false")),
        }
    }

    /// Refuses any value but `known`; absent is `known` too.
    pub fn only(&self, field: &str, known: &Value) -> LoadResult<()> {
        match self.get(field) {
            Some(value) if value != known => Err(self.refuse(field, short(value), short(known))),
            _ => Ok(()),
        }
    }

    /// One of a few words.
    pub fn word<T: Copy>(
        &self,
        field: &str,
        words: &[(&str, T)],
        default: Option<T>,
    ) -> LoadResult<T> {
        let known: Vec<_> = words.iter().map(|(w, _)| format!("{w:?}")).collect();
        let wanted = || known.join(" or ");
        match (self.get(field), default) {
            (None, Some(value)) => Ok(value),
            (None, None) => Err(self.refuse(field, "nothing", wanted())),
            (Some(value), _) => value
                .as_str()
                .and_then(|v| words.iter().find(|(w, _)| *w == v))
                .map(|(_, t)| *t)
                .ok_or_else(|| self.refuse(field, short(value), wanted())),
        }
    }

    /// A list of whole numbers, each in `range`.
    pub fn counts(&self, field: &str, range: RangeInclusive<usize>) -> LoadResult<Vec<usize>> {
        let wanted =
            || format!("a list of whole numbers from {} to {}", range.start(), range.end());
        let Some(value) = self.get(field) else {
            return Err(self.refuse(field, "nothing", wanted()));
        };
        value
            .as_array()
            .and_then(|list| {
                list.iter().map(|v| as_count(v).filter(|n| range.contains(n))).collect()
            })
            .ok_or_else(|| self.refuse(field, short(value), wanted()))
    }

    /// A list of layers below `layers`, each once, ascending.
    pub fn layers(&self, field: &str, layers: usize) -> LoadResult<Vec<usize>> {
        let list = self.counts(field, 0..=layers - 1)?;
        if !list.is_sorted_by(|a, b| a < b) {
            return Err(self.refuse(field, format!("{list:?}"), "each layer once, ascending"));
        }
        Ok(list)
    }

    /// The object in a field.
    pub fn object(&self, field: &str, path: &'a str) -> LoadResult<Option<Fields<'a>>> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Fields { file: self.file, path, map })),
            Some(value) => Err(self.refuse(field, short(value), "an object")),
        }
    }
}

fn as_count(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|n| usize::try_from(n).ok())
}

/// A value for a message: its JSON, cut to a line's worth.
fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}
