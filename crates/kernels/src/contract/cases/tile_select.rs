//! Index scores on tensor cores, and top-k in tiles.

use finback_numerics::{bf16, rows as packed};

use super::super::case::{Case, Gate, Rule, Want, bytes, floats};
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
        topk(tied),
        topk(Topk { count: 120, round: Round::Last, ..tied }),
        topk(Topk { count: 4096, round: Round::Candidates, ..tied }),
        topk(few),
        topk(many),
    ]
}

const HEADS: usize = 32;
const DIM: usize = 128;
const RATIO: usize = 2;
/// Every row sees into the last tile of 512 keys, so that all scores are written.
const POSITIONS: [usize; 3] = [1099, 1180, 1501];

fn seen(row: usize) -> usize {
    (POSITIONS[row] + 1) / RATIO
}

fn rows_of(rows: &[usize]) -> Vec<u8> {
    let words = rows.iter().enumerate().flat_map(|(i, &row)| {
        let position = POSITIONS[row];
        row_words(row, position, position, i, 1)
    });
    bytes(&words.collect::<Vec<_>>())
}

/// Where `index_operand` puts channel `c` of a head, in halves.
fn operand_place(head: usize, c: usize) -> usize {
    let lane = head % 8 * 4 + c / 32;
    let word = ((head / 8 * 4 + c % 32 / 8) * 32 + lane) * 4 + c % 4;
    word * 2 + c % 8 / 4
}

fn index_scores(within: bool) -> Case {
    let (rows, per_block, blocks, size, most) = (3, 16, 47, 8, 100);
    let scale = 0.25f32;
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
    let pool = pack(&data.floats(rows * blocks * per_block * DIM, 2.0));
    let table = scattered(rows, blocks);
    let mut operand = vec![0u16; q.len()];
    for (at, &x) in q.iter().enumerate() {
        let (row, head, c) = (at / (HEADS * DIM), at / DIM % HEADS, at % DIM);
        operand[row * HEADS * DIM + operand_place(head, c)] = bf16::encode(x);
    }
    let candidates: Vec<u32> = (0..rows)
        .flat_map(|row| (0..most).map(move |i| word((i * (row + 1)) % (seen(row) / size))))
        .collect();
    let n_candidates = [65u32, 80, 100];
    let count = if within { size * most } else { 760 };
    let listed = candidates.clone();
    let row_of = move |row: usize, at: usize| {
        if !within {
            return (at < seen(row)).then_some(at);
        }
        let block = at / size;
        let j = listed[row * most + block] as usize * size + at % size;
        (block < n_candidates[row] as usize && j < seen(row)).then_some(j)
    };
    let (weights, held, places) = (w.clone(), pool.clone(), table.clone());
    let want = move |row: usize| {
        let value = |at: usize| {
            let Some(j) = row_of(row, at) else { return (f64::NEG_INFINITY, 0.0) };
            let place = places[row * blocks + j / per_block] as usize * per_block + j % per_block;
            let key = lift(&held[place * each..(place + 1) * each]);
            let (mut sum, mut size) = (0.0, 0.0);
            for h in 0..HEADS {
                let q = &q[(row * HEADS + h) * DIM..][..DIM];
                let terms = || q.iter().zip(&key).map(|(&q, &k)| f64::from(q) * f64::from(k));
                let w = f64::from(weights[row * HEADS + h]) * f64::from(scale);
                sum += w * terms().sum::<f64>().max(0.0);
                size += w.abs() * terms().map(f64::abs).sum::<f64>();
            }
            near(sum, size * 2.0 * gamma(DIM / 16 + 17 + HEADS), false)
        };
        vec![Want::Near((0..count).map(value).collect())]
    };
    let case = Case::new(
        "tile_index_scores",
        format!("{count} scores, within candidates: {within}"),
        rows,
    )
    .row("q", &operand)
    .row("w", &w)
    .shared("keys", &pool)
    .made("rows", rows_of)
    .shared("blocks", &table)
    .row("candidates", &candidates)
    .row("n_candidates", &n_candidates)
    .out("scores", count * 4)
    .launch(move |at, rows| {
        let of = |name| if within { at.of(name) } else { 0 };
        let rows_each = 2;
        let args = TileIndexArgs {
            q: at.of("q"),
            w: at.of("w"),
            keys: at.of("keys"),
            rows: at.of("rows"),
            blocks: at.of("blocks"),
            candidates: of("candidates"),
            n_candidates: of("n_candidates"),
            scores: at.of("scores"),
            ratio: word(RATIO),
            rows_per_block: word(per_block),
            blocks_stride: word(blocks),
            candidates_stride: word(most),
            candidate_size: word(size),
            count: word(count),
            scores_stride: word(count),
            row_count: word(rows.len()),
            rows_each,
            scale,
        };
        (args.bytes(), [word(count).div_ceil(512), word(rows.len()).div_ceil(rows_each)])
    })
    .want(want)
    .strike("w", 3, f32::NAN, Rule::Check("scores", visible_are_nan))
    .fault("INDEX_DROPPED_HEAD", Gate::Reference);
    if within { case } else { case.fault("INDEX_WRONG_BLOCK", Gate::Reference) }
}

fn visible_are_nan(before: &[u8], after: &[u8]) -> bool {
    let pairs = floats(before).into_iter().zip(floats(after));
    pairs.into_iter().all(|(b, a)| if b == f32::NEG_INFINITY { a == b } else { a.is_nan() })
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
}

#[derive(Clone, Copy)]
struct Topk {
    count: usize,
    k: usize,
    round: Round,
}

const TILE: usize = 16_384;
const SIZE: usize = 8;

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
    let (values, ids, list, limits) =
        (scores.clone(), from.clone(), blocks.clone(), n_candidates.clone());
    let want = move |row: usize| {
        let scores = &values[row * count..][..count];
        let limit = if round == Round::Candidates { limits[row] as usize * SIZE } else { count };
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
                    Round::Candidates => list[i / SIZE] * word(SIZE) + word(i % SIZE),
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
    };
    let case = Case::new("tile_topk", format!("{k} of {count}, {name}"), rows)
        .row("scores", &scores)
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
            let candidates = round == Round::Candidates;
            let of = |name, there: bool| if there { at.of(name) } else { 0 };
            let args = TileTopkArgs {
                scores: at.of("scores"),
                from: of("from", round == Round::Last),
                rows: 0,
                candidates: of("candidates", candidates),
                n_candidates: of("n_candidates", candidates),
                ids: at.of("ids"),
                best: of("best", round == Round::First),
                n_picks: of("n_picks", round != Round::First),
                count: word(count),
                scores_stride: word(count),
                k: word(k),
                tiles: word(tiles),
                ratio: 1,
                unit: 1,
                candidates_stride: word(count / SIZE),
                candidate_size: word(SIZE),
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
