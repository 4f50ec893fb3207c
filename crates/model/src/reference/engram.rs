//! Engram: hashed table rows of the last tokens, gated into the streams (section 7).

use finback_checkpoint::Tensor;

use super::linear::Linear;
use super::state::State;
use super::trace::LayerTrace;
use super::{Reference, number, sigmoid};

/// A layer's Engram.
#[derive(Debug)]
pub(super) struct EngramBlock {
    /// Which of the model's Engram layers this is.
    pub(super) which: usize,
    /// e4m3 codes `[rows][dim]` and e8m0 scales `[rows][dim / 32]`, in the map.
    pub(super) table: Tensor,
    pub(super) scale: Tensor,
    pub(super) wkv: Linear,
    /// `[hc][hidden]`: the product of the query and the key weights.
    pub(super) qk: Vec<Vec<f64>>,
}

impl Reference {
    /// Adds the Engram of the state's newest token to the streams.
    pub(super) fn apply_engram(
        &self,
        e: &EngramBlock,
        streams: &mut [Vec<f64>],
        state: &State,
        seen: &mut LayerTrace,
    ) {
        let hidden = self.config.hidden_size;
        seen.engram_rows = self.engram_rows(e.which, &state.ids);
        let values: Vec<f64> = seen.engram_rows.iter().flat_map(|&r| e.row(r as usize)).collect();
        let kv = self.linear(&e.wkv, &self.store(values));
        let (keys, value) = kv.split_at(kv.len() - hidden);
        for ((stream, key), qk) in streams.iter_mut().zip(keys.chunks(hidden)).zip(&e.qk) {
            let sum: f64 = stream.iter().zip(key).zip(qk).map(|((h, k), w)| h * w * k).sum();
            let norms = self.root_mean_square(stream) * self.root_mean_square(key);
            let dot = sum / norms / (hidden as f64).sqrt();
            let gate = sigmoid(dot.abs().max(1e-6).sqrt().copysign(dot));
            let mixed = stream.iter().zip(value).map(|(h, v)| h + gate * v).collect();
            *stream = self.store(mixed);
        }
    }

    /// Table rows of the newest of `ids`, by column: n-gram size major, head minor.
    fn engram_rows(&self, which: usize, ids: &[u32]) -> Vec<u64> {
        let Some(e) = &self.engram else { return Vec::new() };
        let (mut mixed, mut first, mut rows) = (0i64, 0, Vec::new());
        for back in 0..e.ngram {
            let id = if back < ids.len() { ids[ids.len() - 1 - back] } else { e.pad };
            mixed ^= i64::from(id) * e.multipliers[which][back];
            for head in 0..if back == 0 { 0 } else { e.heads } {
                let prime = e.primes[which][(back - 1) * e.heads + head];
                rows.push((mixed % prime + first) as u64);
                first += prime;
            }
        }
        rows
    }
}

impl EngramBlock {
    fn row(&self, row: usize) -> Vec<f64> {
        let (dim, scales) = (self.table.shape()[1], self.scale.shape()[1]);
        let codes = &self.table.bytes()[row * dim..][..dim];
        let scales = &self.scale.bytes()[row * scales..][..scales];
        let block = |(codes, &scale): (&[u8], &u8)| -> Vec<f64> {
            codes.iter().map(|&code| number::e4m3(code) * number::e8m0(scale)).collect()
        };
        codes.chunks(32).zip(scales).flat_map(block).collect()
    }
}
