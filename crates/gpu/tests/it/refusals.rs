//! What is refused, by name.

use std::sync::{Arc, Mutex};

use finback_gpu::{ExpertsOn, GpuOps};
use finback_kernels::device::emu;
use finback_ops::{Limits, ModelSpec, Numerics, Ops, Span};

use crate::load::{limits, ops, spec_of, tiny};
use crate::small::Small;

fn small(spec: &Arc<ModelSpec>, free: usize) -> Result<(GpuOps, u64), String> {
    let device = Box::new(Small { inner: emu().unwrap(), free, registers: false });
    let copied = Mutex::new(0);
    let ops =
        GpuOps::new(spec.clone(), limits(1), device, &mut |bytes| *copied.lock().unwrap() = bytes);
    let copied = *copied.lock().unwrap();
    ops.map(|ops| (ops, copied)).map_err(|error| error.to_string())
}

#[test]
fn too_little_memory_is_refused_with_the_sum_and_enough_is_enough() {
    let spec = tiny(Numerics::RELEASE);
    let needs =
        GpuOps::needs(&spec, &limits(1), ExpertsOn::Device, emu().unwrap().as_ref()).unwrap();
    assert!(needs.weights > 0 && needs.state > 0 && needs.workspace > 0);
    let total = needs.total() as usize;
    let text = small(&spec, total - 1).err().unwrap();
    assert!(text.starts_with("the small backend cannot run this checkpoint: 0."), "{text}");
    for part in ["GiB are wanted (weights 0.", "state 0.", "workspace 0.", "GiB are free"] {
        assert!(text.contains(part), "{text}");
    }
    // The device counts what it gives: the plan was neither more nor less.
    let (_, copied) = small(&spec, total).unwrap();
    assert!(copied > needs.weights * 9 / 10 && copied <= needs.weights);
}

#[test]
fn sizes_that_kernels_cannot_run_are_refused_by_name() {
    let whole = tiny(Numerics::RELEASE);
    let refused = |change: fn(&mut ModelSpec), wanted: &str| {
        let mut spec = (*whole).clone();
        change(&mut spec);
        let error = GpuOps::needs(&spec, &limits(1), ExpertsOn::Device, emu().unwrap().as_ref())
            .unwrap_err();
        let text = error.to_string();
        assert!(text.contains(wanted), "{text}");
    };
    refused(|s| s.dims.hc = 9, "hyper-connections: hc_mult 9 is over 8");
    refused(|s| s.dims.window = 1020, "index_topk) 1026 is over 1024");
    refused(|s| s.layers[2].ffn.topk = 17, "experts of a row 17 is over 16");
    refused(
        |s| s.layers[3].ffn.experts[1].w2.out = 32,
        "layers.3.ffn.experts.1.w2.weight: Fp4 [32, 32]; experts of a layer are alike",
    );
    refused(|s| s.layers[0].attn.wq_a.inp = 40, "[32, 40]; rows are whole chunks of 16 bytes");
}

#[test]
fn batches_that_do_not_fit_are_refused_and_harm_nothing() {
    let spec = tiny(Numerics::RELEASE);
    let mut ops = ops(&spec, 1);
    let Limits { context, blocks, .. } = ops.limits();
    let far = [blocks as u32];
    let mut refused = |span: Span<'_>, wanted: &str| {
        let text = ops.begin(&[span]).unwrap_err().to_string();
        assert!(text.contains(wanted), "{text}");
    };
    let span = Span { slot: 0, start: 0, tokens: &[5], blocks: &[0] };
    refused(Span { slot: 1, ..span.clone() }, "slot 1; there are 1");
    refused(Span { start: context, ..span.clone() }, "to position 1025");
    refused(Span { tokens: &[72], ..span.clone() }, "token id 72; the vocabulary has 72");
    refused(Span { blocks: &[], ..span.clone() }, "0 KV blocks for 1 positions");
    refused(Span { blocks: &far, ..span.clone() }, "KV block 4; the pool has 4");
    refused(Span { tokens: &[], ..span.clone() }, "0 rows; 1 to 160 fit");
    ops.begin(&[span]).unwrap();
    assert!(ops.embed(0..2).unwrap_err().to_string().contains("rows 0..2 of a batch of 1"));
    assert!(ops.head(0..1, 17).unwrap_err().to_string().contains("logit rows 17 to 18"));
}

#[test]
fn an_experts_scale_that_is_nan_is_refused_at_load() {
    let dir = finback_testkit::temp_dir();
    let from = finback_testkit::checkpoint("full");
    for entry in std::fs::read_dir(&from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
    }
    let checkpoint = finback_checkpoint::Checkpoint::open(&from).unwrap();
    let tensor = checkpoint.tensor("layers.1.ffn.experts.3.w2.scale").unwrap();
    let file = dir.path().join(tensor.file().file_name().unwrap());
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[tensor.file_range().start + 3] = 255;
    std::fs::write(&file, bytes).unwrap();
    let spec = spec_of(dir.path(), Numerics::PLAIN);
    let text = small(&spec, usize::MAX / 2).err().unwrap();
    let wanted = "\"layers.1.ffn.experts.3.w2.scale\": found the NaN byte 255 in block [1, 1]";
    assert!(text.contains(wanted), "{text}");
}
