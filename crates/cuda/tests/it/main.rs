//! The model on an NVIDIA GPU: the CPU backend's own tests with this device, and both backends on the
//! demo model. Without a device every test says so and passes.
// All of it is test code, helpers included.
#![allow(clippy::unwrap_used)]

#[path = "../../../cpu/tests/it/adjust.rs"]
mod adjust;
mod agree;
mod contract;
mod emulated;
mod hosted;
mod load;
mod noise;
#[path = "../../../cpu/tests/it/rows.rs"]
mod rows;
#[path = "../../../cpu/tests/it/schedules.rs"]
mod schedules;
mod several;
#[path = "../../../gpu/tests/it/shared.rs"]
mod shared;
#[path = "../../../cpu/tests/it/vectors.rs"]
mod vectors;
mod wide;
