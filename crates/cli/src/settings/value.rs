//! Values of settings: what a setting accepts and how text becomes a value.

use std::fmt;
use std::str::FromStr;

/// What values a setting accepts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Given or not; in the environment `1`/`true`/`on` or `0`/`false`/`off`.
    Switch,
    /// A whole number within bounds, both included.
    Int {
        /// The least accepted.
        min: u64,
        /// The most accepted.
        max: u64,
    },
    /// A decimal number within bounds, both included.
    Float {
        /// The least accepted.
        min: f64,
        /// The most accepted.
        max: f64,
    },
    /// A decimal number from 0 to under 1.
    Share,
    /// Any text; what it means in `--help`.
    Text(&'static str),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Whole numbers separated by commas.
    Ids,
    /// Whole numbers within bounds, both included, separated by commas.
    Ints {
        /// The least accepted.
        min: u32,
        /// The most accepted.
        max: u32,
    },
    /// Decimal numbers within bounds, both included, separated by commas.
    Floats {
        /// The least accepted.
        min: f64,
        /// The most accepted.
        max: f64,
    },
    /// A file's name; a flag without one means standard output, `-`.
    File,
    /// Text; the flag may be repeated.
    Texts(&'static str),
}

/// A parsed value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Of [`Kind::Switch`].
    Switch(bool),
    /// Of [`Kind::Int`].
    Int(u64),
    /// Of [`Kind::Float`] and [`Kind::Share`].
    Float(f64),
    /// Of [`Kind::Text`], [`Kind::Choice`] and [`Kind::File`].
    Text(String),
    /// Of [`Kind::Ids`] and [`Kind::Ints`].
    Ids(Vec<u32>),
    /// Of [`Kind::Floats`].
    Floats(Vec<f64>),
    /// Of [`Kind::Texts`].
    Texts(Vec<String>),
}

impl Kind {
    /// The placeholder in `--help`.
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Switch => "",
            Self::Int { .. } => "N",
            Self::Float { .. } | Self::Share => "X",
            Self::Text(meaning) | Self::Texts(meaning) => meaning,
            Self::Choice(_) => "WORD",
            Self::Ids => "ID,ID,...",
            Self::Ints { .. } => "N,N,...",
            Self::Floats { .. } => "X,X,...",
            Self::File => "FILE",
        }
    }

    /// What is accepted, for errors and documentation.
    pub fn accepted(self) -> String {
        match self {
            Self::Switch => "on or off".into(),
            Self::Int { min: 0, max: u64::MAX } => "a whole number of 64 bits".into(),
            Self::Int { min, max } if min == max => format!("{min} only"),
            Self::Int { min, max: u64::MAX } => format!("a whole number of at least {min}"),
            Self::Int { min, max } => format!("a whole number from {min} to {max}"),
            Self::Float { min, max } => format!("a number from {min} to {max}"),
            Self::Share => "a number from 0 to under 1".into(),
            Self::Text(_) | Self::Texts(_) => "any text but an empty one".into(),
            Self::Choice(words) => words.join(", "),
            Self::Ids => "whole numbers separated by commas, e.g. 5,9,2".into(),
            Self::Ints { min, max } => {
                format!("whole numbers from {min} to {max}, separated by commas")
            }
            Self::Floats { min, max } => {
                format!("numbers from {min} to {max}, separated by commas")
            }
            Self::File => "the name of a file, or none for standard output".into(),
        }
    }

    /// Reads `text`; `None` where it is not accepted.
    pub fn read(self, text: &str) -> Option<Value> {
        let trimmed = text.trim();
        match self {
            Self::Switch => match trimmed.to_ascii_lowercase().as_str() {
                "1" | "true" | "on" | "yes" => Some(Value::Switch(true)),
                "0" | "false" | "off" | "no" => Some(Value::Switch(false)),
                _ => None,
            },
            Self::Int { min, max } => {
                let value = trimmed.parse::<u64>().ok()?;
                (min..=max).contains(&value).then_some(Value::Int(value))
            }
            Self::Float { min, max } => {
                let value = trimmed.parse::<f64>().ok()?;
                (min..=max).contains(&value).then_some(Value::Float(value))
            }
            Self::Share => {
                let value = trimmed.parse::<f64>().ok()?;
                (0.0..1.0).contains(&value).then_some(Value::Float(value))
            }
            Self::Ints { min, max } => {
                list(trimmed, |value| (min..=max).contains(value)).map(Value::Ids)
            }
            Self::Floats { min, max } => {
                list(trimmed, |value| (min..=max).contains(value)).map(Value::Floats)
            }
            Self::Text(_) | Self::Texts(_) | Self::File if text.is_empty() => None,
            Self::Text(_) | Self::File => Some(Value::Text(text.into())),
            Self::Choice(words) => words.contains(&trimmed).then(|| Value::Text(trimmed.into())),
            Self::Ids => list(trimmed, |_| true).map(Value::Ids),
            Self::Texts(_) => Some(Value::Texts(vec![text.into()])),
        }
    }
}

/// What `text` lists between its commas, if all of it is of the type and `accepted`.
fn list<T: FromStr>(text: &str, accepted: impl Fn(&T) -> bool) -> Option<Vec<T>> {
    text.split(',').map(|part| part.trim().parse().ok().filter(&accepted)).collect()
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(on) => f.write_str(if *on { "on" } else { "off" }),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Text(text) => f.write_str(text),
            Self::Ids(ids) => {
                let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
                f.write_str(&ids.join(","))
            }
            Self::Floats(values) => {
                let values: Vec<String> = values.iter().map(f64::to_string).collect();
                f.write_str(&values.join(","))
            }
            Self::Texts(texts) => write!(f, "{texts:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_included_and_the_rest_refused() {
        let kind = Kind::Int { min: 1, max: 16 };
        assert_eq!(kind.read("1"), Some(Value::Int(1)));
        assert_eq!(kind.read(" 16 "), Some(Value::Int(16)));
        for bad in ["0", "17", "-1", "x", "1.5", ""] {
            assert_eq!(kind.read(bad), None, "{bad:?}");
        }
        let kind = Kind::Float { min: 0.0, max: 2.0 };
        assert_eq!(kind.read("2"), Some(Value::Float(2.0)));
        for bad in ["-0.1", "2.01", "nan", "inf", "warm"] {
            assert_eq!(kind.read(bad), None, "{bad:?}");
        }
        for (good, value) in [("0", 0.0), ("0.995", 0.995), ("0.9999999999", 0.999_999_999_9)] {
            assert_eq!(Kind::Share.read(good), Some(Value::Float(value)));
        }
        for bad in ["1", "-0.1", "nan", "0.99999999999999999999"] {
            assert_eq!(Kind::Share.read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn words_switches_and_ids() {
        assert_eq!(Kind::Choice(&["a", "b"]).read("b"), Some(Value::Text("b".into())));
        assert_eq!(Kind::Choice(&["a", "b"]).read("B"), None);
        assert_eq!(Kind::Switch.read("On"), Some(Value::Switch(true)));
        assert_eq!(Kind::Switch.read("0"), Some(Value::Switch(false)));
        assert_eq!(Kind::Switch.read("maybe"), None);
        for kind in [Kind::Text("DIR"), Kind::Texts("TEXT"), Kind::File] {
            assert_eq!(kind.read(""), None, "{kind:?}");
            assert!(kind.read(" ").is_some(), "{kind:?}");
        }
        assert_eq!(Kind::Ids.read("5, 9,2"), Some(Value::Ids(vec![5, 9, 2])));
        for bad in ["", "5,,2", "5;9", "-1", "4294967296"] {
            assert_eq!(Kind::Ids.read(bad), None, "{bad:?}");
        }
        let levels = Kind::Ints { min: 1, max: 8 };
        assert_eq!(levels.read("1, 8"), Some(Value::Ids(vec![1, 8])));
        for bad in ["", "0,1", "1,9", "1,x"] {
            assert_eq!(levels.read(bad), None, "{bad:?}");
        }
        let temperatures = Kind::Floats { min: 0.0, max: 2.0 };
        assert_eq!(temperatures.read("0,0.5"), Some(Value::Floats(vec![0.0, 0.5])));
        for bad in ["", "0,-1", "0,nan", "0;1"] {
            assert_eq!(temperatures.read(bad), None, "{bad:?}");
        }
    }
}
