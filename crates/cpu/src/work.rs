//! The workspace of a pass: the batch's rows and the values between its steps.

use finback_ops::{BLOCK_POSITIONS, Format, Frequencies, Limits, ModelSpec, Span};

use crate::rope::Angles;

/// One span of the batch.
pub struct SpanRows {
    /// Its slot.
    pub slot: usize,
    /// Position of its first row.
    pub start: usize,
    /// Index of its first row in the batch.
    pub first: usize,
    /// Its rows.
    pub rows: usize,
    /// Its slot's block table.
    pub blocks: Vec<u32>,
}

/// One row of the batch.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Index of its span.
    pub span: usize,
    /// Its position.
    pub position: usize,
    /// Its token id.
    pub token: u32,
}

/// The angles of a batch's rows for both kinds of layers.
pub struct BothAngles {
    window: Angles,
    compressed: Angles,
}

impl BothAngles {
    /// The angles of a layer of this ratio.
    pub fn of(&self, ratio: usize) -> &Angles {
        if ratio == 0 { &self.window } else { &self.compressed }
    }
}

/// The batch and the values of its rows. Every buffer is row-major with the width its comment names.
pub struct Work {
    /// Spans in order.
    pub spans: Vec<SpanRows>,
    /// Rows in order.
    pub rows: Vec<Row>,
    /// The rows' rotary angles.
    pub angles: BothAngles,
    /// X, `hc * hidden`.
    pub streams: Vec<f32>,
    /// `hc`.
    pub pre: Vec<f32>,
    /// `hc`.
    pub post: Vec<f32>,
    /// `hc * hc`.
    pub comb: Vec<f32>,
    /// A site's mix before its nonlinearities, `(2 + hc) * hc`.
    pub mix: Vec<f32>,
    /// The sublayer's input, `hidden`.
    pub x: Vec<f32>,
    /// The sublayer's output, `hidden`.
    pub y: Vec<f32>,
    /// `q_rank`.
    pub qr: Vec<f32>,
    /// Queries, then attention's output: `heads * head_dim`.
    pub q: Vec<f32>,
    /// A latent: `head_dim`.
    pub kv: Vec<f32>,
    /// `o_groups * o_rank`.
    pub z: Vec<f32>,
    /// One group's part of it, out to whole scale tiles.
    pub z_part: Vec<f32>,
    /// Per ring: new window rows, packed.
    pub window_rows: Vec<Vec<u8>>,
    /// Per kv source of ratio above 1: raw kv rows `head_dim`, then the gate rows; empty for others.
    pub raw: Vec<Vec<f32>>,
    /// Index keys before packing, `index_dim`.
    pub index_k: Vec<f32>,
    /// Index queries, `index_heads * index_dim`.
    pub index_q: Vec<f32>,
    /// Weights of the index heads, `index_heads`.
    pub index_w: Vec<f32>,
    /// Compressed rows each row attends to, ascending, `index_topk`.
    pub picks: Vec<u32>,
    /// How many.
    pub n_picks: Vec<usize>,
    /// Candidate blocks of each row, ascending, `candidate_blocks`.
    pub candidates: Vec<u32>,
    /// How many.
    pub n_candidates: Vec<usize>,
    /// Router logits, then scores.
    pub scores: Vec<f32>,
    /// Experts of each row, ascending, and their weights: `topk` of the layer.
    pub routes: Vec<(u32, f32)>,
    /// Hidden rows, `inter`: of the routed experts in order of expert and row, then the shared one's.
    pub hidden: Vec<f32>,
    /// Their up projections.
    pub hidden_up: Vec<f32>,
    /// The experts' outputs in the same order, `hidden`.
    pub expert_out: Vec<f32>,
    /// Table rows of an Engram layer, `columns`.
    pub engram_rows: Vec<u64>,
    /// Their values, `columns * dim`.
    pub engram: Vec<f32>,
    /// Engram keys and value, `(hc + 1) * hidden`.
    pub engram_kv: Vec<f32>,
    /// `taps * hidden`.
    pub taps: Vec<f32>,
    /// `vocab`, by logit row.
    pub logits: Vec<f32>,
    /// Choices of the last choose.
    pub choices: Vec<Option<u32>>,
    /// Drafts of the last draft chain.
    pub drafts: Vec<u32>,
    /// Their raw confidences.
    pub confidence: Vec<f32>,
}

impl Work {
    /// Room for what the limits allow.
    pub fn new(spec: &ModelSpec, limits: &Limits, window_row: usize) -> Self {
        let (d, n) = (&spec.dims, limits.rows);
        let f = |width: usize| vec![0.0f32; n * width];
        let layers = || spec.layers.iter().chain(spec.draft_layers());
        let most =
            |get: fn(&finback_ops::Ffn) -> usize| layers().map(|l| get(&l.ffn)).max().unwrap_or(0);
        let (experts, topk) = (most(|f| f.experts.len()), most(|f| f.topk));
        let tile = layers()
            .map(|l| match l.attn.wo_a.format {
                Format::Fp8 { block } => block,
                _ => 1,
            })
            .max()
            .unwrap_or(1);
        let columns = spec.engram.as_ref().map_or(0, |e| e.columns() * e.dim);
        Self {
            spans: Vec::new(),
            rows: Vec::new(),
            angles: BothAngles {
                window: Angles::new(n, d.rope_dim),
                compressed: Angles::new(n, d.rope_dim),
            },
            streams: f(d.hc * d.hidden),
            pre: f(d.hc),
            post: f(d.hc),
            comb: f(d.hc * d.hc),
            mix: f((2 + d.hc) * d.hc),
            x: f(d.hidden),
            y: f(d.hidden),
            qr: f(d.q_rank),
            q: f(d.heads * d.head_dim),
            kv: f(d.head_dim),
            z: f(d.o_groups * d.o_rank),
            z_part: f((d.o_rank + 2 * tile).min(d.o_groups * d.o_rank)),
            window_rows: (0..spec.rings()).map(|_| vec![0; n * window_row]).collect(),
            raw: spec
                .sources
                .iter()
                .map(|s| if s.ratio > 1 { f(2 * d.head_dim) } else { Vec::new() })
                .collect(),
            index_k: f(d.index_dim),
            index_q: f(d.index_heads * d.index_dim),
            index_w: f(d.index_heads),
            picks: vec![0; n * d.index_topk],
            n_picks: vec![0; n],
            candidates: vec![0; n * d.candidate_blocks],
            n_candidates: vec![0; n],
            scores: f(experts),
            routes: vec![(0, 0.0); n * topk],
            hidden: f((topk + 1) * d.inter),
            hidden_up: f((topk + 1) * d.inter),
            expert_out: f((topk + 1) * d.hidden),
            engram_rows: Vec::with_capacity(n * spec.engram.as_ref().map_or(0, |e| e.columns())),
            engram: f(columns),
            engram_kv: if columns > 0 { f((d.hc + 1) * d.hidden) } else { Vec::new() },
            taps: f(spec.drafter.as_ref().map_or(0, |x| x.taps * d.hidden)),
            logits: vec![0.0; limits.logit_rows * d.vocab],
            choices: Vec::with_capacity(limits.logit_rows),
            drafts: Vec::new(),
            confidence: Vec::new(),
        }
    }

    /// The compressed rows that a row attends to.
    pub fn picks_of(&self, row: usize) -> &[u32] {
        let width = self.picks.len() / self.n_picks.len();
        &self.picks[row * width..row * width + self.n_picks[row]]
    }

    /// Takes the spans of a pass and the angles of their rows.
    pub fn begin(
        &mut self,
        spans: &[Span<'_>],
        window: &Frequencies,
        compressed: Option<&Frequencies>,
    ) {
        self.spans.clear();
        self.rows.clear();
        for (i, span) in spans.iter().enumerate() {
            self.spans.push(SpanRows {
                slot: span.slot,
                start: span.start,
                first: self.rows.len(),
                rows: span.tokens.len(),
                blocks: span.blocks.to_vec(),
            });
            for (j, &token) in span.tokens.iter().enumerate() {
                let (row, position) = (self.rows.len(), span.start + j);
                debug_assert!(
                    compressed.is_none() || position / BLOCK_POSITIONS < span.blocks.len()
                );
                self.rows.push(Row { span: i, position, token });
                self.angles.window.set(row, position, window);
                if let Some(frequencies) = compressed {
                    self.angles.compressed.set(row, position, frequencies);
                }
            }
        }
    }
}
