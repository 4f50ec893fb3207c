//! The model on the kernels, run by the host as a device: against stored right answers, the CPU
//! backend and itself. Lanes there are fibers, so sizes are small and prompts short.
// All of it is test code, helpers included.
#![allow(clippy::unwrap_used)]

mod adjust;
mod agree;
mod hosted;
mod load;
mod ranks;
mod refusals;
mod rows;
mod shared;
mod shared_wide;
mod small;
mod states;
mod tapes;
mod tiles;
mod trace;
mod vectors;
mod watched;
