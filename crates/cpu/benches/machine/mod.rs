//! The machine a benchmark runs on, and its limits as measured in the run.

use std::hint::black_box;
use std::time::{Duration, Instant};

use finback_cpu::simd::{Isa, Kernel, Simd};
use finback_cpu::team::{Team, TeamError};
use finback_numerics::lanes::Bits;

/// Bytes that a bandwidth measurement passes over: beyond any last-level cache.
pub const LARGE: usize = 1 << 30;

/// The value that follows an argument.
pub fn option(name: &str) -> Option<String> {
    let args: Vec<String> = std::env::args().collect();
    let at = args.iter().position(|arg| arg == name)?;
    args.get(at + 1).cloned()
}

/// Threads and instruction set.
pub struct Machine {
    isa: Isa,
    team: Team,
}

impl Machine {
    /// From `--threads N` and `--isa NAME`; all cores and the best set without.
    pub fn from_args() -> Result<Self, Box<dyn std::error::Error>> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = option("--threads").map_or(Ok(cores), |n| n.parse())?;
        let isa = match option("--isa") {
            None => Isa::detect(),
            Some(name) => Isa::named(&name).ok_or_else(|| {
                let here: Vec<_> = Isa::available().map(Isa::name).collect();
                format!("--isa {name}: this CPU has {}", here.join(", "))
            })?,
        };
        println!("{threads} threads, {}", isa.name());
        Ok(Self { isa, team: Team::new(threads)? })
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The threads.
    pub fn threads(&self) -> usize {
        self.team.threads()
    }

    /// Bytes a second that all threads read from memory, the best of several passes.
    pub fn read_bandwidth(&mut self) -> Result<f64, TeamError> {
        let buffer = vec![1.0f32; LARGE / 4];
        let (isa, threads) = (self.isa, self.team.threads());
        let part = buffer.len() / threads;
        let mut best = Duration::MAX;
        for _ in 0..6 {
            let began = Instant::now();
            self.team.each(threads, |_, i| {
                black_box(isa.run(ReadAll(&buffer[i * part..][..part])));
            })?;
            best = best.min(began.elapsed());
        }
        Ok(LARGE as f64 / best.as_secs_f64())
    }
}

/// Reads a buffer in registers.
struct ReadAll<'a>(&'a [f32]);

impl Kernel for ReadAll<'_> {
    type Output = u32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> u32 {
        use finback_numerics::lanes::Lanes;
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
