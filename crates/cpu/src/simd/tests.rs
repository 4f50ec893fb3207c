use finback_numerics::{bf16, fp4, fp8, math, rng, rows};

use super::*;

/// Numbers of many sizes, with zeros, subnormals, infinities and NaN at `wild`.
pub(crate) fn numbers(seed: u64, n: usize, wild: bool) -> Vec<f32> {
    let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, -1e-45, f32::MAX];
    (0..n)
        .map(|k| {
            let word = rng::philox([k as u32, 0, 0, 0], [seed as u32, 1]);
            if wild && word[0].is_multiple_of(5) {
                return special[(word[1] % 8) as usize];
            }
            let scale = if wild { 2f32.powi((word[2] % 60) as i32 - 30) } else { 1.0 };
            (rng::unit(word[3]) - 0.5) * scale
        })
        .collect()
}

/// The bits of each lane; every NaN counts as one.
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() }).collect()
}

/// Runs every operation of `Lanes` and `Bits` and the shared formulas on eight lanes.
struct Every<'a>(&'a [f32], &'a [f32]);

impl Kernel for Every<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<f32> {
        let (a, b) = (s.load(self.0), s.load(self.1));
        let (x, y) = (a.bits(), b.bits());
        let w = S::F::from_bits;
        let floats = [
            a + b,
            a - b,
            a * b,
            a / b,
            -a,
            a.fma(b, a),
            a.max(b),
            a.min(b),
            a.abs().sqrt(),
            a.copysign(b),
            w(a.less(b)),
            S::F::select(a.less(b), a, b),
            w(x & y),
            w(x | y),
            w(x ^ y),
            w(x.add(y)),
            w(x.sub(y)),
            w(x.shl::<3>()),
            w(x.shr::<7>()),
            w(x.sar::<9>()),
            w(x.max_signed(y)),
            w(x.min_signed(y)),
            w(s.sar16::<4>(x)),
            w(s.lookup(b"abcdefghijklmnop", x & x.splat(0x0f0f_0f0f))),
            w(s.widen([1, 2, 3, 200, 5, 6, 255, 8])),
            s.splat_halves(&[1.0, 2.0]),
            math::exp(a),
            math::ln(a),
            math::log1p(a),
            math::softplus(a),
            math::sigmoid(a),
            math::silu(a),
            bf16::round(a),
            fp8::round(a),
            fp4::round(a),
        ];
        let mut out = vec![0.0; 8 * floats.len()];
        for (value, out) in floats.into_iter().zip(out.chunks_exact_mut(8)) {
            s.store(out, value);
        }
        for part in s.spread_bytes(x) {
            out.extend([0.0; 8]);
            let at = out.len() - 8;
            s.store(&mut out[at..], part);
        }
        let rows = [a, b, a + b, a - b, a * b, -a, a.max(b), a.min(b)];
        let parts = s.transpose(rows).into_iter().chain(s.every_fourth([a, b, a + b, a * b]));
        for part in parts.chain(s.every_second([a, b])) {
            out.extend([0.0; 8]);
            let at = out.len() - 8;
            s.store(&mut out[at..], part);
        }
        for part in s.e2m1(x) {
            out.extend([0.0; 8]);
            let at = out.len() - 8;
            s.store(&mut out[at..], part);
        }
        out.extend(s.narrow(x & x.splat(255)).map(f32::from));
        out.push(s.tree(a));
        out.push(f32::from_bits(s.max_bits(x & x.splat(0x7fff_ffff))));
        out
    }
}

#[test]
fn every_instruction_set_gives_the_portable_bits() {
    for seed in 0..400 {
        let (a, b) = (numbers(seed, 8, seed % 2 == 0), numbers(seed + 1000, 8, seed % 3 == 0));
        let want = bits(&Isa::PORTABLE.run(Every(&a, &b)));
        for isa in Isa::available() {
            assert_eq!(bits(&isa.run(Every(&a, &b))), want, "{} on {a:?} {b:?}", isa.name());
        }
    }
}

#[test]
fn portable_lanes_are_the_scalar_formulas() {
    let a = numbers(3, 8, true);
    let out = Isa::PORTABLE.run(Every(&a, &a));
    let scalar: Vec<f32> = a.iter().map(|&x| math::exp(x)).collect();
    assert_eq!(bits(&out[26 * 8..27 * 8]), bits(&scalar));
}

/// Copies a row, eight at a time, and finds its largest magnitude.
struct Copy<'a>(&'a [f32], &'a mut [f32]);

impl Kernel for Copy<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        for (from, to) in self.0.chunks(LANES).zip(self.1.chunks_mut(LANES)) {
            s.store_head(to, s.load_head(from));
        }
        max_of(s, self.0)
    }
}

#[test]
fn rows_of_every_length_are_read_and_written_whole() {
    for n in (0..40).chain([64, 100]) {
        let from = numbers(n as u64, n, false);
        let top = from.iter().fold(0.0, |top: f32, x| f32::max(top, x.abs()));
        for isa in Isa::available() {
            let mut to = vec![0.0; n];
            assert_eq!(isa.run(Copy(&from, &mut to)), top);
            assert_eq!(from, to);
        }
    }
    for (row, want) in
        [([1.0, f32::NAN, 3.0], f32::NAN), ([-7.0, 2.0, f32::NEG_INFINITY], f32::INFINITY)]
    {
        let top = Isa::detect().run(Copy(&row, &mut [0.0; 3]));
        assert_eq!(bits(&[top]), bits(&[want]));
    }
}

/// Reads the three kinds of packed rows.
struct ReadRows<'a>([&'a [u8]; 3], usize);

impl Kernel for ReadRows<'_> {
    type Output = [Vec<f32>; 3];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [Vec<f32>; 3] {
        let mut out = [vec![0.0; self.1], vec![0.0; self.1], vec![0.0; self.1]];
        load_window(s, self.0[0], &mut out[0]);
        load_compressed(s, self.0[1], &mut out[1]);
        load_index_key(s, self.0[2], &mut out[2]);
        out
    }
}

#[test]
fn packed_rows_read_as_numerics_reads_them() {
    for (dim, wild) in [(32, false), (96, true), (128, false), (512, true)] {
        let row = numbers(dim as u64, dim, wild);
        let mut window = vec![0; rows::window_bytes(dim)];
        let mut compressed = vec![0; rows::compressed_bytes(dim)];
        let mut key = vec![0; rows::index_key_bytes(dim)];
        rows::store_window(&row, &mut window);
        rows::store_compressed(&row, &mut compressed);
        rows::store_index_key(&row, &mut key);
        let mut want = [vec![0.0; dim], vec![0.0; dim], vec![0.0; dim]];
        rows::load_window(&window, &mut want[0]);
        rows::load_compressed(&compressed, &mut want[1]);
        rows::load_index_key(&key, &mut want[2]);
        for isa in Isa::available() {
            let got = isa.run(ReadRows([&window, &compressed, &key], dim));
            assert_eq!(got.map(|row| bits(&row)), want.clone().map(|row| bits(&row)));
        }
    }
}
