//! What rows decided on their way, read back for tests.

use finback_numerics::bf16;
use finback_ops::OpsError;

use crate::ops::GpuOps;
use crate::work::kept_bytes;

impl GpuOps {
    /// The streams `[hc, hidden]` of a row of the batch.
    ///
    /// # Errors
    /// The device's failure.
    pub fn streams(&mut self, row: usize) -> Result<Vec<f32>, OpsError> {
        self.expand_pending()?;
        let width = self.spec.dims.hc * self.spec.dims.hidden;
        let mut bytes = vec![0; kept_bytes(&self.spec) * width];
        self.queue.read(self.work.streams.row(row), &mut bytes)?;
        Ok(match self.spec.numerics.round_stores {
            true => {
                bytes.as_chunks().0.iter().map(|x| bf16::lift(u16::from_ne_bytes(*x))).collect()
            }
            false => bytes.as_chunks().0.iter().map(|x| f32::from_ne_bytes(*x)).collect(),
        })
    }

    /// The compressed rows that a row of the batch attends to, ascending.
    ///
    /// # Errors
    /// The device's failure.
    pub fn picks(&mut self, row: usize) -> Result<Vec<u32>, OpsError> {
        let count = self.queue.read_words(self.work.n_picks.row(row), 1)?[0];
        let mut picks =
            self.queue.read_words(self.work.picks.row(row), self.spec.dims.index_topk)?;
        picks.truncate(count as usize);
        Ok(picks)
    }

    /// The experts and weights of the `index`-th row that the last [`Ops::route`](finback_ops::Ops::route) ran.
    ///
    /// # Errors
    /// The device's failure.
    pub fn routes(&mut self, layer: usize, index: usize) -> Result<Vec<(u32, f32)>, OpsError> {
        let topk = self.spec.layer(layer).ffn.topk;
        let skip = 4 * (index * topk) as u64;
        let experts = self.queue.read_words(self.work.experts.at + skip, topk)?;
        let weights = self.queue.read_words(self.work.weights.at + skip, topk)?;
        Ok(experts.into_iter().zip(weights.into_iter().map(f32::from_bits)).collect())
    }

    /// The table rows of the `index`-th row that the last [`Ops::engram`](finback_ops::Ops::engram) ran.
    pub fn engram_rows(&self, index: usize) -> &[u64] {
        let columns = self.spec.engram.as_ref().map_or(0, |e| e.columns());
        &self.table_rows[index * columns..(index + 1) * columns]
    }
}
