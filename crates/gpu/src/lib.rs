//! The [`Ops`](finback_ops::Ops) backend of every GPU, over a
//! [`Device`](finback_kernels::device::Device).
