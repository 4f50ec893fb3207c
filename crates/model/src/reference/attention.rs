//! Attention: window rows, compressed rows and their selection (section 5).

use super::linear::Linear;
use super::load::Block;
use super::state::{Kind, State};
use super::trace::LayerTrace;
use super::{Reference, Shared, dot, largest, number, softmax};

/// The weights every layer has.
#[derive(Debug)]
pub(super) struct Attention {
    pub(super) wq_a: Linear,
    pub(super) q_norm: Vec<f64>,
    pub(super) wq_b: Linear,
    pub(super) wkv: Linear,
    pub(super) kv_norm: Vec<f64>,
    pub(super) wo_a: Linear,
    pub(super) wo_b: Linear,
    pub(super) sink: Vec<f64>,
}

/// What a kv source has.
#[derive(Debug)]
pub(super) struct Compressor {
    pub(super) wkv: Linear,
    /// Where the ratio is above 1.
    pub(super) wgate: Option<Linear>,
    pub(super) norm: Vec<f64>,
    pub(super) index_k: Linear,
    pub(super) index_norm: Vec<f64>,
}

/// What an index source has.
#[derive(Debug)]
pub(super) struct Indexer {
    pub(super) wq_b: Linear,
    pub(super) weights: Linear,
}

impl Reference {
    /// The attention of the row at `position`, whose window and compressed rows join the state.
    pub(super) fn attention(
        &self,
        block: &Block,
        x: &[f64],
        position: usize,
        state: &mut State,
        shared: &mut Shared,
        seen: &mut LayerTrace,
    ) -> Vec<f64> {
        let (latent, queries) = self.queries(block, x, position);
        state.push(Kind::Window, block.layer, 1, self.window_row(block, x, position));
        let first = (position + 1).saturating_sub(self.config.sliding_window);
        if let Some(compressor) = &block.compressor {
            self.compress(block, compressor, x, position, state);
        }
        // A ratio above 0 has a source at or below it, as the config's check says.
        let source = self.config.kv_source(block.layer).filter(|_| block.ratio > 0);
        if let (Some(indexer), Some(source)) = (&block.indexer, source) {
            let keys = state.rows(Kind::IndexKey, source);
            let scores = self.scores(block, indexer, x, &latent, position, keys);
            self.select(block.layer, scores, shared);
        }
        let mut keys: Vec<&[f64]> = Vec::new();
        keys.extend(state.rows(Kind::Window, block.layer)[first..].iter().map(Vec::as_slice));
        if let Some(source) = source {
            let compressed = state.rows(Kind::Compressed, source);
            keys.extend(shared.chosen.iter().map(|&row| compressed[row].as_slice()));
            seen.picked.clone_from(&shared.chosen);
        }
        self.attend(block, &queries, &keys, position)
    }

    /// The query latent `[q_rank]`, and the rotated queries `[heads][head_dim]`.
    pub(super) fn queries(
        &self,
        block: &Block,
        x: &[f64],
        position: usize,
    ) -> (Vec<f64>, Vec<Vec<f64>>) {
        let attn = &block.attn;
        let latent = self.rms(&self.linear(&attn.wq_a, x), &attn.q_norm);
        let q = self.linear(&attn.wq_b, &latent);
        let heads = q.chunks(self.config.head_dim);
        (latent, heads.map(|head| self.rope(head, position, block.ratio)).collect())
    }

    /// The row that is key and value of `position` for all heads.
    pub(super) fn window_row(&self, block: &Block, x: &[f64], position: usize) -> Vec<f64> {
        let kv = self.rms(&self.linear(&block.attn.wkv, x), &block.attn.kv_norm);
        number::fp8_block32(&self.rope(&kv, position, block.ratio))
    }

    /// Adds the compressed row and index key of the group that ends with `position`, if one does.
    fn compress(
        &self,
        block: &Block,
        compressor: &Compressor,
        x: &[f64],
        position: usize,
        state: &mut State,
    ) {
        let (layer, ratio) = (block.layer, block.ratio);
        let latent = match &compressor.wgate {
            None => self.linear(&compressor.wkv, x),
            Some(wgate) => {
                state.push(Kind::Value, layer, 1, self.linear_f32(&compressor.wkv, x));
                state.push(Kind::Gate, layer, 1, self.linear_f32(wgate, x));
                if !(position + 1).is_multiple_of(ratio) {
                    return;
                }
                let group = position + 1 - ratio..position + 1;
                let values = &state.rows(Kind::Value, layer)[group.clone()];
                let gates = &state.rows(Kind::Gate, layer)[group];
                self.store(pool(values, gates))
            }
        };
        let latent = self.rms(&latent, &compressor.norm);
        let first = position + 1 - ratio;
        let key = self.rms(&self.linear(&compressor.index_k, &latent), &compressor.index_norm);
        let key = number::fp4_block32(&self.rope(&key, first, ratio));
        state.push(Kind::IndexKey, layer, ratio, key);
        let row = number::fp4_block16(&self.rope(&latent, first, ratio));
        state.push(Kind::Compressed, layer, ratio, row);
    }

    /// `sum_h w_h relu(q_h . key)` for every compressed row there is: all of them are visible.
    fn scores(
        &self,
        block: &Block,
        indexer: &Indexer,
        x: &[f64],
        latent: &[f64],
        position: usize,
        keys: &[Vec<f64>],
    ) -> Vec<f64> {
        let c = &self.config;
        let q = self.linear(&indexer.wq_b, latent);
        let q: Vec<Vec<f64>> = q
            .chunks(c.index_head_dim)
            .map(|head| number::fp4_block32(&self.rope(head, position, block.ratio)))
            .collect();
        let scale = 1.0 / ((c.index_head_dim * c.index_n_heads) as f64).sqrt();
        let weights: Vec<f64> =
            self.linear(&indexer.weights, x).iter().map(|w| w * scale).collect();
        let score = |key: &Vec<f64>| {
            q.iter().zip(&weights).map(|(head, w)| w * dot(head, key).max(0.0)).sum()
        };
        keys.iter().map(score).collect()
    }

    /// The rows a query attends to; at the candidate source also the blocks for those above it.
    fn select(&self, layer: usize, mut scores: Vec<f64>, shared: &mut Shared) {
        if let Some(candidate) = self.config.candidate {
            if layer == candidate.source_layer_id {
                let size = candidate.block_size;
                let best = |block: &[f64]| block.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let mut blocks: Vec<f64> = scores.chunks(size).map(best).collect();
                // The block of the newest row is always kept, and counts as one.
                if let Some(newest) = blocks.last_mut() {
                    *newest = f64::INFINITY;
                }
                let kept = largest(&blocks, candidate.topk_blocks);
                shared.candidates =
                    (0..scores.len()).map(|row| kept.contains(&(row / size))).collect();
            } else if layer > candidate.source_layer_id {
                for (score, &candidate) in scores.iter_mut().zip(&shared.candidates) {
                    *score = if candidate { *score } else { f64::NEG_INFINITY };
                }
            }
        }
        shared.chosen = largest(&scores, self.config.index_topk);
        shared.chosen.sort_unstable();
    }

    /// Softmax over the keys and the head's sink, then the way back to `[hidden]`.
    pub(super) fn attend(
        &self,
        block: &Block,
        queries: &[Vec<f64>],
        keys: &[&[f64]],
        position: usize,
    ) -> Vec<f64> {
        let scale = (self.config.head_dim as f64).powf(-0.5);
        let head = |(q, &sink): (&Vec<f64>, &f64)| {
            let mut logits: Vec<f64> = keys.iter().map(|key| dot(q, key) * scale).collect();
            logits.push(sink);
            let shares = softmax(&logits);
            let channel = |d: usize| keys.iter().zip(&shares).map(|(key, p)| p * key[d]).sum();
            let o = self.store((0..q.len()).map(channel).collect());
            self.unrope(&o, position, block.ratio)
        };
        let o: Vec<f64> = queries.iter().zip(&block.attn.sink).flat_map(head).collect();
        self.project_out(&block.attn, &o)
    }

    /// `wo_b` of each group's own `wo_a`. The release never rounds the input of `wo_a`.
    fn project_out(&self, attn: &Attention, o: &[f64]) -> Vec<f64> {
        let width = o.len() / self.config.o_groups;
        let group = |(rows, o): (&[Vec<f64>], &[f64])| -> Vec<f64> {
            rows.iter().map(|row| dot(row, o)).collect()
        };
        let groups = attn.wo_a.rows.chunks(self.config.o_lora_rank).zip(o.chunks(width));
        let z: Vec<f64> = groups.flat_map(group).collect();
        self.linear(&attn.wo_b, &self.store(z))
    }
}

/// Per channel, the values weighted by the softmax of their gates.
fn pool(values: &[Vec<f64>], gates: &[Vec<f64>]) -> Vec<f64> {
    let column = |rows: &[Vec<f64>], d: usize| rows.iter().map(|row| row[d]).collect::<Vec<_>>();
    (0..values[0].len()).map(|d| dot(&column(values, d), &softmax(&column(gates, d)))).collect()
}
