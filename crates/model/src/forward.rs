//! The forward pass, written once over [`Ops`] (model-spec sections 3, 8 and 9).

use finback_ops::{ModelSpec, Ops, OpsResult, Site};

/// The rows of a pass that each layer must run, as the first row's index in the batch.
///
/// A window pass runs every row of every layer. A prompt piece runs the layers above the last kv
/// source only over the rows that something later reads: see [`Reach`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Per target layer: the first row whose input is right, so whose window row is stored.
    pub input: Vec<usize>,
    /// Per target layer: the first row whose output something reads.
    pub output: Vec<usize>,
    /// The first row whose draft context row is stored.
    pub draft: usize,
}

impl Extent {
    /// Every row of every layer.
    pub fn whole(layers: usize) -> Self {
        Self { input: vec![0; layers], output: vec![0; layers], draft: 0 }
    }

    /// [`Ops::keep`]'s `computed_from`: target layers, then draft layers.
    pub fn computed_from(&self, spec: &ModelSpec) -> Vec<usize> {
        let mut from = self.input.clone();
        from.resize(spec.rings(), self.draft);
        from
    }
}

/// How many rows at a prompt's end each layer must run, counted back from the last.
///
/// A row of layer `l` reads the window rows of `l` of `window` positions, so a layer's input must be
/// right for `window - 1` more rows than its output; and every ring must end up whole. Up to the
/// last kv source every row is read: its input makes a compressed row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reach {
    input: Vec<usize>,
    output: Vec<usize>,
    window: usize,
}

impl Reach {
    /// `head`: last rows whose logits are wanted, at least 1.
    pub fn new(spec: &ModelSpec, head: usize) -> Self {
        let (layers, window) = (spec.layers.len(), spec.dims.window);
        let below = spec.sources.last().map_or(0, |s| s.layer);
        let (mut input, mut output) = (vec![usize::MAX; layers], vec![usize::MAX; layers]);
        let mut wanted = head;
        for l in (below..layers).rev() {
            output[l] = wanted;
            input[l] = wanted.saturating_add(window - 1).max(window);
            wanted = input[l];
        }
        // Without a kv source the loop above reaches layer 0; with one, all below it runs whole.
        Self { input, output, window }
    }

    /// Rows at a prompt's end that layers above the last kv source run at most. State at a position
    /// this far before the end needs nothing of those layers.
    pub fn tail(&self) -> usize {
        let some = self.input.iter().copied().filter(|&n| n != usize::MAX);
        some.max().unwrap_or(0).max(self.window)
    }

    /// The extent of the piece `done .. done + rows` on the way to an end at `len` tokens, the
    /// prompt's or a stop in it.
    pub fn piece(&self, len: usize, done: usize, rows: usize) -> Extent {
        let first = |back: usize| len.saturating_sub(back).clamp(done, done + rows) - done;
        Extent {
            input: self.input.iter().map(|&n| first(n)).collect(),
            output: self.output.iter().map(|&n| first(n)).collect(),
            draft: first(self.window),
        }
    }
}

/// Runs the begun target batch of `rows` rows through all layers and the drafter's context.
pub(crate) fn target(
    ops: &mut dyn Ops,
    spec: &ModelSpec,
    rows: usize,
    extent: &Extent,
) -> OpsResult {
    ops.embed(0..rows)?;
    for (l, layer) in spec.layers.iter().enumerate() {
        let (input, output) = (extent.input[l]..rows, extent.output[l]..rows);
        let all = if layer.compressor.is_some() { 0..rows } else { input.clone() };
        if all.is_empty() {
            continue;
        }
        if layer.engram.is_some() {
            ops.engram(l, all.clone())?;
        }
        if layer.tap.is_some() && !input.is_empty() {
            ops.tap(l, input.clone())?;
        }
        ops.hyper_in(l, Site::Attention, all.clone())?;
        if layer.compressor.is_some() {
            ops.compress(l, all)?;
        }
        if input.is_empty() {
            continue;
        }
        ops.project(l, input, output.clone())?;
        if output.is_empty() {
            continue;
        }
        if layer.indexer.is_some() {
            ops.select(l, output.clone())?;
        }
        sublayers(ops, l, output)?;
    }
    if spec.drafter.is_some() && extent.draft < rows {
        ops.draft_context(extent.draft..rows)?;
    }
    Ok(())
}

/// Runs the begun draft batch of `rows` rows through the draft blocks.
pub(crate) fn drafter(ops: &mut dyn Ops, spec: &ModelSpec, rows: usize) -> OpsResult {
    ops.embed(0..rows)?;
    for l in spec.layers.len()..spec.rings() {
        ops.hyper_in(l, Site::Attention, 0..rows)?;
        ops.project(l, 0..rows, 0..rows)?;
        sublayers(ops, l, 0..rows)?;
    }
    Ok(())
}

/// From the projections of a layer to its output.
fn sublayers(ops: &mut dyn Ops, l: usize, rows: std::ops::Range<usize>) -> OpsResult {
    ops.attend(l, rows.clone())?;
    ops.attn_out(l, rows.clone())?;
    ops.hyper_out(rows.clone())?;
    ops.hyper_in(l, Site::Ffn, rows.clone())?;
    ops.route(l, rows.clone())?;
    ops.experts(l, rows.clone())?;
    ops.hyper_out(rows)
}
