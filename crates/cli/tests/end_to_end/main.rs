//! The built binary as a user meets it: commands, and the server over HTTP.
// All of it is test code, helpers included.
#![allow(missing_docs, clippy::expect_used)]

mod bench;
mod commands;
mod contract;
mod documents;
mod ends;
mod exact;
mod faults;
mod fields;
mod http;
mod profile;
mod prompts;
mod settings;
mod support;
mod vectors;
