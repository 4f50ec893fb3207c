//! What the kernels cannot run, refused by name before anything is allocated.

use finback_kernels::manifest::{ATTEND_KEYS, HC_MAX, ROUTE_EXPERTS, ROUTE_TOPK};
use finback_ops::{BLOCK_POSITIONS, Format, LayerSpec, Limits, Linear, ModelSpec, OpsError};

use crate::weights::THREE;

/// Bytes that a product reads at a time.
const CHUNK: usize = 16;
/// Channels of a latent.
const LATENT: usize = 2048;
/// Rows of a launch's second dimension.
const GRID: usize = 65535;

/// Holds a model and limits to what the kernels run.
///
/// # Errors
/// The first size that they do not.
pub fn check(backend: &'static str, spec: &ModelSpec, limits: &Limits) -> Result<(), OpsError> {
    let d = &spec.dims;
    let most = |what: &'static str, name: &str, found: usize, most: usize| {
        if found <= most {
            return Ok(());
        }
        let reason = format!("{name} {found} is over {most}");
        Err(OpsError::Unsupported { backend, step: what, reason })
    };
    let multiple = |name: &str, found: usize, of: usize| {
        if found.is_multiple_of(of) {
            return Ok(());
        }
        let reason = format!("{name} {found} is not a multiple of {of}");
        Err(OpsError::Unsupported { backend, step: "packed rows", reason })
    };
    most("hyper-connections", "hc_mult", d.hc, HC_MAX)?;
    let block = spec.drafter.as_ref().map_or(0, |drafter| drafter.block);
    let keys = d.window + d.index_topk.max(block);
    most("attention", "keys of a row (sliding_window and index_topk)", keys, ATTEND_KEYS)?;
    most("a pass", "rows of a batch", limits.rows, GRID)?;
    most("a pass", "slots", limits.slots, GRID)?;
    most("a pass", "positions of a slot", limits.context, u32::MAX as usize)?;
    most("attention", "head_dim", d.head_dim, LATENT)?;
    most("attention", "q_lora_rank", d.q_rank, LATENT)?;
    most("attention", "index_head_dim", d.index_dim, LATENT)?;
    multiple("head_dim", d.head_dim, 32)?;
    multiple("index_head_dim", d.index_dim, 32)?;
    for source in &spec.sources {
        if source.ratio == 0 || !BLOCK_POSITIONS.is_multiple_of(source.ratio) {
            let reason = format!(
                "layer {} makes a row of {} positions; blocks have {BLOCK_POSITIONS}",
                source.layer, source.ratio
            );
            return Err(OpsError::Unsupported { backend, step: "compression", reason });
        }
    }
    let linears = Linears { backend, round_inputs: spec.numerics.round_inputs };
    linears.by_row(&spec.embed)?;
    linears.dense(&spec.head)?;
    for layer in spec.layers.iter().chain(spec.draft_layers()) {
        most("routing", "routed experts", layer.ffn.experts.len(), ROUTE_EXPERTS)?;
        most("routing", "experts of a row", layer.ffn.topk, ROUTE_TOPK)?;
        most("routing", "experts of a row", layer.ffn.topk, layer.ffn.experts.len())?;
        linears.layer(layer)?;
    }
    if let Some(engram) = &spec.engram {
        multiple("engram_head_dim", engram.dim, 32)?;
    }
    if let Some(drafter) = &spec.drafter {
        linears.by_row(&drafter.markov_embed)?;
        linears.dense(&drafter.markov_head)?;
        linears.dense(&drafter.main_proj)?;
    }
    Ok(())
}

/// What linears are held to.
struct Linears {
    backend: &'static str,
    round_inputs: bool,
}

impl Linears {
    fn layer(&self, layer: &LayerSpec) -> Result<(), OpsError> {
        let attn = &layer.attn;
        let ffn = &layer.ffn;
        let mut dense = vec![
            &layer.attn_hyper.mix,
            &layer.ffn_hyper.mix,
            &attn.wq_a,
            &attn.wq_b,
            &attn.wkv,
            &attn.wo_a,
            &attn.wo_b,
            &ffn.gate,
            &ffn.shared.w1,
            &ffn.shared.w2,
            &ffn.shared.w3,
        ];
        if let Some(compressor) = &layer.compressor {
            dense.extend([&compressor.wkv, &compressor.index_k]);
            dense.extend(&compressor.wgate);
        }
        if let Some(indexer) = &layer.indexer {
            dense.extend([&indexer.wq_b, &indexer.weights]);
        }
        if let Some(engram) = &layer.engram {
            dense.push(&engram.wkv);
        }
        dense.into_iter().try_for_each(|linear| self.dense(linear))?;
        THREE.into_iter().try_for_each(|of| self.experts(ffn.experts.iter().map(of)))
    }

    /// One linear of every expert: alike, in a format that experts' products take.
    fn experts<'a>(&self, mut linears: impl Iterator<Item = &'a Linear>) -> Result<(), OpsError> {
        let Some(first) = linears.next() else { return Ok(()) };
        if matches!(first.format, Format::F16 | Format::F32) {
            return Err(self.refuse(first, "an expert's weight takes FP8, FP4 or BF16"));
        }
        self.dense(first)?;
        let shape = |l: &Linear| (l.format, l.out, l.inp);
        match linears.find(|other| shape(other) != shape(first)) {
            None => Ok(()),
            Some(other) => {
                let first = first.weight.name();
                Err(self.refuse(other, &format!("experts of a layer are alike, see {first}")))
            }
        }
    }

    fn dense(&self, linear: &Linear) -> Result<(), OpsError> {
        if !linear.format.row_bytes(linear.inp).is_multiple_of(CHUNK) {
            return Err(self.refuse(linear, "rows are whole chunks of 16 bytes"));
        }
        if let Format::Fp8 { block } = linear.format
            && !block.is_multiple_of(16)
        {
            return Err(self.refuse(linear, "scale blocks are multiples of 16 wide"));
        }
        let coded = self.round_inputs && linear.format.is_quantised();
        if coded && !linear.inp.is_multiple_of(32) {
            return Err(self.refuse(linear, "rounded inputs are multiples of 32 wide"));
        }
        Ok(())
    }

    /// A table that is read by row.
    fn by_row(&self, linear: &Linear) -> Result<(), OpsError> {
        if linear.format.is_quantised() {
            return Err(self.refuse(linear, "a table read by row is BF16, F16 or F32"));
        }
        Ok(())
    }

    fn refuse(&self, linear: &Linear, wanted: &str) -> OpsError {
        let Linear { format, out, inp, weight, .. } = linear;
        OpsError::Unsupported {
            backend: self.backend,
            step: "a linear",
            reason: format!("{}: {format:?} [{out}, {inp}]; {wanted}", weight.name()),
        }
    }
}
