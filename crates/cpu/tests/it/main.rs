//! The model on the CPU backend, against stored right answers and against itself.
// All of it is test code, helpers included.
#![allow(clippy::unwrap_used)]

mod adjust;
mod load;
mod prompts;
mod rows;
mod scales;
mod schedules;
mod trace;
mod vectors;
