//! The model on the CPU backend, against stored right answers and against itself.

mod load;
mod rows;
mod trace;
mod vectors;
