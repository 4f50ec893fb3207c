//! What a pass must do, counted from the spec: bytes of weights and operations, by class.

use finback_kernels::manifest::Kernel;
use finback_ops::{LayerSpec, Linear, ModelSpec};

/// What a launch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Products with weights that every row uses.
    Dense,
    /// The routed experts: their products, their choice and their sum.
    Experts,
    /// Attention over the window and the picks.
    Attention,
    /// Index scores and their choice.
    Indexer,
    /// Everything else: norms, mixes, rotations, packing, sampling.
    Glue,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Dense, Self::Experts, Self::Attention, Self::Indexer, Self::Glue];

    /// Its name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::Experts => "experts",
            Self::Attention => "attention",
            Self::Indexer => "indexer",
            Self::Glue => "glue",
        }
    }

    /// What a kernel is for. FP4 weights are the experts' alone.
    pub fn of(kernel: &Kernel) -> Self {
        let name = kernel.name;
        let begins = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
        if begins(&[
            "expert_",
            "tile_fp4",
            "dense_fp4",
            "route",
            "group_",
            "fetch",
            "arrange_",
            "tile_group",
            "swiglu",
            "sum_",
        ]) {
            Self::Experts
        } else if begins(&["index_", "tile_index", "block_best", "topk", "tile_topk"]) {
            Self::Indexer
        } else if begins(&["attend", "tile_attend"]) {
            Self::Attention
        } else if begins(&["dense_", "tile_fp8", "tile_bf16", "tile_lifted", "quantise", "operand"])
        {
            Self::Dense
        } else {
            Self::Glue
        }
    }
}

/// Bytes and values of linears.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Size {
    /// Stored bytes, scales included.
    pub bytes: f64,
    /// Weights.
    pub values: f64,
}

impl Size {
    fn of(linear: &Linear) -> Self {
        let Linear { format, out, inp, .. } = *linear;
        let bytes = out * format.row_bytes(inp) + format.scale_bytes(out, inp);
        Self { bytes: bytes as f64, values: (out * inp) as f64 }
    }

    fn sum<'a>(linears: impl IntoIterator<Item = &'a Linear>) -> Self {
        linears.into_iter().map(Self::of).fold(Self::default(), Self::plus)
    }

    /// Both.
    pub fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, values: self.values + other.values }
    }
}

/// The weights of a layer that every row uses.
pub fn dense(layer: &LayerSpec) -> Size {
    let attn = &layer.attn;
    let shared = &layer.ffn.shared;
    let always = [
        &attn.wq_a,
        &attn.wq_b,
        &attn.wkv,
        &attn.wo_a,
        &attn.wo_b,
        &layer.ffn.gate,
        &shared.w1,
        &shared.w2,
        &shared.w3,
        &layer.attn_hyper.mix,
        &layer.ffn_hyper.mix,
    ];
    let indexer = layer.indexer.iter().flat_map(|indexer| [&indexer.wq_b, &indexer.weights]);
    Size::sum(always.into_iter().chain(indexer)).plus(engram(layer)).plus(compressor(layer))
}

/// Those that make compressed rows.
pub fn compressor(layer: &LayerSpec) -> Size {
    let all = layer.compressor.iter();
    Size::sum(all.flat_map(|c| [Some(&c.wkv), c.wgate.as_ref(), Some(&c.index_k)]).flatten())
}

/// One routed expert of a layer.
pub fn expert(layer: &LayerSpec) -> Size {
    layer.ffn.experts.first().map_or(Size::default(), |e| Size::sum([&e.w1, &e.w2, &e.w3]))
}

/// Experts that so many rows use, each its own choice: the expected number of distinct ones.
pub fn distinct(layer: &LayerSpec, rows: usize, same: bool) -> f64 {
    let (experts, topk) = (layer.ffn.experts.len() as f64, layer.ffn.topk as f64);
    match same {
        true => topk,
        false => experts * (1.0 - (1.0 - topk / experts).powi(rows as i32)),
    }
}

/// Bytes of weights that a round of so many rows reads, the head included.
pub fn round_bytes(spec: &ModelSpec, rows: usize, same: bool) -> f64 {
    let layers = spec.layers.iter().map(|layer| layer_bytes(layer, rows, same));
    layers.sum::<f64>() + head_bytes(spec)
}

/// Those of the head.
pub fn head_bytes(spec: &ModelSpec) -> f64 {
    Size::of(&spec.head).bytes
}

/// Those of a layer's Engram.
pub fn engram_bytes(layer: &LayerSpec) -> f64 {
    engram(layer).bytes
}

fn engram(layer: &LayerSpec) -> Size {
    Size::sum(layer.engram.iter().map(|engram| &engram.wkv))
}

/// Those of one layer.
pub fn layer_bytes(layer: &LayerSpec, rows: usize, same: bool) -> f64 {
    dense(layer).bytes + distinct(layer, rows, same) * expert(layer).bytes
}

/// Operations of a piece's products with weights: the layers below the last kv source whole, each as often
/// as `shares` says and Engrams as often as `engrams`, of that source what makes its compressed rows. No row
/// of a piece inside a prompt is read above it.
pub fn piece_operations(spec: &ModelSpec, rows: usize, shares: &[f64], engrams: f64) -> f64 {
    let last = spec.sources.last().map_or(spec.layers.len(), |source| source.layer);
    let whole = spec.layers.iter().take(last).zip(shares).map(|(layer, share)| {
        let engram = engram(layer).values;
        let all = dense(layer).values + layer.ffn.topk as f64 * expert(layer).values;
        share * (all - engram) + engrams * engram
    });
    let rest = spec.layers.get(last).map_or(0.0, |layer| {
        let mix = Size::of(&layer.attn_hyper.mix).values;
        compressor(layer).values + mix + engrams * engram(layer).values
    });
    2.0 * rows as f64 * (whole.sum::<f64>() + rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use finback_checkpoint::Checkpoint;
    use finback_kernels::manifest::kernel;
    use finback_model::inspect::Census;
    use finback_model::names::Form;
    use finback_model::spec;
    use finback_model::synth::{self, SynthOptions, Vocabulary};
    use finback_ops::Numerics;

    #[test]
    fn kernels_have_their_class() {
        let of = |name| Class::of(kernel(name).unwrap());
        for (name, class) in [
            ("dense_fp8_codes", Class::Dense),
            ("expert_fp4_codes", Class::Experts),
            ("group_routes", Class::Experts),
            ("fetch", Class::Experts),
            ("attend", Class::Attention),
            ("index_scores", Class::Indexer),
            ("topk", Class::Indexer),
            ("rmsnorm", Class::Glue),
        ] {
            assert_eq!(of(name), class, "{name}");
        }
    }

    #[test]
    fn every_weight_of_a_layer_is_counted_once() {
        let directory = tempfile::tempdir().unwrap();
        let options = SynthOptions { drafts: false, ..SynthOptions::default() };
        let config = synth::write(directory.path(), &options, &Vocabulary::bare(64)).unwrap();
        let checkpoint = Checkpoint::open(directory.path()).unwrap();
        let map = serde_json::from_slice(
            &std::fs::read(directory.path().join("engram_token_map.json")).unwrap(),
        )
        .unwrap();
        let spec = spec::load(&checkpoint, &config, Some(map), Numerics::RELEASE).unwrap();
        let layers = spec
            .layers
            .iter()
            .map(|layer| dense(layer).bytes + layer.ffn.experts.len() as f64 * expert(layer).bytes);
        let counted = layers.sum::<f64>() + Size::of(&spec.head).bytes;
        // What else a layer holds is vectors: norms, bases, sinks, biases.
        let census = Census::of(&config, &checkpoint).unwrap();
        let held = |rank: usize| {
            let all = census.weights.iter().filter(|(weight, _)| {
                (weight.shape.len() > 1) == (rank > 1)
                    && weight.form != Form::Table
                    && weight.name != "embed.weight"
            });
            all.map(|(_, bytes)| *bytes).sum::<u64>() as f64
        };
        let (matrices, vectors) = (held(2), held(1));
        assert!((counted - matrices).abs() <= vectors, "{counted} of {matrices}, {vectors} beside");
        let one = layer_bytes(&spec.layers[0], 1, false);
        assert!((one - layer_bytes(&spec.layers[0], 9, true)).abs() < 1.0);
        let [two, many] = [2, 1000].map(|rows| distinct(&spec.layers[0], rows, false));
        assert!(two > 3.0 && two < 6.0 && (many - 8.0).abs() < 1e-6, "{two} {many}");
        assert!(round_bytes(&spec, 1, true) < counted);
        let shares = vec![1.0; spec.layers.len()];
        let all = |rows, engrams| piece_operations(&spec, rows, &shares, engrams);
        assert!(all(2, 1.0) == 2.0 * all(1, 1.0) && all(1, 2.0) > all(1, 1.0));
        let double = vec![2.0; spec.layers.len()];
        let most = 2.0 * all(1, 1.0);
        assert!(piece_operations(&spec, 1, &double, 2.0) <= most);
    }
}
