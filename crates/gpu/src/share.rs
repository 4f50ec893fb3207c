//! What one of several devices has of a model.
//!
//! Weights are shared out by their outputs and a sum is never cut, so every value has the bits that one
//! device gives it: a device has some heads of attention with their groups of the output projection, some
//! channels of every expert, and some outputs of what follows each. All else is whole on each.

use std::collections::HashMap;
use std::ops::Range;

use finback_checkpoint::Tensor;
use finback_kernels::device::Device;
use finback_kernels::meeting::Seat;
use finback_kernels::tiles::TILE_OUTPUTS;
use finback_ops::{Dims, Expert, Format, LayerSpec, Linear, ModelSpec, OpsError, OpsResult};

use crate::linear::side;

/// Inputs that are rounded together, so that a device's hidden channels are whole blocks.
const BLOCK: usize = 32;

/// A device's place among those that share a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Which it is, from 0.
    pub rank: usize,
    /// How many there are.
    pub count: usize,
}

/// The scales of all outputs, by the name of a weight of which a device has some: what is done with a part
/// may depend on the whole alone.
pub type Wholes = HashMap<String, Tensor>;

/// The sizes of a device's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own {
    /// Heads of attention.
    pub heads: usize,
    /// Groups of the output projection.
    pub groups: usize,
    /// Hidden channels of an expert.
    pub inter: usize,
    /// Channels of a sublayer's output.
    pub hidden: usize,
}

impl Share {
    /// The device's own.
    pub fn of(device: &dyn Device) -> Self {
        let seat = device.seat();
        let rank = seat.as_ref().map_or(0, |seat| seat.rank);
        Self { rank, count: seat.as_ref().map_or(1, Seat::count) }
    }

    /// Whether the model is shared at all.
    pub fn is_shared(self) -> bool {
        self.count > 1
    }

    /// The sizes of its part.
    pub fn own(self, d: &Dims) -> Own {
        let Self { count, .. } = self;
        Own {
            heads: d.heads / count,
            groups: d.o_groups / count,
            inter: d.inter / count,
            hidden: d.hidden / count,
        }
    }

    /// Holds a model to what can be shared by so many.
    ///
    /// # Errors
    /// The first size that does not divide.
    pub fn check(self, backend: &'static str, spec: &ModelSpec) -> Result<(), OpsError> {
        if !self.is_shared() {
            return Ok(());
        }
        let (d, count) = (&spec.dims, self.count);
        let refuse =
            |reason| Err(OpsError::Unsupported { backend, step: "on several GPUs", reason });
        for (name, size, of) in [
            ("num_attention_heads", d.heads, 1),
            ("o_groups", d.o_groups, 1),
            ("moe_intermediate_size", d.inter, BLOCK),
        ] {
            if !size.is_multiple_of(of * count) {
                return refuse(format!("{name} {size} is not a multiple of {of} x {count} GPUs"));
            }
        }
        for layer in spec.layers.iter().chain(spec.draft_layers()) {
            let (attn, ffn) = (&layer.attn, &layer.ffn);
            let experts = ffn.experts.iter().chain([&ffn.shared]);
            let experts = experts.flat_map(|expert| [&expert.w1, &expert.w3, &expert.w2]);
            for linear in [&attn.wq_b, &attn.wo_a, &attn.wo_b].into_iter().chain(experts) {
                if !self.divides(linear) {
                    let (name, out, of) = (linear.weight.name(), linear.out, unit(linear.format));
                    let reason =
                        format!("{name}: {out} outputs are not a multiple of {of} x {count} GPUs");
                    return refuse(reason);
                }
            }
        }
        Ok(())
    }

    fn divides(self, linear: &Linear) -> bool {
        linear.out.is_multiple_of(unit(linear.format) * self.count)
    }

    /// The model with this device's part of the weights, and with its own heads and groups; and what they
    /// are parts of.
    ///
    /// # Errors
    /// A weight whose shape is not its tensor's.
    pub fn spec(self, spec: &ModelSpec) -> Result<(ModelSpec, Wholes), OpsError> {
        let (mut own, mut wholes) = (spec.clone(), Wholes::new());
        if !self.is_shared() {
            return Ok((own, wholes));
        }
        let Own { heads, groups, .. } = self.own(&spec.dims);
        (own.dims.heads, own.dims.o_groups) = (heads, groups);
        self.cut(&mut own.head, &mut wholes)?;
        for layer in &mut own.layers {
            self.layer(layer, heads, &mut wholes)?;
        }
        if let Some(drafter) = &mut own.drafter {
            self.cut(&mut drafter.main_proj, &mut wholes)?;
            for layer in &mut drafter.layers {
                self.layer(layer, heads, &mut wholes)?;
            }
        }
        Ok((own, wholes))
    }

    fn layer(self, layer: &mut LayerSpec, heads: usize, wholes: &mut Wholes) -> OpsResult {
        let attn = &mut layer.attn;
        for linear in [&mut attn.wq_b, &mut attn.wo_a, &mut attn.wo_b] {
            self.cut(linear, wholes)?;
        }
        attn.sink = attn.sink[self.rank * heads..(self.rank + 1) * heads].to_vec();
        if let Some(engram) = &mut layer.engram {
            self.cut(&mut engram.wkv, wholes)?;
        }
        for expert in layer.ffn.experts.iter_mut().chain([&mut layer.ffn.shared]) {
            let Expert { w1, w2, w3 } = expert;
            for linear in [w1, w2, w3] {
                self.cut(linear, wholes)?;
            }
        }
        Ok(())
    }

    /// Leaves its part of a linear's outputs, or all of them where they do not divide.
    fn cut(self, linear: &mut Linear, wholes: &mut Wholes) -> OpsResult {
        if !self.divides(linear) {
            return Ok(());
        }
        if let Some(scale) = &linear.scale {
            wholes.insert(linear.weight.name().into(), scale.clone());
        }
        let own = linear.out / self.count;
        *linear = outputs(linear, self.rank * own..(self.rank + 1) * own)?;
        Ok(())
    }
}

/// Outputs that stay together: a tile of a rearranged weight, and an FP8 weight's scale tile.
fn unit(format: Format) -> usize {
    match format {
        Format::Fp8 { .. } => side(format).next_multiple_of(TILE_OUTPUTS),
        _ => TILE_OUTPUTS,
    }
}

/// Some outputs of a linear; those of an FP8 weight begin and end at a scale tile.
fn outputs(linear: &Linear, own: Range<usize>) -> Result<Linear, OpsError> {
    let scales = match linear.format {
        Format::Fp8 { block } => own.start / block..own.end.div_ceil(block),
        _ => own.clone(),
    };
    Ok(Linear {
        out: own.len(),
        weight: linear.weight.rows(own)?,
        scale: linear.scale.as_ref().map(|scale| scale.rows(scales)).transpose()?,
        ..*linear
    })
}
