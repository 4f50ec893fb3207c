//! Whether the layers fit together, and the sizes each other.

use super::fields::Fields;
use super::{Config, WIDTH};
use crate::error::LoadResult;

/// Positions of one KV block: compressed rows must not straddle two.
const BLOCK_POSITIONS: usize = finback_ops::BLOCK_POSITIONS;

/// Checks what no single field shows.
pub(super) fn check(t: &Fields<'_>, c: &Config) -> LoadResult<()> {
    check_widths(t, c)?;
    check_sources(t, c)?;
    check_layers(t, c)?;
    check_candidates(t, c)
}

fn check_widths(t: &Fields<'_>, c: &Config) -> LoadResult<()> {
    if !c.num_attention_heads.is_multiple_of(c.o_groups) {
        let wanted = format!("a multiple of o_groups, {}", c.o_groups);
        return Err(t.refuse("num_attention_heads", c.num_attention_heads, wanted));
    }
    if !(c.o_groups * c.o_lora_rank).is_multiple_of(WIDTH) {
        let wanted =
            format!("{WIDTH} to divide o_groups * o_lora_rank (o_groups is {})", c.o_groups);
        return Err(t.refuse("o_lora_rank", c.o_lora_rank, wanted));
    }
    let rope = c.qk_rope_head_dim;
    let most = c.head_dim.min(c.index_head_dim);
    if !rope.is_multiple_of(2) || rope > most {
        let wanted = format!("an even number up to {most} (head_dim and index_head_dim)");
        return Err(t.refuse("qk_rope_head_dim", rope, wanted));
    }
    Ok(())
}

/// Kv sources and index sources against the ratios.
fn check_sources(t: &Fields<'_>, c: &Config) -> LoadResult<()> {
    let ratios = &c.compress_ratios;
    for &layer in &c.kv_source_layer_ids {
        let bad = |wanted: &str| Err(t.refuse("kv_source_layer_ids", layer, wanted));
        if ratios[layer] == 0 {
            return bad("layers whose compress_ratios entry is above 0");
        }
        if !c.index_source_layer_ids.contains(&layer) {
            return bad("layers that are in index_source_layer_ids too");
        }
    }
    for &layer in &c.index_source_layer_ids {
        let bad = |wanted: String| {
            let found = format!("{layer} with ratio {}", ratios[layer]);
            Err(t.refuse("index_source_layer_ids", found, wanted))
        };
        match c.kv_source(layer) {
            None => return bad("a kv source at or below it".into()),
            Some(source) if ratios[source] != ratios[layer] => {
                let ratio = ratios[source];
                return bad(format!("ratio {ratio}, that of its kv source, layer {source}"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Every layer's ratio against the sources below it.
fn check_layers(t: &Fields<'_>, c: &Config) -> LoadResult<()> {
    for (layer, &ratio) in c.compress_ratios.iter().enumerate() {
        let bad = |wanted: String| {
            let found = format!("ratio {ratio} at layer {layer}");
            Err(t.refuse("compress_ratios", found, wanted))
        };
        if ratio == 0 {
            continue;
        }
        if !BLOCK_POSITIONS.is_multiple_of(ratio) {
            return bad(format!("0 or a divisor of {BLOCK_POSITIONS}, a KV block's positions"));
        }
        match c.kv_source(layer) {
            None => return bad("0 below the first of kv_source_layer_ids".into()),
            Some(source) if c.compress_ratios[source] != ratio => {
                let own = c.compress_ratios[source];
                return bad(format!("{own}, that of its kv source, layer {source}"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// The second level of selection restricts every index source above it, so all of them must read
/// the rows that it chose from; those below it would choose from rows it has not seen.
fn check_candidates(t: &Fields<'_>, c: &Config) -> LoadResult<()> {
    let Some(candidate) = c.candidate else { return Ok(()) };
    let (field, at) = ("candidate_source_layer_id", candidate.source_layer_id);
    if !c.index_source_layer_ids.contains(&at) {
        return Err(t.refuse(field, at, "a layer of index_source_layer_ids"));
    }
    for &layer in &c.index_source_layer_ids {
        let reindex = !c.kv_source_layer_ids.contains(&layer);
        if reindex && layer < at {
            let wanted = format!("re-index layers above the candidate source, layer {at}");
            return Err(t.refuse("index_source_layer_ids", layer, wanted));
        }
        if layer > at && c.kv_source(layer) != c.kv_source(at) {
            let wanted = format!("layers above {at} with the kv source of {field}, layer {at}");
            return Err(t.refuse("index_source_layer_ids", layer, wanted));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
