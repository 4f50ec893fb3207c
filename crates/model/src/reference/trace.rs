//! What a row decided on its way, for finding where two computations part.

/// One row's way through the target.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// By layer.
    pub layers: Vec<LayerTrace>,
}

/// One row in one layer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LayerTrace {
    /// Routed experts, ascending.
    pub experts: Vec<usize>,
    /// Compressed rows that the layer attends to, ascending; empty where the ratio is 0.
    pub picked: Vec<usize>,
    /// Engram table rows, by column.
    pub engram_rows: Vec<u64>,
    /// The streams after the layer, `[hc * hidden]`.
    pub streams: Vec<f64>,
}
