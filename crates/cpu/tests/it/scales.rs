//! Scales that are NaN, met where they are first read.

use finback_checkpoint::Checkpoint;
use finback_cpu::simd::Isa;
use finback_model::{ModelRunner, Runner, spec};
use finback_ops::Numerics;

use crate::load::{ops, spec_of};

/// A copy of a stored checkpoint with byte 255 at the start of every tensor of these names.
fn spoiled(names: impl Fn(&str) -> bool) -> tempfile::TempDir {
    let (from, dir) = (finback_testkit::checkpoint("full"), finback_testkit::temp_dir());
    for entry in std::fs::read_dir(&from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
    }
    let checkpoint = Checkpoint::open(&from).unwrap();
    for tensor in checkpoint.tensors().filter(|t| names(t.name())) {
        let file = dir.path().join(tensor.file().file_name().unwrap());
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[tensor.file_range()].fill(255);
        std::fs::write(&file, bytes).unwrap();
    }
    dir
}

#[test]
fn an_experts_or_a_tables_scale_fails_the_request_that_reads_it() {
    for (part, place) in [(".ffn.experts.", "block [0, 0]"), (".engram.embed.scale", "row ")] {
        let dir = spoiled(|name| {
            name.starts_with("layers.1.") && name.contains(part) && name.ends_with(".scale")
        });
        let spec = spec_of(dir.path(), Numerics::PLAIN);
        let mut r = ModelRunner::new(Box::new(ops(&spec, 1, 1, Isa::detect())), spec);
        r.begin(0, &[5, 9], 8, 1).unwrap();
        let text = r.piece(0, 2).unwrap_err().to_string();
        let found = format!("found the NaN byte 255 in {place}");
        for wanted in
            [".safetensors: tensor \"layers.1.", part, &found, "wanted E8M0 scales from 0 to 254"]
        {
            assert!(text.contains(wanted), "{text}");
        }
        r.release(0).unwrap();
        r.begin(0, &[5], 8, 1).unwrap();
    }
}

#[test]
fn a_dense_scale_is_refused_at_load() {
    let dir = spoiled(|name| name == "layers.3.attn.wq_a.scale");
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let config = finback_model::Config::load(dir.path()).unwrap();
    let map = Some(finback_testkit::token_map("full"));
    let text = spec::load(&checkpoint, &config, map, Numerics::PLAIN).unwrap_err().to_string();
    assert!(text.contains("\"layers.3.attn.wq_a.scale\": found the NaN byte 255 in block [0, 0]"));
}
