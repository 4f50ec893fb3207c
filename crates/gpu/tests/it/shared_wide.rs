//! Attention on tensor cores, which takes all heads at once.

use finback_gpu::{ExpertsOn, GpuOps};
use finback_kernels::device::{Device, emu, emu_with_tiles};
use finback_kernels::meeting::Meeting;
use finback_kernels::seated::{emu_group, seated};
use finback_model::synth::{SynthOptions, Vocabulary, write};
use finback_ops::Numerics;

use crate::load::{limits, spec_of};

#[test]
fn attention_on_tensor_cores_is_refused_on_several_devices_and_the_portable_one_is_not() {
    let dir = finback_testkit::temp_dir();
    let options = SynthOptions {
        seed: 3,
        hidden: 64,
        heads: 64,
        head_dim: 512,
        rope_dim: 64,
        q_rank: 32,
        o_groups: 2,
        o_rank: 32,
        window: 8,
        experts: 2,
        experts_per_token: 1,
        intermediate: 64,
        engram: false,
        ..SynthOptions::default()
    };
    write(dir.path(), &options, &Vocabulary::bare(64)).unwrap();
    let spec = spec_of(dir.path(), Numerics::RELEASE);
    let tensor = |device: &dyn Device| GpuOps::tensor_attention(&spec, &limits(1), device).unwrap();
    assert!(tensor(emu_with_tiles().unwrap().as_ref()) && !tensor(emu().unwrap().as_ref()));
    let needs = |device: &dyn Device| GpuOps::needs(&spec, &limits(1), ExpertsOn::Device, device);
    needs(emu_with_tiles().unwrap().as_ref()).unwrap();
    needs(emu_group(2).unwrap()[1].as_ref()).unwrap();
    let seat = Meeting::seats(2).remove(1);
    let error = needs(seated(emu_with_tiles().unwrap(), seat).as_ref()).unwrap_err().to_string();
    let wanted = "attention on tensor cores takes one GPU; the portable one takes several";
    assert!(error.ends_with(wanted), "{error}");
}
