//! A checkpoint's tensors, checked against the table of [`crate::names`].

use std::collections::HashMap;
use std::path::PathBuf;

use finback_checkpoint::{Checkpoint, Dtype, Tensor};
use finback_numerics::bf16;
use finback_numerics::fp8::E8M0_NAN;
use finback_ops::{Format, Linear};

use crate::config::Config;
use crate::error::LoadResult;
use crate::names::{Form, Weight, parts, scale_name, stored_shape};

/// Every weight of a model, found, with the dtype and shape it should have. Reads no weight's bytes.
#[derive(Debug)]
pub struct Weights {
    found: HashMap<String, Found>,
    dir: PathBuf,
}

#[derive(Debug)]
struct Found {
    weight: Tensor,
    scale: Option<Tensor>,
    block: usize,
}

impl Weights {
    /// Finds every weight that `config` asks for.
    ///
    /// # Errors
    /// A tensor that is missing or has another dtype or shape; a scale that is missing, misshapen,
    /// or beside an unscaled weight.
    pub fn find(config: &Config, ck: &Checkpoint) -> LoadResult<Weights> {
        let mut found = HashMap::new();
        // One part after the other: the first weight that is missing ends it.
        for weight in parts(config).flatten() {
            if !weight.required && ck.get(&weight.name).is_none() {
                continue;
            }
            let pair = find(&weight, ck, config.weight_block_size)?;
            found.insert(weight.name, pair);
        }
        Ok(Weights { found, dir: ck.dir().to_owned() })
    }

    /// The matrix of this name with its scales, in its stored bytes.
    ///
    /// # Errors
    /// The table has no such matrix.
    pub fn linear(&self, name: &str) -> LoadResult<Linear> {
        let Found { weight, scale, block } = self.get(name)?;
        let &[out, columns] = weight.shape() else {
            return Err(weight.refuse(format!("shape {:?}", weight.shape()), "a matrix").into());
        };
        let (format, inp) = match weight.dtype() {
            Dtype::F8E4M3 => (Format::Fp8 { block: *block }, columns),
            Dtype::I8 | Dtype::U8 => (Format::Fp4, 2 * columns),
            Dtype::F16 => (Format::F16, columns),
            Dtype::F32 => (Format::F32, columns),
            _ => (Format::Bf16, columns),
        };
        Ok(Linear { format, out, inp, weight: weight.clone(), scale: scale.clone() })
    }

    /// The values of an unscaled tensor, lifted to f32 (exact), row-major.
    ///
    /// # Errors
    /// The table has no such tensor, or it is a scaled one.
    pub fn vector(&self, name: &str) -> LoadResult<Vec<f32>> {
        let weight = &self.get(name)?.weight;
        let bytes = weight.bytes();
        let halves = |lift: fn(u16) -> f32| {
            bytes.as_chunks().0.iter().map(|b| lift(u16::from_le_bytes(*b))).collect()
        };
        Ok(match weight.dtype() {
            Dtype::Bf16 => halves(bf16::lift),
            Dtype::F16 => halves(bf16::lift_f16),
            Dtype::F32 => bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
            other => return Err(weight.refuse(other.name(), "BF16, F16 or F32").into()),
        })
    }

    /// An Engram table: its codes and its scales.
    ///
    /// # Errors
    /// There is no such table.
    pub fn table(&self, name: &str) -> LoadResult<(Tensor, Tensor)> {
        let Found { weight, scale, .. } = self.get(name)?;
        match scale {
            Some(scale) => Ok((weight.clone(), scale.clone())),
            None => Err(weight.refuse("no scale", "a table with scales").into()),
        }
    }

    fn get(&self, name: &str) -> LoadResult<&Found> {
        self.found.get(name).ok_or_else(|| {
            let wanted = "a weight of this config";
            finback_checkpoint::Error::tensor(&self.dir, name, "no such weight", wanted).into()
        })
    }
}

/// Refuses a scale tensor that holds the NaN byte, naming the first block that does. Reads all of it.
///
/// # Errors
/// Byte 255 is there.
pub fn check_scales(scale: &Tensor) -> LoadResult<()> {
    let bytes = scale.bytes();
    // `contains` goes word by word; the position is wanted only where there is one.
    if !bytes.contains(&E8M0_NAN) {
        return Ok(());
    }
    let at = bytes.iter().take_while(|&&b| b != E8M0_NAN).count();
    let columns = scale.shape().last().copied().unwrap_or(1).max(1);
    let found = format!("the NaN byte 255 in block [{}, {}]", at / columns, at % columns);
    Err(scale.refuse(found, "E8M0 scales from 0 to 254").into())
}

fn find(weight: &Weight, ck: &Checkpoint, block: usize) -> LoadResult<Found> {
    let tensor = ck.tensor(&weight.name)?;
    let dtypes: &[Dtype] = match weight.form {
        Form::Linear => &[Dtype::F8E4M3, Dtype::I8, Dtype::U8, Dtype::Bf16, Dtype::F16, Dtype::F32],
        Form::Plain => &[Dtype::Bf16, Dtype::F16, Dtype::F32],
        Form::Table => &[Dtype::F8E4M3],
    };
    if !dtypes.contains(&tensor.dtype()) {
        let names: Vec<_> = dtypes.iter().map(|d| d.name()).collect();
        return Err(tensor.refuse(tensor.dtype().name(), names.join(" or ")).into());
    }
    check_shape(&tensor, &stored_shape(tensor.dtype(), &weight.shape))?;
    let scale = find_scale(weight, &tensor, ck, block)?;
    Ok(Found { weight: tensor, scale, block })
}

fn find_scale(
    weight: &Weight,
    tensor: &Tensor,
    ck: &Checkpoint,
    block: usize,
) -> LoadResult<Option<Tensor>> {
    let name = scale_name(&weight.name);
    match (weight.scale_shape(tensor.dtype(), block), ck.get(&name)) {
        (None, None) => Ok(None),
        (None, Some(scale)) => {
            let found = format!("a scale beside a weight of {}", tensor.dtype());
            Err(scale.refuse(found, "scales beside F8_E4M3, I8 and U8 weights only").into())
        }
        (Some(shape), _) => {
            let scale = ck.tensor(&name)?;
            if scale.dtype() != Dtype::F8E8M0 {
                return Err(scale.refuse(scale.dtype().name(), Dtype::F8E8M0.name()).into());
            }
            check_shape(&scale, &shape)?;
            Ok(Some(scale))
        }
    }
}

fn check_shape(tensor: &Tensor, shape: &[usize]) -> LoadResult<()> {
    if tensor.shape() != shape {
        let found = format!("shape {:?}", tensor.shape());
        return Err(tensor.refuse(found, format!("{shape:?}")).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
