//! The `prefix` fuzz target without a fuzzer: its seeds, and changed copies of them.

#[path = "../../../fuzz/bodies/prefix.rs"]
mod body;

#[test]
fn files_of_kept_prefixes_hold_on_any_bytes() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/prefix");
    finback_testkit::replay(&seeds, 5_000, body::run);
}
