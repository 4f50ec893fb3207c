//! Index scores on tensor cores, and top-k in tiles.

use finback_numerics::{bf16, rows as packed};

use super::super::case::{Addresses, Case, Gate, Rule, Want, bytes, floats};
use super::super::data::{Data, gamma, near};
use super::select::{row_words, scattered};
use super::word;
use crate::args::{Args, TileIndexArgs, TileTopkArgs};

pub fn cases() -> Vec<Case> {
    let tied = Topk { count: 20_000, k: 40, round: Round::First };
    let few = Topk { count: 700, k: 1000, round: Round::Only };
    let many = Topk { count: 16_000, k: 1500, round: Round::Only };
    vec![
        index_scores(false),
        index_scores(true),
        index_many(),
        index_many_span(),
        topk(tied),
        topk(Topk { count: 120, round: Round::Last, ..tied }),
        topk(Topk { count: 4096, round: Round::Candidates, ..tied }),
        topk(Topk { count: 4096, round: Round::Spread, ..tied }),
        topk(few),
        topk(many),
    ]
}

const HEADS: usize = 32;
const DIM: usize = 128;
const PER_BLOCK: usize = 16;
const BLOCKS: usize = 47;
/// Compressed rows of a candidate block.
const SIZE: usize = 8;
/// Candidate blocks of a row, and how many of them there are.
const MOST: usize = 100;
const CANDIDATES: [u32; 3] = [65, 80, 100];
/// Scores that have one best.
const TOPS: usize = 16;
const SCALE: f32 = 0.25;
/// Scores of each row of a longer span.
const SPAN_SCORES: usize = 752;

/// Where `index_operand` puts channel `c` of a head, in halves.
fn operand_place(head: usize, c: usize) -> usize {
    let m = c % 32 / 8;
    let piece = (m % 2 * 4 + c % 4) ^ (head % 8);
    (((m / 2 * HEADS + head) * 8 + piece) * 4 + c / 32) * 2 + c % 8 / 4
}

/// A unit is a span of `span` rows from its position on. Every row sees into the last tile of keys, so
/// that all scores are written.
#[derive(Clone)]
struct Scores {
    kernel: &'static str,
    /// Of each unit.
    positions: Vec<usize>,
    span: usize,
    ratio: usize,
    count: usize,
    within: bool,
    /// Whether all units are one span, of the first's slot and positions.
    together: bool,
    groups: u32,
}

impl Scores {
    fn slot(&self, unit: usize) -> usize {
        if self.together { 0 } else { unit }
    }

    fn seen(&self, unit: usize, r: usize) -> usize {
        (self.positions[unit] + r + 1) / self.ratio
    }

    /// The rows of a launch of these units.
    fn rows_of(&self, units: &[usize]) -> Vec<u8> {
        let Self { span, together, .. } = *self;
        let rows = units.iter().enumerate().flat_map(|(i, &unit)| {
            (0..span).map(move |r| match together {
                true => {
                    let start = self.positions[0];
                    row_words(0, start + i * span + r, start, 0, units.len() * span)
                }
                false => {
                    let start = self.positions[unit];
                    row_words(unit, start + r, start, i * span, span)
                }
            })
        });
        bytes(&rows.flatten().collect::<Vec<_>>())
    }
}

fn index_scores(within: bool) -> Case {
    let positions = vec![1099, 1180, 1501];
    let count = if within { SIZE * MOST } else { 760 };
    scores(&Scores {
        kernel: "tile_index_scores",
        positions,
        span: 1,
        ratio: 2,
        count,
        within,
        together: false,
        groups: 0,
    })
}

/// Rows that see the same, wherever they stand in their span: parts of four rows and one, two tiles of
/// keys and more stages than there are.
fn index_many() -> Case {
    scores(&Scores {
        kernel: "tile_index_many",
        positions: vec![700 * 16; 9],
        span: 1,
        ratio: 16,
        count: 752,
        within: false,
        together: true,
        groups: 1,
    })
}

/// A span whose rows see more and more, by groups that share a tile.
fn index_many_span() -> Case {
    scores(&Scores {
        kernel: "tile_index_many",
        positions: vec![1491],
        span: 11,
        ratio: 2,
        count: SPAN_SCORES,
        within: false,
        together: true,
        groups: 5,
    })
}

fn scores(shape: &Scores) -> Case {
    let Scores { kernel, span, ratio, count, within, together, groups, .. } = *shape;
    let units = shape.positions.len();
    let (rows, slots) = (units * span, if together { 1 } else { units });
    let mut data = Data::new(140);
    let each = packed::index_key_bytes(DIM);
    let pack = |values: &[f32]| {
        let mut held = vec![0; values.len() / DIM * each];
        for (key, held) in values.chunks_exact(DIM).zip(held.chunks_exact_mut(each)) {
            packed::store_index_key(key, held);
        }
        held
    };
    let lift = move |held: &[u8]| {
        let mut key = vec![0.0; DIM];
        packed::load_index_key(held, &mut key);
        key
    };
    // Queries have the values of packed keys.
    let q: Vec<f32> =
        pack(&data.floats(rows * HEADS * DIM, 2.0)).chunks_exact(each).flat_map(lift).collect();
    let w = data.floats(rows * HEADS, 1.0);
    let pool = pack(&data.floats(slots * BLOCKS * PER_BLOCK * DIM, 2.0));
    let table = scattered(slots, BLOCKS);
    let mut operand = vec![0u16; q.len()];
    for (at, &x) in q.iter().enumerate() {
        let (row, head, c) = (at / (HEADS * DIM), at / DIM % HEADS, at % DIM);
        operand[row * HEADS * DIM + operand_place(head, c)] = bf16::encode(x);
    }
    let candidates: Vec<u32> = (0..units)
        .flat_map(|unit| {
            let blocks = shape.seen(unit, 0) / SIZE;
            (0..MOST).map(move |i| word((i * (unit + 1)) % blocks))
        })
        .collect();
    let n_candidates: Vec<u32> = (0..units).map(|unit| CANDIDATES[unit % 3]).collect();
    let (listed, lengths) = (candidates.clone(), n_candidates.clone());
    let own = shape.clone();
    let row_of = move |unit: usize, r: usize, at: usize| {
        let seen = own.seen(unit, r);
        if !within {
            return (at < seen).then_some(at);
        }
        let block = at / SIZE;
        let j = listed[unit * MOST + block] as usize * SIZE + at % SIZE;
        (block < lengths[unit] as usize && j < seen).then_some(j)
    };
    let (own, weights, held, places) = (shape.clone(), w.clone(), pool.clone(), table.clone());
    let want = move |unit: usize| {
        let value = |r: usize, at: usize| {
            let Some(j) = row_of(unit, r, at) else { return (f64::NEG_INFINITY, 0.0) };
            let block = places[own.slot(unit) * BLOCKS + j / PER_BLOCK] as usize;
            let place = block * PER_BLOCK + j % PER_BLOCK;
            let key = lift(&held[place * each..(place + 1) * each]);
            let (mut sum, mut size) = (0.0, 0.0);
            for h in 0..HEADS {
                let q = &q[((unit * span + r) * HEADS + h) * DIM..][..DIM];
                let terms = || q.iter().zip(&key).map(|(&q, &k)| f64::from(q) * f64::from(k));
                let w = f64::from(weights[(unit * span + r) * HEADS + h]) * f64::from(SCALE);
                sum += w * terms().sum::<f64>().max(0.0);
                size += w.abs() * terms().map(f64::abs).sum::<f64>();
            }
            near(sum, size * 2.0 * gamma(DIM / 16 + 17 + HEADS), false)
        };
        let rows = (0..span).map(|r| (0..count).map(|at| value(r, at)).collect::<Vec<_>>());
        let rows: Vec<_> = rows.collect();
        let best = |part: &[(f64, f64)]| {
            part.iter().fold((f64::NEG_INFINITY, 0.0f64), |a, b| (a.0.max(b.0), a.1.max(b.1)))
        };
        let tops = rows.iter().flat_map(|row| row.chunks(TOPS).map(best)).collect();
        let all = Want::Near(rows.concat());
        if within { vec![all] } else { vec![all, Want::Near(tops)] }
    };
    let table_of = shape.clone();
    let case = Case::new(
        kernel,
        format!("{count} scores, spans of {span}, within candidates: {within}"),
        units,
    )
    .row("q", &operand)
    .row("w", &w)
    .shared("keys", &pool)
    .made("rows", move |units| table_of.rows_of(units))
    .shared("blocks", &table)
    .row("candidates", &candidates)
    .row("n_candidates", &n_candidates)
    .out("scores", span * count * 4);
    let case = if within { case } else { case.out("tops", span * count.div_ceil(TOPS) * 4) };
    let plan = move |few: bool| {
        move |at: &Addresses, units: &[usize]| {
            let of = |name, there: bool| if there { at.of(name) } else { 0 };
            let (rows, rows_each) = (word(units.len() * span), 2);
            let args = TileIndexArgs {
                q: at.of("q"),
                w: at.of("w"),
                keys: at.of("keys"),
                rows: at.of("rows"),
                blocks: at.of("blocks"),
                candidates: of("candidates", within),
                n_candidates: of("n_candidates", within),
                scores: at.of("scores"),
                tops: of("tops", !within),
                ratio: word(ratio),
                rows_per_block: word(PER_BLOCK),
                blocks_stride: word(BLOCKS),
                candidates_stride: word(MOST),
                candidate_size: word(SIZE),
                count: word(count),
                scores_stride: word(count),
                row_count: rows,
                rows_each,
                scale: SCALE,
            };
            let grid = match few {
                true => [word(count).div_ceil(512), rows.div_ceil(rows_each)],
                false => [groups, 1],
            };
            (args.bytes(), grid)
        }
    };
    let rule = if span > 1 { first_are_nan } else { visible_are_nan };
    let case = case.launch(plan(!together));
    let case = if together { case.twin("tile_index_scores", plan(true)) } else { case };
    let case = case
        .want(want)
        .strike("w", 3, f32::NAN, Rule::Check("scores", rule))
        .fault("INDEX_DROPPED_HEAD", Gate::Reference);
    if within { case } else { case.fault("INDEX_WRONG_BLOCK", Gate::Reference) }
}

fn visible_are_nan(before: &[u8], after: &[u8]) -> bool {
    let pairs = floats(before).into_iter().zip(floats(after));
    pairs.into_iter().all(|(b, a)| if b == f32::NEG_INFINITY { a == b } else { a.is_nan() })
}

/// The same of a span's first row, whose weight is struck.
fn first_are_nan(before: &[u8], after: &[u8]) -> bool {
    let (first, others) = after.split_at(SPAN_SCORES * 4);
    visible_are_nan(&before[..first.len()], first) && &before[first.len()..] == others
}

#[derive(Clone, Copy, PartialEq)]
enum Round {
    /// The first of several: the best of each tile, with their scores.
    First,
    /// The last of several, over a list.
    Last,
    /// The only one.
    Only,
    /// The only one, of candidates' rows.
    Candidates,
    /// The same where scores lie in the row's order.
    Spread,
}

#[derive(Clone, Copy)]
struct Topk {
    count: usize,
    k: usize,
    round: Round,
}

const TILE: usize = 16_384;

fn topk(shape: Topk) -> Case {
    let Topk { count, k, round } = shape;
    let rows = 4;
    let tiles = count.div_ceil(TILE);
    let mut data = Data::new((count + k) as u64);
    let mut scores = data.floats(rows * count, 2.0);
    // The second row has few values, so most are ties; the third few that may be chosen.
    scores[count..2 * count].iter_mut().for_each(|x| *x = (*x * 2.0).round());
    for (i, x) in scores[2 * count..3 * count].iter_mut().enumerate() {
        *x = [f32::NAN, f32::NEG_INFINITY, *x][if i % 37 == 0 { 2 } else { i % 2 }];
    }
    let from: Vec<u32> = (0..word(rows * count)).map(|i| i * 3 + 1).collect();
    let n_candidates: Vec<u32> = (0..rows).map(|row| word(count / SIZE - row)).collect();
    let blocks: Vec<u32> = (0..word(count / SIZE)).map(|i| i * i + 2).collect();
    let of_candidates = matches!(round, Round::Candidates | Round::Spread);
    // Where the scores of the candidates' order lie in the row's, the last ones out of its sight.
    let seen = 2 * count - 3;
    let spread: Vec<usize> =
        (0..count / SIZE * SIZE).map(|i| i / SIZE * 2 * SIZE + SIZE + i % SIZE).collect();
    let stride = if round == Round::Spread { 2 * count } else { count };
    let mut stored = vec![f32::INFINITY; rows * stride];
    for row in 0..rows {
        for i in 0..count {
            let at = if round == Round::Spread { spread[i] } else { i };
            stored[row * stride + at] = scores[row * count + i];
            if at >= seen {
                scores[row * count + i] = f32::NEG_INFINITY;
            }
        }
    }
    let blocks: Vec<u32> = match round {
        Round::Spread => (0..word(count / SIZE)).map(|i| 2 * i + 1).collect(),
        _ => blocks,
    };
    let (values, ids, list, limits) =
        (scores.clone(), from.clone(), blocks.clone(), n_candidates.clone());
    let want = move |row: usize| {
        let scores = &values[row * count..][..count];
        let limit = if of_candidates { limits[row] as usize * SIZE } else { count };
        let (mut picks, mut best, mut total) = (Vec::new(), Vec::new(), 0);
        for tile in 0..tiles {
            let own = tile * TILE..((tile + 1) * TILE).min(limit);
            let mut order: Vec<usize> = own.filter(|&i| scores[i] > f32::NEG_INFINITY).collect();
            // The two zeros are one.
            order.sort_by(|&a, &b| (scores[b] + 0.0).total_cmp(&(scores[a] + 0.0)).then(a.cmp(&b)));
            order.truncate(k);
            order.sort_unstable();
            total = order.len();
            for place in 0..k {
                let at = order.get(place);
                picks.push(at.map_or(u32::MAX, |&i| match round {
                    Round::Last => ids[row * count + i],
                    Round::Candidates | Round::Spread => {
                        list[i / SIZE] * word(SIZE) + word(i % SIZE)
                    }
                    _ => word(i),
                }));
                best.push(at.map_or(f32::NEG_INFINITY, |&i| scores[i]));
            }
        }
        let picks = Want::Bytes(bytes(&picks));
        match round {
            Round::First => vec![picks, Want::Bytes(bytes(&best))],
            _ => vec![picks, Want::Bytes(bytes(&[word(total)]))],
        }
    };
    let name = match round {
        Round::First => "first round",
        Round::Last => "last round",
        Round::Only => "one round",
        Round::Candidates => "of candidates",
        Round::Spread => "of candidates in the row's order",
    };
    let case = Case::new("tile_topk", format!("{k} of {count}, {name}"), rows)
        .row("scores", &stored)
        .made("rows", move |rows| {
            let of = |(i, _)| row_words(i, seen - 1, seen - 1, i, 1);
            bytes(&rows.iter().enumerate().flat_map(of).collect::<Vec<_>>())
        })
        .row("from", &from)
        .row("candidates", &blocks.repeat(rows))
        .row("n_candidates", &n_candidates)
        .out("ids", tiles * k * 4);
    let case = match round {
        Round::First => case.out("best", tiles * k * 4),
        _ => case.out("n_picks", 4),
    };
    let case = case
        .launch(move |at, rows| {
            let of = |name, there: bool| if there { at.of(name) } else { 0 };
            let args = TileTopkArgs {
                scores: at.of("scores"),
                from: of("from", round == Round::Last),
                rows: of("rows", round == Round::Spread),
                candidates: of("candidates", of_candidates),
                n_candidates: of("n_candidates", of_candidates),
                ids: at.of("ids"),
                best: of("best", round == Round::First),
                n_picks: of("n_picks", round != Round::First),
                count: word(count),
                scores_stride: word(stride),
                k: word(k),
                tiles: word(tiles),
                ratio: 1,
                unit: 1,
                candidates_stride: word(count / SIZE),
                candidate_size: word(SIZE),
                spread: u32::from(round == Round::Spread),
                pad: 0,
            };
            (args.bytes(), [word(tiles), word(rows.len())])
        })
        .want(want);
    // Row 2 is struck; 37 of it could be chosen before.
    let case = match round {
        Round::First | Round::Only => {
            case.strike("scores", 37, f32::NAN, Rule::Check("ids", struck_is_gone))
        }
        _ => case,
    };
    // Where all are chosen no tie decides.
    if k < count { case.fault("TOPK_TIES_HIGH", Gate::Reference) } else { case }
}

fn struck_is_gone(_: &[u8], after: &[u8]) -> bool {
    !after.as_chunks::<4>().0.contains(&37u32.to_ne_bytes())
}
