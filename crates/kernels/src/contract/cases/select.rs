//! Index scores and top-k.

use finback_numerics::rows as packed;

use super::super::case::{Case, Gate, Rule, Want, bytes};
use super::super::data::{Data, gamma, near};
use super::{by_row, word};
use crate::args::{Args, BlockBestArgs, IndexScoresArgs, TopkArgs};

pub fn cases() -> Vec<Case> {
    vec![
        index_scores(false),
        index_scores(true),
        block_best(),
        topk(300, 17, false),
        topk(20, 32, false),
        topk(48, 9, true),
    ]
}

/// Words of a batch row: slot, position, first position, first row and number of rows of its span.
pub fn row_words(
    slot: usize,
    position: usize,
    start: usize,
    first: usize,
    rows: usize,
) -> [u32; 8] {
    [slot, position, start, first, rows, 0, 0, 0].map(word)
}

/// A block table a slot, its blocks scattered over a pool of `slots * blocks`.
pub fn scattered(slots: usize, blocks: usize) -> Vec<u32> {
    let all = slots * blocks;
    // 5 has no factor in common with the sizes here, so this is a permutation.
    (0..all).map(|i| word((i * 5 + 3) % all)).collect()
}

/// Positions of three rows, each of its own slot, and what they see at ratio 2.
const POSITIONS: [usize; 3] = [1, 137, 289];
const RATIO: usize = 2;

fn seen(row: usize) -> usize {
    (POSITIONS[row] + 1) / RATIO
}

/// The words of some of those rows, each alone in its span.
fn rows_of(rows: &[usize]) -> Vec<u8> {
    let words = rows.iter().flat_map(|&row| row_words(row, POSITIONS[row], 0, 0, 1));
    bytes(&words.collect::<Vec<_>>())
}

fn index_scores(within: bool) -> Case {
    let (rows, heads, dim, per_block, blocks) = (3, 3, 64, 16, 13);
    let (candidate_size, most) = (8, 5);
    let scale = 0.25f32;
    let mut data = Data::new(40);
    let q = data.floats(rows * heads * dim, 2.0);
    let w = data.floats(rows * heads, 1.0);
    let each = packed::index_key_bytes(dim);
    let keys: Vec<f32> = data.floats(rows * blocks * per_block * dim, 2.0);
    let mut pool = vec![0; rows * blocks * per_block * each];
    for (key, held) in keys.chunks_exact(dim).zip(pool.chunks_exact_mut(each)) {
        packed::store_index_key(key, held);
    }
    let table = scattered(rows, blocks);
    // The first row has one block, the last its newest one, which is not full.
    let candidates: [[u32; 5]; 3] = [[0, 0, 0, 0, 0], [1, 4, 8, 0, 0], [0, 3, 7, 11, 18]];
    let n_candidates = [1u32, 3, 5];
    let count = if within { candidate_size * most } else { 150 };

    // The compressed row that a score is of.
    let row_of = move |row: usize, at: usize| {
        if !within {
            return (at < seen(row)).then_some(at);
        }
        let block = at / candidate_size;
        let j = candidates[row][block] as usize * candidate_size + at % candidate_size;
        (block < n_candidates[row] as usize && j < seen(row)).then_some(j)
    };
    let (queries, weights, held, places) = (q.clone(), w.clone(), pool.clone(), table.clone());
    let want = move |row: usize| {
        let value = |at: usize| {
            let Some(j) = row_of(row, at) else { return (f64::NEG_INFINITY, 0.0) };
            let place = places[row * blocks + j / per_block] as usize * per_block + j % per_block;
            let mut key = vec![0.0; dim];
            packed::load_index_key(&held[place * each..(place + 1) * each], &mut key);
            let (mut sum, mut size) = (0.0, 0.0);
            for h in 0..heads {
                let q = &queries[(row * heads + h) * dim..][..dim];
                let terms = || q.iter().zip(&key).map(|(&q, &k)| f64::from(q) * f64::from(k));
                let w = f64::from(weights[row * heads + h]) * f64::from(scale);
                sum += w * terms().sum::<f64>().max(0.0);
                size += w.abs() * terms().map(f64::abs).sum::<f64>();
            }
            near(sum, size * gamma(dim + heads + 2), false)
        };
        vec![Want::Near((0..count).map(value).collect())]
    };
    Case::new("index_scores", format!("{count} scores, within candidates: {within}"), rows)
        .row("q", &q)
        .row("w", &w)
        .shared("keys", &pool)
        .made("rows", rows_of)
        .shared("blocks", &table)
        .row("candidates", candidates.as_flattened())
        .row("n_candidates", &n_candidates)
        .out("scores", count * 4)
        .launch(move |at, rows| {
            let of = |name| if within { at.of(name) } else { 0 };
            let args = IndexScoresArgs {
                q: at.of("q"),
                w: at.of("w"),
                keys: at.of("keys"),
                rows: at.of("rows"),
                blocks: at.of("blocks"),
                candidates: of("candidates"),
                n_candidates: of("n_candidates"),
                scores: at.of("scores"),
                heads: word(heads),
                dim: word(dim),
                ratio: word(RATIO),
                rows_per_block: word(per_block),
                blocks_stride: word(blocks),
                candidates_stride: word(most),
                candidate_size: word(candidate_size),
                count: word(count),
                scores_stride: word(count),
                scale,
            };
            (args.bytes(), [word(count).div_ceil(128), word(rows.len())])
        })
        .want(want)
        // A NaN query head makes every visible score NaN; row 1 sees the first 69 rows.
        .strike(
            "q",
            0,
            f32::NAN,
            Rule::Check("scores", |before, after| {
                let pairs = before.as_chunks::<4>().0.iter().zip(after.as_chunks::<4>().0);
                pairs.into_iter().all(|(b, a)| {
                    let (b, a) = (f32::from_ne_bytes(*b), f32::from_ne_bytes(*a));
                    if b == f32::NEG_INFINITY { a == b } else { a.is_nan() }
                })
            }),
        )
        .fault("INDEX_DROPPED_HEAD", Gate::Reference)
        .fault("INDEX_WRONG_BLOCK", Gate::Reference)
}

fn block_best() -> Case {
    let (rows, size, count) = (3, 8, 20);
    let stride = count * size;
    let mut scores = Data::new(41).floats(rows * stride, 3.0);
    // A NaN among the scores of the second row's first block is passed over.
    scores[stride + 2] = f32::NAN;
    let values = scores.clone();
    let want = move |row: usize| {
        let best = |block: usize| {
            let own = block * size..((block + 1) * size).min(seen(row));
            if own.start >= own.end {
                return f32::NEG_INFINITY;
            }
            if own.contains(&(seen(row) - 1)) {
                return f32::INFINITY;
            }
            own.map(|j| values[row * stride + j]).fold(f32::NEG_INFINITY, f32::max)
        };
        vec![Want::Bytes(bytes(&(0..count).map(best).collect::<Vec<_>>()))]
    };
    Case::new("block_best", format!("{count} blocks of {size}"), rows)
        .row("scores", &scores)
        .made("rows", rows_of)
        .out("out", count * 4)
        .launch(move |at, rows| {
            let args = BlockBestArgs {
                scores: at.of("scores"),
                rows: at.of("rows"),
                out: at.of("out"),
                ratio: word(RATIO),
                size: word(size),
                scores_stride: word(stride),
                count: word(count),
                out_stride: word(count),
                pad: 0,
            };
            (args.bytes(), [word(count).div_ceil(128), word(rows.len())])
        })
        .want(want)
        .strike(
            "scores",
            8,
            f32::NAN,
            Rule::Check("out", |_, after| {
                super::super::case::floats(after).iter().all(|x| !x.is_nan())
            }),
        )
        .fault("BLOCK_NEWEST_FORGOTTEN", Gate::Reference)
}

fn topk(count: usize, k: usize, candidates: bool) -> Case {
    let (rows, size) = (4, 8);
    let mut data = Data::new(count as u64);
    let mut scores = data.floats(rows * count, 2.0);
    // The second row has few values, so most are ties; the third few that may be chosen.
    scores[count..2 * count].iter_mut().for_each(|x| *x = (*x * 2.0).round());
    for (i, x) in scores[2 * count..3 * count].iter_mut().enumerate() {
        *x = [f32::NAN, f32::NEG_INFINITY, *x][if i % 7 == 0 { 2 } else { i % 2 }];
    }
    let blocks: Vec<u32> = (0..word(count / size)).map(|i| i * i + 2).collect();
    let (values, list) = (scores.clone(), blocks.clone());
    let want = move |row: usize| {
        let scores = &values[row * count..][..count];
        let mut order: Vec<usize> = (0..count).filter(|&i| scores[i] > f32::NEG_INFINITY).collect();
        // The two zeros are one.
        order.sort_by(|&a, &b| (scores[b] + 0.0).total_cmp(&(scores[a] + 0.0)).then(a.cmp(&b)));
        order.truncate(k);
        order.sort_unstable();
        let index = |i: usize| {
            if candidates { list[i / size] * word(size) + word(i % size) } else { word(i) }
        };
        let mut picks: Vec<u32> = order.iter().map(|&i| index(i)).collect();
        let n = word(picks.len());
        picks.resize(k, u32::MAX);
        vec![Want::Bytes(bytes(&picks)), Want::Bytes(bytes(&[n]))]
    };
    let case = Case::new("topk", format!("{k} of {count}, of candidates: {candidates}"), rows)
        .row("scores", &scores)
        .row("candidates", &blocks.repeat(rows))
        .out("picks", k * 4)
        .out("n_picks", 4)
        .launch(move |at, rows| {
            let args = TopkArgs {
                scores: at.of("scores"),
                candidates: if candidates { at.of("candidates") } else { 0 },
                picks: at.of("picks"),
                n_picks: at.of("n_picks"),
                count: word(count),
                scores_stride: word(count),
                k: word(k),
                picks_stride: word(k),
                candidates_stride: word(count / size),
                candidate_size: word(size),
            };
            (args.bytes(), by_row(rows))
        })
        .want(want)
        // Row 2 is struck; 7 of it could be chosen before.
        .strike(
            "scores",
            7,
            f32::NAN,
            Rule::Check("picks", |_, after| {
                !after.as_chunks::<4>().0.contains(&7u32.to_ne_bytes())
            }),
        )
        .fault("TOPK_MISSING_BARRIER", Gate::Rows);
    // Where all are chosen no tie decides.
    if k < count { case.fault("TOPK_TIES_HIGH", Gate::Reference) } else { case }
}
