//! The device boundary: the fused steps a backend implements, and the types that cross it.
