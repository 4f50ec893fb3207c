//! What a checkpoint holds and what running it reads: bytes by class, a round's bytes, state bytes.
//!
//! Pure functions of the config, with or without the checkpoint's own tensors.

use std::collections::HashSet;

use finback_checkpoint::{Checkpoint, Tensor};
use finback_numerics::rows::{compressed_bytes, index_key_bytes, window_bytes};
use finback_ops::BLOCK_POSITIONS;

use crate::config::Config;
use crate::error::LoadResult;
use crate::names::{Class, Form, Weight, weights};
use crate::weights::Weights;

/// The tensors of a model with their stored bytes.
#[derive(Debug, Clone)]
pub struct Census {
    /// Weights that are there, in the order of the table, with the bytes of each and its scale.
    pub weights: Vec<(Weight, u64)>,
    /// Tensors that the text model does not read, by class: count and bytes.
    pub unread: Vec<(Class, usize, u64)>,
}

/// One class of tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassTotal {
    /// What they are for.
    pub class: Class,
    /// Tensors, scales counted too.
    pub tensors: usize,
    /// Stored bytes, scales included.
    pub bytes: u64,
    /// Values, scales not counted; 0 for what is not read.
    pub parameters: u64,
}

impl Census {
    /// Counts what a checkpoint holds.
    ///
    /// # Errors
    /// It does not hold what `config` asks for; the message names the tensor.
    pub fn of(config: &Config, ck: &Checkpoint) -> LoadResult<Census> {
        Weights::find(config, ck)?;
        let size = |t: &Tensor| t.bytes().len() as u64;
        let mut read = HashSet::new();
        let mut held = Vec::new();
        for weight in weights(config) {
            let names = [weight.name.clone(), weight.scale_name()];
            let tensors: Vec<_> = names.iter().filter_map(|name| ck.get(name)).collect();
            if tensors.is_empty() {
                continue;
            }
            let bytes = tensors.iter().map(|t| size(t)).sum();
            read.extend(names);
            held.push((weight, bytes));
        }
        let mut unread: Vec<(Class, usize, u64)> = Vec::new();
        for tensor in ck.tensors().filter(|t| !read.contains(t.name())) {
            let class = Class::of_unread(tensor.name());
            match unread.iter_mut().find(|(c, ..)| *c == class) {
                Some((_, count, bytes)) => (*count, *bytes) = (*count + 1, *bytes + size(tensor)),
                None => unread.push((class, 1, size(tensor))),
            }
        }
        unread.sort();
        Ok(Census { weights: held, unread })
    }

    /// What a checkpoint of this config holds when every weight is stored as in the release.
    pub fn released(config: &Config) -> Census {
        let bytes = |w: &Weight| {
            let entries = w.entries(config.weight_block_size);
            entries.iter().filter_map(|e| e.dtype.bytes(&e.shape)).sum::<usize>() as u64
        };
        let held = weights(config).into_iter().map(|w| (bytes(&w), w)).map(|(b, w)| (w, b));
        Census { weights: held.collect(), unread: Vec::new() }
    }

    /// Totals of every class that has tensors, in the order of [`Class::ALL`].
    pub fn classes(&self, config: &Config) -> Vec<ClassTotal> {
        let total = |class: Class| {
            let mut total = ClassTotal { class, tensors: 0, bytes: 0, parameters: 0 };
            for (weight, bytes) in self.weights.iter().filter(|(w, _)| w.class == class) {
                total.tensors += weight.entries(config.weight_block_size).len();
                total.bytes += bytes;
                total.parameters += weight.parameters() as u64;
            }
            for (_, tensors, bytes) in self.unread.iter().filter(|(c, ..)| *c == class) {
                total.tensors += tensors;
                total.bytes += bytes;
            }
            total
        };
        Class::ALL.map(total).into_iter().filter(|t| t.tensors > 0).collect()
    }

    /// Bytes of the weights that `which` takes.
    pub fn bytes(&self, which: impl Fn(&Weight) -> bool) -> u64 {
        self.weights.iter().filter(|(w, _)| which(w)).map(|(_, bytes)| bytes).sum()
    }

    /// Bytes of the Engram tables: read by row, never wanted in memory.
    pub fn table_bytes(&self) -> u64 {
        self.bytes(|w| w.form == Form::Table)
    }
}

/// What a plain round of one row reads of the weights, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundBytes {
    /// Attention, shared experts, routers, norms, hyper-connections.
    pub dense: u64,
    /// The routed experts that a row uses.
    pub experts: u64,
    /// The Engram projections and table rows.
    pub engram: u64,
    /// One embedding row and the head.
    pub embeddings: u64,
}

impl RoundBytes {
    /// Of a census.
    pub fn of(config: &Config, census: &Census) -> RoundBytes {
        let class = |class| census.bytes(|w| w.class == class);
        let tables = census.table_bytes();
        let row = |bytes: u64, rows: usize| bytes / rows as u64;
        let table_rows = config.engram.as_ref().map_or(0, |e| {
            let rows: usize = e.num_embeddings.iter().sum();
            row(tables, rows) * (e.columns() * e.layer_ids.len()) as u64
        });
        let embed = census.bytes(|w| w.name == "embed.weight");
        RoundBytes {
            dense: class(Class::Dense) + class(Class::Hyper),
            experts: class(Class::Experts) * config.num_experts_per_tok as u64
                / config.n_routed_experts as u64,
            engram: class(Class::Engram) - tables + table_rows,
            embeddings: class(Class::Embeddings) - embed + row(embed, config.vocab_size),
        }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.dense + self.experts + self.engram + self.embeddings
    }
}

/// Bytes of a stream's state, from the packed layouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateBytes {
    /// A compressed row and its index key.
    pub compressed_row: u64,
    /// A KV block of [`BLOCK_POSITIONS`] positions, over all kv sources.
    pub block: u64,
    /// A window row.
    pub window_row: u64,
    /// A slot's window rings of the target.
    pub rings: u64,
    /// A slot's window rings of the draft blocks.
    pub draft_rings: u64,
    /// A slot's open groups: raw f32 kv and gate rows of groups that have not closed.
    pub open_groups: u64,
}

impl StateBytes {
    /// Of a config.
    pub fn of(c: &Config) -> StateBytes {
        let ratios = c.kv_source_layer_ids.iter().map(|&layer| c.compress_ratios[layer]);
        let rows: usize = ratios.clone().map(|ratio| BLOCK_POSITIONS / ratio).sum();
        let compressed_row = compressed_bytes(c.head_dim) + index_key_bytes(c.index_head_dim);
        let window_row = window_bytes(c.head_dim);
        let ring = c.sliding_window * window_row;
        let open: usize = ratios.map(|ratio| (ratio - 1) * 2 * c.head_dim * 4).sum();
        StateBytes {
            compressed_row: compressed_row as u64,
            block: (rows * compressed_row) as u64,
            window_row: window_row as u64,
            rings: (c.num_hidden_layers * ring) as u64,
            draft_rings: c.drafts.as_ref().map_or(0, |d| (d.layers * ring) as u64),
            open_groups: open as u64,
        }
    }

    /// KV bytes of one position, over all kv sources.
    pub fn kv_per_position(&self) -> f64 {
        self.block as f64 / BLOCK_POSITIONS as f64
    }
}

#[cfg(test)]
pub(crate) mod tests;
