use super::*;

const PLAIN: Params = Params { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 1 };

fn pick(logits: &[f32], params: &Params, position: u64) -> Option<u32> {
    choose(logits, params, position, &mut Scratch::default())
}

/// A row of `n` logits about 3 apart at most, with ties.
fn row(n: usize, seed: u64) -> Vec<f32> {
    (0..n as u32).map(|id| (rng::uniform(seed, 9, id) * 48.0).floor() / 16.0).collect()
}

/// The definition in words: probabilities in f64, each filter after the other, renormalised.
fn distribution(logits: &[f32], params: &Params) -> Vec<f64> {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let weight = |x: f32| ((f64::from(x) - max) / f64::from(params.temperature)).exp();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    if params.top_k > 0 {
        order.truncate(params.top_k as usize);
    }
    if params.top_p < 1.0 {
        let total: f64 = order.iter().map(|&id| weight(logits[id])).sum();
        let mut sum = 0.0;
        let reached = order.iter().position(|&id| {
            sum += weight(logits[id]);
            sum >= f64::from(params.top_p) * total
        });
        order.truncate(reached.unwrap_or(order.len()) + 1);
    }
    let most = weight(logits[order[0]]);
    order.retain(|&id| weight(logits[id]) >= f64::from(params.min_p) * most);
    let total: f64 = order.iter().map(|&id| weight(logits[id])).sum();
    let mut p = vec![0.0; logits.len()];
    order.iter().for_each(|&id| p[id] = weight(logits[id]) / total);
    p
}

/// Every token scored, nothing skipped.
fn slow_draw(logits: &[f32], params: &Params, position: u64) -> u32 {
    let kept = distribution(logits, params);
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let score = |id: usize| {
        (logits[id] - max) / params.temperature
            + rng::gumbel(rng::uniform(params.seed, position, id as u32))
    };
    let ids = (0..logits.len()).filter(|&id| kept[id] > 0.0);
    ids.min_by(|&a, &b| score(b).total_cmp(&score(a)).then(a.cmp(&b))).unwrap() as u32
}

fn variants() -> Vec<Params> {
    let mut all = Vec::new();
    for temperature in [0.5, 1.0, 1.7] {
        for top_k in [0, 1, 5, 40] {
            for top_p in [1.0, 0.9, 0.35, 0.0] {
                for min_p in [0.0, 0.2, 1.0] {
                    all.push(Params { temperature, top_k, top_p, min_p, seed: 3 });
                }
            }
        }
    }
    all
}

#[test]
fn a_row_with_a_nan_or_an_infinity_has_no_choice() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, 5, 8] {
            let mut logits = row(9, 1);
            logits[at] = bad;
            assert_eq!(pick(&logits, &PLAIN, 0), None);
            assert_eq!(pick(&logits, &Params { temperature: 0.0, ..PLAIN }, 0), None);
        }
    }
    assert_eq!(pick(&[], &PLAIN, 0), None);
}

#[test]
fn greedy_takes_the_largest_and_the_lowest_of_equals() {
    let greedy = Params { temperature: 0.0, top_k: 1, ..PLAIN };
    assert_eq!(pick(&[1.0, 3.0, 2.0, 3.0], &greedy, 7), Some(1));
    assert_eq!(pick(&[-0.0, 0.0, -1.0], &greedy, 7), Some(0));
    assert_eq!(pick(&[f32::MIN; 3], &greedy, 7), Some(0));
}

#[test]
fn the_fast_draw_is_the_slow_one() {
    for n in [1, 3, 4, 50, 257] {
        for params in variants() {
            for seed in 0..4 {
                let logits = row(n, seed);
                for position in [0, 1, 77, 1 << 33] {
                    let params = Params { seed, ..params };
                    let want = slow_draw(&logits, &params, position);
                    assert_eq!(pick(&logits, &params, position), Some(want), "{n} {params:?}");
                }
            }
        }
    }
}

#[test]
fn steep_and_flat_rows_draw_as_the_slow_way() {
    let steep: Vec<f32> = (0..100).map(|i| -(i as f32) * 0.8).collect();
    let flat = vec![0.25; 5000];
    let far: Vec<f32> = (0..64).map(|i| if i == 9 { 3e38 } else { -3e38 }).collect();
    for logits in [steep, flat, far] {
        for position in 0..300 {
            let want = slow_draw(&logits, &PLAIN, position);
            assert_eq!(pick(&logits, &PLAIN, position), Some(want));
        }
    }
}

#[test]
fn equal_logits_are_kept_from_the_lowest_id() {
    let logits = [1.0, 2.0, 2.0, 2.0, -0.0, 0.0];
    for position in 0..200 {
        let two = pick(&logits, &Params { top_k: 2, ..PLAIN }, position).unwrap();
        assert!((1..3).contains(&two));
        let five = pick(&logits, &Params { top_k: 5, temperature: 100.0, ..PLAIN }, position);
        assert_ne!(five, Some(5));
        let third = pick(&logits, &Params { top_p: 0.25, ..PLAIN }, position);
        assert_eq!(third, Some(1));
    }
}

/// What a chi-square of this many degrees of freedom passes less than once in 10,000 times.
fn chi_limit(freedom: f64) -> f64 {
    freedom + 5.0 * (2.0 * freedom).sqrt() + 10.0
}

#[test]
fn draws_follow_the_distribution() {
    let logits = row(12, 8);
    let draws = 20_000u64;
    for params in variants() {
        let p = distribution(&logits, &params);
        let mut seen = vec![0u64; logits.len()];
        for seed in 0..draws {
            let token = pick(&logits, &Params { seed, ..params }, seed % 5).unwrap();
            seen[token as usize] += 1;
        }
        let (mut chi, mut cells) = (0.0, 0.0f64);
        for (&n, &p) in seen.iter().zip(&p) {
            if p == 0.0 {
                assert_eq!(n, 0, "{params:?} drew a token it filters out");
                continue;
            }
            let want = p * draws as f64;
            chi += (n as f64 - want).powi(2) / want;
            cells += 1.0;
        }
        assert!(chi <= chi_limit(cells - 1.0), "{params:?}: chi {chi} of {cells} cells");
    }
}

#[test]
fn another_distribution_fails_the_same_measure() {
    // The draws at temperature 1 against the shares of temperature 1.2.
    let logits = row(12, 8);
    let p = distribution(&logits, &Params { temperature: 1.2, ..PLAIN });
    let mut seen = [0u64; 12];
    for seed in 0..20_000 {
        seen[pick(&logits, &Params { seed, ..PLAIN }, 0).unwrap() as usize] += 1;
    }
    let chi: f64 = seen.iter().zip(p).map(|(&n, p)| (n as f64 - p * 2e4).powi(2) / (p * 2e4)).sum();
    assert!(chi > 2.0 * chi_limit(11.0), "{chi}");
}

#[test]
fn log_probabilities_are_the_rows_own() {
    let logits = row(300, 4);
    let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
    let want = |id: u32| f64::from(logits[id as usize]) - sum.ln();
    let (mut top, mut scratch) = (Vec::new(), Scratch::default());
    let own = log_probs(&logits, 17, 20, &mut top, &mut scratch).unwrap();
    assert!((f64::from(own) - want(17)).abs() < 1e-5);
    assert_eq!(top.len(), 20);
    let mut order: Vec<u32> = (0..300).collect();
    order.sort_by(|&a, &b| want(b).total_cmp(&want(a)).then(a.cmp(&b)));
    for (&(id, p), want_id) in top.iter().zip(order) {
        assert_eq!(id, want_id);
        assert!((f64::from(p) - want(id)).abs() < 1e-5);
    }
    assert_eq!(log_probs(&logits, 300, 0, &mut top, &mut scratch), None);
    assert_eq!(log_probs(&[0.0], 0, 20, &mut top, &mut scratch), Some(0.0));
    assert_eq!(top, [(0, 0.0)]);
}
