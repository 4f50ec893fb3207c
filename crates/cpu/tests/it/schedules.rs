//! Random schedules over several slots against a replay of one row at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use finback_cpu::simd::Isa;
use finback_model::pool::PoolUse;
use finback_model::{
    Choice, DraftRequest, ModelRunner, Runner, RunnerError, Snapshot, Start, Window,
};
use finback_ops::{ModelSpec, Numerics, Penalties, Sampling};
use finback_testkit::{CHECKPOINTS, checkpoint};
use proptest::prelude::*;

use crate::load::{ops, spec_of};

const SLOTS: usize = 3;
/// Positions after its prompt that a stream has room for.
const ROOM: usize = 60;
/// Positions of the longest snapshot that a prompt starts from.
const LONGEST: usize = 400;

/// One step of a schedule; where nothing is ready for it, nothing happens.
#[derive(Debug, Clone)]
enum Act {
    /// A slot that is not ready comes nearer to it: begin, a piece of its prompt, finish.
    Advance {
        slot: usize,
        prompt: usize,
        head: usize,
        rows: usize,
        /// A new stream starts from one of the snapshots, where there is one.
        from: Option<usize>,
        /// Where it stops on its way, in eighths of the prompt.
        stops: Vec<usize>,
    },
    /// The state of a slot that has run a row.
    Save {
        slot: usize,
    },
    /// A snapshot goes through its bytes, or is dropped.
    Kept {
        which: usize,
        dropped: bool,
    },
    /// A window of each ready slot that is in it.
    Round(Vec<Option<Part>>),
    Draft {
        slots: Vec<bool>,
    },
    Release {
        slot: usize,
    },
}

/// One slot's window in a round.
#[derive(Debug, Clone)]
struct Part {
    rows: usize,
    /// Of `rows`; more count as all.
    kept: usize,
    /// The slot is released instead of kept.
    released: bool,
    /// Closed before the other slots' windows or after them.
    first: bool,
}

fn act() -> impl Strategy<Value = Act> {
    let slot = 0..SLOTS;
    let part = (1usize..=16, 0usize..=17, 0u8..20, any::<bool>()).prop_map(
        |(rows, kept, released, first)| Part { rows, kept, released: released == 0, first },
    );
    let from = prop::option::weighted(0.6, 0usize..9);
    let stops =
        prop::collection::btree_set(1usize..8, 0..3).prop_map(|stops| stops.into_iter().collect());
    prop_oneof![
        12 => (slot.clone(), 1usize..80, 1usize..=16, 1usize..60, from, stops)
            .prop_map(|(slot, prompt, head, rows, from, stops)|
                Act::Advance { slot, prompt, head, rows, from, stops }),
        4 => slot.clone().prop_map(|slot| Act::Save { slot }),
        1 => (0usize..9, any::<bool>()).prop_map(|(which, dropped)| Act::Kept { which, dropped }),
        8 => prop::collection::vec(prop::option::weighted(0.7, part), SLOTS).prop_map(Act::Round),
        3 => prop::collection::vec(any::<bool>(), SLOTS).prop_map(|slots| Act::Draft { slots }),
        1 => slot.prop_map(|slot| Act::Release { slot }),
    ]
}

/// What a slot is doing, as far as a schedule has to know.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Idle,
    Prompt { left: usize, head: usize },
    Ready,
}

/// The runner under test, and for each slot a runner of its own that sees one row at a time.
struct Pair {
    subject: ModelRunner,
    alone: Vec<ModelRunner>,
    slots: Vec<Stream>,
    /// Snapshots and the ids they are of.
    kept: Vec<(Snapshot, Vec<u32>)>,
    drafts: bool,
}

struct Stream {
    phase: Phase,
    /// Ids of the prompt and of every row that was kept.
    ids: Vec<u32>,
    /// Positions it may grow to.
    room: usize,
    /// Streams this slot has held, so that each has other ids.
    life: u32,
    sampling: Sampling,
}

impl Pair {
    fn new(spec: &Arc<ModelSpec>, threads: usize) -> Self {
        let runner = |slots, threads| {
            ModelRunner::new(Box::new(ops(spec, slots, threads, Isa::detect())), spec.clone())
        };
        let idle = |_| Stream {
            phase: Phase::Idle,
            ids: Vec::new(),
            room: 0,
            life: 0,
            sampling: Sampling::GREEDY,
        };
        Self {
            subject: runner(SLOTS, threads),
            alone: (0..SLOTS).map(|_| runner(1, 1)).collect(),
            slots: (0..SLOTS).map(idle).collect(),
            kept: Vec::new(),
            drafts: spec.drafter.is_some(),
        }
    }

    fn run(&mut self, act: &Act) {
        match act {
            Act::Advance { slot, prompt, head, rows, from, stops } => match self.slots[*slot].phase
            {
                Phase::Idle => self.begin(*slot, *prompt, *head, *from, stops),
                Phase::Prompt { left: 0, head } => self.finish(*slot, head),
                Phase::Prompt { head, .. } => {
                    // As announced, or not.
                    self.subject.stage(*slot, *rows / 4, *rows).unwrap();
                    let left = self.subject.piece(*slot, *rows).unwrap();
                    self.slots[*slot].phase = Phase::Prompt { left, head };
                }
                Phase::Ready => {}
            },
            Act::Round(parts) => self.round(parts),
            Act::Draft { slots } => self.draft(slots),
            Act::Release { slot } => self.release(*slot),
            Act::Save { slot } => self.save(*slot),
            Act::Kept { which, dropped } => self.pass_on(*which, *dropped),
        }
        let PoolUse { free, used, kept } = self.subject.pool();
        assert_eq!(free + used + kept, self.subject.info().blocks);
    }

    fn save(&mut self, slot: usize) {
        let s = &self.slots[slot];
        let at = match s.phase {
            Phase::Idle => return,
            Phase::Prompt { left, .. } if left == s.ids.len() => return,
            Phase::Prompt { left, .. } => s.ids.len() - left,
            Phase::Ready => s.ids.len(),
        };
        if at > LONGEST {
            return;
        }
        let snapshot = self.subject.save(slot).unwrap();
        assert_eq!(snapshot.at, at);
        self.kept.push((snapshot, s.ids[..at].to_vec()));
        if self.kept.len() > 4 {
            self.subject.forget(self.kept.remove(0).0.id).unwrap();
        }
    }

    fn pass_on(&mut self, which: usize, dropped: bool) {
        if self.kept.is_empty() {
            return;
        }
        let (snapshot, ids) = self.kept.remove(which % self.kept.len());
        let mut bytes = Vec::new();
        self.subject.export(snapshot.id, &mut bytes).unwrap();
        self.subject.forget(snapshot.id).unwrap();
        if !dropped && let Ok(again) = self.subject.import(&ids, &bytes) {
            assert_eq!(Snapshot { id: snapshot.id, ..again }, snapshot);
            self.kept.push((again, ids));
        }
    }

    fn begin(
        &mut self,
        slot: usize,
        prompt: usize,
        head: usize,
        from: Option<usize>,
        stops: &[usize],
    ) {
        let s = &mut self.slots[slot];
        s.life += 1;
        s.ids = (0..prompt).map(|at| id(slot, s.life, at, 0)).collect();
        let from = from.filter(|_| !self.kept.is_empty()).map(|n| n % self.kept.len());
        let mut start = Start { head_rows: head, ..Start::default() };
        if let Some((snapshot, ids)) = from.map(|n| &self.kept[n]) {
            let extra = prompt.saturating_sub(12).max(snapshot.least - ids.len());
            let extra = extra.max(usize::from(!snapshot.exact));
            s.ids = ids.clone();
            s.ids.extend((0..extra).map(|at| id(slot, s.life, ids.len() + at, 0)));
            start = Start { from: Some(snapshot.id), ..Start::default() };
        }
        let len = s.ids.len();
        let mut stops: Vec<usize> = stops.iter().map(|eighths| len * eighths / 8).collect();
        stops.dedup();
        start.stops = &stops;
        // Every second stream has more blocks than it needs, so that tables differ.
        s.room = len + ROOM + 256 * (s.life as usize % 2);
        s.sampling = match (slot as u32 + s.life) % 3 {
            0 => Sampling::GREEDY,
            n => Sampling {
                temperature: 0.5 * n as f32,
                top_k: 40,
                top_p: 0.95,
                min_p: 0.01,
                seed: u64::from(s.life),
            },
        };
        let begun = self.subject.start(slot, &s.ids, s.room, &start);
        if let Err(RunnerError::Blocks { .. }) = begun {
            // The snapshots hold what it needs: without them it fits.
            self.kept.drain(..).for_each(|(kept, _)| self.subject.forget(kept.id).unwrap());
            return;
        }
        begun.unwrap();
        let at = from.map_or(0, |n| self.kept[n].0.at);
        s.phase = Phase::Prompt { left: len - at, head: start.head_rows };
    }

    /// Replays the prompt row by row: its last rows, its choice and its state are the same.
    fn finish(&mut self, slot: usize, head: usize) {
        let rows = self.subject.prompt_logits(slot).unwrap();
        let s = &mut self.slots[slot];
        let choice = self.subject.finish(slot, s.sampling, &[], true).unwrap();
        s.phase = Phase::Ready;

        let alone = &mut self.alone[slot];
        alone.release(0).unwrap();
        alone.begin(0, &s.ids[..1], s.room, 1).unwrap();
        assert_eq!(alone.piece(0, 1).unwrap(), 0);
        let mut last = VecDeque::from([alone.finish(0, s.sampling, &[], true).unwrap()]);
        for &id in &s.ids[1..] {
            last.push_back(step(alone, id, s.sampling));
            if last.len() > head {
                last.pop_front();
            }
        }
        if head > 1 {
            let wanted: Vec<_> = last.iter().map(bits).collect();
            let found: Vec<_> = rows.iter().map(|row| row_bits(row)).collect();
            assert!(found == wanted, "slot {slot}: the prompt's last rows");
        }
        let wanted = last.pop_back().unwrap();
        assert_eq!(choice.token, wanted.token, "slot {slot}: the choice after the prompt");
        assert!(bits(&choice) == bits(&wanted), "slot {slot}: the row after the prompt");
        self.same_state(slot);
    }

    fn round(&mut self, parts: &[Option<Part>]) {
        let mut taken: Vec<(usize, &Part, Vec<u32>)> = Vec::new();
        for (slot, part) in parts.iter().enumerate() {
            let (s, Some(part)) = (&self.slots[slot], part) else { continue };
            if s.phase == Phase::Ready && s.ids.len() + part.rows <= s.room {
                // The rows past the kept ones are other guesses.
                let token = |i| id(slot, s.life, s.ids.len() + i, u32::from(i >= part.kept));
                taken.push((slot, part, (0..part.rows).map(token).collect()));
            }
        }
        let windows: Vec<Window<'_>> = taken
            .iter()
            .map(|(slot, _, tokens)| Window {
                slot: *slot,
                tokens,
                sampling: self.slots[*slot].sampling,
                adjust: &[],
                logits: true,
            })
            .collect();
        let choices = self.subject.windows(&windows).unwrap();
        for first in [true, false] {
            for (slot, part, tokens) in taken.iter().filter(|(_, part, _)| part.first == first) {
                if part.released {
                    self.release(*slot);
                } else {
                    self.subject.keep(*slot, part.kept.min(tokens.len())).unwrap();
                }
            }
        }
        for ((slot, part, tokens), choices) in taken.into_iter().zip(choices) {
            if !part.released {
                self.replay(slot, &tokens[..part.kept.min(tokens.len())], &choices);
                self.same_state(slot);
            }
        }
    }

    /// Runs the kept rows one by one: each has the window's logits and choice.
    fn replay(&mut self, slot: usize, kept: &[u32], choices: &[Choice]) {
        let (s, alone) = (&mut self.slots[slot], &mut self.alone[slot]);
        for (&token, choice) in kept.iter().zip(choices) {
            let (wanted, at) = (step(alone, token, s.sampling), s.ids.len());
            assert_eq!(choice.token, wanted.token, "slot {slot}: the choice after row {at}");
            assert!(bits(choice) == bits(&wanted), "slot {slot}: the logits of row {at}");
            s.ids.push(token);
        }
    }

    fn draft(&mut self, slots: &[bool]) {
        if !self.drafts {
            return;
        }
        let request = |slot: usize| {
            let s = &self.slots[slot];
            let anchor = id(slot, s.life, s.ids.len(), 0);
            DraftRequest {
                slot,
                anchor,
                sampling: s.sampling,
                adjust: &[],
                penalties: Penalties::default(),
            }
        };
        let requests: Vec<DraftRequest<'_>> = (0..SLOTS)
            .filter(|&slot| slots[slot] && self.slots[slot].phase == Phase::Ready)
            .map(request)
            .collect();
        let drafts = self.subject.draft(&requests).unwrap();
        for (request, draft) in requests.into_iter().zip(drafts) {
            let slot = request.slot;
            let alone = DraftRequest { slot: 0, ..request };
            let wanted = self.alone[slot].draft(&[alone]).unwrap().remove(0);
            assert_eq!(draft.tokens, wanted.tokens, "slot {slot}: drafts");
            let found = row_bits(&draft.confidence);
            assert_eq!(found, row_bits(&wanted.confidence), "slot {slot}: confidence");
            self.same_state(slot);
        }
    }

    fn release(&mut self, slot: usize) {
        self.subject.release(slot).unwrap();
        self.slots[slot].phase = Phase::Idle;
    }

    fn same_state(&mut self, slot: usize) {
        let found = self.subject.state(slot).unwrap();
        assert!(found == self.alone[slot].state(0).unwrap(), "slot {slot}: state");
    }
}

/// The id at a position of a stream; another one where `other` is 1.
fn id(slot: usize, life: u32, at: usize, other: u32) -> u32 {
    (slot as u32 * 131 + life * 37 + at as u32 * 7 + at as u32 / 11 + other * 101) % 500
}

/// One row, kept.
fn step(runner: &mut ModelRunner, token: u32, sampling: Sampling) -> Choice {
    let window = Window { slot: 0, tokens: &[token], sampling, adjust: &[], logits: true };
    let choice = runner.windows(&[window]).unwrap().remove(0).remove(0);
    runner.keep(0, 1).unwrap();
    choice
}

fn bits(choice: &Choice) -> Vec<u32> {
    row_bits(choice.logits.as_ref().unwrap())
}

fn row_bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|x| x.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_schedule_equals_one_row_at_a_time(
        name in prop::sample::select(CHECKPOINTS.to_vec()),
        plain in any::<bool>(),
        threads in 1usize..=2,
        acts in prop::collection::vec(act(), 40..100),
    ) {
        let numerics = if plain { Numerics::PLAIN } else { Numerics::RELEASE };
        let spec = spec_of(&checkpoint(name), numerics);
        let mut pair = Pair::new(&spec, threads);
        for act in &acts {
            pair.run(act);
        }
    }
}
