//! A checkpoint's files, opened and checked against each other; no weight is read.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail, ensure};
use finback_checkpoint::{Checkpoint, INDEX_FILE, is_there, read_file};
use finback_model::Config;
use finback_model::config::CONFIG_FILE;
use finback_tokenizer::{Error as TokenizerError, Tokenizer, end_tokens};
use serde_json::Value;

use crate::demo;
use crate::settings::Values;
use crate::settings::table::{CACHE_DIR, CHECKPOINT, MODEL_ID};

/// The tokenizer's file.
pub const TOKENIZER_FILE: &str = "tokenizer.json";
/// Stands in for the map that a tokenizer gives, in checkpoints that have none.
const TOKEN_MAP_FILE: &str = "engram_token_map.json";
/// The checkpoint's own sampling defaults and end tokens.
pub const GENERATION_FILE: &str = "generation_config.json";

/// What `serve` calls the model where nothing names it.
const DEMO_ID: &str = "finback-demo";

/// An opened checkpoint.
#[derive(Debug)]
pub struct Opened {
    /// Its directory.
    pub directory: PathBuf,
    /// What requests and replies call it.
    pub model_id: String,
    /// Its config.
    pub config: Config,
    /// Its shards, mapped.
    pub checkpoint: Checkpoint,
    /// Its tokenizer, where there is one.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Ids that end a reply.
    pub end_tokens: Vec<u32>,
}

/// Opens the checkpoint that the settings name, or the embedded demo.
pub fn open(values: &Values) -> anyhow::Result<Opened> {
    let (directory, own_name) = match values.get(&CHECKPOINT) {
        Some(directory) => {
            let directory = PathBuf::from(directory);
            check(&directory, &values.place(&CHECKPOINT))?;
            let name = name_of(&directory);
            (directory, name)
        }
        None => (demo::directory(values.get(&CACHE_DIR).as_deref())?, DEMO_ID.to_string()),
    };
    let config = Config::load(&directory)?;
    let checkpoint = Checkpoint::open(&directory)?;
    let tokenizer = tokenizer(&directory, &config)?;
    let end_tokens = match &tokenizer {
        Some(tokenizer) => ends(&directory, tokenizer)?,
        None => config.eos_token_ids.clone(),
    };
    let model_id = values.get(&MODEL_ID).unwrap_or(own_name);
    Ok(Opened { directory, model_id, config, checkpoint, tokenizer, end_tokens })
}

/// Refuses, before anything is read, what is no checkpoint's directory; `place` is where it was given.
fn check(directory: &Path, place: &str) -> anyhow::Result<()> {
    let lacks = match directory.metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => "which is not there",
        Err(error) => return Err(error).with_context(|| directory.display().to_string()),
        Ok(found) if !found.is_dir() => "which is no directory",
        Ok(_) if !is_there(&directory.join(CONFIG_FILE)) => "which has no config.json",
        Ok(_) => return Ok(()),
    };
    bail!(
        "{place}: found {}, {lacks}; accepted: a directory with config.json, {INDEX_FILE} and the \
         shards it names, or no checkpoint for the embedded demo model",
        directory.display()
    )
}

impl Opened {
    /// The map from token ids to Engram ids; `None` where the model has no Engram.
    ///
    /// # Errors
    /// Neither file is there, or the map does not fit the config.
    pub fn token_map(&self) -> anyhow::Result<Option<Vec<u32>>> {
        let Some(engram) = &self.config.engram else { return Ok(None) };
        let file = self.directory.join(TOKEN_MAP_FILE);
        let (source, map): (PathBuf, Vec<u32>) = match &self.tokenizer {
            Some(tokenizer) => (self.directory.join(TOKENIZER_FILE), tokenizer.engram_token_map()?),
            None if is_there(&file) => {
                let map = serde_json::from_value(json(&file)?)
                    .with_context(|| format!("{}: wanted a list of ids", file.display()))?;
                (file, map)
            }
            None => bail!(
                "{}: found neither {TOKENIZER_FILE} nor {TOKEN_MAP_FILE}, wanted one of them for \
                 the Engram ids",
                self.directory.display()
            ),
        };
        let (source, vocab) = (source.display(), self.config.vocab_size);
        ensure!(
            map.len() == vocab,
            "{source}: found {} token ids, wanted {vocab} (vocab_size)",
            map.len()
        );
        let (distinct, wanted) = (distinct(&map), engram.compressed_vocab_size);
        ensure!(
            distinct == wanted,
            "{source}: found {distinct} Engram ids, wanted {wanted} (engram_compressed_vocab_size)"
        );
        let last = map.iter().max().copied().unwrap_or(0);
        ensure!(
            (last as usize) < wanted,
            "{source}: found Engram id {last}, wanted ids from 0 without a gap, below {wanted}"
        );
        Ok(Some(map))
    }
}

fn distinct(ids: &[u32]) -> usize {
    ids.iter().collect::<HashSet<_>>().len()
}

fn tokenizer(directory: &Path, config: &Config) -> anyhow::Result<Option<Arc<Tokenizer>>> {
    let file = directory.join(TOKENIZER_FILE);
    if !is_there(&file) {
        return Ok(None);
    }
    let tokenizer =
        Tokenizer::from_bytes(&read_file(&file)?).with_context(|| file.display().to_string())?;
    let (found, wanted) = (tokenizer.vocab_size(), config.vocab_size);
    ensure!(
        found <= wanted,
        "{}: found {found} token ids, wanted {wanted} at most (vocab_size)",
        file.display()
    );
    Ok(Some(Arc::new(tokenizer)))
}

fn ends(directory: &Path, tokenizer: &Tokenizer) -> anyhow::Result<Vec<u32>> {
    let config = json(&directory.join(CONFIG_FILE))?;
    let generation = directory.join(GENERATION_FILE);
    let generation = is_there(&generation).then(|| json(&generation)).transpose()?;
    let tokens =
        end_tokens(&config, generation.as_ref(), tokenizer).map_err(|error| match error {
            // It begins with the file's name in the directory.
            TokenizerError::EndToken { .. } => anyhow!("{}/{error}", directory.display()),
            other => anyhow!("{}: {other}", directory.display()),
        })?;
    Ok(tokens.into_iter().map(|token| token.id).collect())
}

/// A JSON file of a checkpoint.
pub fn json(file: &Path) -> anyhow::Result<Value> {
    serde_json::from_slice(&read_file(file)?).with_context(|| file.display().to_string())
}

/// The last part of a path that has a name.
fn name_of(directory: &Path) -> String {
    let whole = std::path::absolute(directory).unwrap_or_else(|_| directory.to_path_buf());
    whole.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy().into_owned())
}
