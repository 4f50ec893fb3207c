//! The `header` fuzz target without a fuzzer: its seeds, and changed copies of them.

#[path = "../../../fuzz/bodies/header.rs"]
mod body;

#[test]
fn shard_headers_hold_on_any_bytes() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/header");
    finback_testkit::replay(&seeds, 20_000, body::run);
}
