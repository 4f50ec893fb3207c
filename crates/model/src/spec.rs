//! From a checkpoint and its config to the model as a backend sees it.

use finback_checkpoint::{Advice, Checkpoint};
use finback_ops::{
    Attention, Compressor, Dims, Drafter, EngramLayer, Expert, Ffn, Hyper, Indexer, KvSource,
    LayerSpec, ModelSpec, Numerics,
};

use crate::config::{CONFIG_FILE, Config};
use crate::engram::address;
use crate::error::{LoadError, LoadResult};
use crate::weights::{Weights, check_scales};

/// Everything a backend needs to run the checkpoint.
///
/// `token_map` takes token ids to Engram ids; it is needed where the config has Engram layers. The
/// scales of everything but the routed experts and the Engram tables are read and checked here;
/// those are checked where they are first used.
///
/// # Errors
/// A tensor that is missing, misshapen or of a wrong dtype; a scale that is NaN; a token map that
/// does not fit the config.
pub fn load(
    ck: &Checkpoint,
    config: &Config,
    token_map: Option<Vec<u32>>,
    numerics: Numerics,
) -> LoadResult<ModelSpec> {
    let weights = Weights::find(config, ck)?;
    let loader = Loader { config, weights: &weights };
    let layers = (0..config.num_hidden_layers)
        .map(|l| loader.target_layer(l))
        .collect::<LoadResult<Vec<_>>>()?;
    let engram = match &config.engram {
        None => None,
        Some(e) => Some(address(e, checked_map(ck, config, token_map)?)),
    };
    Ok(ModelSpec {
        dims: dims(config),
        numerics,
        embed: weights.linear("embed.weight")?,
        layers,
        sources: config
            .kv_source_layer_ids
            .iter()
            .map(|&layer| KvSource { layer, ratio: config.compress_ratios[layer] })
            .collect(),
        norm: weights.vector("norm.weight")?,
        head: weights.linear("head.weight")?,
        engram,
        drafter: loader.drafter()?,
    })
}

/// The map, where it covers the vocabulary with the ids the config counts.
fn checked_map(ck: &Checkpoint, config: &Config, map: Option<Vec<u32>>) -> LoadResult<Vec<u32>> {
    let file = ck.dir().join(CONFIG_FILE);
    let wanted = config.engram.as_ref().map_or(0, |e| e.compressed_vocab_size);
    let refuse = |found: String, wanted: String| {
        LoadError::config(&file, "engram_compressed_vocab_size", found, wanted)
    };
    let Some(mut map) = map else {
        let wanted = "tokenizer.json or engram_token_map.json beside the config";
        return Err(refuse("Engram layers but no token map".into(), wanted.into()));
    };
    // A tokenizer may define fewer ids than the vocabulary has rows; those are never encoded.
    let distinct = map.iter().max().map_or(0, |&m| m as usize + 1);
    if distinct != wanted {
        let found = format!("a token map of {distinct} distinct ids");
        return Err(refuse(found, format!("{wanted}, as the config says")));
    }
    if map.len() > config.vocab_size {
        let found = format!("a token map of {} token ids", map.len());
        return Err(refuse(found, format!("at most {} (vocab_size)", config.vocab_size)));
    }
    let pad = config.engram.as_ref().map_or(0, |e| e.pad_token_id as usize);
    if pad >= map.len() {
        let found = format!("a token map of {} token ids", map.len());
        return Err(refuse(found, format!("one that covers engram_pad_token_id {pad}")));
    }
    map.resize(config.vocab_size, map[pad]);
    Ok(map)
}

fn dims(c: &Config) -> Dims {
    Dims {
        vocab: c.vocab_size,
        hidden: c.hidden_size,
        hc: c.hc_mult,
        sinkhorn: c.hc_sinkhorn_iters,
        hc_eps: c.hc_eps as f32,
        eps: c.rms_norm_eps as f32,
        heads: c.num_attention_heads,
        head_dim: c.head_dim,
        rope_dim: c.qk_rope_head_dim,
        q_rank: c.q_lora_rank,
        o_groups: c.o_groups,
        o_rank: c.o_lora_rank,
        window: c.sliding_window,
        theta: c.rope_theta,
        compress_theta: c.compress_rope_theta,
        yarn: c.rope_scaling,
        index_heads: c.index_n_heads,
        index_dim: c.index_head_dim,
        index_topk: c.index_topk,
        candidate_layer: c.candidate.map(|x| x.source_layer_id),
        candidate_blocks: c.candidate.map_or(0, |x| x.topk_blocks),
        candidate_size: c.candidate.map_or(1, |x| x.block_size),
        scoring: c.scoring_func,
        gate_temp: c.gate_temp as f32,
        norm_topk: c.norm_topk_prob,
        route_scale: c.routed_scaling_factor as f32,
        swiglu_limit: c.swiglu_limit as f32,
        inter: c.moe_intermediate_size,
    }
}

struct Loader<'a> {
    config: &'a Config,
    weights: &'a Weights,
}

impl Loader<'_> {
    fn target_layer(&self, l: usize) -> LoadResult<LayerSpec> {
        let c = self.config;
        let ratio = c.compress_ratios[l];
        let p = format!("layers.{l}");
        let source = match ratio {
            0 => None,
            _ => c.kv_source(l).and_then(|s| c.kv_source_layer_ids.iter().position(|&x| x == s)),
        };
        let which = c.engram.as_ref().and_then(|e| e.layer_ids.iter().position(|&x| x == l));
        let tap = c.drafts.as_ref().and_then(|d| d.target_layer_ids.iter().position(|&x| x == l));
        Ok(LayerSpec {
            ratio,
            source,
            compressor: match c.kv_source_layer_ids.contains(&l) {
                true => Some(self.compressor(&p, ratio)?),
                false => None,
            },
            indexer: match c.index_source_layer_ids.contains(&l) {
                true => Some(self.indexer(&p)?),
                false => None,
            },
            engram: which.map(|which| self.engram(&p, which)).transpose()?,
            tap,
            ..self.layer(&p, c.n_routed_experts, c.num_experts_per_tok)?
        })
    }

    /// What every layer has, of the target and of the drafter.
    fn layer(&self, p: &str, experts: usize, topk: usize) -> LoadResult<LayerSpec> {
        Ok(LayerSpec {
            ratio: 0,
            source: None,
            compressor: None,
            indexer: None,
            engram: None,
            tap: None,
            attn_hyper: self.hyper(p, "attn")?,
            attn_norm: self.weights.vector(&format!("{p}.attn_norm.weight"))?,
            attn: self.attention(&format!("{p}.attn"))?,
            ffn_hyper: self.hyper(p, "ffn")?,
            ffn_norm: self.weights.vector(&format!("{p}.ffn_norm.weight"))?,
            ffn: self.ffn(&format!("{p}.ffn"), experts, topk)?,
        })
    }

    /// A linear whose scales are checked now.
    fn linear(&self, name: &str) -> LoadResult<finback_ops::Linear> {
        let linear = self.weights.linear(&format!("{name}.weight"))?;
        linear.scale.as_ref().map_or(Ok(()), check_scales)?;
        Ok(linear)
    }

    fn hyper(&self, p: &str, site: &str) -> LoadResult<Hyper> {
        let scale = self.weights.vector(&format!("{p}.hc_{site}_scale"))?;
        Ok(Hyper {
            mix: self.weights.linear(&format!("{p}.hc_{site}_fn"))?,
            base: self.weights.vector(&format!("{p}.hc_{site}_base"))?,
            // The table gives it three values.
            scale: [scale[0], scale[1], scale[2]],
        })
    }

    fn attention(&self, p: &str) -> LoadResult<Attention> {
        Ok(Attention {
            wq_a: self.linear(&format!("{p}.wq_a"))?,
            q_norm: self.weights.vector(&format!("{p}.q_norm.weight"))?,
            wq_b: self.linear(&format!("{p}.wq_b"))?,
            wkv: self.linear(&format!("{p}.wkv"))?,
            kv_norm: self.weights.vector(&format!("{p}.kv_norm.weight"))?,
            wo_a: self.linear(&format!("{p}.wo_a"))?,
            wo_b: self.linear(&format!("{p}.wo_b"))?,
            sink: self.weights.vector(&format!("{p}.attn_sink"))?,
        })
    }

    fn compressor(&self, p: &str, ratio: usize) -> LoadResult<Compressor> {
        let p = format!("{p}.attn");
        let wgate = (ratio > 1).then(|| self.linear(&format!("{p}.compressor.wgate")));
        Ok(Compressor {
            wkv: self.linear(&format!("{p}.compressor.wkv"))?,
            wgate: wgate.transpose()?,
            norm: self.weights.vector(&format!("{p}.compressor.norm.weight"))?,
            index_k: self.linear(&format!("{p}.indexer.wk"))?,
            index_norm: self.weights.vector(&format!("{p}.indexer.k_norm.weight"))?,
        })
    }

    fn indexer(&self, p: &str) -> LoadResult<Indexer> {
        Ok(Indexer {
            wq_b: self.linear(&format!("{p}.attn.indexer.wq_b"))?,
            weights: self.linear(&format!("{p}.attn.indexer.weights_proj"))?,
        })
    }

    fn engram(&self, p: &str, which: usize) -> LoadResult<EngramLayer> {
        let (table, table_scale) = self.weights.table(&format!("{p}.engram.embed.weight"))?;
        // A row is read alone: what the system reads ahead of it is never used.
        table.advise(Advice::Random);
        table_scale.advise(Advice::Random);
        let q = self.weights.vector(&format!("{p}.engram.q_weight"))?;
        let k = self.weights.vector(&format!("{p}.engram.k_weight"))?;
        Ok(EngramLayer {
            which,
            table,
            table_scale,
            wkv: self.linear(&format!("{p}.engram.wkv"))?,
            qk: q.iter().zip(&k).map(|(q, k)| q * k).collect(),
        })
    }

    fn ffn(&self, p: &str, experts: usize, topk: usize) -> LoadResult<Ffn> {
        let shared = self.expert(&format!("{p}.shared_experts"))?;
        for linear in [&shared.w1, &shared.w2, &shared.w3] {
            linear.scale.as_ref().map_or(Ok(()), check_scales)?;
        }
        Ok(Ffn {
            gate: self.weights.linear(&format!("{p}.gate.weight"))?,
            bias: self.weights.vector(&format!("{p}.gate.bias"))?,
            experts: (0..experts)
                .map(|e| self.expert(&format!("{p}.experts.{e}")))
                .collect::<LoadResult<_>>()?,
            topk,
            shared,
        })
    }

    fn expert(&self, p: &str) -> LoadResult<Expert> {
        Ok(Expert {
            w1: self.weights.linear(&format!("{p}.w1.weight"))?,
            w2: self.weights.linear(&format!("{p}.w2.weight"))?,
            w3: self.weights.linear(&format!("{p}.w3.weight"))?,
        })
    }

    fn drafter(&self) -> LoadResult<Option<Drafter>> {
        let Some(d) = &self.config.drafts else { return Ok(None) };
        let last = format!("mtp.{}", d.layers - 1);
        Ok(Some(Drafter {
            layers: (0..d.layers)
                .map(|i| self.layer(&format!("mtp.{i}"), d.n_routed_experts, d.num_experts_per_tok))
                .collect::<LoadResult<_>>()?,
            block: d.block_size,
            noise: d.noise_token_id,
            taps: d.target_layer_ids.len(),
            main_proj: self.linear("mtp.0.main_proj")?,
            main_norm: self.weights.vector("mtp.0.main_norm.weight")?,
            norm: self.weights.vector(&format!("{last}.norm.weight"))?,
            markov_embed: self.weights.linear(&format!("{last}.markov_head.embed.weight"))?,
            markov_head: self.weights.linear(&format!("{last}.markov_head.head.weight"))?,
            confidence: self.weights.vector(&format!("{last}.confidence_head.proj.weight"))?,
        }))
    }
}
