//! Several devices as one: what each has, what is refused, and what happens when one fails.

use std::sync::Arc;

use finback_checkpoint::Checkpoint;
use finback_gpu::{ExpertsOn, GpuOps, Ranks, Setup};
use finback_kernels::device::{Device, DeviceError, Findings, Gather, Launch, emu, emu_with_tiles};
use finback_kernels::manifest::{Kernel, kernel};
use finback_kernels::meeting::{Meeting, Seat};
use finback_kernels::seated::{emu_group, seated};
use finback_kernels::tape::{Tape, Work};
use finback_model::{ModelRunner, Runner};
use finback_ops::{ModelSpec, Numerics, Ops, Sampling, Span};

use crate::load::{bits, ids, limits, prompt, spec_of, step, stored, tiny};
use crate::shared::{shareable, write_shareable};

#[test]
fn products_on_tensor_cores_give_two_devices_the_bits_of_one() {
    let spec = shareable(Numerics::RELEASE);
    let run = |ops: Box<dyn Ops>| {
        let mut r = ModelRunner::new(ops, spec.clone());
        let rows = bits(&prompt(&mut r, 0, &ids(3), 2, 2));
        let first = r.finish(0, Sampling::GREEDY, &[], false).unwrap().token.unwrap();
        (rows, bits(&[step(&mut r, 0, first).logits.unwrap()]), r.state(0).unwrap())
    };
    let device = emu_with_tiles().unwrap();
    assert!(device.has(kernel("tile_fp8_many").unwrap()));
    let one = GpuOps::new(spec.clone(), limits(1), device, &mut |_| ()).unwrap();
    let seats = Meeting::seats(2).into_iter();
    let devices = seats.map(|seat| seated(emu_with_tiles().unwrap(), seat)).collect();
    let two = Ranks::new(&spec, limits(1), Setup::default(), devices, &mut |_| ()).unwrap();
    assert!(run(Box::new(one)) == run(Box::new(two)));
}

#[test]
fn each_device_has_its_part_of_the_weights() {
    let spec = shareable(Numerics::RELEASE);
    let whole =
        GpuOps::needs(&spec, &limits(1), ExpertsOn::Device, emu().unwrap().as_ref()).unwrap();
    let devices = emu_group(4).unwrap();
    let needs: Vec<_> = devices
        .iter()
        .map(|d| GpuOps::needs(&spec, &limits(1), ExpertsOn::Device, d.as_ref()).unwrap())
        .collect();
    assert!(needs.iter().all(|part| *part == needs[0]));
    let (part, all) = (needs[0], whole);
    assert!(part.weights < all.weights * 3 / 4 && part.state == all.state, "{part:?} of {all:?}");
    let mut copied = 0;
    Ranks::new(&spec, limits(1), Setup::default(), devices, &mut |bytes| copied = bytes).unwrap();
    let all = 4 * needs[0].weights;
    assert!(copied > all * 9 / 10 && copied <= all, "{copied} of {all}");
}

#[test]
fn a_weight_is_tiled_on_all_devices_or_on_none() {
    for name in ["layers.1.attn.wo_b.scale", "layers.1.ffn.experts.0.w2.scale"] {
        let dir = finback_testkit::temp_dir();
        write_shareable(dir.path());
        // Of the second device's outputs alone, too small for a code times it to be exact in bf16.
        let files = Checkpoint::open(dir.path()).unwrap();
        let scale = files.get(name).unwrap();
        let (file, at) = (scale.file(), scale.file_range().end - 1);
        let mut bytes = std::fs::read(file).unwrap();
        bytes[at] = 1;
        std::fs::write(file, bytes).unwrap();
        let spec = spec_of(dir.path(), Numerics::RELEASE);
        let run = |ops: Box<dyn Ops>| {
            let mut r = ModelRunner::new(ops, spec.clone());
            let rows = prompt(&mut r, 0, &ids(5), 160, 2);
            let token = r.finish(0, Sampling::GREEDY, &[], false).unwrap().token.unwrap();
            let choice = step(&mut r, 0, token);
            (bits(&rows), token, bits(&[choice.logits.unwrap()]), r.state(0).unwrap())
        };
        let one = emu_with_tiles().unwrap();
        let one = GpuOps::new(spec.clone(), limits(1), one, &mut |_| ()).unwrap();
        let two = Meeting::seats(2).into_iter().map(|seat| seated(emu_with_tiles().unwrap(), seat));
        let two = two.collect();
        let two = Ranks::new(&spec, limits(1), Setup::default(), two, &mut |_| ()).unwrap();
        assert!(run(Box::new(one)) == run(Box::new(two)), "{name}");
    }
}

#[test]
fn what_does_not_divide_and_devices_without_a_meeting_are_refused_by_name() {
    let refused = |spec: &Arc<ModelSpec>, devices: Vec<Box<dyn Device>>, wanted: &str| {
        let text = Ranks::new(spec, limits(1), Setup::default(), devices, &mut |_| ())
            .err()
            .unwrap()
            .to_string();
        assert!(text.contains(wanted), "{text}");
    };
    let group = |count| emu_group(count).unwrap();
    let full = stored("full", Numerics::RELEASE);
    refused(
        &full,
        group(3),
        "on several GPUs: GPU 0: num_attention_heads 4 is not a multiple of 1 x 3",
    );
    refused(&full, group(4), "o_groups 2 is not a multiple of 1 x 4 GPUs");
    let tiny = tiny(Numerics::RELEASE);
    refused(&tiny, group(2), "moe_intermediate_size 32 is not a multiple of 32 x 2 GPUs");
    let mut odd = (*shareable(Numerics::RELEASE)).clone();
    odd.layers[1].attn.wo_b.out = 48;
    let wanted = "layers.1.attn.wo_b.weight: 48 outputs are not a multiple of 32 x 4 GPUs";
    refused(&Arc::new(odd), group(4), wanted);
    let loose = (0..2).map(|_| emu().unwrap()).collect();
    refused(&full, loose, "2 devices that do not share one model");
    let mut one_of_two = group(2);
    one_of_two.pop();
    refused(&full, one_of_two, "1 devices that do not share one model");
    let setup = Setup { experts: ExpertsOn::HOST, ..Setup::default() };
    let error = Ranks::new(&full, limits(1), setup, group(2), &mut |_| ()).err().unwrap();
    assert!(error.to_string().ends_with("experts on the host take one GPU"), "{error}");
}

#[test]
fn a_call_that_all_devices_refuse_harms_nothing() {
    let spec = shareable(Numerics::RELEASE);
    let mut ops =
        Ranks::new(&spec, limits(1), Setup::default(), emu_group(2).unwrap(), &mut |_| ()).unwrap();
    assert!(ops.write_slot(0, &[1, 2, 3]).unwrap_err().to_string().contains("3 bytes"));
    let span = Span { slot: 0, start: 0, tokens: &[5], blocks: &[0] };
    let far = Span { slot: 1, ..span.clone() };
    assert!(ops.begin(&[far]).unwrap_err().to_string().contains("slot 1; there are 1"));
    ops.begin(&[span]).unwrap();
    ops.embed(0..1).unwrap();
    ops.read_logits(0, &mut Vec::new()).unwrap();
}

/// A device that fails, or panics, at the first launch of a kernel after some.
struct Fails {
    inner: Box<dyn Device>,
    kernel: &'static str,
    after: usize,
    panics: bool,
    /// Whether it has no memory.
    full: bool,
    /// Whether a copy to it waits for another device to end, as one may that looks at the others.
    heeds: bool,
    /// Shared with the test, which so sees whether this is still there.
    _alive: Arc<()>,
}

impl Fails {
    /// One that does not.
    fn never(inner: Box<dyn Device>, alive: &Arc<()>) -> Self {
        let (kernel, _alive) = ("", alive.clone());
        Self { inner, kernel, after: 0, panics: false, full: false, heeds: false, _alive }
    }
}

impl Device for Fails {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn allocate(&mut self, bytes: usize) -> Result<u64, DeviceError> {
        self.inner.allocate(bytes)
    }
    fn free_memory(&mut self) -> Result<Option<usize>, DeviceError> {
        if self.full { Ok(Some(0)) } else { self.inner.free_memory() }
    }
    fn clear(&mut self) {
        self.inner.clear();
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if !self.heeds {
            return self.inner.write(address, bytes);
        }
        loop {
            if let Some(what) = self.inner.seat().and_then(|seat| seat.alone()) {
                return Err(DeviceError::Failed { device: self.name(), what });
            }
            std::thread::yield_now();
        }
    }
    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(address, out)
    }
    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), DeviceError> {
        if launch.kernel.name == self.kernel {
            match self.after.checked_sub(1) {
                Some(left) => self.after = left,
                None if self.panics => panic!("out of sense"),
                None => {
                    let what = "out of order".into();
                    return Err(DeviceError::Failed { device: self.name(), what });
                }
            }
        }
        self.inner.launch(launch)
    }
    fn launch_all(&mut self, tape: &Tape) -> Result<(), DeviceError> {
        tape.works().try_for_each(|work| match work {
            Work::Launch(launch) => self.launch(&launch),
            Work::Gather(gather) => self.gather(&gather),
        })
    }
    fn gather(&mut self, gather: &Gather) -> Result<(), DeviceError> {
        self.inner.gather(gather)
    }
    fn seat(&self) -> Option<Seat> {
        self.inner.seat()
    }
    fn finish(&mut self) -> Result<Findings, DeviceError> {
        self.inner.finish()
    }
    fn has(&self, kernel: &Kernel) -> bool {
        self.inner.has(kernel)
    }
}

#[test]
fn one_device_that_fails_ends_the_pass_by_its_name_and_leaves_no_thread() {
    let spec = shareable(Numerics::RELEASE);
    for (rank, taped, panics) in [(1, 160, false), (1, 0, false), (0, 160, false), (2, 160, true)] {
        let alive = Arc::new(());
        let mut devices = emu_group(if rank == 2 { 4 } else { 2 }).unwrap();
        let inner = devices.remove(rank);
        let mut fails = Fails::never(inner, &alive);
        (fails.kernel, fails.after, fails.panics) = ("swiglu", 2, panics);
        devices.insert(rank, Box::new(fails));
        let mut ops = Ranks::new(&spec, limits(1), Setup::default(), devices, &mut |_| ()).unwrap();
        ops.tape_up_to(taped).unwrap();
        let mut r = ModelRunner::new(Box::new(ops), spec.clone());
        r.begin(0, &ids(5), 64, 1).unwrap();
        let error = loop {
            match r.piece(0, 160).and_then(|left| {
                if left > 0 {
                    Ok(())
                } else {
                    r.finish(0, Sampling::GREEDY, &[], false).map(|_| ())
                }
            }) {
                Ok(()) => {}
                Err(error) => break error.to_string(),
            }
        };
        let said = if panics { "it panicked: out of sense" } else { "out of order" };
        assert!(error.contains(&format!("GPU {rank}: ")) && error.contains(said), "{error}");
        if rank > 0 {
            assert_eq!(Arc::strong_count(&alive), 1, "its thread ended");
        }
        let again = r.state(0).unwrap_err().to_string();
        assert!(again.contains("it has ended: ") && again.contains(said), "{again}");
        drop(r);
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}

#[test]
fn a_start_that_fails_names_the_device_whose_failure_it_is() {
    let (spec, alive) = (shareable(Numerics::RELEASE), Arc::new(()));
    for full in [1, 0] {
        let devices = emu_group(2).unwrap().into_iter().enumerate().map(|(rank, inner)| {
            let own =
                Fails { full: rank == full, heeds: rank != full, ..Fails::never(inner, &alive) };
            Box::new(own) as Box<dyn Device>
        });
        let devices = devices.collect();
        let started = Ranks::new(&spec, limits(1), Setup::default(), devices, &mut |_| ());
        let text = started.err().unwrap().to_string();
        assert!(text.contains(&format!("GPU {full}: 0.")), "{text}");
        assert!(text.ends_with(" and 0.00 GiB are free"), "{text}");
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}

#[test]
fn a_backend_that_is_dropped_in_a_pass_leaves_no_thread() {
    let spec = shareable(Numerics::RELEASE);
    let alive = Arc::new(());
    let mut devices = emu_group(2).unwrap();
    let inner = devices.remove(1);
    devices.push(Box::new(Fails::never(inner, &alive)));
    let mut ops = Ranks::new(&spec, limits(1), Setup::default(), devices, &mut |_| ()).unwrap();
    ops.begin(&[Span { slot: 0, start: 0, tokens: &[5, 6], blocks: &[0] }]).unwrap();
    ops.embed(0..2).unwrap();
    drop(ops);
    assert_eq!(Arc::strong_count(&alive), 1);
}
