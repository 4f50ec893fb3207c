//! The settings registry: every setting is declared once in [`table`].
//!
//! Flags, environment variables, `--help`, `docs/settings.md` and `finback doctor` all come from
//! that one list. A value is read from the flag, else from `FINBACK_NAME`, else it is the default;
//! a blank environment variable counts as unset.

pub mod bench;
pub mod contract;
mod docs;
mod parse;
pub mod table;
mod value;
mod values;

pub use docs::markdown;
pub use parse::{chosen, command_line};
pub use value::{Kind, Value};
pub use values::{Origin, Values, unknown_variables};

use std::marker::PhantomData;

/// One setting: what it is called, what it accepts, and which commands take it.
#[derive(Debug)]
pub struct Declared {
    /// The name; the flag is `--name`, the environment variable `FINBACK_NAME`.
    pub name: &'static str,
    /// What values it accepts.
    pub kind: Kind,
    /// The default as a user would type it; empty where there is none.
    pub default: &'static str,
    /// What happens where no value and no default is there; empty where there is a default.
    pub unset: &'static str,
    /// Its heading in `--help` and in the documentation.
    pub category: Category,
    /// Commands that take it.
    pub commands: &'static [Command],
    /// Those of `commands` that take it as an argument without a flag.
    pub positional: &'static [Command],
    /// Whether the environment variable is read.
    pub env: bool,
    /// One line of help.
    pub help: &'static str,
}

impl Declared {
    /// The environment variable, whether or not it is read.
    pub fn variable(&self) -> String {
        format!("FINBACK_{}", self.name.replace('-', "_").to_uppercase())
    }

    /// The flag with its dashes.
    pub fn flag(&self) -> String {
        format!("--{}", self.name)
    }

    /// Whether `command` takes it.
    pub fn taken_by(&self, command: Command) -> bool {
        self.commands.contains(&command)
    }
}

/// A declared setting with the type its value is read as.
///
/// `T` is an `Option` where the setting may be unset.
#[derive(Debug)]
pub struct Setting<T> {
    /// The declaration.
    pub declared: Declared,
    of: PhantomData<fn() -> T>,
}

impl<T> Setting<T> {
    const fn new(declared: Declared) -> Self {
        Self { declared, of: PhantomData }
    }
}

/// Headings of settings, in the order they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    /// What is loaded and how it computes.
    Model,
    /// Machine resources.
    Resources,
    /// The HTTP server.
    Server,
    /// One request from the terminal.
    Request,
    /// What is printed or written.
    Output,
    /// A synthetic checkpoint.
    Synth,
    /// Measuring servers.
    Bench,
    /// Checking kernels.
    Contract,
}

impl Category {
    /// All of them, in order.
    pub const ALL: [Self; 8] = [
        Self::Model,
        Self::Resources,
        Self::Server,
        Self::Request,
        Self::Output,
        Self::Synth,
        Self::Bench,
        Self::Contract,
    ];

    /// The heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Model => "Model",
            Self::Resources => "Resources",
            Self::Server => "Server",
            Self::Request => "Request",
            Self::Output => "Output",
            Self::Synth => "Synthetic checkpoint",
            Self::Bench => "Benchmarks",
            Self::Contract => "Kernel contract",
        }
    }
}

/// The commands of the binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// `finback serve`
    Serve,
    /// `finback run`
    Run,
    /// `finback chat`
    Chat,
    /// `finback inspect`
    Inspect,
    /// `finback plan`
    Plan,
    /// `finback synth`
    Synth,
    /// `finback doctor`
    Doctor,
    /// `finback contract`
    Contract,
    /// `finback bench concurrent`
    BenchConcurrent,
    /// `finback bench openai`
    BenchOpenai,
    /// `finback bench compare`
    BenchCompare,
    /// `finback bench soak`
    BenchSoak,
    /// `finback bench cache`
    BenchCache,
    /// `finback bench fill`
    BenchFill,
    /// `finback bench capacity`
    BenchCapacity,
    /// `finback bench round`
    BenchRound,
}

/// Commands of two words: the first word and its line of help.
pub const GROUP: (&str, &str) =
    ("bench", "Measures OpenAI-compatible servers, judges their replies, and times a device");

impl Command {
    /// All of them, in the order `--help` lists them.
    pub const ALL: [Self; 16] = [
        Self::Serve,
        Self::Run,
        Self::Chat,
        Self::Inspect,
        Self::Plan,
        Self::Synth,
        Self::Doctor,
        Self::Contract,
        Self::BenchConcurrent,
        Self::BenchOpenai,
        Self::BenchCompare,
        Self::BenchSoak,
        Self::BenchCache,
        Self::BenchFill,
        Self::BenchCapacity,
        Self::BenchRound,
    ];

    /// Its name on the command line; two words for one of [`GROUP`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Run => "run",
            Self::Chat => "chat",
            Self::Inspect => "inspect",
            Self::Plan => "plan",
            Self::Synth => "synth",
            Self::Doctor => "doctor",
            Self::Contract => "contract",
            Self::BenchConcurrent => "bench concurrent",
            Self::BenchOpenai => "bench openai",
            Self::BenchCompare => "bench compare",
            Self::BenchSoak => "bench soak",
            Self::BenchCache => "bench cache",
            Self::BenchFill => "bench fill",
            Self::BenchCapacity => "bench capacity",
            Self::BenchRound => "bench round",
        }
    }

    /// The second word of one of [`GROUP`].
    pub fn in_group(self) -> Option<&'static str> {
        self.name().strip_prefix(GROUP.0)?.strip_prefix(' ')
    }

    /// One line of help.
    pub fn about(self) -> &'static str {
        match self {
            Self::Serve => {
                "Serves a checkpoint over HTTP; with no checkpoint, the embedded demo model"
            }
            Self::Run => "Prints the reply to one prompt",
            Self::Chat => "Talks in the terminal; one line of input is one message",
            Self::Inspect => "Shows what is in a checkpoint and what it needs",
            Self::Plan => "Says whether a checkpoint would start here, with the arithmetic",
            Self::Synth => "Writes a checkpoint of the release's layout with seeded random weights",
            Self::Doctor => "Shows this machine, its backends and the effective settings",
            Self::Contract => "Holds every device kernel to its contract, with planted faults",
            Self::BenchConcurrent => {
                "Several streams at once: rates, and whether each reply is the one it is alone"
            }
            Self::BenchOpenai => "One stream: decode rate, time to the first token, tokens a round",
            Self::BenchCompare => {
                "Two servers against each other, by a rule that noise does not pass"
            }
            Self::BenchSoak => {
                "Mixed load with cancels and disconnects; must end drained and equal"
            }
            Self::BenchCache => {
                "Prompts cold, repeated, longer and edited: what is kept of them, and equal replies"
            }
            Self::BenchFill => "A long cold prompt beside a short reply: what each costs the other",
            Self::BenchRound => {
                "What rounds and prompt pieces cost on a device, over layers with random weights"
            }
            Self::BenchCapacity => {
                "Many long prompts at once, each with a fact to find: answers, waits and memory"
            }
        }
    }
}

/// A mistake on the command line or in the environment: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);
