//! `docs/settings.md`, generated from the registry.

use super::{Category, Command, Declared, Kind, parse::of_category};
use std::fmt::Write as _;

/// The whole text of `docs/settings.md`.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Settings\n\n\
         Generated from the settings registry; do not edit. To update it:\n\
         `cargo run -- doctor --settings-doc > docs/settings.md`\n\n\
         A value comes from the flag, else from the environment variable, else it is the default.\n\
         A blank environment variable counts as unset. A value that is not accepted is refused by\n\
         name at start, with what was found and what is accepted. `finback doctor` shows every\n\
         effective value and where it comes from.\n",
    );
    for category in Category::ALL {
        let _ = write!(text, "\n## {}\n", category.title());
        for declared in of_category(category) {
            entry(&mut text, declared);
        }
    }
    text
}

fn entry(text: &mut String, declared: &Declared) {
    let placeholder = declared.kind.placeholder();
    let flag = match placeholder {
        "" => format!("`{}`", declared.flag()),
        _ if declared.kind == Kind::File => format!("`{} [{placeholder}]`", declared.flag()),
        _ => format!("`{} {placeholder}`", declared.flag()),
    };
    let _ = write!(text, "\n### {flag}\n\n{}.\n\n", declared.help);
    let default = match (declared.default, declared.unset) {
        ("", "") => "none".into(),
        ("", unset) => unset.into(),
        (default, _) => format!("`{default}`"),
    };
    let _ = writeln!(text, "- Default: {default}");
    if !placeholder.is_empty() {
        let _ = writeln!(text, "- Accepted: {}", declared.kind.accepted());
    }
    if declared.env {
        let _ = writeln!(text, "- Environment: `{}`", declared.variable());
    }
    let commands: Vec<String> = declared.commands.iter().map(|c| taken(declared, *c)).collect();
    let _ = writeln!(text, "- Commands: {}", commands.join(", "));
}

fn taken(declared: &Declared, command: Command) -> String {
    if declared.positional.contains(&command) {
        format!("`{}` (without the flag)", command.name())
    } else {
        format!("`{}`", command.name())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checked_in_document_is_the_generated_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == super::markdown(),
            "docs/settings.md is out of date; update it with:\n  \
             cargo run -- doctor --settings-doc > docs/settings.md"
        );
    }
}
