//! `finback synth`: a checkpoint with seeded random weights.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, bail};
use finback_checkpoint::Checkpoint;
use finback_model::inspect::Census;
use finback_model::plan::human;
use finback_model::synth::{self, SynthOptions};
use finback_model::{Config, LoadResult};
use finback_tokenizer::{SYNTHETIC, Tokenizer};

use crate::demo::{beside, vocabulary};
use crate::output::print;
use crate::progress::Progress;
use crate::settings::table::{
    DRAFT_BLOCKS, ENGRAM, EXPERTS, EXPERTS_PER_TOKEN, FORCE, HEAD_DIM, HEADS, HIDDEN, INTERMEDIATE,
    LAYERS, OUT, POSITIONS, SEED, WIDTHS, WINDOW,
};
use crate::settings::{Setting, UsageError, Values};

/// Writes the checkpoint under a temporary name, then renames it.
pub fn run(values: &Values) -> anyhow::Result<()> {
    let out = values.get(&OUT).ok_or_else(|| UsageError("give a directory by --out".into()))?;
    let out = Path::new(&out);
    let used = fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some());
    if used && !values.get(&FORCE) {
        bail!("{}: found files in it, wanted an empty directory or --force", out.display());
    }
    let temporary = beside(out, "tmp");
    let written = write(&temporary, values).and_then(|config| {
        if out.exists() {
            fs::remove_dir_all(out).with_context(|| out.display().to_string())?;
        }
        fs::rename(&temporary, out).with_context(|| out.display().to_string())?;
        Ok(config)
    });
    if temporary.exists() {
        // What stays is only disk space; its name says what it is.
        let _ = fs::remove_dir_all(&temporary);
    }
    let config = written.map_err(|error| {
        // A user knows the directory by the name that was asked for.
        let text =
            crate::one_line(&error).replace(&*temporary.to_string_lossy(), &out.to_string_lossy());
        anyhow::Error::msg(text)
    })?;
    let census = Census::of(&config, &Checkpoint::open(out)?)?;
    print(&format!("{}: {}\n", out.display(), human(census.bytes(|_| true))))
}

fn write(directory: &Path, values: &Values) -> anyhow::Result<Config> {
    let release = values.get(&WIDTHS) == "release";
    let base = if release { SynthOptions::release() } else { SynthOptions::default() };
    let size = |setting: &Setting<usize>, of_release: usize| {
        if release && values.is_default(setting) { of_release } else { values.get(setting) }
    };
    let options = SynthOptions {
        seed: values.get(&SEED).unwrap_or(0),
        layers: size(&LAYERS, base.layers),
        hidden: size(&HIDDEN, base.hidden),
        heads: size(&HEADS, base.heads),
        head_dim: size(&HEAD_DIM, base.head_dim),
        experts: size(&EXPERTS, base.experts),
        experts_per_token: size(&EXPERTS_PER_TOKEN, base.experts_per_token),
        intermediate: size(&INTERMEDIATE, base.intermediate),
        window: size(&WINDOW, base.window),
        context: size(&POSITIONS, base.context),
        engram: values.get(&ENGRAM) == "on",
        drafts: values.get(&DRAFT_BLOCKS) == "on",
        ..base
    };
    let tokenizer = Tokenizer::from_bytes(SYNTHETIC)?;
    let vocabulary = vocabulary(&tokenizer)?;
    Ok(watched(directory, || synth::write(directory, &options, &vocabulary))?)
}

/// Runs `work` and shows how many bytes lie in `directory` meanwhile.
fn watched(directory: &Path, work: impl FnOnce() -> LoadResult<Config>) -> LoadResult<Config> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut progress = Progress::bytes("writing");
            while !done.load(Relaxed) {
                progress.at(bytes_in(directory));
                std::thread::sleep(Duration::from_millis(100));
            }
            progress.finish();
        });
        let result = work();
        done.store(true, Relaxed);
        result
    })
}

fn bytes_in(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}
