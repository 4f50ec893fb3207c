//! The list of settings, in the order they are shown.
// A list: it may be longer than other files, each entry being read on its own.

use super::{Category, Command, Declared, Kind, Setting, bench, contract};

use Command::{BenchRound, BenchSoak, Chat, Contract, Doctor, Inspect, Plan, Run, Serve, Synth};

/// What most declarations share.
pub(super) const BASE: Declared = Declared {
    name: "",
    kind: Kind::Switch,
    default: "",
    unset: "",
    category: Category::Model,
    commands: &[],
    positional: &[],
    env: true,
    help: "",
};

/// Commands that start an engine, or say how it would start.
const ENGINE: &[Command] = &[Serve, Run, Chat, Plan, Doctor];
/// Commands that answer one user in the terminal.
const TERMINAL: &[Command] = &[Run, Chat];

/// Every setting.
pub fn all() -> impl Iterator<Item = &'static Declared> {
    ALL.iter().chain(bench::ALL).chain(contract::ALL).copied()
}

static ALL: &[&Declared] = &[
    &CHECKPOINT.declared,
    &MODEL_ID.declared,
    &NUMERICS.declared,
    &NO_DRAFTS.declared,
    &DRAFT_TOKENS.declared,
    &DRAFT_CONFIDENCE.declared,
    &CACHE_DIR.declared,
    &BACKEND.declared,
    &GPUS.declared,
    &GPU_ATTENTION.declared,
    &EXPERTS_ON.declared,
    &THREADS.declared,
    &ISA.declared,
    &CONTEXT.declared,
    &PARALLEL.declared,
    &PLAIN_STREAMS.declared,
    &POOL_TOKENS.declared,
    &PREFILL_CHUNK.declared,
    &PREFILL_BUDGET.declared,
    &PREFILL_ORDER.declared,
    &DECODE_SHARE.declared,
    &PROMPT_CACHE_GIB.declared,
    &PROMPT_CACHE_EVERY.declared,
    &PROMPT_CACHE_DIR.declared,
    &PROMPT_CACHE_DISK_GIB.declared,
    &HOST.declared,
    &PORT.declared,
    &QUEUE.declared,
    &DRAIN_SECONDS.declared,
    &KEEPALIVE_SECONDS.declared,
    &LOG_LEVEL.declared,
    &LOG_JSON.declared,
    &PROMPT.declared,
    &PROMPT_IDS.declared,
    &SYSTEM.declared,
    &THINKING.declared,
    &MAX_TOKENS.declared,
    &TEMPERATURE.declared,
    &TOP_K.declared,
    &TOP_P.declared,
    &MIN_P.declared,
    &SEED.declared,
    &STOP.declared,
    &IGNORE_EOS.declared,
    &JSON.declared,
    &LOGITS.declared,
    &PROFILE_ROUNDS.declared,
    &SETTINGS_DOC.declared,
    &OUT.declared,
    &FORCE.declared,
    &WIDTHS.declared,
    &LAYERS.declared,
    &HIDDEN.declared,
    &HEADS.declared,
    &HEAD_DIM.declared,
    &EXPERTS.declared,
    &EXPERTS_PER_TOKEN.declared,
    &INTERMEDIATE.declared,
    &WINDOW.declared,
    &POSITIONS.declared,
    &ENGRAM.declared,
    &DRAFT_BLOCKS.declared,
];

// Model

/// The checkpoint's directory.
pub static CHECKPOINT: Setting<Option<String>> = Setting::new(Declared {
    name: "checkpoint",
    kind: Kind::Text("CHECKPOINT"),
    unset: "the embedded demo model",
    commands: &[Serve, Run, Chat, Inspect, Plan, Doctor],
    positional: &[Serve, Inspect, Plan],
    help: "Directory of a checkpoint in the release's layout",
    ..BASE
});

/// The name requests and replies call the model.
pub static MODEL_ID: Setting<Option<String>> = Setting::new(Declared {
    name: "model-id",
    kind: Kind::Text("NAME"),
    unset: "the checkpoint directory's name; finback-demo for the embedded demo model",
    commands: ENGINE,
    help: "Name of the model in requests and replies",
    ..BASE
});

/// Which roundings are applied.
pub static NUMERICS: Setting<String> = Setting::new(Declared {
    name: "numerics",
    kind: Kind::Choice(&["release", "plain"]),
    default: "release",
    commands: ENGINE,
    help: "Rounds what the release's own runtime rounds, or only what belongs to the model",
    ..BASE
});

/// Whether the checkpoint's draft blocks are left out.
pub static NO_DRAFTS: Setting<bool> = Setting::new(Declared {
    name: "no-drafts",
    kind: Kind::Switch,
    unset: "tokens are drafted where the checkpoint has draft blocks",
    commands: ENGINE,
    help: "Drafts no tokens and leaves the draft blocks unread; the reply is the same",
    ..BASE
});

/// Drafts of a window.
pub static DRAFT_TOKENS: Setting<Option<usize>> = Setting::new(Declared {
    name: "draft-tokens",
    kind: Kind::Int { min: 1, max: 15 },
    unset: "as many as a draft pass makes",
    commands: ENGINE,
    help: "Drafts a round verifies at most, cut to what a draft pass makes; the reply is the same",
    ..BASE
});

/// The least confidence of a draft that is verified.
pub static DRAFT_CONFIDENCE: Setting<f64> = Setting::new(Declared {
    name: "draft-confidence",
    kind: Kind::Float { min: 0.0, max: 1.0 },
    default: "0",
    commands: ENGINE,
    help: "Verifies drafts up to the first that the drafter gives a lower probability of being right; \
           the reply is the same",
    ..BASE
});

/// Where the embedded demo model is written.
pub static CACHE_DIR: Setting<Option<String>> = Setting::new(Declared {
    name: "cache-dir",
    kind: Kind::Text("DIR"),
    unset: "finback under the user's cache directory",
    commands: &[Serve, Run, Chat, Inspect, Plan, Doctor, Contract, BenchRound],
    help: "Directory for what is made once: the unpacked demo model, compiled kernels",
    ..BASE
});

// Resources

/// The device the model runs on.
pub static BACKEND: Setting<String> = Setting::new(Declared {
    name: "backend",
    kind: Kind::Choice(&["cpu", "cuda"]),
    default: "cpu",
    category: Category::Resources,
    commands: ENGINE,
    help: "Device the model runs on: the processor, or an NVIDIA GPU",
    ..BASE
});

/// GPUs that share the model.
pub static GPUS: Setting<usize> = Setting::new(Declared {
    name: "gpus",
    kind: Kind::Int { min: 1, max: 8 },
    default: "1",
    category: Category::Resources,
    commands: ENGINE,
    help: "GPUs that share the model: each holds a part of the weights and the whole state; replies are \
           those of one with --gpu-attention portable",
    ..BASE
});

/// The kernels of attention on a GPU.
pub static GPU_ATTENTION: Setting<String> = Setting::new(Declared {
    name: "gpu-attention",
    kind: Kind::Choice(&["auto", "portable", "tensor"]),
    default: "auto",
    category: Category::Resources,
    commands: &[Serve, Run, Chat, Plan, Doctor, BenchRound],
    help: "Attention and its selection on a GPU: by kernels for any, or on tensor cores where those fit the \
           widths and the numerics; auto is tensor, but portable on several GPUs. The two round differently",
    ..BASE
});

/// Where a GPU's routed experts are.
pub static EXPERTS_ON: Setting<String> = Setting::new(Declared {
    name: "experts-on",
    kind: Kind::Choice(&["device", "host"]),
    default: "device",
    category: Category::Resources,
    commands: &[Serve, Run, Chat, Plan, Doctor, BenchRound],
    help: "Where a GPU's routed experts are: copied to its memory, or left in the mapped checkpoint, which \
           is locked in host memory and read over the bus by every round; replies are the same",
    ..BASE
});

/// Threads of the CPU backend.
pub static THREADS: Setting<Option<usize>> = Setting::new(Declared {
    name: "threads",
    kind: Kind::Int { min: 1, max: 256 },
    unset: "all cores",
    category: Category::Resources,
    commands: ENGINE,
    help: "Threads of the CPU backend; a reply's bits do not depend on it",
    ..BASE
});

/// Instruction set of the CPU backend.
pub static ISA: Setting<String> = Setting::new(Declared {
    name: "isa",
    kind: Kind::Choice(&["auto", "portable", "avx2", "avx512", "neon"]),
    default: "auto",
    category: Category::Resources,
    commands: ENGINE,
    help: "Instruction set of the CPU backend; a reply's bits do not depend on it",
    ..BASE
});

/// Positions a stream can hold.
pub static CONTEXT: Setting<Option<usize>> = Setting::new(Declared {
    name: "context",
    kind: Kind::Int { min: 16, max: 1 << 24 },
    unset: "the checkpoint's max_position_embeddings, 32768 at most",
    category: Category::Resources,
    commands: ENGINE,
    help: "Tokens of prompt and reply one request can have",
    ..BASE
});

/// Requests that run at once.
pub static PARALLEL: Setting<usize> = Setting::new(Declared {
    name: "parallel",
    kind: Kind::Int { min: 1, max: 64 },
    default: "4",
    category: Category::Resources,
    commands: &[Serve, Plan, Doctor],
    help: "Requests that run at once; the others wait in arrival order",
    ..BASE
});

/// Decoding requests from which rounds carry no drafts.
pub static PLAIN_STREAMS: Setting<Option<usize>> = Setting::new(Declared {
    name: "plain-streams",
    kind: Kind::Int { min: 1, max: 65 },
    default: "3",
    category: Category::Resources,
    commands: &[Serve, Plan, Doctor],
    help: "From this many decoding requests on, rounds carry no drafts, 12 on a GPU where it is not \
           set; the replies are the same",
    ..BASE
});

/// Positions of the KV pool.
pub static POOL_TOKENS: Setting<Option<usize>> = Setting::new(Declared {
    name: "pool-tokens",
    kind: Kind::Int { min: 256, max: 1 << 30 },
    unset: "--parallel times --context, less where memory is short",
    category: Category::Resources,
    commands: &[Serve, Plan, Doctor],
    help: "Tokens that all requests and kept prefixes share, in whole blocks of 256; requests that \
           find too few free wait",
    ..BASE
});

/// Prompt rows run between two looks at the queue.
pub static PREFILL_CHUNK: Setting<usize> = Setting::new(Declared {
    name: "prefill-chunk",
    kind: Kind::Int { min: 16, max: 8192 },
    default: "256",
    category: Category::Resources,
    commands: ENGINE,
    help: "Prompt tokens run in one piece, 4096 on a GPU where it is not set; a reply's bits do not \
           depend on it",
    ..BASE
});

/// Prompt rows of a piece while replies decode.
pub static PREFILL_BUDGET: Setting<Option<usize>> = Setting::new(Declared {
    name: "prefill-budget",
    kind: Kind::Int { min: 1, max: 8192 },
    unset: "--prefill-chunk",
    category: Category::Resources,
    commands: &[Serve, Plan, Doctor],
    help: "Prompt tokens run in one piece while replies decode, --prefill-chunk at most",
    ..BASE
});

/// Which of several prompts is next.
pub static PREFILL_ORDER: Setting<String> = Setting::new(Declared {
    name: "prefill-order",
    kind: Kind::Choice(&["srpt", "fcfs"]),
    default: "srpt",
    category: Category::Resources,
    commands: &[Serve, Plan, Doctor],
    help: "Whose piece is next: the prompt with the fewest tokens left, or the first that came; one \
           passed over 8 times is next in any case",
    ..BASE
});

/// What replies get of the time while prompts wait.
pub static DECODE_SHARE: Setting<f64> = Setting::new(Declared {
    name: "decode-share",
    kind: Kind::Share,
    default: "0.25",
    category: Category::Resources,
    commands: &[Serve, Plan, Doctor],
    help: "Share of the time that replies get while prompts run; with 0 a prompt runs whole before \
           they go on",
    ..BASE
});

/// Memory of kept prefixes.
pub static PROMPT_CACHE_GIB: Setting<f64> = Setting::new(Declared {
    name: "prompt-cache-gib",
    kind: Kind::Float { min: 0.0, max: 4096.0 },
    default: "0.5",
    category: Category::Resources,
    commands: &[Serve, Chat, Plan, Doctor],
    help: "GiB for kept prefixes outside the KV pool, so that prompts which begin alike begin where \
           they differ; 0 keeps none. Where it is not set, a 16th of the memory at most",
    ..BASE
});

/// How often a long prompt is kept on its way.
pub static PROMPT_CACHE_EVERY: Setting<usize> = Setting::new(Declared {
    name: "prompt-cache-every",
    kind: Kind::Int { min: 256, max: 1 << 24 },
    default: "4096",
    category: Category::Resources,
    commands: &[Serve, Chat, Plan, Doctor],
    help: "Tokens between the places at which a long prompt is kept on its way",
    ..BASE
});

/// Where kept prefixes outlive the process.
pub static PROMPT_CACHE_DIR: Setting<Option<String>> = Setting::new(Declared {
    name: "prompt-cache-dir",
    kind: Kind::Text("DIR"),
    unset: "prefixes are kept in memory alone",
    category: Category::Resources,
    commands: &[Serve, Doctor],
    help: "Directory where prefixes of 256 tokens and more outlive the process; one server writes it at \
           a time",
    ..BASE
});

/// What they may take there.
pub static PROMPT_CACHE_DISK_GIB: Setting<f64> = Setting::new(Declared {
    name: "prompt-cache-disk-gib",
    kind: Kind::Float { min: 0.0, max: 65536.0 },
    default: "8",
    category: Category::Resources,
    commands: &[Serve, Doctor],
    help: "GiB that the files in --prompt-cache-dir may take, those of other builds and checkpoints among \
           them, of which the oldest go first; 0 reads and writes none",
    ..BASE
});

// Server

/// The address listened on.
pub static HOST: Setting<String> = Setting::new(Declared {
    name: "host",
    kind: Kind::Text("ADDRESS"),
    default: "127.0.0.1",
    category: Category::Server,
    commands: &[Serve, Doctor],
    help: "Address the server listens on",
    ..BASE
});

/// The port listened on.
pub static PORT: Setting<u64> = Setting::new(Declared {
    name: "port",
    kind: Kind::Int { min: 0, max: 65535 },
    default: "8080",
    category: Category::Server,
    commands: &[Serve, Doctor],
    help: "Port the server listens on; 0 takes a free one and prints it",
    ..BASE
});

/// Requests that may wait.
pub static QUEUE: Setting<Option<usize>> = Setting::new(Declared {
    name: "queue",
    kind: Kind::Int { min: 0, max: 65536 },
    default: "256",
    category: Category::Server,
    commands: &[Serve, Doctor],
    help: "Requests taken in beyond --parallel, which wait; more are refused with status 429",
    ..BASE
});

/// What running replies get once the server was told to stop.
pub static DRAIN_SECONDS: Setting<u64> = Setting::new(Declared {
    name: "drain-seconds",
    kind: Kind::Int { min: 0, max: 86400 },
    default: "20",
    category: Category::Server,
    commands: &[Serve, Doctor],
    help: "Seconds that running replies get to end after the first Ctrl-C or SIGTERM",
    ..BASE
});

/// When a silent stream gets a comment.
pub static KEEPALIVE_SECONDS: Setting<u64> = Setting::new(Declared {
    name: "keepalive-seconds",
    kind: Kind::Int { min: 1, max: 3600 },
    default: "15",
    category: Category::Server,
    commands: &[Serve, Doctor],
    help: "Seconds of silence after which a stream gets a comment with its progress, from the moment \
           the request is taken",
    ..BASE
});

/// The least level that is logged.
pub static LOG_LEVEL: Setting<Option<String>> = Setting::new(Declared {
    name: "log-level",
    kind: Kind::Choice(&["error", "warn", "info", "debug", "trace"]),
    unset: "info in `serve`, warn elsewhere",
    category: Category::Server,
    commands: ENGINE,
    help: "Least level of the log on standard error",
    ..BASE
});

/// Whether log lines are JSON.
pub static LOG_JSON: Setting<bool> = Setting::new(Declared {
    name: "log-json",
    kind: Kind::Switch,
    unset: "plain lines",
    category: Category::Server,
    commands: ENGINE,
    help: "Writes each log line as a JSON object",
    ..BASE
});

// Request

/// The prompt's text.
pub static PROMPT: Setting<Option<String>> = Setting::new(Declared {
    name: "prompt",
    kind: Kind::Text("PROMPT"),
    unset: "--prompt-ids is needed",
    category: Category::Request,
    commands: &[Run],
    positional: &[Run],
    env: false,
    help: "The user's message",
    ..BASE
});

/// The prompt as token ids.
pub static PROMPT_IDS: Setting<Option<Vec<u32>>> = Setting::new(Declared {
    name: "prompt-ids",
    kind: Kind::Ids,
    category: Category::Request,
    unset: "PROMPT is needed",
    commands: &[Run],
    env: false,
    help: "The whole prompt as token ids, run as they are; needs no tokenizer",
    ..BASE
});

/// The system message.
pub static SYSTEM: Setting<Option<String>> = Setting::new(Declared {
    name: "system",
    kind: Kind::Text("TEXT"),
    unset: "no system message",
    category: Category::Request,
    commands: TERMINAL,
    help: "System message before the first user message",
    ..BASE
});

/// Whether a reply begins with thinking.
pub static THINKING: Setting<String> = Setting::new(Declared {
    name: "thinking",
    kind: Kind::Choice(&["auto", "on", "off"]),
    default: "auto",
    category: Category::Request,
    commands: &[Serve, Run, Chat, Doctor],
    help: "Whether a chat reply begins with thinking, where the request does not say; auto is what the checkpoint's \
           generation_config.json says (enable_thinking in default_chat_template_kwargs), else on",
    ..BASE
});

/// Reply tokens at most.
pub static MAX_TOKENS: Setting<Option<usize>> = Setting::new(Declared {
    name: "max-tokens",
    kind: Kind::Int { min: 1, max: 1 << 24 },
    unset: "what the context leaves",
    category: Category::Request,
    commands: TERMINAL,
    help: "Reply tokens at most",
    ..BASE
});

/// Divides the logits.
pub static TEMPERATURE: Setting<Option<f64>> = Setting::new(Declared {
    name: "temperature",
    kind: Kind::Float { min: 0.0, max: 2.0 },
    unset: "the release's, 1",
    category: Category::Request,
    commands: TERMINAL,
    help: "Divides the logits before a draw; 0 takes the largest",
    ..BASE
});

/// Largest logits kept.
pub static TOP_K: Setting<Option<u64>> = Setting::new(Declared {
    name: "top-k",
    kind: Kind::Int { min: 0, max: u32::MAX as u64 },
    unset: "0",
    category: Category::Request,
    commands: TERMINAL,
    help: "Draws from this many likeliest tokens; 0 from all",
    ..BASE
});

/// Probability mass kept.
pub static TOP_P: Setting<Option<f64>> = Setting::new(Declared {
    name: "top-p",
    kind: Kind::Float { min: 1e-6, max: 1.0 },
    unset: "the release's",
    category: Category::Request,
    commands: TERMINAL,
    help: "Draws from the likeliest tokens whose probabilities reach this sum",
    ..BASE
});

/// Least probability kept, as a share of the largest.
pub static MIN_P: Setting<Option<f64>> = Setting::new(Declared {
    name: "min-p",
    kind: Kind::Float { min: 0.0, max: 1.0 },
    unset: "0",
    category: Category::Request,
    commands: TERMINAL,
    help: "Draws from tokens at least this share as likely as the likeliest",
    ..BASE
});

/// Keys the draws, or the weights.
pub static SEED: Setting<Option<u64>> = Setting::new(Declared {
    name: "seed",
    kind: Kind::Int { min: 0, max: u64::MAX },
    unset: "derived from the prompt; 0 in `synth` and `bench soak`",
    category: Category::Request,
    commands: &[Run, Chat, Synth, BenchSoak],
    help: "Keys the draws of a reply, the weights of a synthetic checkpoint, or a soak's requests",
    ..BASE
});

/// Texts that end a reply.
pub static STOP: Setting<Vec<String>> = Setting::new(Declared {
    name: "stop",
    kind: Kind::Texts("TEXT"),
    unset: "no stop text",
    category: Category::Request,
    commands: TERMINAL,
    env: false,
    help: "Text that ends the reply and is not part of it; may be repeated",
    ..BASE
});

/// Whether end tokens are ordinary ones.
pub static IGNORE_EOS: Setting<bool> = Setting::new(Declared {
    name: "ignore-eos",
    kind: Kind::Switch,
    unset: "an end token ends the reply",
    category: Category::Request,
    commands: TERMINAL,
    env: false,
    help: "Goes on after an end token, to --max-tokens",
    ..BASE
});

// Output

/// Whether the result is one JSON document.
pub static JSON: Setting<bool> = Setting::new(Declared {
    name: "json",
    kind: Kind::Switch,
    unset: "text",
    category: Category::Output,
    commands: &[Run, Inspect, Plan, Doctor, Contract],
    env: false,
    help: "Prints one line of JSON on standard output, and nothing else there",
    ..BASE
});

/// Where logit rows are written.
pub static LOGITS: Setting<Option<String>> = Setting::new(Declared {
    name: "logits",
    kind: Kind::Text("FILE"),
    unset: "none are written",
    category: Category::Output,
    commands: &[Run],
    env: false,
    help: "Writes logit rows as a safetensors file: `logits` F32 [reply tokens, vocabulary], the row \
           each reply token was chosen from, and `prompt` F32 [rows, vocabulary], the prompt's \
           last rows, 16 at most",
    ..BASE
});

/// Where the times of rounds are written.
pub static PROFILE_ROUNDS: Setting<Option<String>> = Setting::new(Declared {
    name: "profile-rounds",
    kind: Kind::Text("FILE"),
    unset: "nothing is timed",
    category: Category::Output,
    commands: &[Serve, Run],
    env: false,
    help: "Times every round and prompt piece, prints a table at the end and writes the first 1000 as \
           a Chrome trace",
    ..BASE
});

/// Whether the settings document is printed.
pub static SETTINGS_DOC: Setting<bool> = Setting::new(Declared {
    name: "settings-doc",
    kind: Kind::Switch,
    unset: "the machine and the effective settings are shown",
    category: Category::Output,
    commands: &[Doctor],
    env: false,
    help: "Prints docs/settings.md and nothing else",
    ..BASE
});

// Synthetic checkpoint

/// What the sizes of a synthetic checkpoint share.
const SIZE: Declared = Declared {
    kind: Kind::Int { min: 1, max: 1 << 20 },
    category: Category::Synth,
    commands: &[Synth],
    env: false,
    ..BASE
};

/// The directory written.
pub static OUT: Setting<Option<String>> = Setting::new(Declared {
    name: "out",
    kind: Kind::Text("DIR"),
    unset: "it must be given",
    help: "Directory to write, which must be empty or not there",
    ..SIZE
});

/// Whether a directory that is not empty is replaced.
pub static FORCE: Setting<bool> = Setting::new(Declared {
    name: "force",
    kind: Kind::Switch,
    unset: "a directory that is not empty is left alone",
    help: "Replaces the directory, whatever is in it",
    ..SIZE
});

/// Where sizes come from that are not given.
pub static WIDTHS: Setting<String> = Setting::new(Declared {
    name: "widths",
    kind: Kind::Choice(&["small", "release"]),
    default: "small",
    help: "Sizes that are not given: the defaults below, or the release's (Engram tables are holes then)",
    ..SIZE
});

/// Layers of the target.
pub static LAYERS: Setting<usize> = Setting::new(Declared {
    name: "layers",
    default: "10",
    help: "Layers; from 10 on there is one of every kind",
    ..SIZE
});

/// Channels of a residual stream.
pub static HIDDEN: Setting<usize> = Setting::new(Declared {
    name: "hidden",
    default: "128",
    help: "Channels of a residual stream, a multiple of 32",
    ..SIZE
});

/// Attention heads.
pub static HEADS: Setting<usize> = Setting::new(Declared {
    name: "heads",
    default: "4",
    help: "Attention heads, an even number",
    ..SIZE
});

/// Channels of a head.
pub static HEAD_DIM: Setting<usize> = Setting::new(Declared {
    name: "head-dim",
    default: "64",
    help: "Channels of a head and of the latent, a multiple of 32",
    ..SIZE
});

/// Routed experts.
pub static EXPERTS: Setting<usize> = Setting::new(Declared {
    name: "experts",
    default: "8",
    help: "Routed experts of a layer; a draft block has half as many",
    ..SIZE
});

/// Routed experts a row uses.
pub static EXPERTS_PER_TOKEN: Setting<usize> = Setting::new(Declared {
    name: "experts-per-token",
    default: "3",
    help: "Routed experts a token uses",
    ..SIZE
});

/// Hidden channels of an expert.
pub static INTERMEDIATE: Setting<usize> = Setting::new(Declared {
    name: "intermediate",
    default: "64",
    help: "Hidden channels of an expert, a multiple of 32",
    ..SIZE
});

/// Positions of an attention window.
pub static WINDOW: Setting<usize> = Setting::new(Declared {
    name: "window",
    default: "64",
    help: "Positions of an attention window",
    ..SIZE
});

/// Positions the config declares.
pub static POSITIONS: Setting<usize> = Setting::new(Declared {
    name: "positions",
    kind: Kind::Int { min: 16, max: 1 << 24 },
    default: "16384",
    help: "The longest context, max_position_embeddings",
    ..SIZE
});

/// Whether there are Engram layers.
pub static ENGRAM: Setting<String> = Setting::new(Declared {
    name: "engram",
    kind: Kind::Choice(&["on", "off"]),
    default: "on",
    help: "Whether there are Engram layers",
    ..SIZE
});

/// Whether there are draft blocks.
pub static DRAFT_BLOCKS: Setting<String> = Setting::new(Declared {
    name: "draft-blocks",
    kind: Kind::Choice(&["on", "off"]),
    default: "on",
    help: "Whether there are draft blocks",
    ..SIZE
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_defaults_are_accepted() {
        for command in Command::ALL {
            let taken = all().filter(|declared| declared.taken_by(command));
            let mut names: Vec<&str> = taken.map(|declared| declared.name).collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(names.len(), count, "{}", command.name());
        }
        for declared in all() {
            let name = declared.name;
            match declared.default {
                "" => assert!(!declared.unset.is_empty(), "{name}: what happens without it"),
                text => assert!(declared.kind.read(text).is_some(), "{name}: {text}"),
            }
            assert!(!declared.commands.is_empty(), "{name}");
            assert!(!declared.help.is_empty() && !declared.help.ends_with('.'), "{name}");
        }
    }
}
