//! The kernels against this machine's limits, measured in the same run.
//!
//! `cargo bench -p finback-cpu --bench kernels [-- --threads N] [--isa NAME]`

use std::hint::black_box;
use std::time::{Duration, Instant};

use finback_cpu::linear::{Format, Input, Linear, Prepared, Rows, Task, Weight};
use finback_cpu::simd::{Isa, Kernel, Simd};
use finback_cpu::team::Team;
use finback_numerics::lanes::{Bits, Lanes};
use finback_numerics::rng::philox;

/// Inputs and outputs of the bench's weights: the release's hidden width.
const INP: usize = 5120;
const OUT: usize = 5120;

/// Bytes that a bandwidth measurement passes over: beyond any last-level cache.
const LARGE: usize = 1 << 30;

const FORMATS: [(&str, Format); 4] = [
    ("fp8", Format::Fp8 { block: 32 }),
    ("fp4", Format::Fp4),
    ("bf16", Format::Bf16),
    ("f32", Format::F32),
];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).cloned()
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = option("--threads").and_then(|n| n.parse().ok()).unwrap_or(cores);
    let isa = match option("--isa") {
        None => Isa::detect(),
        Some(name) => Isa::named(&name).unwrap_or_else(|| {
            let here: Vec<_> = Isa::available().map(Isa::name).collect();
            eprintln!("--isa {name}: this CPU has {}", here.join(", "));
            std::process::exit(2)
        }),
    };
    let mut bench = match Team::new(threads) {
        Ok(team) => Bench { isa, linear: Linear::new(isa, threads), team },
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(1)
        }
    };
    println!("{threads} threads, {}", isa.name());
    bench.barrier();
    let read = bench.read_bandwidth();
    println!("read bandwidth        {:6.1} GB/s over {} MB", read / 1e9, LARGE >> 20);
    println!();
    println!("one row, {INP} inputs       from memory   share of   instruction   share of");
    println!("weights                         GB/s  bandwidth    limit GB/s       it");
    for (name, format) in FORMATS {
        bench.one_row(name, format, read);
    }
    println!();
    for rows in [6, 16] {
        for (name, format) in FORMATS {
            bench.some_rows(name, format, rows);
        }
    }
    println!();
    bench.prompt(512);
}

struct Bench {
    isa: Isa,
    linear: Linear,
    team: Team,
}

/// Matrices of one shape, filled with harmless random bytes.
struct Weights {
    format: Format,
    out: usize,
    data: Vec<Vec<u8>>,
    scale: Vec<u8>,
}

impl Weights {
    fn new(format: Format, out: usize, count: usize) -> Weights {
        let bytes = out * format.row_bytes(INP);
        let data = (0..count).map(|i| random_bytes(bytes, i as u32, format)).collect();
        Weights { format, out, data, scale: vec![120; format.scale_bytes(out, INP)] }
    }

    fn views(&self) -> impl Iterator<Item = Weight<'_>> {
        self.data.iter().map(|data| {
            // The sizes come from the format itself.
            #[allow(clippy::unwrap_used)]
            Weight::new(self.format, data, &self.scale, self.out, INP).unwrap()
        })
    }
}

/// Bytes whose values are finite in every format.
fn random_bytes(n: usize, seed: u32, format: Format) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(n + 16);
    let mut counter = 0;
    while bytes.len() < n {
        for word in philox([counter, 0, 0, 0], [seed, 0]) {
            let word = match format {
                Format::Fp8 { .. } => word & 0xb7b7_b7b7,
                Format::Fp4 => word,
                Format::Bf16 | Format::F16 => word & 0x807f_807f | 0x3f00_3f00,
                Format::F32 => word & 0x807f_ffff | 0x3f00_0000,
            };
            bytes.extend(word.to_le_bytes());
        }
        // The same bytes again keep the set-up short.
        counter = (counter + 1) % 65_536;
    }
    bytes.truncate(n);
    bytes
}

fn activations(rows: usize) -> Vec<f32> {
    (0..rows * INP).map(|i| (i % 1009) as f32 / 500.0 - 1.0).collect()
}

/// The fastest of several runs after one that is discarded: the others met a neighbour.
fn fastest(runs: usize, mut body: impl FnMut()) -> Duration {
    body();
    let time = |body: &mut dyn FnMut()| {
        let start = Instant::now();
        body();
        start.elapsed()
    };
    (0..runs).map(|_| time(&mut body)).min().unwrap_or_default()
}

/// Reads a buffer in registers.
struct ReadAll<'a>(&'a [f32]);

impl Kernel for ReadAll<'_> {
    type Output = u32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> u32 {
        let mut seen = [s.splat_bits(0); 8];
        for chunk in self.0.chunks_exact(64) {
            for (seen, part) in seen.iter_mut().zip(chunk.chunks_exact(8)) {
                *seen = *seen ^ s.load(part).bits();
            }
        }
        let all = seen.into_iter().fold(s.splat_bits(0), |a, b| a ^ b);
        s.max_bits(all.shr::<1>())
    }
}

impl Bench {
    /// Runs the team; a panic in a worker ends the bench.
    fn team(&mut self, task: impl Fn(usize) + Sync) {
        if let Err(e) = self.team.run(task) {
            panic!("{e}");
        }
    }

    fn barrier(&mut self) {
        let mut times: Vec<Duration> = (0..20_000)
            .map(|_| {
                let start = Instant::now();
                self.team(|_| {});
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        let at = |share: f64| times[(times.len() as f64 * share) as usize].as_nanos();
        println!("fork and join         p50 {} ns, p99 {} ns", at(0.5), at(0.99));
    }

    fn read_bandwidth(&mut self) -> f64 {
        let buffer = vec![1.0f32; LARGE / 4];
        let (isa, threads) = (self.isa, self.team.threads());
        let part = buffer.len() / threads;
        let time = fastest(6, || {
            self.team(|worker| {
                black_box(isa.run(ReadAll(&buffer[worker * part..][..part])));
            });
        });
        LARGE as f64 / time.as_secs_f64()
    }

    /// Time of all `weights` over `rows` prepared rows.
    fn pass(&mut self, weights: &Weights, x: &Prepared, rows: usize, runs: usize) -> Duration {
        let mut out = vec![0.0; rows * weights.out];
        fastest(runs, || {
            for weight in weights.views() {
                let rows = Rows::Range { first: 0, count: rows };
                let (out, stride) = (&mut out[..], weights.out);
                let task = Task { weight, x, rows, out, stride, round: true };
                if let Err(e) = self.linear.run(&mut self.team, &mut [task]) {
                    panic!("{e}");
                }
            }
            black_box(&mut out);
        })
    }

    fn prepare(&mut self, format: Format, rows: usize) -> Prepared {
        let mut prepared = Prepared::default();
        let x = activations(rows);
        let input = Input { x: &x, stride: INP, rows, inp: INP, round: true };
        if let Err(e) = prepared.fill(self.isa, &mut self.team, &input, format) {
            panic!("{e}");
        }
        prepared
    }

    fn one_row(&mut self, name: &str, format: Format, read: f64) {
        let x = self.prepare(format, 1);
        let bytes = OUT * format.row_bytes(INP) + format.scale_bytes(OUT, INP);
        let large = Weights::new(format, OUT, LARGE.div_ceil(bytes));
        let total = (large.data.len() * bytes) as f64;
        let memory = total / self.pass(&large, &x, 1, 5).as_secs_f64();
        // A matrix that stays in the second-level caches shows what the instructions allow.
        let out = (self.team.threads() * 384 * 1024 / format.row_bytes(INP)).next_multiple_of(32);
        let small = Weights::new(format, out, 1);
        let views = std::iter::repeat_n((), 50);
        let mut time = Duration::MAX;
        for () in views {
            time = time.min(self.pass(&small, &x, 1, 5));
        }
        let cached = (out * format.row_bytes(INP)) as f64 / time.as_secs_f64();
        println!(
            "{name:<5} {:5} MB            {:10.1} {:9.0}% {:13.1} {:9.0}%",
            (total / 1e6) as usize,
            memory / 1e9,
            100.0 * memory / read,
            cached / 1e9,
            100.0 * memory / cached.min(read),
        );
    }

    fn some_rows(&mut self, name: &str, format: Format, rows: usize) {
        let x = self.prepare(format, rows);
        let weights = Weights::new(format, OUT, 16);
        let time = self.pass(&weights, &x, rows, 3);
        let bytes = (16 * OUT * format.row_bytes(INP)) as f64;
        let flops = (16 * rows * OUT * INP * 2) as f64;
        println!(
            "{rows:2} rows, {name:<5} {:6.1} GB/s {:8.1} GFLOP/s",
            bytes / time.as_secs_f64() / 1e9,
            flops / time.as_secs_f64() / 1e9
        );
    }

    fn prompt(&mut self, rows: usize) {
        let flops = (rows * OUT * INP * 2) as f64;
        let rate = |time: Duration| flops / time.as_secs_f64() / 1e9;
        let reference = rate(self.gemm(rows));
        println!("prompt of {rows} rows, {OUT} x {INP}");
        println!("gemm crate, f32       {reference:7.1} GFLOP/s");
        for (name, format) in FORMATS {
            let x = self.prepare(format, rows);
            let weights = Weights::new(format, OUT, 1);
            let ours = rate(self.pass(&weights, &x, rows, 4));
            println!(
                "{name:<5}                 {ours:7.1} GFLOP/s {:4.0}%",
                100.0 * ours / reference
            );
        }
    }

    /// The same product by the gemm crate, on as many threads.
    fn gemm(&self, rows: usize) -> Duration {
        let (x, w) = (activations(rows), vec![0.5f32; OUT * INP]);
        let mut out = vec![0.0f32; rows * OUT];
        fastest(4, || {
            // SAFETY: x is rows x INP, w is OUT x INP read as INP x OUT, out is rows x OUT, all
            // row-major.
            #[allow(unsafe_code)]
            unsafe {
                gemm::gemm(
                    rows,
                    OUT,
                    INP,
                    out.as_mut_ptr(),
                    1,
                    OUT as isize,
                    false,
                    x.as_ptr(),
                    1,
                    INP as isize,
                    w.as_ptr(),
                    INP as isize,
                    1,
                    0.0,
                    1.0,
                    false,
                    false,
                    false,
                    gemm::Parallelism::Rayon(self.team.threads()),
                );
            }
            black_box(&mut out);
        })
    }
}
