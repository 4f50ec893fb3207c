//! The command line, built from the registry.

use super::{Category, Command, Declared, GROUP, Kind, table};
use clap::{Arg, ArgAction, ArgMatches};

/// The whole command line: one subcommand per [`Command`], those of [`GROUP`] under its word, with
/// flags from the registry.
///
/// A flag's text is checked when it is resolved, so that a flag and an environment variable are
/// refused with the same words.
pub fn command_line() -> clap::Command {
    let (grouped, alone): (Vec<Command>, Vec<Command>) =
        Command::ALL.into_iter().partition(|command| command.in_group().is_some());
    let grouped = grouped.into_iter().filter_map(|command| Some((command, command.in_group()?)));
    let group = clap::Command::new(GROUP.0)
        .about(GROUP.1)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(grouped.map(|(command, word)| subcommand(command, word)));
    clap::Command::new("finback")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A native inference server for DeepSeek-V4.1")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(alone.into_iter().map(|command| subcommand(command, command.name())))
        .subcommand(group)
}

/// The command that was given, with its flags.
pub fn chosen(matches: &ArgMatches) -> Option<(Command, &ArgMatches)> {
    let (word, flags) = matches.subcommand()?;
    let (second, flags) = match flags.subcommand() {
        Some((second, flags)) if word == GROUP.0 => (Some(second), flags),
        _ => (None, flags),
    };
    let is_it = |command: &Command| match second {
        Some(_) => command.in_group() == second,
        None => command.name() == word,
    };
    Command::ALL.into_iter().find(is_it).map(|command| (command, flags))
}

fn subcommand(command: Command, word: &'static str) -> clap::Command {
    let taken = table::all().filter(|declared| declared.taken_by(command));
    clap::Command::new(word).about(command.about()).args(taken.map(|declared| {
        let positional = declared.positional.contains(&command);
        argument(declared, positional)
    }))
}

fn argument(declared: &'static Declared, positional: bool) -> Arg {
    let arg = Arg::new(declared.name)
        .help(help(declared))
        .help_heading(declared.category.title())
        .action(match declared.kind {
            Kind::Switch => ArgAction::SetTrue,
            Kind::Texts(_) => ArgAction::Append,
            _ => ArgAction::Set,
        });
    let arg = if declared.kind == Kind::Switch {
        arg
    } else {
        arg.value_name(declared.kind.placeholder())
    };
    let arg = match declared.kind {
        Kind::File => arg.num_args(0..=1).default_missing_value("-"),
        _ => arg,
    };
    if positional {
        arg.help_heading(None::<&str>)
    } else {
        // A value may begin with a dash, so that "--top-p -1" is refused by name and range.
        arg.long(declared.name).allow_negative_numbers(declared.kind != Kind::Switch)
    }
}

fn help(declared: &Declared) -> String {
    let mut notes = Vec::new();
    if let Kind::Choice(words) = declared.kind {
        notes.push(words.join("|"));
    }
    if let Kind::Int { .. }
    | Kind::Float { .. }
    | Kind::Share
    | Kind::Ints { .. }
    | Kind::Floats { .. } = declared.kind
    {
        notes.push(declared.kind.accepted());
    }
    if !declared.default.is_empty() {
        notes.push(format!("default {}", declared.default));
    } else if !declared.unset.is_empty() {
        notes.push(format!("default: {}", declared.unset));
    }
    if declared.env {
        notes.push(declared.variable());
    }
    if notes.is_empty() {
        declared.help.into()
    } else {
        format!("{} [{}]", declared.help, notes.join("; "))
    }
}

/// Settings of a category, in the table's order.
pub fn of_category(category: Category) -> impl Iterator<Item = &'static Declared> {
    table::all().filter(move |declared| declared.category == category)
}
