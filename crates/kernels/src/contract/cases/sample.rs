//! The choice of tokens, and the drafter's Markov term.

use finback_numerics::bf16;
use finback_numerics::rng::{gumbel, uniform};
use finback_numerics::sample::{Params, Scratch, choose};

use super::super::case::{Case, Gate, Rule, Want, bytes};
use super::super::data::{Data, gamma, group_depth, near};
use super::{by_row, by_slice, word};
use crate::args::{AddArgs, AdjustArgs, Args, ChooseArgs, ChooseSliceArgs, MarkovArgs, format};

pub fn cases() -> Vec<Case> {
    let slices = [choose_top(), choose_draw(), choose_pick()];
    let mut cases = vec![
        choices("choose", 300),
        choices("choose", 33),
        adjust(false),
        adjust(true),
        add_rows(),
        markov(),
    ];
    cases.extend(slices);
    cases.extend([choices("tile_choose", 300), choices("tile_choose", 5000)]);
    cases
}

/// Rows of every kind of filter, and one that has no choice.
fn choices(kernel: &'static str, vocab: usize) -> Case {
    let params: Vec<Params> = [
        (0.0, 0, 1.0, 0.0),
        (1.0, 0, 1.0, 0.0),
        (0.7, 5, 1.0, 0.0),
        (1.3, 0, 0.8, 0.0),
        (1.0, 20, 0.5, 0.0),
        (2.0, 0, 1.0, 0.1),
        (1.0, 40, 0.95, 0.05),
        (3.0, 1, 1.0, 0.0),
        (0.0, 0, 1.0, 0.0),
        (1.0, 0, 1.0, 0.0),
    ]
    .iter()
    .enumerate()
    .map(|(i, &(temperature, top_k, top_p, min_p))| Params {
        temperature,
        top_k,
        top_p,
        min_p,
        seed: 77 + i as u64 * 0x1_0000_0001,
    })
    .collect();
    let rows = params.len();
    let mut logits = Data::new(70).floats(rows * vocab, 6.0);
    // Few values, so that filters and the greedy choice end among ties, zeros of both signs among
    // them; and a row with an infinity.
    logits[..3 * vocab].iter_mut().for_each(|x| *x = (*x * 0.5).round());
    logits[8 * vocab] = f32::INFINITY;
    let positions: Vec<u64> = (0..rows as u64).map(|i| 1000 + i * 0x2_0000_0003).collect();
    let words: Vec<u32> = params
        .iter()
        .flat_map(|p| [p.temperature.to_bits(), p.top_k, p.top_p.to_bits(), p.min_p.to_bits()])
        .collect();
    let seeds: Vec<u64> = params.iter().map(|p| p.seed).collect();
    let (x, at) = (logits.clone(), positions.clone());
    Case::new(kernel, format!("{rows} rows of {vocab}"), rows)
        .row("logits", &logits)
        .row("seeds", &seeds)
        .row("positions", &positions)
        .row("params", &words)
        .out("choices", 4)
        .launch(move |at, rows| {
            let args = ChooseArgs {
                logits: at.of("logits"),
                seeds: at.of("seeds"),
                positions: at.of("positions"),
                params: at.of("params"),
                choices: at.of("choices"),
                vocab: word(vocab),
                stride: word(vocab),
                choices_stride: 1,
                none: u32::MAX,
            };
            (args.bytes(), by_row(rows))
        })
        .want(move |row| {
            let logits = &x[row * vocab..][..vocab];
            let choice = choose(logits, &params[row], at[row], &mut Scratch::default());
            vec![Want::Bytes(bytes(&[choice.unwrap_or(u32::MAX)]))]
        })
        .strike("logits", 30, f32::NAN, Rule::Check("choices", |_, after| after == [255; 4]))
        .strike(
            "logits",
            30,
            f32::NEG_INFINITY,
            Rule::Check("choices", |_, after| after == [255; 4]),
        )
        .fault("CHOOSE_TIES_HIGH", Gate::Reference)
        .fault("CHOOSE_NO_FILTER", Gate::Reference)
}

/// Larger words for larger values, as the kernels order them.
fn rising(x: f32) -> u32 {
    if x.is_nan() {
        return 0;
    }
    let bits = (x + 0.0).to_bits();
    if bits >> 31 == 0 { bits | 0x8000_0000 } else { !bits }
}

fn key(x: f32, id: usize) -> u64 {
    u64::from(rising(x)) << 32 | u64::from(!word(id))
}

/// A choice in slices: 3 slices of 7 rows, of which the fifth holds an infinity and every other is greedy.
struct Sliced {
    logits: Vec<f32>,
    seeds: Vec<u64>,
    positions: Vec<u64>,
    params: Vec<Params>,
}

const SLICED: (usize, usize, usize) = (7, 100, 3);

impl Sliced {
    fn new() -> Self {
        let (rows, vocab, _) = SLICED;
        let mut logits = Data::new(74).floats(rows * vocab, 6.0);
        // Ties, and an end that no slice is full at.
        logits.iter_mut().for_each(|x| *x = (*x * 2.0).round() * 0.5);
        logits[4 * vocab + 99] = f32::INFINITY;
        let params = (0..rows).map(|i| Params {
            temperature: if i % 2 == 0 { 0.8 } else { 0.0 },
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 5 + i as u64 * 0x3_0000_0001,
        });
        let params: Vec<Params> = params.collect();
        let seeds = params.iter().map(|p| p.seed).collect();
        let positions = (0..rows as u64).map(|i| 400 + i * 0x1_0000_0003).collect();
        Self { logits, seeds, positions, params }
    }

    /// The best key of each slice of a row.
    fn tops(&self, row: usize) -> Vec<u64> {
        let (_, vocab, slices) = SLICED;
        let logits = &self.logits[row * vocab..][..vocab];
        let keys: Vec<u64> = (0..vocab)
            .map(|id| if logits[id].is_finite() { key(logits[id], id) } else { u64::MAX })
            .collect();
        let best = |keys: &[u64]| keys.iter().copied().max().unwrap_or(0);
        keys.chunks(vocab.div_ceil(slices)).map(best).collect()
    }

    /// The row's choice, with the id alone: what the slice that holds it must say.
    fn choice(&self, row: usize) -> Option<u32> {
        let (_, vocab, _) = SLICED;
        let logits = &self.logits[row * vocab..][..vocab];
        choose(logits, &self.params[row], self.positions[row], &mut Scratch::default())
    }

    fn case(&self, kernel: &'static str) -> Case {
        let (rows, vocab, slices) = SLICED;
        let words: Vec<u32> = self
            .params
            .iter()
            .flat_map(|p| [p.temperature.to_bits(), p.top_k, p.top_p.to_bits(), p.min_p.to_bits()])
            .collect();
        Case::new(kernel, format!("{rows} rows of {vocab} in {slices} slices"), rows)
            .row("logits", &self.logits)
            .row("seeds", &self.seeds)
            .row("positions", &self.positions)
            .row("params", &words)
    }
}

fn sliced_args(at: &super::super::case::Addresses, given: [&'static str; 3]) -> ChooseSliceArgs {
    let of = |name: &str| if given.contains(&name) { at.of(name) } else { 0 };
    let (_, vocab, slices) = SLICED;
    ChooseSliceArgs {
        logits: at.of("logits"),
        seeds: at.of("seeds"),
        positions: at.of("positions"),
        params: at.of("params"),
        tops: of("tops"),
        winners: of("winners"),
        choices: of("choices"),
        vocab: word(vocab),
        stride: word(vocab),
        slices: word(slices),
        choices_stride: 1,
        none: u32::MAX,
        pad: 0,
    }
}

fn sliced_grid(rows: &[usize]) -> [u32; 2] {
    [word(SLICED.2), word(rows.len())]
}

fn choose_top() -> Case {
    let sliced = Sliced::new();
    sliced
        .case("choose_top")
        .out("tops", SLICED.2 * 8)
        .launch(|at, rows| (sliced_args(at, ["tops"; 3]).bytes(), sliced_grid(rows)))
        .want(move |row| vec![Want::Bytes(bytes(&sliced.tops(row)))])
        .strike("logits", 30, f32::NAN, Rule::Check("tops", |_, after| after[..8] == [255; 8]))
        .fault("CHOOSE_TIES_HIGH", Gate::Reference)
}

fn choose_draw() -> Case {
    let sliced = Sliced::new();
    let (rows, vocab, slices) = SLICED;
    let tops: Vec<u64> = (0..rows).flat_map(|row| sliced.tops(row)).collect();
    sliced
        .case("choose_draw")
        .row("tops", &tops)
        .out("winners", slices * 8)
        .launch(|at, rows| {
            (sliced_args(at, ["tops", "winners", "winners"]).bytes(), sliced_grid(rows))
        })
        .want(move |row| {
            let width = vocab.div_ceil(slices);
            let drawn = sliced.params[row].temperature != 0.0 && sliced.choice(row).is_some();
            let winners = (0..slices).map(|slice| {
                if !drawn {
                    return 0;
                }
                // A slice's winner is the choice from a row that has nothing else to draw from, but its
                // most probable token, whose value stays the scale's.
                let own = slice * width..((slice + 1) * width).min(vocab);
                let logits = &sliced.logits[row * vocab..][..vocab];
                let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let params = &sliced.params[row];
                own.map(|id| {
                    let u = uniform(params.seed, sliced.positions[row], word(id));
                    let score = (logits[id] - top) / params.temperature + gumbel(u);
                    key(score, id)
                })
                .max()
                .unwrap_or(0)
            });
            vec![Want::Bytes(bytes(&winners.collect::<Vec<u64>>()))]
        })
        // A NaN is never drawn.
        .strike(
            "logits",
            30,
            f32::NAN,
            Rule::Check("winners", |_, after| after[..4] != [225, 255, 255, 255]),
        )
        .fault("CHOOSE_WRONG_DRAW", Gate::Reference)
}

fn choose_pick() -> Case {
    let sliced = Sliced::new();
    let (rows, _, slices) = SLICED;
    let tops: Vec<u64> = (0..rows).flat_map(|row| sliced.tops(row)).collect();
    // The last slice has the winner of every row.
    let winner =
        |row: usize| sliced.choice(row).map_or(0, |id| u64::MAX >> 32 << 32 | u64::from(!id));
    let winners: Vec<u64> = (0..rows).flat_map(|row| [0, 1, winner(row)]).collect();
    debug_assert_eq!(winners.len(), rows * slices);
    sliced
        .case("choose_pick")
        .row("tops", &tops)
        .row("winners", &winners)
        .out("choices", 4)
        .launch(|at, rows| (sliced_args(at, ["tops", "winners", "choices"]).bytes(), by_row(rows)))
        .want(move |row| vec![Want::Bytes(bytes(&[sliced.choice(row).unwrap_or(u32::MAX)]))])
        .fault("CHOOSE_DROPPED_SLICE", Gate::Reference)
}

/// Rows with entries and a chain of drafts before them, which names an entry, a token twice, and one
/// alone; or the way back.
fn adjust(restore: bool) -> Case {
    let (rows, vocab, entries, chain) = (4, 50, 3, 5);
    let mut data = Data::new(73);
    let logits = data.floats(rows * vocab, 4.0);
    let adds = data.floats(rows * entries, 2.0);
    let ids: Vec<u32> = (0..rows).flat_map(|r| [4, 17 + r, 40].map(word)).collect();
    let drafts: Vec<u32> = (0..rows).flat_map(|r| [9, 40, 9, 21 + r, 4].map(word)).collect();
    let penalties = data.between(rows * 2, 0.1, 1.0);
    let saved = data.floats(rows * entries, 3.0);
    let saved_chain = data.floats(rows * chain, 3.0);
    let (x, a, i, d, p) =
        (logits.clone(), adds.clone(), ids.clone(), drafts.clone(), penalties.clone());
    let (s, sc) = (saved.clone(), saved_chain.clone());
    let want = move |row: usize| {
        let mut out = x[row * vocab..(row + 1) * vocab].to_vec();
        let (ids, drafts) = (&i[row * entries..][..entries], &d[row * chain..][..chain]);
        let firsts = drafts
            .iter()
            .enumerate()
            .filter(|(c, id)| !drafts[..*c].contains(id) && !ids.contains(id));
        if restore {
            ids.iter().zip(&s[row * entries..]).for_each(|(&id, &own)| out[id as usize] = own);
            firsts.for_each(|(c, &id)| out[id as usize] = sc[row * chain + c]);
            return vec![Want::Bytes(bytes(&out))];
        }
        let own: Vec<f32> = ids.iter().map(|&id| out[id as usize]).collect();
        let mut own_chain = vec![0.0; chain];
        firsts.for_each(|(c, &id)| own_chain[c] = out[id as usize]);
        // As the CPU backend makes a draft row's additions.
        let (presence, frequency) = (p[row * 2], p[row * 2 + 1]);
        let mut all: Vec<(u32, f32)> =
            ids.iter().copied().zip(a[row * entries..].iter().copied()).take(entries).collect();
        for &id in drafts {
            match all.iter_mut().find(|(named, _)| *named == id) {
                Some((_, add)) => *add -= frequency,
                None => all.push((id, -presence - frequency)),
            }
        }
        all.iter().for_each(|&(id, add)| out[id as usize] += add);
        [&out, &own, &own_chain].map(|part| Want::Bytes(bytes(part))).into()
    };
    let starts = move |rows: &[usize]| {
        bytes(&(0..=rows.len()).map(|i| word(i * entries)).collect::<Vec<_>>())
    };
    let case = Case::new("adjust", format!("{rows} rows of {vocab}, restore: {restore}"), rows)
        .in_place("logits", &logits)
        .made("starts", starts)
        .row("ids", &ids)
        .row("adds", &adds)
        .row("chain", &drafts)
        .row("penalties", &penalties);
    let case = match restore {
        true => case.row("saved", &saved).row("saved_chain", &saved_chain),
        false => case.out("saved", entries * 4).out("saved_chain", chain * 4),
    };
    let case = case
        .launch(move |at, rows| {
            let args = AdjustArgs {
                logits: at.of("logits"),
                starts: at.of("starts"),
                ids: at.of("ids"),
                adds: at.of("adds"),
                chain: at.of("chain"),
                penalties: at.of("penalties"),
                saved: at.of("saved"),
                saved_chain: at.of("saved_chain"),
                stride: word(vocab),
                chain_stride: word(chain),
                chain_count: word(chain),
                restore: restore.into(),
            };
            (args.bytes(), by_row(rows))
        })
        .want(want)
        .strike("logits", 10, f32::NAN, Rule::NanAt("logits", 10));
    let fault = if restore { "ADJUST_NOT_RESTORED" } else { "ADJUST_NO_CHAIN" };
    case.fault(fault, Gate::Reference)
}

fn add_rows() -> Case {
    let (rows, width) = (3, 530);
    let mut data = Data::new(71);
    let (x, term) = (data.floats(rows * width, 3.0), data.floats(rows * width, 3.0));
    let (a, b) = (x.clone(), term.clone());
    Case::new("add_rows", format!("{rows} rows of {width}"), rows)
        .in_place("x", &x)
        .row("term", &term)
        .launch(move |at, rows| {
            let args = AddArgs {
                x: at.of("x"),
                term: at.of("term"),
                width: word(width),
                x_stride: word(width),
            };
            (args.bytes(), by_slice(rows, width))
        })
        .want(move |row| {
            let own = row * width..(row + 1) * width;
            let sums: Vec<f32> = a[own.clone()].iter().zip(&b[own]).map(|(a, b)| a + b).collect();
            vec![Want::Bytes(bytes(&sums))]
        })
        .strike("term", 9, f32::NAN, Rule::NanAt("x", 9))
        .fault("ADD_DROPPED", Gate::Reference)
}

fn markov() -> Case {
    let (rows, vocab, rank, width) = (3, 7, 20, 150);
    let mut data = Data::new(72);
    let table: Vec<u16> = data.floats(vocab * rank, 1.0).into_iter().map(bf16::encode).collect();
    let tokens = data.below(rows, vocab);
    let h = data.floats(rows * width, 2.0);
    let projection = data.floats(width + rank, 1.0);
    let (t, ids, x, p) = (table.clone(), tokens.clone(), h.clone(), projection.clone());
    let want = move |row: usize| {
        let embed: Vec<f32> =
            t[ids[row] as usize * rank..][..rank].iter().map(|&b| bf16::lift(b)).collect();
        let joined = [&x[row * width..(row + 1) * width], &embed].concat();
        let terms = || joined.iter().zip(&p).map(|(x, p)| f64::from(*x) * f64::from(*p));
        let size: f64 = terms().map(f64::abs).sum();
        let bound = size * gamma(group_depth(width) + 1);
        vec![Want::Bytes(bytes(&embed)), Want::Near(vec![near(terms().sum(), bound, false)])]
    };
    Case::new("markov", format!("{rows} rows of {width} and {rank}"), rows)
        .shared("table", &table)
        .row("tokens", &tokens)
        .row("h", &h)
        .shared("projection", &projection)
        .out("embed", rank * 4)
        .out("confidence", 4)
        .launch(move |at, rows| {
            let args = MarkovArgs {
                table: at.of("table"),
                tokens: at.of("tokens"),
                h: at.of("h"),
                projection: at.of("projection"),
                embed: at.of("embed"),
                confidence: at.of("confidence"),
                width: word(width),
                rank: word(rank),
                format: format::BF16,
                tokens_stride: 1,
                h_stride: word(width),
                confidence_stride: 1,
            };
            (args.bytes(), by_row(rows))
        })
        .want(want)
        .strike("h", 149, f32::NAN, Rule::Nan("confidence"))
        .strike("h", 149, f32::NAN, Rule::Same("embed"))
        .fault("MARKOV_DROPPED_EMBED", Gate::Reference)
        .fault("MISSING_BARRIER", Gate::Rows)
}
