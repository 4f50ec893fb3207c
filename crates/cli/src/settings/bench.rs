//! The settings of `finback bench`.
// A list: it may be longer than other files, each entry being read on its own.

use super::{Category, Command, Declared, Kind, Setting, table::BASE};

use Command::{
    BenchCache, BenchCapacity, BenchCompare, BenchConcurrent, BenchFill, BenchOpenai, BenchRound,
    BenchSoak,
};

/// Commands that measure one server.
const ONE: &[Command] = &[BenchConcurrent, BenchOpenai, BenchSoak, BenchCache, BenchCapacity];
/// All that measure.
const ANY: &[Command] =
    &[BenchConcurrent, BenchOpenai, BenchCompare, BenchSoak, BenchCache, BenchFill, BenchCapacity];
/// All that write a report.
const REPORTS: &[Command] = &[
    BenchConcurrent,
    BenchOpenai,
    BenchCompare,
    BenchSoak,
    BenchCache,
    BenchFill,
    BenchCapacity,
    BenchRound,
];
/// Commands that measure decoding.
const DECODE: &[Command] = &[BenchConcurrent, BenchOpenai, BenchCompare, BenchSoak];
/// Commands that repeat fixed requests.
const FIXED: &[Command] = &[BenchConcurrent, BenchOpenai, BenchCompare];

/// What most declarations share.
const BENCH: Declared = Declared { category: Category::Bench, env: false, ..BASE };

pub(super) static ALL: &[&Declared] = &[
    &URL.declared,
    &URLS.declared,
    &FIRST.declared,
    &SECOND.declared,
    &MODEL.declared,
    &API_KEY.declared,
    &LEVELS.declared,
    &TOKENS.declared,
    &REPS.declared,
    &TEMPERATURES.declared,
    &ALONE.declared,
    &SERIAL.declared,
    &MIXED.declared,
    &STAGGER_MS.declared,
    &MINUTES.declared,
    &STREAMS.declared,
    &LONG.declared,
    &REPLY.declared,
    &REQUIRE_COLD.declared,
    &REQUIRE_REUSE.declared,
    &PROMPTS.declared,
    &PROMPT_TOKENS.declared,
    &HUGE.declared,
    &NEEDLE_SEED.declared,
    &PID.declared,
    &ROUND_WIDTHS.declared,
    &ROUND_LAYERS.declared,
    &ROUNDS.declared,
    &ROUND_LAUNCHES.declared,
    &DEPTH.declared,
    &PROMPT_PIECES.declared,
    &DEPTHS.declared,
    &JSON_FILE.declared,
    &CHART.declared,
];

/// The server that is measured.
pub static URL: Setting<String> = Setting::new(Declared {
    name: "url",
    kind: Kind::Text("URL"),
    default: "http://127.0.0.1:8080",
    commands: ONE,
    help: "Address of the OpenAI-compatible server, with or without /v1",
    ..BENCH
});

/// Servers that are measured one after the other.
pub static URLS: Setting<Vec<String>> = Setting::new(Declared {
    name: "url",
    kind: Kind::Texts("URL"),
    default: "http://127.0.0.1:8080",
    commands: &[BenchFill],
    help: "Address of the OpenAI-compatible server, with or without /v1; may be repeated",
    ..BENCH
});

/// The base of a comparison.
pub static FIRST: Setting<Option<String>> = Setting::new(Declared {
    name: "base",
    kind: Kind::Text("A"),
    unset: "it must be given",
    commands: &[BenchCompare],
    positional: &[BenchCompare],
    help: "Address of the server that is the base",
    ..BENCH
});

/// What is compared with the base.
pub static SECOND: Setting<Option<String>> = Setting::new(Declared {
    name: "this",
    kind: Kind::Text("B"),
    unset: "it must be given",
    commands: &[BenchCompare],
    positional: &[BenchCompare],
    help: "Address of the server that is compared with the base",
    ..BENCH
});

/// The model that requests name.
pub static MODEL: Setting<Option<String>> = Setting::new(Declared {
    name: "model",
    kind: Kind::Text("NAME"),
    unset: "the first one the server lists",
    commands: ANY,
    help: "Model that requests name",
    ..BENCH
});

/// What requests are authorised with.
pub static API_KEY: Setting<Option<String>> = Setting::new(Declared {
    name: "api-key",
    kind: Kind::Text("KEY"),
    unset: "no key is sent",
    commands: ANY,
    env: true,
    help: "Key that requests carry as a bearer token",
    ..BENCH
});

/// Streams at once.
pub static LEVELS: Setting<Vec<u32>> = Setting::new(Declared {
    name: "levels",
    kind: Kind::Ints { min: 1, max: 256 },
    default: "1,2,4",
    commands: &[BenchConcurrent],
    help: "Streams at once, one line of the table each",
    ..BENCH
});

/// Tokens of a reply.
pub static TOKENS: Setting<usize> = Setting::new(Declared {
    name: "tokens",
    kind: Kind::Int { min: 1, max: 1 << 20 },
    default: "128",
    commands: DECODE,
    help: "Tokens of a reply; of the longest one where they differ",
    ..BENCH
});

/// Repetitions of a measurement.
pub static REPS: Setting<usize> = Setting::new(Declared {
    name: "reps",
    kind: Kind::Int { min: 1, max: 1000 },
    default: "3",
    commands: FIXED,
    help: "Repetitions of each measurement",
    ..BENCH
});

/// Temperatures measured.
pub static TEMPERATURES: Setting<Vec<f64>> = Setting::new(Declared {
    name: "temperatures",
    kind: Kind::Floats { min: 0.0, max: 2.0 },
    default: "0,1",
    commands: FIXED,
    help: "Temperatures, one line of the table each",
    ..BENCH
});

/// Whether replies are compared with the same requests alone.
pub static ALONE: Setting<bool> = Setting::new(Declared {
    name: "alone",
    unset: "that comparison is not made",
    commands: &[BenchConcurrent, BenchCapacity],
    help: "Compares each reply's token_sha with that of the same request alone",
    ..BENCH
});

/// Whether replies are compared with undrafted ones.
pub static SERIAL: Setting<bool> = Setting::new(Declared {
    name: "serial",
    unset: "that comparison is not made",
    commands: &[BenchConcurrent],
    help: "Compares each reply's token_sha with that of the same request alone and undrafted",
    ..BENCH
});

/// Whether streams differ in kind and length.
pub static MIXED: Setting<bool> = Setting::new(Declared {
    name: "mixed",
    unset: "chats of one length",
    commands: &[BenchConcurrent],
    help: "Mixes chats and raw completions, with prompts and replies of four lengths",
    ..BENCH
});

/// Time between the starts of two streams.
pub static STAGGER_MS: Setting<u64> = Setting::new(Declared {
    name: "stagger-ms",
    kind: Kind::Int { min: 0, max: 60_000 },
    default: "0",
    commands: &[BenchConcurrent],
    help: "Milliseconds between the starts of two streams",
    ..BENCH
});

/// How long a soak sends requests.
pub static MINUTES: Setting<f64> = Setting::new(Declared {
    name: "minutes",
    kind: Kind::Float { min: 0.01, max: 100_000.0 },
    default: "1",
    commands: &[BenchSoak],
    help: "How long requests are sent; each stream sends 4 at least",
    ..BENCH
});

/// Requests of a soak at once.
pub static STREAMS: Setting<usize> = Setting::new(Declared {
    name: "streams",
    kind: Kind::Int { min: 1, max: 256 },
    default: "4",
    commands: &[BenchSoak],
    help: "Requests at once",
    ..BENCH
});

/// Tokens of a long prompt.
pub static LONG: Setting<usize> = Setting::new(Declared {
    name: "long",
    kind: Kind::Int { min: 64, max: 1 << 24 },
    default: "8192",
    commands: &[BenchCache, BenchFill],
    help: "Tokens of the long prompt, about, by the server's own count",
    ..BENCH
});

/// Tokens of a reply beside long prompts.
pub static REPLY: Setting<usize> = Setting::new(Declared {
    name: "reply",
    kind: Kind::Int { min: 1, max: 1 << 20 },
    default: "64",
    commands: &[BenchCache, BenchFill, BenchCapacity],
    help: "Tokens of a reply; where the model may end it, at most",
    ..BENCH
});

/// Whether first requests must be cold.
pub static REQUIRE_COLD: Setting<bool> = Setting::new(Declared {
    name: "require-cold",
    unset: "it is only shown",
    commands: &[BenchCache],
    help: "Fails unless the server says that nothing of a new prompt was restored",
    ..BENCH
});

/// Whether later requests must reuse something.
pub static REQUIRE_REUSE: Setting<bool> = Setting::new(Declared {
    name: "require-reuse",
    unset: "it is only shown",
    commands: &[BenchCache],
    help: "Fails unless the server says that some of every later prompt was restored",
    ..BENCH
});

/// Prompts at once.
pub static PROMPTS: Setting<usize> = Setting::new(Declared {
    name: "prompts",
    kind: Kind::Int { min: 1, max: 256 },
    default: "16",
    commands: &[BenchCapacity],
    help: "Prompts at once, each with a fact to find",
    ..BENCH
});

/// Tokens of a prompt with a fact.
pub static PROMPT_TOKENS: Setting<usize> = Setting::new(Declared {
    name: "tokens",
    kind: Kind::Int { min: 64, max: 1 << 24 },
    default: "4096",
    commands: &[BenchCapacity],
    help: "Tokens of a prompt, about, by the server's own count",
    ..BENCH
});

/// Tokens of the first prompt with a fact.
pub static HUGE: Setting<Option<usize>> = Setting::new(Declared {
    name: "huge",
    kind: Kind::Int { min: 64, max: 1 << 24 },
    unset: "as the others",
    commands: &[BenchCapacity],
    help: "Tokens of the first prompt, about, by the server's own count",
    ..BENCH
});

/// Keys prompts and facts.
pub static NEEDLE_SEED: Setting<Option<u64>> = Setting::new(Declared {
    name: "seed",
    kind: Kind::Int { min: 0, max: u64::MAX },
    unset: "another one each time, so that no prompt has been seen",
    commands: &[BenchCapacity],
    help: "Keys the prompts and their facts; the report says it",
    ..BENCH
});

/// The server's process.
pub static PID: Setting<Option<u64>> = Setting::new(Declared {
    name: "pid",
    kind: Kind::Int { min: 1, max: u32::MAX as u64 },
    unset: "memory is not looked at",
    commands: &[BenchCapacity],
    help: "Process of the server, where it runs here: what it allocates is held against its plan",
    ..BENCH
});

/// Sizes of the layers that are timed.
pub static ROUND_WIDTHS: Setting<String> = Setting::new(Declared {
    name: "widths",
    kind: Kind::Choice(&["release", "small"]),
    default: "release",
    commands: &[BenchRound],
    help: "Sizes of the layers: the release's, or small ones that show that it works",
    ..BENCH
});

/// Layers that are timed.
pub static ROUND_LAYERS: Setting<usize> = Setting::new(Declared {
    name: "layers",
    kind: Kind::Int { min: 1, max: 64 },
    default: "10",
    commands: &[BenchRound],
    help: "Layers, 3 at least with --prompt; from 10 on there is one of every kind",
    ..BENCH
});

/// Whether launches are listed in place of times.
pub static ROUND_LAUNCHES: Setting<bool> = Setting::new(Declared {
    name: "launches",
    kind: Kind::Switch,
    unset: "rounds are timed",
    commands: &[BenchRound],
    help: "Lists every launch of a round on an NVIDIA GPU and times none; needs no device",
    ..BENCH
});

/// Rounds of each kind that are timed.
pub static ROUNDS: Setting<usize> = Setting::new(Declared {
    name: "rounds",
    kind: Kind::Int { min: 1, max: 1000 },
    default: "20",
    commands: &[BenchRound],
    help: "Timed rounds of each kind; the median counts",
    ..BENCH
});

/// Tokens before the rounds.
pub static DEPTH: Setting<usize> = Setting::new(Declared {
    name: "depth",
    kind: Kind::Int { min: 1, max: 1 << 20 },
    default: "4096",
    commands: &[BenchRound],
    help: "Tokens in each slot before the first round, 128 with --widths small where it is not set",
    ..BENCH
});

/// Whether pieces of a prompt are timed.
pub static PROMPT_PIECES: Setting<bool> = Setting::new(Declared {
    name: "prompt",
    kind: Kind::Switch,
    unset: "rounds are timed",
    commands: &[BenchRound],
    help: "Times pieces of 4096 tokens (64 with --widths small) of one long prompt in place of rounds",
    ..BENCH
});

/// Tokens before each timed piece.
pub static DEPTHS: Setting<Vec<u32>> = Setting::new(Declared {
    name: "depths",
    kind: Kind::Ints { min: 0, max: 1 << 20 },
    default: "0,32768,262144",
    commands: &[BenchRound],
    help: "Tokens before each piece that is timed, 0,128 with --widths small where it is not set",
    ..BENCH
});

/// Where the report is written as JSON.
pub static JSON_FILE: Setting<Option<String>> = Setting::new(Declared {
    name: "json",
    kind: Kind::File,
    unset: "a table only",
    commands: REPORTS,
    help: "Writes the report as JSON to FILE; without one, to standard output and no table",
    ..BENCH
});

/// Where the chart of a comparison is written.
pub static CHART: Setting<Option<String>> = Setting::new(Declared {
    name: "chart",
    kind: Kind::Text("FILE"),
    unset: "no chart",
    commands: &[BenchCompare],
    help: "Writes a chart: FILE ends in .svg, or in .html for a page with the table",
    ..BENCH
});
