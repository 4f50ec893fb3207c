//! The parts of the config that have rules of their own.

use finback_ops::Yarn;

use super::fields::Fields;
use super::{CandidateConfig, DraftConfig, EngramConfig, WIDTH, WIDTH_MAX};
use crate::engram::primes;
use crate::error::LoadResult;

/// Rows of one verify window: the newest token and its drafts.
const WINDOW_ROWS_MAX: usize = 16;

/// The value, where it is a multiple of `of`.
pub(super) fn multiple(t: &Fields<'_>, field: &str, value: usize, of: usize) -> LoadResult<usize> {
    match value % of {
        0 => Ok(value),
        _ => Err(t.refuse(field, value, format!("a multiple of {of}"))),
    }
}

/// The target's ratios; entries for draft blocks may follow, which have to be 0.
pub(super) fn read_ratios(t: &Fields<'_>, layers: usize) -> LoadResult<Vec<usize>> {
    let field = "compress_ratios";
    let mut ratios = t.counts(field, 0..=256)?;
    if ratios.len() < layers {
        let found = format!("{} entries", ratios.len());
        return Err(t.refuse(field, found, format!("one a layer, {layers} (num_hidden_layers)")));
    }
    if ratios[layers..].iter().any(|&r| r > 0) {
        let found = format!("{:?} after the {layers} layers", &ratios[layers..]);
        return Err(t.refuse(field, found, "0 for each draft block"));
    }
    ratios.truncate(layers);
    Ok(ratios)
}

pub(super) fn read_candidate(t: &Fields<'_>, layers: usize) -> LoadResult<Option<CandidateConfig>> {
    let field = "candidate_source_layer_id";
    if t.get(field).is_none_or(|v| v.as_i64().is_some_and(|id| id < 0)) {
        return Ok(None);
    }
    Ok(Some(CandidateConfig {
        source_layer_id: t.count(field, 0..=layers - 1, None)?,
        topk_blocks: t.count("candidate_topk_blocks", 1..=1 << 30, None)?,
        block_size: t.count("candidate_block_size", 1..=1 << 20, None)?,
    }))
}

pub(super) fn read_yarn(t: &Fields<'_>) -> LoadResult<Option<Yarn>> {
    let path = if t.path.is_empty() { "rope_scaling." } else { "text_config.rope_scaling." };
    let Some(y) = t.object("rope_scaling", path)? else { return Ok(None) };
    if y.map.is_empty() {
        return Ok(None);
    }
    // Older files say `type`.
    let field = if y.get("rope_type").is_some() { "rope_type" } else { "type" };
    y.word(field, &[("yarn", ())], Some(()))?;
    let from_one = |field, default| y.number(field, "a number not below 1", |x| x >= 1.0, default);
    let above_zero = |field, default| y.number(field, "a number above 0", |x| x > 0.0, default);
    let yarn = Yarn {
        factor: from_one("factor", None)?,
        beta_fast: above_zero("beta_fast", Some(32.0))?,
        beta_slow: above_zero("beta_slow", Some(1.0))?,
        original: from_one("original_max_position_embeddings", None)?,
    };
    if yarn.beta_fast < yarn.beta_slow {
        let wanted = format!("at least beta_slow, {}", yarn.beta_slow);
        return Err(y.refuse("beta_fast", yarn.beta_fast, wanted));
    }
    Ok(Some(yarn))
}

pub(super) fn read_engram(
    t: &Fields<'_>,
    layers: usize,
    vocab: usize,
) -> LoadResult<Option<EngramConfig>> {
    if t.get("engram_layer_ids").is_none_or(|v| v.as_array().is_some_and(Vec::is_empty)) {
        return Ok(None);
    }
    // The field's older name.
    let pad = ["engram_pad_token_id", "engram_pad_id"];
    let pad = if t.get(pad[0]).is_some() { pad[0] } else { pad[1] };
    let head_dim = t.count("engram_head_dim", WIDTH..=1 << 16, None)?;
    let e = EngramConfig {
        layer_ids: t.layers("engram_layer_ids", layers)?,
        vocab_size: t.count("engram_vocab_size", 2..=1 << 40, None)? as u64,
        max_ngram_size: t.count("engram_max_ngram_size", 2..=16, None)?,
        n_heads: t.count("engram_n_heads", 1..=64, None)?,
        head_dim: multiple(t, "engram_head_dim", head_dim, WIDTH)?,
        pad_token_id: t.token(pad, vocab, Some(2.min(vocab - 1)))?,
        compressed_vocab_size: t.count("engram_compressed_vocab_size", 1..=vocab, None)?,
        // Last: its message is about the fields before it.
        num_embeddings: t.counts("engram_num_embeddings", 1..=1 << 44)?,
    };
    let sums: Vec<u64> = primes(&e).iter().map(|p| p.iter().sum()).collect();
    if !e.num_embeddings.iter().map(|&n| n as u64).eq(sums.iter().copied()) {
        let found = format!("{:?}", e.num_embeddings);
        return Err(t.refuse(
            "engram_num_embeddings",
            found,
            format!("{sums:?}, the primes' sums"),
        ));
    }
    Ok(Some(e))
}

pub(super) fn read_drafts(
    t: &Fields<'_>,
    layers: usize,
    vocab: usize,
    experts: usize,
    topk: usize,
) -> LoadResult<Option<DraftConfig>> {
    let block_size = t.count("dspark_block_size", 0..=WINDOW_ROWS_MAX - 1, Some(0))?;
    let blocks = t.count("num_nextn_predict_layers", 0..=64, Some(0))?;
    if block_size == 0 || blocks == 0 {
        return Ok(None);
    }
    let field = "dspark_target_layer_ids";
    let target_layer_ids = t.layers(field, layers)?;
    if target_layer_ids.is_empty() {
        return Err(t.refuse(field, "[]", "at least one layer"));
    }
    // 0 means the target's own number.
    let or = |field, most: usize, own: usize| -> LoadResult<usize> {
        Ok(match t.count(field, 0..=most, Some(0))? {
            0 => own,
            n => n,
        })
    };
    let n_routed_experts = or("dspark_n_routed_experts", 4096, experts)?;
    let num_experts_per_tok = or("dspark_num_experts_per_tok", n_routed_experts, topk)?;
    if num_experts_per_tok > n_routed_experts {
        let found = format!("{n_routed_experts}");
        let wanted = format!("at least the {num_experts_per_tok} a row uses");
        return Err(t.refuse("dspark_n_routed_experts", found, wanted));
    }
    Ok(Some(DraftConfig {
        layers: blocks,
        block_size,
        noise_token_id: t.token("dspark_noise_token_id", vocab, Some(0))?,
        target_layer_ids,
        markov_rank: t.count("dspark_markov_rank", 1..=WIDTH_MAX, None)?,
        n_routed_experts,
        num_experts_per_tok,
    }))
}

/// The edge of an FP8 scale tile. Without the object it is the format's own 32, and every scale
/// tensor's shape has to agree.
pub(super) fn read_quantization(root: &Fields<'_>, text: &Fields<'_>) -> LoadResult<usize> {
    let field = "quantization_config";
    let q = match root.object(field, "quantization_config.")? {
        Some(q) => q,
        None => match text.object(field, "text_config.quantization_config.")? {
            Some(q) => q,
            None => return Ok(WIDTH),
        },
    };
    q.word("quant_method", &[("fp8", ())], None)?;
    q.word("activation_scheme", &[("dynamic", ())], None)?;
    q.word("scale_fmt", &[("ue8m0", ())], None)?;
    q.word("expert_dtype", &[("fp4", ()), ("fp8", ()), ("bf16", ())], Some(()))?;
    let field = "weight_block_size";
    match q.counts(field, WIDTH..=1 << 16)?[..] {
        [rows, columns] if rows == columns && rows % WIDTH == 0 => Ok(rows),
        ref other => {
            Err(q.refuse(field, format!("{other:?}"), "two equal multiples of 32: square tiles"))
        }
    }
}

#[cfg(test)]
#[path = "parts_tests.rs"]
mod tests;
