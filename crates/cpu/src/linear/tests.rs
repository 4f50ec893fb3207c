use finback_numerics::{bf16, fp4, fp8, quant, rng};

use super::*;

/// A weight's bytes, and what they stand for.
struct Matrix {
    format: Format,
    data: Vec<u8>,
    scale: Vec<u8>,
    out: usize,
    inp: usize,
}

fn word(seed: u64, at: usize) -> u32 {
    rng::philox([at as u32 / 4, 1, 0, 0], [seed as u32, 5])[at % 4]
}

impl Matrix {
    /// Every code appears; scales spread over `scales`.
    fn new(format: Format, out: usize, inp: usize, scales: std::ops::Range<u32>) -> Matrix {
        let seed = (out * 1000 + inp) as u64;
        let scale_bytes = format.scale_bytes(out, inp);
        let scale = |i| (scales.start + word(seed + 1, i) % scales.len() as u32) as u8;
        let data = match format {
            Format::Fp8 { .. } => (0..out * inp).map(|i| e4m3_byte(word(seed, i))).collect(),
            Format::Fp4 => (0..out * inp / 2).map(|i| word(seed, i) as u8).collect(),
            Format::Bf16 => bytes(out * inp, |i| bf16::encode(normal(seed, i)).to_le_bytes()),
            Format::F16 => bytes(out * inp, |i| finite_f16(word(seed, i)).to_le_bytes()),
            Format::F32 => bytes(out * inp, |i| normal(seed, i).to_le_bytes()),
        };
        Matrix { format, data, scale: (0..scale_bytes).map(scale).collect(), out, inp }
    }

    fn view(&self) -> Weight<'_> {
        Weight::new(self.format, &self.data, &self.scale, self.out, self.inp).unwrap()
    }

    /// Element (n, k) by definition.
    fn value(&self, n: usize, k: usize) -> f64 {
        let at = n * self.inp + k;
        let half = || u16::from_le_bytes([self.data[2 * at], self.data[2 * at + 1]]);
        let power = |byte: u8| 2f64.powi(byte as i32 - 127);
        match self.format {
            Format::Fp8 { block } => {
                let scale = self.scale[n / block * self.inp.div_ceil(block) + k / block];
                fp8::decode(self.data[at]) as f64 * power(scale)
            }
            Format::Fp4 => {
                let code = self.data[at / 2] >> (4 * (at % 2));
                fp4::decode(code) as f64 * power(self.scale[n * (self.inp / 32) + k / 32])
            }
            Format::Bf16 => bf16::lift(half()) as f64,
            Format::F16 => bf16::lift_f16(half()) as f64,
            Format::F32 => {
                f32::from_le_bytes(self.data[4 * at..4 * at + 4].try_into().unwrap()) as f64
            }
        }
    }
}

fn bytes<const N: usize>(n: usize, f: impl Fn(usize) -> [u8; N]) -> Vec<u8> {
    (0..n).flat_map(f).collect()
}

/// Any code but the NaNs.
fn e4m3_byte(word: u32) -> u8 {
    let byte = word as u8;
    if byte & 0x7f == 0x7f { byte & 0x80 } else { byte }
}

fn finite_f16(word: u32) -> u16 {
    let half = word as u16;
    if half & 0x7c00 == 0x7c00 { half & 0x83ff } else { half }
}

fn normal(seed: u64, at: usize) -> f32 {
    (rng::unit(word(seed, at)) - 0.5) * 2f32.powi((word(seed + 9, at) % 12) as i32 - 6)
}

fn activations(rows: usize, inp: usize) -> Vec<f32> {
    (0..rows * inp).map(|i| normal(77, i) * 2f32.powi((i / inp % 40) as i32 - 20)).collect()
}

/// All rows at once, or the listed ones.
fn product(
    isa: Isa,
    threads: usize,
    m: &Matrix,
    x: &[f32],
    round: bool,
    rows: Rows<'_>,
) -> Vec<f32> {
    let mut team = Team::new(threads).unwrap();
    let mut linear = Linear::new(isa, threads);
    let mut prepared = Prepared::default();
    let input = Input { x, stride: m.inp, rows: x.len() / m.inp, inp: m.inp, round };
    prepared.fill(isa, &mut team, &input, m.format).unwrap();
    // A stride with room between rows, which must stay untouched.
    let stride = m.out + 3;
    let mut out = vec![-7.0; rows.count() * stride];
    let task = Task { weight: m.view(), x: &prepared, rows, out: &mut out, stride, round: false };
    linear.run(&mut team, &mut [task]).unwrap();
    assert!(out.chunks(stride).all(|row| row[m.out..].iter().all(|x| *x == -7.0)));
    out.chunks(stride).flat_map(|row| row[..m.out].to_vec()).collect()
}

fn all(count: usize) -> Rows<'static> {
    Rows::Range { first: 0, count }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

const FORMATS: [Format; 6] = [
    Format::Fp8 { block: 32 },
    Format::Fp8 { block: 128 },
    Format::Fp4,
    Format::Bf16,
    Format::F16,
    Format::F32,
];

/// Widths and heights that leave ends everywhere.
fn shapes(format: Format) -> Vec<(usize, usize)> {
    let mut shapes = vec![(1, 32), (37, 96), (70, 1184), (33, 64)];
    if !format.is_quantised() {
        shapes.extend([(5, 1), (34, 45), (2, 543)]);
    }
    shapes
}

#[test]
fn a_row_has_the_same_bits_among_any_others_on_any_instruction_set() {
    for format in FORMATS {
        for (out, inp) in shapes(format) {
            let m = Matrix::new(format, out, inp, 120..134);
            for round in [false, true] {
                let x = activations(100, inp);
                let want: Vec<Vec<f32>> = x
                    .chunks(inp)
                    .map(|row| product(Isa::PORTABLE, 1, &m, row, round, all(1)))
                    .collect();
                for isa in Isa::available() {
                    for rows in [1, 2, 3, 5, 8, 16, 33, 100] {
                        let got = product(isa, 2, &m, &x[..rows * inp], round, all(rows));
                        for (got, want) in got.chunks(out).zip(&want) {
                            let what = (isa.name(), format, out, inp, rows, round);
                            assert_eq!(bits(got), bits(want), "{what:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_on_every_machine() {
    let mut hashes = Vec::new();
    for format in FORMATS {
        let m = Matrix::new(format, 37, 1184, 120..134);
        let out = product(Isa::detect(), 2, &m, &activations(9, 1184), true, all(9));
        // FNV-1a over the outputs' bits.
        let step = |hash: u32, x: &f32| (hash ^ x.to_bits()).wrapping_mul(0x0100_0193);
        hashes.push(out.iter().fold(0x811c_9dc5, step));
    }
    assert_eq!(
        hashes,
        [0x908d_9ecd, 0xf9ae_36c7, 0x7a6e_88d6, 0x67b7_6d9c, 0x930a_1144, 0x3185_ec7c]
    );
}

#[test]
fn products_are_within_their_bound_of_the_exact_ones() {
    for format in FORMATS {
        for (out, inp) in shapes(format) {
            let m = Matrix::new(format, out, inp, 120..134);
            let x = activations(40, inp);
            let got = product(Isa::detect(), 2, &m, &x, false, all(40));
            check_bound(&m, &x, &got, 0.0);
        }
    }
}

#[test]
fn scales_at_the_ends_of_their_range_count() {
    for format in [Format::Fp8 { block: 32 }, Format::Fp4] {
        for scales in [0..3, 1..255, 170..200, 60..62] {
            let m = Matrix::new(format, 40, 320, scales.clone());
            // Small enough that the largest products stay finite.
            let x: Vec<f32> = activations(3, 320).iter().map(|x| x * 1e-9).collect();
            let got = product(Isa::detect(), 1, &m, &x, false, all(3));
            // Sums that leave the normal range lose up to half a subnormal step each.
            check_bound(&m, &x, &got, 400.0 * 2f64.powi(-149));
        }
    }
}

/// Compares with an f64 product: every output passes `inp / 8` additions in its lane and three
/// in the tree, each off by half a unit of the sum of magnitudes at most.
fn check_bound(m: &Matrix, x: &[f32], got: &[f32], tiny: f64) {
    for (row, got) in x.chunks(m.inp).zip(got.chunks(m.out)) {
        for (n, got) in got.iter().enumerate() {
            let terms = || (0..m.inp).map(|k| m.value(n, k) * row[k] as f64);
            let (exact, size): (f64, f64) = (terms().sum(), terms().map(f64::abs).sum());
            let steps = m.inp as f64 / 8.0 * 1.25 + 6.0;
            let bound = size * steps * 2f64.powi(-24) + tiny;
            let error = (*got as f64 - exact).abs();
            assert!(error <= bound, "{m:?} {n}: {got:e}, not {exact:e} +- {bound:e}", m = m.view());
        }
    }
}

#[test]
fn every_code_multiplies_exactly() {
    // A single one in the row picks one weight: no sum, so no rounding.
    for (format, codes) in [(Format::Fp8 { block: 32 }, 256), (Format::Fp4, 16)] {
        let (out, inp) = (codes, 64);
        let mut m = Matrix::new(format, out, inp, 120..134);
        for n in 0..out {
            for k in 0..inp {
                match format {
                    Format::Fp4 => {
                        let byte = &mut m.data[(n * inp + k) / 2];
                        let shift = 4 * (k % 2);
                        *byte = *byte & !(15 << shift) | (((n + k) % 16) as u8) << shift;
                    }
                    _ => m.data[n * inp + k] = e4m3_byte((n + k) as u32),
                }
            }
        }
        for isa in Isa::available() {
            for k in 0..inp {
                let mut x = vec![0.0; inp];
                x[k] = 1.0;
                let got = product(isa, 1, &m, &x, true, all(1));
                for (n, got) in got.iter().enumerate() {
                    assert_eq!(*got as f64, m.value(n, k), "{format:?} {n} {k} {}", isa.name());
                }
            }
        }
    }
}

#[test]
fn release_inputs_are_rounded_as_the_quantiser_rounds() {
    for format in [Format::Fp8 { block: 32 }, Format::Fp4, Format::Bf16] {
        let m = Matrix::new(format, 20, 160, 120..134);
        let x = activations(5, 160);
        let mut rounded = x.clone();
        if format.is_quantised() {
            let (mut codes, mut scales) = (vec![0; x.len()], vec![0; x.len() / 32]);
            quant::fp8_block32(&x, &mut codes, &mut scales);
            quant::fp8_block32_lift(&codes, &scales, &mut rounded);
        }
        let got = product(Isa::detect(), 1, &m, &x, true, all(5));
        let want = product(Isa::detect(), 1, &m, &rounded, false, all(5));
        for ((got, want), x) in got.chunks(20).zip(want.chunks(20)).zip(x.chunks(160)) {
            // Rounding may carry a row into the next power of two: the sums are the same.
            assert_eq!(bits(got), bits(want), "{format:?} {x:?}");
        }
    }
}

#[test]
fn gathered_rows_and_several_tasks_run_in_one_fork() {
    let threads = 3;
    let mut team = Team::new(threads).unwrap();
    let isa = Isa::detect();
    let mut linear = Linear::new(isa, threads);
    let (a, b) =
        (Matrix::new(Format::Fp4, 50, 96, 120..134), Matrix::new(Format::Fp4, 33, 96, 120..134));
    let x = activations(12, 96);
    let want = |m: &Matrix, r: usize| product(isa, 1, m, &x[r * 96..(r + 1) * 96], true, all(1));
    let mut prepared = Prepared::with_capacity(12, 96);
    let input = Input { x: &x, stride: 96, rows: 12, inp: 96, round: true };
    prepared.fill(isa, &mut team, &input, Format::Fp4).unwrap();
    let list = [7, 0, 11, 3, 3];
    let (mut first, mut second, mut none) = (vec![0.0; 250], vec![0.0; 99], vec![]);
    let task =
        |weight, rows, out, stride| Task { weight, x: &prepared, rows, out, stride, round: true };
    let mut tasks = [
        task(a.view(), Rows::List(&list), &mut first[..], 50),
        task(a.view(), Rows::List(&[]), &mut none[..], 50),
        task(b.view(), Rows::Range { first: 2, count: 3 }, &mut second[..], 33),
    ];
    linear.run(&mut team, &mut tasks).unwrap();
    let rounded = |values: Vec<f32>| -> Vec<f32> { values.into_iter().map(bf16::round).collect() };
    for (i, r) in list.into_iter().enumerate() {
        assert_eq!(first[i * 50..(i + 1) * 50], rounded(want(&a, r as usize)));
    }
    for i in 0..3 {
        assert_eq!(second[i * 33..(i + 1) * 33], rounded(want(&b, 2 + i)));
    }
}

#[test]
fn a_row_with_a_nan_or_infinity_spoils_itself_only() {
    for format in FORMATS {
        let m = Matrix::new(format, 9, 64, 120..134);
        let mut x = activations(20, 64);
        let clean = product(Isa::detect(), 1, &m, &x, true, all(20));
        x[64 + 5] = f32::NAN;
        x[18 * 64] = f32::INFINITY;
        for rows in [3, 20] {
            let got = product(Isa::detect(), 1, &m, &x[..rows * 64], true, all(rows));
            for r in 0..rows {
                let row = &got[r * 9..(r + 1) * 9];
                if r == 1 || r == 18 {
                    assert!(row.iter().all(|y| !y.is_finite()), "{format:?} {r}: {row:?}");
                } else {
                    assert_eq!(row, &clean[r * 9..(r + 1) * 9]);
                }
            }
        }
    }
}

#[test]
fn part_of_a_weight_gives_its_rows() {
    for format in FORMATS {
        let m = Matrix::new(format, 300, 128, 120..134);
        let x = activations(2, 128);
        let whole = product(Isa::detect(), 1, &m, &x, false, all(2));
        let part = m.view().part(128..290);
        let cut = Matrix {
            data: part.data().to_vec(),
            scale: part.scale().to_vec(),
            out: part.out(),
            ..Matrix::new(format, 1, 128, 1..2)
        };
        let got = product(Isa::detect(), 1, &cut, &x, false, all(2));
        for r in 0..2 {
            assert_eq!(got[r * 162..(r + 1) * 162], whole[r * 300 + 128..r * 300 + 290]);
        }
    }
}

#[test]
fn wrong_sizes_are_refused_in_words() {
    let error = |format, data, scale, out, inp| {
        Weight::new(format, &vec![0; data], &vec![0; scale], out, inp).unwrap_err().to_string()
    };
    let fp8 = Format::Fp8 { block: 32 };
    assert_eq!(
        error(Format::Fp8 { block: 48 }, 0, 0, 0, 0),
        "FP8 scale block of 48: a multiple of 32 is needed"
    );
    assert_eq!(
        error(Format::Fp4, 0, 0, 2, 40),
        "Fp4 rows of 40 inputs: a multiple of 32 is needed"
    );
    assert_eq!(
        error(fp8, 63, 2, 2, 32),
        "63 weight bytes for 2 x 32 Fp8 { block: 32 }, 64 are needed"
    );
    assert_eq!(
        error(fp8, 33 * 32, 1, 33, 32),
        "1 scale bytes for 33 x 32 Fp8 { block: 32 }, 2 are needed"
    );
    assert!(Weight::new(Format::F32, &[0; 12], &[], 1, 3).is_ok());
}
