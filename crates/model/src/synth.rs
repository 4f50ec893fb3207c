//! Checkpoints in the release's layout with seeded random weights, at any sizes.
//!
//! The same options and vocabulary give the same bytes everywhere. Weights are streamed: memory
//! stays small whatever the checkpoint's size.

mod draw;
mod law;
mod sizes;

use std::collections::HashMap;
use std::io;
use std::path::Path;

use finback_checkpoint::{Entry, Error};
use serde_json::{Map, Value, json};

use crate::config::{CONFIG_FILE, Config};
use crate::error::LoadResult;
use crate::names::{Class, Form, Weight, weights};
use draw::Quantiles;
use law::Law;
pub use sizes::{LayerKind, layer_kinds};

/// Data bytes after which a group of tensors goes on in another shard.
const SHARD_BYTES_MAX: usize = 1 << 30;

/// Sizes of a synthetic checkpoint. Widths are multiples of 32.
#[derive(Debug, Clone, PartialEq)]
pub struct SynthOptions {
    /// Keys every weight.
    pub seed: u64,
    /// Layers; from 10 on there is one of every kind.
    pub layers: usize,
    /// Channels of a residual stream.
    pub hidden: usize,
    /// Attention heads, a multiple of `o_groups`.
    pub heads: usize,
    /// Channels of a head and of the latent.
    pub head_dim: usize,
    /// Channels that RoPE rotates, even.
    pub rope_dim: usize,
    /// Rank of the query projection.
    pub q_rank: usize,
    /// Groups of the output projection.
    pub o_groups: usize,
    /// Rank of an output group.
    pub o_rank: usize,
    /// Positions of an attention window.
    pub window: usize,
    /// Indexer heads.
    pub index_heads: usize,
    /// Channels of an index key.
    pub index_dim: usize,
    /// Compressed rows a query attends to.
    pub index_topk: usize,
    /// Routed experts of a layer; a draft block has half.
    pub experts: usize,
    /// Routed experts a row uses.
    pub experts_per_token: usize,
    /// Hidden channels of an expert.
    pub intermediate: usize,
    /// Positions the config declares.
    pub context: usize,
    /// Whether there are Engram layers.
    pub engram: bool,
    /// Engram tables have about 3 times `engram_heads` times this many rows.
    pub engram_vocab: usize,
    /// Hash heads of each n-gram size.
    pub engram_heads: usize,
    /// Channels of a table row.
    pub engram_dim: usize,
    /// Leaves the tables as holes: zeros that take no disk space, for tables of any size.
    pub engram_holes: bool,
    /// Leaves every tensor of more bytes than this as a hole, for a reader that draws its own.
    pub hole_bytes: usize,
    /// Whether there are draft blocks.
    pub drafts: bool,
    /// Fields of `text_config` that replace the ones computed from the rest.
    pub set: Map<String, Value>,
}

impl Default for SynthOptions {
    fn default() -> Self {
        SynthOptions {
            seed: 0,
            layers: 10,
            hidden: 128,
            heads: 4,
            head_dim: 64,
            rope_dim: 32,
            q_rank: 64,
            o_groups: 2,
            o_rank: 32,
            window: 64,
            index_heads: 8,
            index_dim: 64,
            index_topk: 32,
            experts: 8,
            experts_per_token: 3,
            intermediate: 64,
            context: 16384,
            engram: true,
            engram_vocab: 64,
            engram_heads: 4,
            engram_dim: 32,
            engram_holes: false,
            hole_bytes: usize::MAX,
            drafts: true,
            set: Map::new(),
        }
    }
}

impl SynthOptions {
    /// The release's widths, counts and context; its Engram tables are holes.
    pub fn release() -> Self {
        SynthOptions {
            layers: 40,
            hidden: 5120,
            heads: 64,
            head_dim: 512,
            rope_dim: 64,
            q_rank: 1280,
            o_groups: 8,
            o_rank: 1024,
            window: 128,
            index_heads: 32,
            index_dim: 128,
            index_topk: 512,
            experts: 384,
            experts_per_token: 6,
            intermediate: 2304,
            context: 1 << 20,
            engram_vocab: 16_000_000,
            engram_heads: 8,
            engram_dim: 256,
            engram_holes: true,
            set: Map::from_iter([
                ("candidate_topk_blocks".to_owned(), json!(2048)),
                ("dspark_markov_rank".to_owned(), json!(256)),
            ]),
            ..SynthOptions::default()
        }
    }
}

/// The token ids of a synthetic checkpoint. Ids 0, 1 and 2 begin a text, end it and pad it.
#[derive(Debug, Clone, Copy)]
pub struct Vocabulary<'a> {
    /// The content of `tokenizer.json`; without one, a token map of its own is written beside.
    pub tokenizer: Option<&'a [u8]>,
    /// Token ids.
    pub size: usize,
    /// Distinct ids of the Engram token map.
    pub compressed_size: usize,
    /// The id that fills a draft block's rows.
    pub noise: u32,
}

impl Vocabulary<'static> {
    /// Ids without a tokenizer.
    pub fn bare(size: usize) -> Self {
        let last = size.saturating_sub(1);
        let compressed_size = (size - size / 4).min(last).max(1);
        Vocabulary { tokenizer: None, size, compressed_size, noise: last as u32 }
    }
}

/// Writes the checkpoint into `dir`, which is made if it is not there, and returns its config.
///
/// # Errors
/// Sizes that do not make a valid config (the message names the config's field), or the disk.
pub fn write(
    dir: &Path,
    options: &SynthOptions,
    vocabulary: &Vocabulary<'_>,
) -> LoadResult<Config> {
    let text = format!("{:#}\n", sizes::config_json(options, vocabulary));
    let config = Config::parse(&dir.join(CONFIG_FILE), text.as_bytes())?;
    let table = weights(&config);
    let laws: HashMap<String, (&Weight, Law)> = table
        .iter()
        .flat_map(|w| [w.name.clone(), w.scale_name()].map(|n| (n, (w, law::of(w, &config)))))
        .collect();
    let quantiles = Quantiles::new();
    finback_checkpoint::write(dir, &shards(&table, &config), |entry, out| {
        let (weight, law) =
            laws.get(&entry.name).ok_or_else(|| io::Error::other("a tensor outside the table"))?;
        if options.engram_holes && weight.form == Form::Table || out.left() > options.hole_bytes {
            return out.hole();
        }
        draw::fill(&quantiles, options.seed, weight, law, entry, out)
    })?;
    match vocabulary.tokenizer {
        Some(bytes) => write_file(dir, "tokenizer.json", bytes)?,
        None if config.engram.is_some() => {
            let map = json!(bare_token_map(vocabulary)).to_string();
            write_file(dir, "engram_token_map.json", map.as_bytes())?;
        }
        None => {}
    }
    // Last: a directory without a config is seen to be unfinished.
    write_file(dir, CONFIG_FILE, text.as_bytes())?;
    Ok(config)
}

/// The table's tensors in shards: the Engram tables, the layers' lower half, the draft blocks, the
/// upper half, the rest; each cut where it grows too large.
fn shards(table: &[Weight], config: &Config) -> Vec<Vec<Entry>> {
    let group = |w: &Weight| match layer_of(&w.name) {
        _ if w.form == Form::Table => 0,
        _ if w.class == Class::Drafts => 2,
        Some(layer) if layer < config.num_hidden_layers / 2 => 1,
        Some(_) => 3,
        None => 4,
    };
    let mut shards = Vec::new();
    for wanted in 0..5 {
        let (mut shard, mut bytes) = (Vec::new(), 0);
        for weight in table.iter().filter(|w| group(w) == wanted) {
            for entry in weight.entries(config.weight_block_size) {
                if bytes > SHARD_BYTES_MAX {
                    shards.push(std::mem::take(&mut shard));
                    bytes = 0;
                }
                bytes += entry.dtype.bytes(&entry.shape).unwrap_or(0);
                shard.push(entry);
            }
        }
        if !shard.is_empty() {
            shards.push(shard);
        }
    }
    shards
}

fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("layers.")?.split('.').next()?.parse().ok()
}

/// Many ids to one and onto, counted in order of first appearance as the release's map is. Ids 0
/// and 1 share one, so that the pad's compressed id is not its own.
fn bare_token_map(vocabulary: &Vocabulary<'_>) -> Vec<usize> {
    let distinct = vocabulary.compressed_size;
    let id = |token: usize| token.saturating_sub(1);
    (0..vocabulary.size)
        .map(|t| if id(t) < distinct { id(t) } else { id(t) * 7919 % distinct })
        .collect()
}

fn write_file(dir: &Path, name: &str, bytes: &[u8]) -> LoadResult<()> {
    let file = dir.join(name);
    std::fs::write(&file, bytes).map_err(|source| Error::Io { file, source }.into())
}

#[cfg(test)]
mod tests;
