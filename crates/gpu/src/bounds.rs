//! A call's bounds, held before any launch: what is outside must not reach a kernel.

use finback_ops::{BLOCK_POSITIONS, OpsError, OpsResult, Rows, Span};

use crate::ops::GpuOps;

impl GpuOps {
    pub(crate) fn unsupported(&self, step: &'static str, reason: String) -> OpsError {
        OpsError::Unsupported { backend: self.queue.name(), step, reason }
    }

    /// Rows that the batch has not must not reach a kernel.
    pub(crate) fn check_rows(&self, step: &'static str, rows: &Rows) -> OpsResult {
        if rows.start <= rows.end && rows.end <= self.batch.rows {
            return Ok(());
        }
        let reason = format!("rows {rows:?} of a batch of {}", self.batch.rows);
        Err(self.unsupported(step, reason))
    }

    /// Logit rows that there are not must not reach a kernel.
    pub(crate) fn check_logits(&self, step: &'static str, at: usize, rows: usize) -> OpsResult {
        if at + rows <= self.limits.logit_rows {
            return Ok(());
        }
        let reason =
            format!("logit rows {at} to {}; there are {}", at + rows, self.limits.logit_rows);
        Err(self.unsupported(step, reason))
    }

    pub(crate) fn check_blocks(
        &self,
        step: &'static str,
        length: usize,
        blocks: &[u32],
    ) -> OpsResult {
        let pool = self.state.blocks();
        if let Some(block) = blocks.iter().find(|&&block| block as usize >= pool) {
            return Err(self.unsupported(step, format!("KV block {block}; the pool has {pool}")));
        }
        let (wanted, found) = (length.div_ceil(BLOCK_POSITIONS), blocks.len());
        if (!self.spec.sources.is_empty() && found < wanted) || found > self.batch.stride {
            let most = self.batch.stride;
            let reason =
                format!("{found} KV blocks for {length} positions; {wanted} to {most} are taken");
            return Err(self.unsupported(step, reason));
        }
        Ok(())
    }

    pub(crate) fn check_slot(&self, step: &'static str, slot: usize) -> OpsResult {
        if slot < self.limits.slots {
            return Ok(());
        }
        Err(self.unsupported(step, format!("slot {slot}; there are {}", self.limits.slots)))
    }

    /// A batch over the limits is the caller's mistake; it must not reach a kernel.
    pub(crate) fn check_spans(&self, spans: &[Span<'_>]) -> OpsResult {
        let rows: usize = spans.iter().map(|span| span.tokens.len()).sum();
        if rows == 0 || rows > self.limits.rows {
            let reason = format!("{rows} rows; 1 to {} fit", self.limits.rows);
            return Err(self.unsupported("begin", reason));
        }
        for (i, span) in spans.iter().enumerate() {
            self.check_slot("begin", span.slot)?;
            if spans[..i].iter().any(|other| other.slot == span.slot) {
                return Err(self.unsupported("begin", format!("slot {} twice", span.slot)));
            }
            let (end, context) = (span.start + span.tokens.len(), self.limits.context);
            if end > context {
                let reason = format!("slot {} to position {end}; slots have {context}", span.slot);
                return Err(self.unsupported("begin", reason));
            }
            let vocab = self.spec.dims.vocab;
            if let Some(id) = span.tokens.iter().find(|&&id| id as usize >= vocab) {
                let reason = format!("token id {id}; the vocabulary has {vocab}");
                return Err(self.unsupported("begin", reason));
            }
            self.check_blocks("begin", end, span.blocks)?;
        }
        Ok(())
    }
}
