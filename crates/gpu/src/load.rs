//! Weights to the device: each tensor's bytes once, in pieces, or counted.

use finback_checkpoint::Tensor;
use finback_ops::{Expert, Linear, OpsError, OpsResult};

use crate::memory::Memory;
use crate::products::{Stack, Weight};
use crate::queue::failed;

/// Bytes that are read and copied at a time.
const PIECE: usize = 32 << 20;

/// Called with the bytes done, after every piece.
pub type Progress<'a> = &'a mut dyn FnMut(u64);

/// Places weights in memory, and copies them there where it is a device's.
pub struct Placer<'a> {
    memory: Memory<'a>,
    progress: Progress<'a>,
    done: u64,
    piece: Vec<u8>,
}

impl<'a> Placer<'a> {
    /// Into this memory.
    pub fn new(memory: Memory<'a>, progress: Progress<'a>) -> Self {
        Self { memory, progress, done: 0, piece: Vec::new() }
    }

    /// Bytes counted.
    pub fn counted(&self) -> u64 {
        self.memory.counted()
    }

    /// Values of a small vector.
    pub fn vector(&mut self, values: &[f32]) -> Result<u64, OpsError> {
        let at = self.memory.take(4 * values.len() as u64)?;
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        self.write(at, &bytes)?;
        Ok(at)
    }

    /// A linear's codes and scales.
    pub fn linear(&mut self, linear: &Linear) -> Result<Weight, OpsError> {
        let weight = self.room(linear, 1)?;
        self.copy(&linear.weight, weight.data)?;
        if let Some(scale) = &linear.scale {
            self.copy(scale, weight.scale)?;
        }
        Ok(weight)
    }

    /// One of the three linears of a layer's experts, one expert after another. They are checked to be
    /// alike before.
    pub fn stack(
        &mut self,
        experts: &[Expert],
        of: fn(&Expert) -> &Linear,
    ) -> Result<Stack, OpsError> {
        let Some(first) = experts.first().map(of) else {
            return Ok(Stack { first: Weight::NONE, data_bytes: 0, scale_bytes: 0 });
        };
        let data_bytes = (first.out * first.format.row_bytes(first.inp)) as u64;
        let scale_bytes = first.format.scale_bytes(first.out, first.inp) as u64;
        let stack = Stack { first: self.room(first, experts.len())?, data_bytes, scale_bytes };
        for (linear, e) in experts.iter().map(of).zip(0..) {
            self.copy(&linear.weight, stack.first.data + e * data_bytes)?;
            if let Some(scale) = &linear.scale {
                if matches!(self.memory, Memory::Device(_)) {
                    OpsError::refuse_nan_scales(scale)?;
                }
                self.copy(scale, stack.first.scale + e * scale_bytes)?;
            }
        }
        Ok(stack)
    }

    /// Memory for `count` linears of this shape.
    fn room(&mut self, linear: &Linear, count: usize) -> Result<Weight, OpsError> {
        let Linear { format, out, inp, .. } = *linear;
        let data = self.memory.take((count * out * format.row_bytes(inp)) as u64)?;
        let scale = match count * format.scale_bytes(out, inp) {
            0 => 0,
            bytes => self.memory.take(bytes as u64)?,
        };
        Ok(Weight { format, out, inp, data, scale })
    }

    /// Reads a tensor from its file, so that the map's pages stay out of memory.
    fn copy(&mut self, tensor: &Tensor, to: u64) -> OpsResult {
        if matches!(self.memory, Memory::Counted(_)) {
            return Ok(());
        }
        let size = tensor.bytes().len();
        let mut piece = std::mem::take(&mut self.piece);
        for at in (0..size).step_by(PIECE) {
            piece.resize(PIECE.min(size - at), 0);
            tensor.read_at(at, &mut piece)?;
            self.write(to + at as u64, &piece)?;
        }
        self.piece = piece;
        Ok(())
    }

    fn write(&mut self, to: u64, bytes: &[u8]) -> OpsResult {
        let Memory::Device(device) = &mut self.memory else { return Ok(()) };
        let written = if bytes.is_empty() { Ok(()) } else { device.write(to, bytes) };
        written.map_err(|error| failed(device.name(), "the copy of the weights", &error))?;
        self.done += bytes.len() as u64;
        (self.progress)(self.done);
        Ok(())
    }
}
