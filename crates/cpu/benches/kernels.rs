//! The linear kernels and the team against this machine's limits, measured in the same run.
//!
//! `cargo bench -p finback-cpu --bench kernels [-- --threads N] [--isa NAME] [--rows N]`

mod machine;

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use finback_cpu::linear::{Format, Input, Linear, Prepared, Rows, Task, Weight, WeightError};
use finback_cpu::simd::Isa;
use finback_cpu::team::{Team, TeamError};
use finback_numerics::rng::philox;
use machine::{LARGE, Machine};

/// Inputs and outputs of a weight: the release's hidden width.
const WIDTH: usize = 5120;

/// Bytes of weights that each thread keeps in its second-level cache.
const CACHED: usize = 384 * 1024;

const FORMATS: [(&str, Format); 4] = [
    ("fp8", Format::Fp8 { block: 32 }),
    ("fp4", Format::Fp4),
    ("bf16", Format::Bf16),
    ("f32", Format::F32),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut machine = Machine::from_args()?;
    let prompt = machine::option("--rows").map_or(Ok(512), |n| n.parse())?;
    let read = machine.read_bandwidth()?;
    let (isa, threads) = (machine.isa(), machine.threads());
    let mut bench = Bench { isa, linear: Linear::new(isa, threads), team: Team::new(threads)? };
    let (half, most) = bench.barrier()?;
    println!("fork and join         {half} ns, {most} ns at p99");
    println!("read bandwidth        {:6.1} GB/s over {} MB", read / 1e9, LARGE >> 20);
    println!();
    println!("one row x {WIDTH} inputs, GB/s of weight bytes");
    println!(
        "           memory  of bandwidth   cache: the instructions' limit   memory of the limit"
    );
    for (name, format) in FORMATS {
        // Next to what it is compared with: a neighbour's use of the memory comes and goes.
        let read = machine.read_bandwidth()?;
        let memory = bench.memory_rate(format, 1)?;
        let cached = bench.cache_rate(format)?;
        println!(
            "{name:<8} {:8.1} {:12.0}% {:32.1} {:20.0}%",
            memory / 1e9,
            100.0 * memory / read,
            cached / 1e9,
            100.0 * memory / cached.min(read),
        );
    }
    println!();
    println!("rounds of 6 and 16 rows, GB/s of weight bytes");
    for (name, format) in FORMATS {
        let rates = [bench.memory_rate(format, 6)?, bench.memory_rate(format, 16)?];
        println!("{name:<8} {:8.1} {:8.1}", rates[0] / 1e9, rates[1] / 1e9);
    }
    println!();
    let reference = bench.gemm_rate(prompt);
    println!("prompt of {prompt} rows x {WIDTH} x {WIDTH}, GFLOP/s");
    println!("gemm crate in f32  {:8.1}", reference / 1e9);
    for (name, format) in FORMATS {
        let ours = bench.prompt_rate(format, prompt)?;
        println!("{name:<18} {:8.1} {:6.0}%", ours / 1e9, 100.0 * ours / reference);
    }
    Ok(())
}

/// Matrices of one shape.
struct Weights {
    format: Format,
    out: usize,
    data: Vec<Vec<u8>>,
    scale: Vec<u8>,
}

impl Weights {
    fn new(format: Format, out: usize, count: usize) -> Weights {
        let bytes = out * format.row_bytes(WIDTH);
        let data = (0..count).map(|i| weight_bytes(bytes, i as u32, format)).collect();
        Weights { format, out, data, scale: vec![120; format.scale_bytes(out, WIDTH)] }
    }

    fn views(&self) -> Result<Vec<Weight<'_>>, WeightError> {
        let view = |data| Weight::new(self.format, data, &self.scale, self.out, WIDTH);
        self.data.iter().map(|data| view(data)).collect()
    }

    fn bytes(&self) -> usize {
        self.data.iter().map(Vec::len).sum::<usize>() + self.data.len() * self.scale.len()
    }
}

/// Random codes. FP8 codes are never subnormal, as almost none of a trained weight is: some CPUs
/// multiply subnormals slowly.
fn weight_bytes(n: usize, seed: u32, format: Format) -> Vec<u8> {
    let words: Vec<u32> = (0..16_384)
        .flat_map(|counter| philox([counter, 0, 0, 0], [seed, 0]))
        .map(|word| match format {
            Format::Fp8 { .. } => word & 0xb7b7_b7b7 | 0x1010_1010,
            Format::Fp4 => word,
            Format::Bf16 | Format::F16 => word & 0x807f_807f | 0x3f00_3f00,
            Format::F32 => word & 0x807f_ffff | 0x3f00_0000,
        })
        .collect();
    words.iter().cycle().flat_map(|word| word.to_le_bytes()).take(n).collect()
}

fn activations(rows: usize) -> Vec<f32> {
    (0..rows * WIDTH).map(|i| (i % 1009) as f32 / 500.0 - 1.0).collect()
}

/// The fastest of several runs after one that is discarded: the others met a neighbour.
fn fastest<E>(runs: usize, mut body: impl FnMut() -> Result<(), E>) -> Result<Duration, E> {
    let mut best = Duration::MAX;
    for run in 0..=runs {
        let began = Instant::now();
        body()?;
        if run > 0 {
            best = best.min(began.elapsed());
        }
    }
    Ok(best)
}

struct Bench {
    isa: Isa,
    linear: Linear,
    team: Team,
}

impl Bench {
    /// Nanoseconds of a fork that every worker comes to, and its join: half of them, and all but one
    /// in a hundred.
    fn barrier(&mut self) -> Result<(u128, u128), TeamError> {
        let mut times = Vec::new();
        for _ in 0..20_000 {
            let (came, threads) = (AtomicUsize::new(0), self.team.threads());
            let began = Instant::now();
            self.team.each(threads, |_, _| {
                came.fetch_add(1, Ordering::Relaxed);
                while came.load(Ordering::Relaxed) < threads {
                    std::hint::spin_loop();
                }
            })?;
            times.push(began.elapsed().as_nanos());
        }
        times.sort_unstable();
        Ok((times[times.len() / 2], times[times.len() * 99 / 100]))
    }

    /// Weight bytes a second over more weights than any cache holds.
    fn memory_rate(
        &mut self,
        format: Format,
        rows: usize,
    ) -> Result<f64, Box<dyn std::error::Error>> {
        let bytes = WIDTH * format.row_bytes(WIDTH);
        let weights = Weights::new(format, WIDTH, LARGE.div_ceil(bytes));
        let time = self.pass(&weights, rows, if rows == 1 { 5 } else { 2 })?;
        Ok(weights.bytes() as f64 / time.as_secs_f64())
    }

    /// Weight bytes a second from the caches: what the instructions allow.
    fn cache_rate(&mut self, format: Format) -> Result<f64, Box<dyn std::error::Error>> {
        let out = self.team.threads() * CACHED / format.row_bytes(WIDTH);
        let weights = Weights::new(format, out.next_multiple_of(32), 1);
        let time = self.pass(&weights, 1, 20_000)?;
        Ok(weights.bytes() as f64 / time.as_secs_f64())
    }

    /// Operations a second over a prompt.
    fn prompt_rate(
        &mut self,
        format: Format,
        rows: usize,
    ) -> Result<f64, Box<dyn std::error::Error>> {
        let time = self.pass(&Weights::new(format, WIDTH, 1), rows, 4)?;
        Ok((2 * rows * WIDTH * WIDTH) as f64 / time.as_secs_f64())
    }

    /// Time of all `weights` over `rows` rows.
    fn pass(
        &mut self,
        weights: &Weights,
        rows: usize,
        runs: usize,
    ) -> Result<Duration, Box<dyn std::error::Error>> {
        let mut prepared = Prepared::default();
        let x = activations(rows);
        let input = Input { x: &x, stride: WIDTH, rows, inp: WIDTH, round: true };
        prepared.fill(self.isa, &mut self.team, &input, weights.format)?;
        let mut out = vec![0.0; rows * weights.out];
        let views = weights.views()?;
        let time = fastest(runs, || {
            for &weight in &views {
                let (x, rows) = (&prepared, Rows::Range { first: 0, count: rows });
                let (out, stride) = (&mut out[..], weights.out);
                let task = Task { weight, x, rows, out, stride, round: true };
                self.linear.run(&mut self.team, &mut [task])?;
            }
            black_box(&mut out);
            Ok::<(), TeamError>(())
        })?;
        Ok(time)
    }

    /// The same product by the gemm crate's f32 part, on as many threads.
    fn gemm_rate(&self, rows: usize) -> f64 {
        let (x, w) = (activations(rows), vec![0.5f32; WIDTH * WIDTH]);
        let mut out = vec![0.0f32; rows * WIDTH];
        let time = fastest(4, || {
            // SAFETY: all are row-major and WIDTH wide. It wants columns: w times x transposed, whose
            // columns are the rows of the product.
            #[allow(unsafe_code)]
            unsafe {
                gemm_f32::gemm::f32::get_gemm_fn()(
                    WIDTH,
                    rows,
                    WIDTH,
                    out.as_mut_ptr(),
                    WIDTH as isize,
                    1,
                    false,
                    w.as_ptr(),
                    1,
                    WIDTH as isize,
                    x.as_ptr(),
                    WIDTH as isize,
                    1,
                    0.0,
                    1.0,
                    false,
                    false,
                    false,
                    gemm_common::Parallelism::Rayon(self.team.threads()),
                );
            }
            black_box(&mut out);
            Ok::<(), std::convert::Infallible>(())
        });
        let Ok(time) = time;
        (2 * rows * WIDTH * WIDTH) as f64 / time.as_secs_f64()
    }
}
