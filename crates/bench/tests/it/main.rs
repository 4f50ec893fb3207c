//! The judgements, on servers that are told what to answer.
// All of it is test code, helpers included.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod cache;
mod capacity;
mod concurrent;
mod fake;
mod fill;
mod soak;
mod target;
