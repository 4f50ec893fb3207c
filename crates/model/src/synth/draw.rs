//! Random bytes of each stored form, fast.
//!
//! A value is one of 4096 quantiles of the normal distribution, picked by 12 random bits. For packed
//! codes the quantiles are encoded once a tensor, so a byte costs a shift and a look-up. Scales vary
//! from block to block by a factor of two each way, so that a wrong scale shows.

use std::io::{self, Write};

use finback_checkpoint::{Dtype, Entry, Sink};
use finback_numerics::{bf16, fp4, fp8, math};

use super::law::Law;
use crate::names::Weight;

const BITS: u32 = 12;
const COUNT: usize = 1 << BITS;
/// Bytes made at a time; whole words of five draws and whole values of every type.
const BUFFER: usize = 5 * 16384;
/// Root mean square of the factors 1/2, 1 and 2.
const JITTER_RMS: f32 = 1.322_875_7;

/// Quantiles of the standard normal distribution, at the middles of 4096 equal shares.
pub(super) struct Quantiles([f32; COUNT]);

impl Quantiles {
    /// By summing the density, with an exponential that has the same bits everywhere.
    pub(super) fn new() -> Self {
        const STEP: f64 = 1.0 / 4096.0;
        const INVERSE_ROOT_TWO_PI: f64 = 0.398_942_280_401_432_7;
        let density = |x: f64| f64::from(math::exp((-0.5 * x * x) as f32)) * INVERSE_ROOT_TWO_PI;
        let mut table = [0.0; COUNT];
        // Upwards from the median; the lower half mirrors the upper.
        let (mut x, mut below) = (0.0, 0.5);
        for i in COUNT / 2..COUNT {
            let wanted = (i as f64 + 0.5) / COUNT as f64;
            loop {
                let share = STEP * density(x + 0.5 * STEP);
                if below + share >= wanted {
                    break;
                }
                (x, below) = (x + STEP, below + share);
            }
            let value = (x + (wanted - below) / density(x)) as f32;
            table[i] = value;
            table[COUNT - 1 - i] = -value;
        }
        Quantiles(table)
    }
}

/// Writes the tensor `entry`: `weight`, whose values follow `law`, or its scale.
pub(super) fn fill(
    quantiles: &Quantiles,
    seed: u64,
    weight: &Weight,
    law: &Law,
    entry: &Entry,
    out: &mut Sink<'_>,
) -> io::Result<()> {
    let q = &quantiles.0;
    let std = law.std / JITTER_RMS;
    let scale = scale_byte(weight.release, std);
    let up = 1.0 / fp8::e8m0(scale);
    let mut bits = Bits::new(seed, &entry.name);
    match entry.dtype {
        Dtype::F8E8M0 => bits.codes(&std::array::from_fn(|i| scale - 1 + (i % 3) as u8), out),
        Dtype::F8E4M3 => bits.codes(&q.map(|x| fp8::encode(x * std * up)), out),
        Dtype::I8 => {
            // Two codes a byte, from six of the twelve bits each.
            let code: [u8; 64] = std::array::from_fn(|i| fp4::encode(q[i * 64 + 32] * std * up));
            bits.codes(&std::array::from_fn(|i| code[i % 64] | code[i / 64] << 4), out)
        }
        Dtype::Bf16 => bits.values(q, law, |x| bf16::encode(x).to_le_bytes(), out),
        _ => bits.values(q, law, f32::to_le_bytes, out),
    }
}

/// The middle scale of a weight: four deviations fill e4m3, three to six fill e2m1.
fn scale_byte(release: Dtype, std: f32) -> u8 {
    match release {
        Dtype::I8 => fp8::pow2_at_least(std / 2.0),
        _ => fp8::pow2_at_least(4.0 * std / fp8::E4M3_MAX),
    }
}

/// A stream of random words (SplitMix64).
struct Bits(u64);

impl Bits {
    fn new(seed: u64, name: &str) -> Self {
        // FNV-1a of the name, so that a tensor's bytes don't depend on the others.
        let name = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let mut bits = Bits(seed);
        Bits(bits.next() ^ name)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// The next five indices into a table of [`COUNT`].
    fn picks(&mut self) -> [usize; 5] {
        let word = self.next();
        std::array::from_fn(|i| (word >> (BITS * i as u32)) as usize % COUNT)
    }

    fn codes(&mut self, table: &[u8; COUNT], out: &mut Sink<'_>) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER.min(out.left().next_multiple_of(5))];
        while out.left() > 0 {
            for five in buffer.as_chunks_mut::<5>().0 {
                *five = self.picks().map(|pick| table[pick]);
            }
            let n = buffer.len().min(out.left());
            out.write_all(&buffer[..n])?;
        }
        Ok(())
    }

    fn values<const N: usize>(
        &mut self,
        q: &[f32; COUNT],
        law: &Law,
        encode: impl Fn(f32) -> [u8; N],
        out: &mut Sink<'_>,
    ) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER.min((out.left() / N).next_multiple_of(5) * N)];
        let mut at = 0;
        while out.left() > 0 {
            for five in buffer.chunks_exact_mut(5 * N) {
                for (value, pick) in five.as_chunks_mut::<N>().0.iter_mut().zip(self.picks()) {
                    *value = encode(law.mean + law.std_at(at) * q[pick]);
                    at += 1;
                }
            }
            let n = buffer.len().min(out.left());
            out.write_all(&buffer[..n])?;
        }
        Ok(())
    }
}
