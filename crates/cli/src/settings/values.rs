//! Effective values: where each setting's value comes from.

use super::{Command, Declared, Setting, UsageError, Value, table};
use clap::ArgMatches;
use std::collections::BTreeMap;

/// Where a value comes from, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// The environment.
    Environment,
    /// The declared default, or unset.
    Default,
}

impl Origin {
    /// As `doctor` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Environment => "environment",
            Self::Default => "default",
        }
    }
}

/// The effective values of one command's settings.
#[derive(Debug)]
pub struct Values {
    command: Command,
    values: BTreeMap<&'static str, (Option<Value>, Origin)>,
}

impl Values {
    /// Resolves what `command` takes from its parsed flags and `environment`.
    ///
    /// # Errors
    /// The first value that its setting does not accept, with what it does accept.
    pub fn resolve(
        command: Command,
        flags: &ArgMatches,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, UsageError> {
        let mut values = BTreeMap::new();
        for declared in table::all().filter(|declared| declared.taken_by(command)) {
            values.insert(declared.name, resolve_one(declared, command, flags, &environment)?);
        }
        Ok(Self { command, values })
    }

    /// The value of `setting`; the type's empty value where the command does not take it.
    pub fn get<T: FromValue>(&self, setting: &Setting<T>) -> T {
        T::from_value(self.values.get(setting.declared.name).and_then(|(value, _)| value.as_ref()))
    }

    /// Whether nobody gave `setting` a value.
    pub fn is_default<T>(&self, setting: &Setting<T>) -> bool {
        let value = self.values.get(setting.declared.name);
        value.is_none_or(|(_, origin)| *origin == Origin::Default)
    }

    /// Where `setting` got its value, as errors name it: the argument, the flag or the variable.
    pub fn place<T>(&self, setting: &Setting<T>) -> String {
        let declared = &setting.declared;
        match self.values.get(declared.name) {
            Some((_, Origin::Environment)) => declared.variable(),
            Some((_, Origin::Flag)) => flag_place(declared, self.command),
            _ => declared.flag(),
        }
    }

    /// Every resolved setting with its value and origin, in the table's order.
    pub fn list(&self) -> impl Iterator<Item = (&'static Declared, Option<&Value>, Origin)> {
        table::all().filter_map(|declared| {
            let (value, origin) = self.values.get(declared.name)?;
            Some((declared, value.as_ref(), *origin))
        })
    }
}

fn resolve_one(
    declared: &'static Declared,
    command: Command,
    flags: &ArgMatches,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<(Option<Value>, Origin), UsageError> {
    if let Some(value) = from_flags(declared, command, flags)? {
        return Ok((Some(value), Origin::Flag));
    }
    if declared.env {
        let variable = declared.variable();
        if let Some(text) = environment(&variable).filter(|text| !text.trim().is_empty()) {
            return Ok((Some(read(declared, &variable, &text)?), Origin::Environment));
        }
    }
    let default = match declared.default {
        "" => None,
        text => Some(read(declared, "the default", text)?),
    };
    Ok((default, Origin::Default))
}

fn from_flags(
    declared: &Declared,
    command: Command,
    flags: &ArgMatches,
) -> Result<Option<Value>, UsageError> {
    if declared.kind == super::Kind::Switch {
        return Ok(flags.get_flag(declared.name).then_some(Value::Switch(true)));
    }
    let Some(texts) = flags.get_many::<String>(declared.name) else { return Ok(None) };
    let place = flag_place(declared, command);
    let mut found = None;
    for text in texts {
        let value = read(declared, &place, text)?;
        found = Some(match (found, value) {
            // One that may be repeated collects its values; of others the last counts.
            (Some(Value::Texts(all)), Value::Texts(one)) => Value::Texts([all, one].concat()),
            (_, value) => value,
        });
    }
    Ok(found)
}

/// What `command` calls the setting's place on its command line.
fn flag_place(declared: &Declared, command: Command) -> String {
    match declared.positional.contains(&command) {
        true => declared.kind.placeholder().to_owned(),
        false => declared.flag(),
    }
}

fn read(declared: &Declared, place: &str, text: &str) -> Result<Value, UsageError> {
    declared.kind.read(text).ok_or_else(|| {
        UsageError(format!("{place}: found {text:?}, accepted: {}", declared.kind.accepted()))
    })
}

/// Variables of `environment` that start with `FINBACK_` and name no setting that reads one.
pub fn unknown_variables(environment: impl Iterator<Item = String>) -> Vec<String> {
    let known: Vec<String> =
        table::all().filter(|declared| declared.env).map(Declared::variable).collect();
    let mut unknown: Vec<String> =
        environment.filter(|name| name.starts_with("FINBACK_") && !known.contains(name)).collect();
    unknown.sort();
    unknown
}

/// A type that a setting's value is read as.
pub trait FromValue {
    /// The value, or the type's empty value where there is none.
    fn from_value(value: Option<&Value>) -> Self;
}

impl FromValue for bool {
    fn from_value(value: Option<&Value>) -> Self {
        matches!(value, Some(Value::Switch(true)))
    }
}

impl FromValue for Option<u64> {
    fn from_value(value: Option<&Value>) -> Self {
        if let Some(Value::Int(value)) = value { Some(*value) } else { None }
    }
}

impl FromValue for Option<f64> {
    fn from_value(value: Option<&Value>) -> Self {
        if let Some(Value::Float(value)) = value { Some(*value) } else { None }
    }
}

impl FromValue for Option<String> {
    fn from_value(value: Option<&Value>) -> Self {
        if let Some(Value::Text(value)) = value { Some(value.clone()) } else { None }
    }
}

impl FromValue for Option<Vec<u32>> {
    fn from_value(value: Option<&Value>) -> Self {
        if let Some(Value::Ids(value)) = value { Some(value.clone()) } else { None }
    }
}

impl FromValue for Vec<u32> {
    fn from_value(value: Option<&Value>) -> Self {
        Option::<Self>::from_value(value).unwrap_or_default()
    }
}

impl FromValue for Vec<f64> {
    fn from_value(value: Option<&Value>) -> Self {
        if let Some(Value::Floats(values)) = value { values.clone() } else { Vec::new() }
    }
}

impl FromValue for Vec<String> {
    fn from_value(value: Option<&Value>) -> Self {
        if let Some(Value::Texts(value)) = value { value.clone() } else { Vec::new() }
    }
}

impl FromValue for u64 {
    fn from_value(value: Option<&Value>) -> Self {
        Option::<Self>::from_value(value).unwrap_or_default()
    }
}

impl FromValue for usize {
    fn from_value(value: Option<&Value>) -> Self {
        u64::from_value(value).try_into().unwrap_or(Self::MAX)
    }
}

impl FromValue for Option<usize> {
    fn from_value(value: Option<&Value>) -> Self {
        Option::<u64>::from_value(value).map(|value| value.try_into().unwrap_or(usize::MAX))
    }
}

impl FromValue for f64 {
    fn from_value(value: Option<&Value>) -> Self {
        Option::<Self>::from_value(value).unwrap_or_default()
    }
}

impl FromValue for String {
    fn from_value(value: Option<&Value>) -> Self {
        Option::<Self>::from_value(value).unwrap_or_default()
    }
}
