//! A checkpoint's weights, lifted to float64 (section 2).

use finback_checkpoint::{Checkpoint, Dtype};
use finback_ops::Numerics;

use super::attention::{Attention, Compressor, Indexer};
use super::draft::Heads;
use super::engram::EngramBlock;
use super::experts::{Expert, Ffn};
use super::hyper::Hyper;
use super::linear::Linear;
use super::{Reference, number};
use crate::config::Config;
use crate::engram::address;
use crate::error::LoadResult;

/// One layer, of the target or of the drafter.
#[derive(Debug)]
pub(super) struct Block {
    /// Draft blocks count on from the target's layers.
    pub(super) layer: usize,
    pub(super) ratio: usize,
    pub(super) engram: Option<EngramBlock>,
    pub(super) hc_attn: Hyper,
    pub(super) attn_norm: Vec<f64>,
    pub(super) attn: Attention,
    pub(super) compressor: Option<Compressor>,
    pub(super) indexer: Option<Indexer>,
    pub(super) hc_ffn: Hyper,
    pub(super) ffn_norm: Vec<f64>,
    pub(super) ffn: Ffn,
}

/// The draft blocks and what is around them.
#[derive(Debug)]
pub(super) struct Drafter {
    pub(super) blocks: Vec<Block>,
    pub(super) main_proj: Linear,
    pub(super) main_norm: Vec<f64>,
    pub(super) norm: Vec<f64>,
    pub(super) heads: Heads,
}

impl Reference {
    /// Lifts every weight of `ck`. `token_map` takes token ids to Engram ids; a config without
    /// Engram does not read it.
    ///
    /// # Errors
    /// A tensor is missing or of a type that it cannot have. Shapes are not checked.
    pub fn load(
        ck: &Checkpoint,
        config: &Config,
        token_map: &[u32],
        numerics: Numerics,
    ) -> LoadResult<Self> {
        let top = Reader { ck, config, prefix: String::new() };
        let layers = config.num_hidden_layers;
        Ok(Self {
            embed: top.matrix("embed.weight")?,
            blocks: (0..layers).map(|layer| top.target(layer)).collect::<LoadResult<_>>()?,
            norm: top.vector("norm.weight")?,
            head: top.linear("head")?,
            engram: config.engram.as_ref().map(|e| address(e, token_map.to_vec())),
            drafter: top.drafter()?,
            config: config.clone(),
            numerics,
            jitter: None,
        })
    }
}

/// Reads the tensors under a prefix.
struct Reader<'a> {
    ck: &'a Checkpoint,
    config: &'a Config,
    prefix: String,
}

impl<'a> Reader<'a> {
    fn under(&self, prefix: &str) -> Reader<'a> {
        Reader { ck: self.ck, config: self.config, prefix: format!("{}{prefix}.", self.prefix) }
    }

    /// An unscaled tensor's values in order.
    fn vector(&self, name: &str) -> LoadResult<Vec<f64>> {
        let tensor = self.ck.tensor(&format!("{}{name}", self.prefix))?;
        let halves = tensor.bytes().chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
        Ok(match tensor.dtype() {
            Dtype::Bf16 => halves.map(number::bf16).collect(),
            Dtype::F16 => halves.map(number::f16).collect(),
            Dtype::F32 => {
                let words = tensor.bytes().chunks_exact(4);
                words.map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()
            }
            other => return Err(tensor.refuse(other.name(), "BF16, F16 or F32").into()),
        })
    }

    /// An unscaled matrix.
    fn matrix(&self, name: &str) -> LoadResult<Vec<Vec<f64>>> {
        let tensor = self.ck.tensor(&format!("{}{name}", self.prefix))?;
        let columns = tensor.shape().last().copied().unwrap_or(1);
        Ok(self.vector(name)?.chunks(columns).map(<[f64]>::to_vec).collect())
    }

    /// A linear in whatever form it is stored.
    fn linear(&self, name: &str) -> LoadResult<Linear> {
        let weight = format!("{name}.weight");
        let tensor = self.ck.tensor(&format!("{}{weight}", self.prefix))?;
        let tile = self.config.weight_block_size;
        let columns = tensor.shape().last().copied().unwrap_or(1);
        // Codes of a row, and how many rows and values share a scale.
        let (codes, high, wide): (Vec<Vec<f64>>, _, _) = match tensor.dtype() {
            Dtype::F8E4M3 => {
                let row = |row: &[u8]| row.iter().map(|&code| number::e4m3(code)).collect();
                (tensor.bytes().chunks(columns).map(row).collect(), tile, tile)
            }
            Dtype::I8 | Dtype::U8 => {
                let pair = |&byte: &u8| [number::e2m1(byte), number::e2m1(byte >> 4)];
                let row = |row: &[u8]| row.iter().flat_map(pair).collect();
                (tensor.bytes().chunks(columns).map(row).collect(), 1, 32)
            }
            _ => return Ok(Linear { rows: self.matrix(&weight)?, quantised: false }),
        };
        let scale = self.ck.tensor(&format!("{}{name}.scale", self.prefix))?;
        let scales: Vec<&[u8]> = scale.bytes().chunks(scale.shape()[1]).collect();
        let lift = |(r, row): (usize, Vec<f64>)| {
            let scaled = |(c, v): (usize, f64)| v * number::e8m0(scales[r / high][c / wide]);
            row.into_iter().enumerate().map(scaled).collect()
        };
        let rows = codes.into_iter().enumerate().map(lift).collect();
        Ok(Linear { rows, quantised: true })
    }

    fn target(&self, layer: usize) -> LoadResult<Block> {
        let c = self.config;
        let r = self.under(&format!("layers.{layer}"));
        let mut block = r.block(layer, c.n_routed_experts, c.num_experts_per_tok)?;
        block.ratio = c.compress_ratios[layer];
        let engram = c.engram.as_ref().and_then(|e| e.layer_ids.iter().position(|&l| l == layer));
        block.engram = engram.map(|which| r.engram(which)).transpose()?;
        let kv_source = c.kv_source_layer_ids.contains(&layer);
        block.compressor = kv_source.then(|| r.compressor(block.ratio)).transpose()?;
        let index_source = c.index_source_layer_ids.contains(&layer);
        block.indexer = index_source.then(|| r.indexer()).transpose()?;
        Ok(block)
    }

    fn drafter(&self) -> LoadResult<Option<Drafter>> {
        let Some(d) = &self.config.drafts else { return Ok(None) };
        let stage = |i: usize| self.under(&format!("mtp.{i}"));
        let (first, last) = (stage(0), stage(d.layers - 1));
        let layers = self.config.num_hidden_layers;
        let block = |i| stage(i).block(layers + i, d.n_routed_experts, d.num_experts_per_tok);
        Ok(Some(Drafter {
            blocks: (0..d.layers).map(block).collect::<LoadResult<_>>()?,
            main_proj: first.linear("main_proj")?,
            main_norm: first.vector("main_norm.weight")?,
            norm: last.vector("norm.weight")?,
            heads: Heads {
                markov_embed: last.matrix("markov_head.embed.weight")?,
                markov_head: last.linear("markov_head.head")?,
                confidence: last.vector("confidence_head.proj.weight")?,
            },
        }))
    }

    /// What every layer has; the rest is absent.
    fn block(&self, layer: usize, experts: usize, topk: usize) -> LoadResult<Block> {
        let ffn = self.under("ffn");
        let expert = |e| ffn.expert(&format!("experts.{e}"));
        Ok(Block {
            layer,
            ratio: 0,
            engram: None,
            hc_attn: self.hyper("attn")?,
            attn_norm: self.vector("attn_norm.weight")?,
            attn: self.under("attn").attention()?,
            compressor: None,
            indexer: None,
            hc_ffn: self.hyper("ffn")?,
            ffn_norm: self.vector("ffn_norm.weight")?,
            ffn: Ffn {
                gate: ffn.matrix("gate.weight")?,
                bias: ffn.vector("gate.bias")?,
                experts: (0..experts).map(expert).collect::<LoadResult<_>>()?,
                topk,
                shared: ffn.expert("shared_experts")?,
            },
        })
    }

    fn hyper(&self, site: &str) -> LoadResult<Hyper> {
        Ok(Hyper {
            mix: Linear { rows: self.matrix(&format!("hc_{site}_fn"))?, quantised: false },
            base: self.vector(&format!("hc_{site}_base"))?,
            scale: self.vector(&format!("hc_{site}_scale"))?,
        })
    }

    fn attention(&self) -> LoadResult<Attention> {
        Ok(Attention {
            wq_a: self.linear("wq_a")?,
            q_norm: self.vector("q_norm.weight")?,
            wq_b: self.linear("wq_b")?,
            wkv: self.linear("wkv")?,
            kv_norm: self.vector("kv_norm.weight")?,
            wo_a: self.linear("wo_a")?,
            wo_b: self.linear("wo_b")?,
            sink: self.vector("attn_sink")?,
        })
    }

    fn compressor(&self, ratio: usize) -> LoadResult<Compressor> {
        let r = self.under("attn");
        Ok(Compressor {
            wkv: r.linear("compressor.wkv")?,
            wgate: (ratio > 1).then(|| r.linear("compressor.wgate")).transpose()?,
            norm: r.vector("compressor.norm.weight")?,
            index_k: r.linear("indexer.wk")?,
            index_norm: r.vector("indexer.k_norm.weight")?,
        })
    }

    fn indexer(&self) -> LoadResult<Indexer> {
        let r = self.under("attn.indexer");
        Ok(Indexer { wq_b: r.linear("wq_b")?, weights: r.linear("weights_proj")? })
    }

    fn expert(&self, name: &str) -> LoadResult<Expert> {
        let linear = |w| self.linear(&format!("{name}.{w}"));
        Ok(Expert { w1: linear("w1")?, w2: linear("w2")?, w3: linear("w3")? })
    }

    fn engram(&self, which: usize) -> LoadResult<EngramBlock> {
        let r = self.under("engram");
        let product = |q: Vec<f64>, k: Vec<f64>| q.iter().zip(k).map(|(q, k)| q * k).collect();
        let weights = r.matrix("q_weight")?.into_iter().zip(r.matrix("k_weight")?);
        Ok(EngramBlock {
            which,
            table: self.ck.tensor(&format!("{}embed.weight", r.prefix))?,
            scale: self.ck.tensor(&format!("{}embed.scale", r.prefix))?,
            wkv: r.linear("wkv")?,
            qk: weights.map(|(q, k)| product(q, k)).collect(),
        })
    }
}
