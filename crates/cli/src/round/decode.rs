//! Rounds: a window of some rows in some slots, as the engine runs them.

use std::time::Instant;

use anyhow::Context;
use finback_kernels::tape::Tape;
use finback_model::{ModelRunner, Runner, Start, Window};
use finback_ops::{ModelSpec, Sampling};

use super::launches::Listed;
use super::release;
use super::report::{Report, Round};
use super::watch::Watch;
use super::work::{self, Class};
use super::{Draw, SLOTS};

/// Slots and rows of each that are measured, where every row has its own experts.
const DIFFERENT: [(usize, usize); 9] =
    [(1, 1), (1, 2), (1, 4), (1, 6), (1, 8), (1, 12), (1, 16), (4, 1), (4, 6)];
/// The same where all have the same.
const SAME: [(usize, usize); 4] = [(1, 6), (1, 16), (4, 1), (4, 6)];

/// Slots and rows of each whose launches are listed.
const LISTED: [(usize, usize); 3] = [(1, 1), (1, 6), (4, 6)];

/// How rounds are measured.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Tokens in each slot before the first.
    pub depth: usize,
    /// Timed rounds of each kind.
    pub rounds: usize,
    /// Rows of a prompt's piece.
    pub piece: usize,
}

/// The model with the same experts for every row.
pub fn same_experts(mut spec: ModelSpec) -> ModelSpec {
    for layer in &mut spec.layers {
        let topk = layer.ffn.topk;
        layer.ffn.bias.iter_mut().take(topk).for_each(|bias| *bias = 1e6);
    }
    spec
}

/// Measures every kind of round.
pub fn measure(
    runner: &mut ModelRunner,
    watch: &Watch,
    spec: &ModelSpec,
    plan: Plan,
    same: bool,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut draw = Draw(7);
    fill(runner, &mut draw, spec, plan)?;
    for &(slots, rows) in if same { &SAME[..] } else { &DIFFERENT } {
        for _ in 0..3 {
            round(runner, &mut draw, spec, slots, rows)?;
        }
        let mut walls = Vec::with_capacity(plan.rounds);
        for _ in 0..plan.rounds {
            let began = Instant::now();
            round(runner, &mut draw, spec, slots, rows)?;
            walls.push(began.elapsed().as_secs_f64());
        }
        walls.sort_by(f64::total_cmp);
        let wall = *walls.get(walls.len() / 2).context("no round was timed")?;
        let tape = watch.launches(|| round(runner, &mut draw, spec, slots, rows))?;
        let device = watch.time(&tape, plan.rounds)?;
        let classes = classes(watch, &tape, plan.rounds)?;
        let pass = (spec, slots * rows, same);
        let whole = release::round(watch, &tape, plan.rounds, pass, (wall, device))?;
        report.rounds.push(Round {
            whole,
            slots,
            rows,
            same,
            wall,
            device,
            launches: tape.len(),
            classes,
            kernels: match (slots, rows) {
                (1, 1 | 6) | (4, 6) => kernels(watch, &tape, plan.rounds)?,
                _ => Vec::new(),
            },
            bytes: work::round_bytes(spec, slots * rows, same),
        });
    }
    Ok(())
}

/// The launches of some kinds of rounds.
pub fn list(
    runner: &mut ModelRunner,
    watch: &Watch,
    spec: &ModelSpec,
    plan: Plan,
) -> anyhow::Result<Vec<Listed>> {
    let mut draw = Draw(7);
    fill(runner, &mut draw, spec, plan)?;
    let mut listed = Vec::with_capacity(LISTED.len());
    for (slots, rows) in LISTED {
        let tape = watch.launches(|| round(runner, &mut draw, spec, slots, rows))?;
        listed.push(Listed { slots, rows, tape });
    }
    Ok(listed)
}

/// Puts a prompt into every slot.
fn fill(
    runner: &mut ModelRunner,
    draw: &mut Draw,
    spec: &ModelSpec,
    plan: Plan,
) -> anyhow::Result<()> {
    let positions = runner.info().context;
    for slot in 0..SLOTS {
        let prompt = draw.tokens(plan.depth, spec.dims.vocab);
        runner.start(slot, &prompt, positions, &Start::default())?;
        while runner.piece(slot, plan.piece)? > 0 {}
        runner.finish(slot, Sampling::GREEDY, &[], false)?;
    }
    Ok(())
}

fn round(
    runner: &mut ModelRunner,
    draw: &mut Draw,
    spec: &ModelSpec,
    slots: usize,
    rows: usize,
) -> anyhow::Result<()> {
    let tokens: Vec<Vec<u32>> = (0..slots).map(|_| draw.tokens(rows, spec.dims.vocab)).collect();
    let windows: Vec<Window<'_>> = tokens
        .iter()
        .enumerate()
        .map(|(slot, tokens)| Window {
            slot,
            tokens,
            sampling: Sampling::GREEDY,
            adjust: &[],
            logits: false,
        })
        .collect();
    runner.windows(&windows)?;
    for slot in 0..slots {
        runner.keep(slot, rows)?;
    }
    Ok(())
}

/// Every class of a pass: its launches and the seconds they take alone.
pub fn classes(
    watch: &Watch,
    tape: &Tape,
    times: usize,
) -> anyhow::Result<Vec<(Class, usize, f64)>> {
    let one = |class| {
        let (launches, seconds) =
            watch.alone(tape, times, |_, kernel| Class::of(kernel) == class)?;
        Ok((class, launches, seconds))
    };
    Class::ALL.into_iter().map(one).collect()
}

/// Every kernel of a pass: its launches and the seconds they take alone, the slowest first.
pub fn kernels(
    watch: &Watch,
    tape: &Tape,
    times: usize,
) -> anyhow::Result<Vec<(&'static str, usize, f64)>> {
    let mut names: Vec<&'static str> = tape.launches().map(|launch| launch.kernel.name).collect();
    names.sort_unstable();
    names.dedup();
    let mut found = Vec::new();
    for name in names {
        let (launches, seconds) = watch.alone(tape, times, |_, kernel| kernel.name == name)?;
        found.push((name, launches, seconds));
    }
    found.sort_by(|a, b| b.2.total_cmp(&a.2));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use finback_checkpoint::Checkpoint;
    use finback_gpu::{GpuOps, Setup};
    use finback_kernels::device::emu;
    use finback_model::spec;
    use finback_model::synth::{self, SynthOptions, Vocabulary};
    use finback_ops::Numerics;

    use super::*;

    #[test]
    fn what_keeps_a_window_can_be_replayed() {
        let Ok(device) = emu() else { return };
        let directory = tempfile::tempdir().unwrap();
        let options =
            SynthOptions { layers: 3, engram: false, drafts: false, ..SynthOptions::default() };
        let config = synth::write(directory.path(), &options, &Vocabulary::bare(64)).unwrap();
        let checkpoint = Checkpoint::open(directory.path()).unwrap();
        let spec = Arc::new(spec::load(&checkpoint, &config, None, Numerics::RELEASE).unwrap());
        assert!(spec.sources.iter().any(|source| source.ratio > 1));
        let watch = Watch::over(device);
        let limits = super::super::limits(1, 8, 64);
        let ops = GpuOps::with(spec.clone(), limits, Setup::default(), watch.device(), &mut |_| ());
        let mut runner = ModelRunner::new(Box::new(ops.unwrap()), spec);
        runner.start(0, &[3, 4, 5], 64, &Start::default()).unwrap();
        while runner.piece(0, 8).unwrap() > 0 {}
        runner.finish(0, Sampling::GREEDY, &[], false).unwrap();
        let window = Window {
            slot: 0,
            tokens: &[6, 7],
            sampling: Sampling::GREEDY,
            adjust: &[],
            logits: false,
        };
        runner.windows(&[window]).unwrap();
        let tape = watch.launches(|| Ok(runner.keep(0, 2)?)).unwrap();
        // The window's rows and those of the group that is left open.
        assert_eq!(tape.len(), 2);
        let state = runner.state(0).unwrap();
        watch.time(&tape, 1).unwrap();
        assert!(runner.state(0).unwrap() == state);
    }
}
