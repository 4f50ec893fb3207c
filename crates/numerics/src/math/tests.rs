use super::*;

/// The distance of `got` from `want` in units of the last place of an f32 near `want`.
fn ulps(got: f32, want: f64) -> f64 {
    if want.is_nan() || got.is_nan() {
        return if want.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    let nearest = want as f32;
    if nearest.is_infinite() || got.is_infinite() {
        // Values a hair below the overflow threshold may round either way.
        let near_limit = want.abs() > f32::MAX as f64 * (1.0 - 1e-6) && want.is_finite();
        return if got == nearest || near_limit { 0.0 } else { f64::INFINITY };
    }
    let exponent = (nearest.abs().to_bits() >> 23).max(1) as i32 - 127;
    (got as f64 - want).abs() / 2f64.powi(exponent - 23)
}

/// The worst error of `f` over a spread of all bit patterns within `low..=high`.
fn worst(f: fn(f32) -> f32, exact: fn(f64) -> f64, low: f32, high: f32) -> f64 {
    let mut worst = 0.0;
    // A prime step: every exponent and mixed mantissas.
    for bits in (0..=u32::MAX).step_by(4057) {
        let x = f32::from_bits(bits);
        if x >= low && x <= high {
            let error = ulps(f(x), exact(x as f64));
            assert!(error < 4.0, "{x:e}: {:e} instead of {:e}", f(x), exact(x as f64));
            if error > worst {
                worst = error;
            }
        }
    }
    worst
}

const ALL: (f32, f32) = (f32::NEG_INFINITY, f32::INFINITY);

fn exact_softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn exact_sigmoid(x: f64) -> f64 {
    let small = (-x.abs()).exp();
    if x < 0.0 { small / (1.0 + small) } else { 1.0 / (1.0 + small) }
}

fn exact_silu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { 0.0 } else { x * exact_sigmoid(x) }
}

#[test]
fn functions_are_within_their_units_of_the_last_place() {
    assert!(worst(exp, f64::exp, ALL.0, ALL.1) <= 1.0);
    assert!(worst(ln, f64::ln, 0.0, ALL.1) <= 1.0);
    assert!(worst(log1p, f64::ln_1p, -1.0, ALL.1) <= 2.0);
    assert!(worst(softplus, exact_softplus, ALL.0, ALL.1) <= 2.5);
    assert!(worst(sigmoid, exact_sigmoid, ALL.0, ALL.1) <= 2.5);
    assert!(worst(silu, exact_silu, ALL.0, ALL.1) <= 3.0);
}

#[test]
fn dense_ranges_are_within_them_as_well() {
    for i in 0..2_000_000 {
        let x = (i as f32 - 1_000_000.0) * 2e-5;
        assert!(ulps(exp(x), (x as f64).exp()) <= 1.0, "exp {x}");
        assert!(ulps(softplus(x), exact_softplus(x as f64)) <= 2.5, "softplus {x}");
        assert!(ulps(sigmoid(x), exact_sigmoid(x as f64)) <= 2.5, "sigmoid {x}");
        let y = x.abs() * 0.2 + 1e-6;
        assert!(ulps(ln(y), (y as f64).ln()) <= 1.0, "ln {y}");
        assert!(ulps(log1p(y - 0.999), ((y - 0.999) as f64).ln_1p()) <= 2.0, "log1p {y}");
    }
}

#[test]
fn limits_and_nans_are_kept() {
    assert_eq!(exp(f32::INFINITY), f32::INFINITY);
    assert_eq!(exp(f32::NEG_INFINITY), 0.0);
    assert_eq!(exp(88.8f32), f32::INFINITY);
    assert_eq!(exp(-103.5f32), f32::from_bits(1));
    assert_eq!(exp(-104.5f32), 0.0);
    assert_eq!(exp(0.0f32), 1.0);
    assert_eq!((ln(0.0f32), ln(-0.0f32)), (f32::NEG_INFINITY, f32::NEG_INFINITY));
    assert_eq!((ln(1.0f32), ln(f32::INFINITY)), (0.0, f32::INFINITY));
    assert!(ln(-1.0f32).is_nan() && ln(f32::NEG_INFINITY).is_nan());
    assert_eq!((log1p(-1.0f32), log1p(f32::INFINITY)), (f32::NEG_INFINITY, f32::INFINITY));
    assert!(log1p(-1.5f32).is_nan());
    assert_eq!((softplus(f32::INFINITY), softplus(f32::NEG_INFINITY)), (f32::INFINITY, 0.0));
    assert_eq!((sigmoid(f32::INFINITY), sigmoid(f32::NEG_INFINITY)), (1.0, 0.0));
    assert_eq!((sigmoid(0.0f32), silu(0.0f32)), (0.5, 0.0));
    for f in [exp, ln, log1p, softplus, sigmoid, silu] as [fn(f32) -> f32; 6] {
        assert!(f(f32::NAN).is_nan());
    }
}
