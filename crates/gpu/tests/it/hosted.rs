//! Experts that stay in the host's memory: the bits of experts in the device's, and what is refused.

use std::path::Path;
use std::sync::Arc;

use finback_gpu::{ExpertsOn, GpuOps, Setup};
use finback_kernels::device::{emu, emu_with_tiles};
use finback_kernels::seated::emu_group;
use finback_model::{DraftRequest, ModelRunner, Runner, Window};
use finback_ops::{ModelSpec, Numerics, OpsError, Penalties, Sampling};

use crate::load::{bits, ids, limits, prompt, runner, spec_of, step, tiny, write_tiny};
use crate::shared::shareable;
use crate::small::Small;
use crate::watched::Watched;

/// Places for so many of the model's experts.
fn places(count: u64) -> ExpertsOn {
    // A linear is 64 x 32 FP4 codes with 64 scales; w1 and w3 lie in a place at once.
    ExpertsOn::Host { scratch: count * 2 * (1024 + 256) }
}

fn hosted(spec: &Arc<ModelSpec>, experts: ExpertsOn, slots: usize) -> GpuOps {
    let setup = Setup { experts, ..Setup::default() };
    GpuOps::with(spec.clone(), limits(slots), setup, emu().unwrap(), &mut |_| ()).unwrap()
}

/// All that a run leaves: logits, tokens, drafts and states of a long piece, rounds of one row and one of
/// six.
fn outcome(mut r: ModelRunner) -> (Vec<Vec<u32>>, Vec<u32>, Vec<Vec<u8>>) {
    let (ids, mut states) = (ids(46), Vec::new());
    let mut rows = prompt(&mut r, 0, &ids[..40], 40, 3);
    states.push(r.state(0).unwrap());
    let mut tokens = vec![r.finish(0, Sampling::GREEDY, &[], false).unwrap().token.unwrap()];
    for _ in 0..5 {
        let choice = step(&mut r, 0, tokens[tokens.len() - 1]);
        rows.extend(choice.logits);
        tokens.push(choice.token.unwrap());
    }
    states.push(r.state(0).unwrap());
    let (sampling, tokens_of) = (Sampling::GREEDY, &ids[40..46]);
    let window = Window { slot: 0, tokens: tokens_of, sampling, adjust: &[], logits: true };
    let choices = r.windows(&[window]).unwrap().remove(0);
    rows.extend(choices.into_iter().filter_map(|choice| choice.logits));
    r.keep(0, 6).unwrap();
    let penalties = Penalties::default();
    let request = DraftRequest { slot: 0, anchor: 9, sampling, adjust: &[], penalties };
    tokens.extend(r.draft(&[request]).unwrap().remove(0).tokens);
    states.push(r.state(0).unwrap());
    (bits(&rows), tokens, states)
}

#[test]
fn experts_on_the_host_have_the_bits_of_those_on_the_device() {
    // All six experts at once, four and two, one after another.
    let few = [places(4), places(1)];
    for (numerics, ways) in [(Numerics::RELEASE, &few[..]), (Numerics::PLAIN, &[ExpertsOn::HOST])] {
        let spec = tiny(numerics);
        let resident = outcome(runner(&spec, 1));
        assert_eq!((resident.0.len(), resident.2.len()), (3 + 5 + 6, 3));
        for experts in ways {
            let (r, _) = Watched::over(hosted(&spec, *experts, 1), &spec, false);
            assert!(outcome(r) == resident, "{numerics:?} {experts:?}");
        }
    }
}

#[test]
fn tiles_of_experts_on_the_host_are_those_on_the_device() {
    let spec = shareable(Numerics::RELEASE);
    let run = |experts| {
        let (setup, device) = (Setup { experts, ..Setup::default() }, emu_with_tiles().unwrap());
        let ops = GpuOps::with(spec.clone(), limits(1), setup, device, &mut |_| ()).unwrap();
        let (mut r, notes) = Watched::over(ops, &spec, false);
        let rows = prompt(&mut r, 0, &ids(9), 160, 2);
        let token = r.finish(0, Sampling::GREEDY, &[], false).unwrap().token.unwrap();
        notes.lock().unwrap().tapes.clear();
        let choice = step(&mut r, 0, token);
        let tapes = std::mem::take(&mut notes.lock().unwrap().tapes);
        let named = |name: &str| tapes[0].launches().filter(|l| l.kernel.name == name).count();
        let arranged = named("arrange_fp4");
        ((bits(&rows), token, bits(&[choice.logits.unwrap()]), r.state(0).unwrap()), arranged)
    };
    let (resident, arranged) = run(ExpertsOn::Device);
    assert_eq!(arranged, 0);
    // A step of one row uses two experts, one at a time: w1 and w3, then w2.
    let (host, arranged) = run(places(1));
    assert_eq!(arranged, 2 * 3 * spec.layers.len());
    assert!(host == resident);
}

/// Moves all tensors of a checkpoint's shards by some bytes.
fn moved(dir: &Path, by: usize) {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    for file in files.filter(|path| path.extension().is_some_and(|e| e == "safetensors")) {
        let bytes = std::fs::read(&file).unwrap();
        let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
        let length = u64::from_le_bytes(*length) as usize;
        let (json, data) = rest.split_at(length);
        let header = ((length + by) as u64).to_le_bytes();
        let spaces = vec![b' '; by];
        std::fs::write(&file, [&header[..], json, &spaces, data].concat()).unwrap();
    }
}

#[test]
fn tensors_may_begin_at_any_byte_of_a_shard() {
    let mut whole = None;
    for by in [0, 3, 64] {
        let dir = finback_testkit::temp_dir();
        write_tiny(dir.path());
        moved(dir.path(), by);
        let spec = spec_of(dir.path(), Numerics::RELEASE);
        let mut r = ModelRunner::new(Box::new(hosted(&spec, ExpertsOn::HOST, 1)), spec);
        let rows = bits(&prompt(&mut r, 0, &ids(9), 160, 2));
        let found = (rows, r.state(0).unwrap());
        assert!(*whole.get_or_insert_with(|| found.clone()) == found, "moved by {by}");
    }
}

#[test]
fn rounds_have_the_same_tape_whatever_experts_they_use() {
    let spec = tiny(Numerics::RELEASE);
    // A round of one row uses two experts: one turn for each of a layer's two products, or two.
    for (room, turns) in [(2, 1), (1, 2)] {
        assert_eq!(fetches(&spec, places(room)), 2 * turns * spec.layers.len());
    }
}

/// Fetches of every round of one row.
fn fetches(spec: &Arc<ModelSpec>, experts: ExpertsOn) -> usize {
    let (mut r, notes) = Watched::over(hosted(spec, experts, 1), spec, false);
    prompt(&mut r, 0, &ids(5), 160, 1);
    r.finish(0, Sampling::GREEDY, &[], false).unwrap();
    notes.lock().unwrap().tapes.clear();
    for token in [7, 30, 51] {
        step(&mut r, 0, token);
    }
    let tapes = std::mem::take(&mut notes.lock().unwrap().tapes);
    assert!(tapes.len() == 3 && tapes.iter().all(|tape| tape.same(&tapes[0])));
    tapes[0].launches().filter(|launch| launch.kernel.name == "fetch").count()
}

fn start(
    spec: &Arc<ModelSpec>,
    experts: ExpertsOn,
    free: u64,
    registers: bool,
) -> Result<GpuOps, OpsError> {
    let device = Small { inner: emu().unwrap(), free: free as usize, registers };
    let setup = Setup { experts, ..Setup::default() };
    GpuOps::with(spec.clone(), limits(1), setup, Box::new(device), &mut |_| ())
}

#[test]
fn memory_that_holds_no_experts_is_refused_with_what_the_host_would_hold() {
    let spec = tiny(Numerics::RELEASE);
    let needs =
        |experts| GpuOps::needs(&spec, &limits(1), experts, emu().unwrap().as_ref()).unwrap();
    let [device, host, one] = [ExpertsOn::Device, ExpertsOn::HOST, places(1)].map(needs);
    // Per layer six experts of three linears, less what names them; places for six, or one.
    assert!(host.weights < device.weights && device.scratch == 0 && device.locked == 0);
    assert_eq!((host.scratch, one.scratch), (6 * 2560 + 256, 2560 + 256));
    let layers = (spec.layers.len() + spec.draft_layers().len()) as u64;
    assert!(host.locked >= layers * 6 * 3 * (1024 + 64), "{}", host.locked);
    assert_eq!((host.locked, host.state), (one.locked, device.state));

    // What is counted is what is taken: so much is enough, and a byte less is not.
    start(&spec, places(1), one.total(), true).unwrap();
    let text = start(&spec, places(1), one.total() - 1, true).err().unwrap().to_string();
    assert!(text.contains(", experts of a step 0.00 GiB) and 0."), "{text}");
    assert!(text.ends_with(" are free"), "{text}");
    let text = start(&spec, ExpertsOn::Device, device.total() - 1, true).err().unwrap().to_string();
    let wanted = "; with the routed experts on the host 0.";
    assert!(text.contains(wanted) && text.ends_with(" locked there"), "{text}");
}

#[test]
fn a_device_that_cannot_lock_a_shard_is_refused_by_its_name() {
    let spec = tiny(Numerics::RELEASE);
    let error = start(&spec, ExpertsOn::HOST, u64::MAX / 4, false).err().unwrap().to_string();
    assert!(error.contains("experts on the host: model-"), "{error}");
    assert!(error.contains(".safetensors, bytes "), "{error}");
    assert!(error.ends_with("bytes cannot be locked") && !error.contains('\n'), "{error}");
}

#[test]
fn several_devices_keep_their_experts() {
    let (spec, devices) = (shareable(Numerics::RELEASE), emu_group(2).unwrap());
    let needs = |experts| GpuOps::needs(&spec, &limits(1), experts, devices[0].as_ref());
    assert!(needs(ExpertsOn::Device).is_ok());
    let text = needs(ExpertsOn::HOST).unwrap_err().to_string();
    assert!(text.ends_with("on several GPUs: experts on the host take one GPU"), "{text}");
}
