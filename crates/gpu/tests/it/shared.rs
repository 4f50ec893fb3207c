//! Several devices as one: the bits of one device, whatever their number.

use std::path::Path;
use std::sync::Arc;

use finback_gpu::{Ranks, Setup};
use finback_model::synth::{SynthOptions, Vocabulary, write};
use finback_model::{DraftRequest, ModelRunner, Runner, Start, Window};
use finback_ops::{ModelSpec, Numerics, Penalties, Sampling};

use crate::load::{devices, limits, one_device, prompt, spec_of};

/// Tokens of a reply.
const REPLY: usize = 16;

/// A checkpoint with a layer of every kind, in sizes that four devices can share.
pub fn shareable(numerics: Numerics) -> Arc<ModelSpec> {
    let dir = finback_testkit::temp_dir();
    write_shareable(dir.path());
    spec_of(dir.path(), numerics)
}

/// The files of [`shareable`].
pub fn write_shareable(dir: &Path) {
    let mut options = SynthOptions {
        seed: 8,
        hidden: 128,
        heads: 4,
        head_dim: 32,
        rope_dim: 16,
        q_rank: 32,
        o_groups: 4,
        o_rank: 32,
        window: 8,
        index_heads: 2,
        index_dim: 32,
        index_topk: 6,
        experts: 4,
        experts_per_token: 2,
        intermediate: 128,
        engram_vocab: 16,
        engram_heads: 2,
        ..SynthOptions::default()
    };
    // Few blocks, so that the second level of selection leaves rows out.
    options.set.insert("candidate_topk_blocks".into(), 2.into());
    options.set.insert("candidate_block_size".into(), 4.into());
    write(dir, &options, &Vocabulary::bare(VOCAB)).unwrap();
}

const VOCAB: usize = 128;

fn ids(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * i * 7 + i * 13 + 5) % (VOCAB as u32 - 4) + 3).collect()
}

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|x| x.to_bits()).collect()
}

/// A runner over so many devices; `None` where there are fewer.
fn several(spec: &Arc<ModelSpec>, count: usize, taped: bool) -> Option<ModelRunner> {
    let mut ops =
        Ranks::new(spec, limits(1), Setup::default(), devices(count)?, &mut |_| ()).unwrap();
    if !taped {
        ops.tape_up_to(0).unwrap();
    }
    Some(ModelRunner::new(Box::new(ops), spec.clone()))
}

/// All that a reply leaves behind.
#[derive(Debug, PartialEq)]
struct Story {
    prompt: Vec<Vec<u32>>,
    tokens: Vec<u32>,
    rows: Vec<Vec<u32>>,
    state: Vec<u8>,
}

/// A prompt in pieces and a greedy reply, one token a round; or, where it is known how the reply goes on,
/// in windows of the right guesses and with a pass of drafts before each, which are given too.
fn reply(r: &mut ModelRunner, piece: usize, known: Option<&Story>) -> (Story, Vec<Vec<u32>>) {
    let prompt = prompt(r, 0, &ids(9), piece, 3).iter().map(|row| bits(row)).collect();
    let sampling = Sampling::GREEDY;
    let first = r.finish(0, sampling, &[], false).unwrap().token.unwrap();
    let (mut tokens, mut rows, mut drafts) = (vec![first], Vec::new(), Vec::new());
    while tokens.len() < REPLY {
        let mut window = vec![tokens[tokens.len() - 1]];
        if let Some(known) = known {
            let penalties = Penalties::default();
            let request =
                DraftRequest { slot: 0, anchor: window[0], sampling, adjust: &[], penalties };
            let draft = r.draft(&[request]).unwrap().remove(0);
            drafts.push([draft.tokens, bits(&draft.confidence)].concat());
            let at = tokens.len();
            window.extend(&known.tokens[at..REPLY.min(at + 5) - 1]);
        }
        let asked = Window { slot: 0, tokens: &window, sampling, adjust: &[], logits: true };
        for choice in r.windows(&[asked]).unwrap().remove(0) {
            tokens.push(choice.token.unwrap());
            rows.push(bits(choice.logits.as_ref().unwrap()));
        }
        r.keep(0, window.len()).unwrap();
    }
    (Story { prompt, tokens, rows, state: r.state(0).unwrap() }, drafts)
}

#[test]
fn two_and_four_devices_have_the_bits_of_one() {
    let spec = shareable(Numerics::RELEASE);
    let mut one = one_device(&spec);
    let story = reply(&mut one, 160, None).0;
    let (windows, drafts) = reply(&mut one, 160, Some(&story));
    assert!(windows == story && drafts.len() > 2 && drafts[0] != drafts[1]);
    let Some(mut two) = several(&spec, 2, true) else { return };
    assert!(reply(&mut two, 4, None).0 == story, "two devices, pieces, single rows");
    // Launched one by one, as pieces are that are too long for a tape.
    let Some(mut two) = several(&spec, 2, false) else { return };
    assert!(reply(&mut two, 160, Some(&story)) == (windows, drafts.clone()), "two, no tapes");
    let Some(mut four) = several(&spec, 4, true) else { return };
    assert!(reply(&mut four, 160, Some(&story)) == (story, drafts), "four devices");
}

#[test]
fn a_stored_checkpoint_gives_two_devices_what_it_gives_one_in_any_numerics() {
    for numerics in [Numerics::PLAIN, Numerics::RELEASE] {
        let spec = spec_of(&finback_testkit::checkpoint("full"), numerics);
        let ids = [7, 300, 41, 12, 511, 8];
        let run = |r: &mut ModelRunner| {
            let rows: Vec<_> = prompt(r, 0, &ids, 4, 3).iter().map(|row| bits(row)).collect();
            let choice = r.finish(0, Sampling::GREEDY, &[], true).unwrap();
            (rows, choice.token, r.state(0).unwrap())
        };
        let Some(mut two) = several(&spec, 2, true) else { return };
        assert!(run(&mut two) == run(&mut one_device(&spec)), "{numerics:?}");
    }
}

#[test]
fn a_kept_state_goes_from_one_device_to_two_and_back() {
    let (spec, ids) = (shareable(Numerics::RELEASE), ids(7));
    let Some(mut two) = several(&spec, 2, true) else { return };
    let mut one = one_device(&spec);
    let mut kept = Vec::new();
    for r in [&mut one, &mut two] {
        prompt(r, 0, &ids, 160, 1);
        r.finish(0, Sampling::GREEDY, &[], false).unwrap();
        let snapshot = r.save(0).unwrap();
        let mut bytes = Vec::new();
        r.export(snapshot.id, &mut bytes).unwrap();
        kept.push(bytes);
    }
    assert!(kept[0] == kept[1]);
    let longer: Vec<u32> = ids.iter().copied().chain([8, 9]).collect();
    let [a, b] = [&mut one, &mut two].map(|r| {
        let taken = r.import(&ids, &kept[0]).unwrap();
        let start = Start { from: Some(taken.id), ..Start::default() };
        r.release(0).unwrap();
        r.start(0, &longer, 64, &start).unwrap();
        while r.piece(0, 160).unwrap() > 0 {}
        let row = r.finish(0, Sampling::GREEDY, &[], true).unwrap().logits.unwrap();
        (bits(&row), r.state(0).unwrap())
    });
    assert!(a == b);
}
