//! The device kernels: one C++ dialect, its host build on fibers, and the contract that every kernel
//! keeps on every device.
//!
//! - [`source`] has the text: `device/*.h` behind a small prelude for each device.
//! - [`manifest`] lists the kernels, [`args`] their arguments, the same bytes on both sides.
//! - [`device`] is what a device gives, [`tape`] a list of launches for it.
//! - [`meeting`] is where several devices of one model meet, [`seated`] any device at one.
//! - [`host`] runs kernels on the host, lanes as fibers with a race shadow over shared memory.
//! - [`contract`] holds every kernel to five gates, and every gate to planted faults.
//! - [`lint`] finds in the text what the dialect forbids.
//!
//! A value is computed by one written order of sums, whatever the number of rows; `docs/kernels.md`
//! has the rules.

pub mod args;
pub mod contract;
pub mod device;
pub mod fetch;
#[cfg(host_build)]
pub mod host;
pub mod lint;
pub mod manifest;
pub mod meeting;
pub mod seated;
pub mod source;
pub mod tape;
pub mod tiles;
