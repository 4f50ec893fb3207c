//! The same checkpoint with its weights stored in other forms, and FP8 scales over larger tiles.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use finback_checkpoint::{Checkpoint, Dtype, Entry, Tensor};
use finback_model::Config;
use finback_model::names::{Form, Weight, weights};
use finback_model::reference::fuzz::Dice;
use finback_numerics::{bf16, fp4, fp8};

/// Rewrites the checkpoint in `dir`, each weight in a form that it may have.
pub fn rewrite(dir: &Path, dice: &mut Dice) {
    let (config, ck) = (Config::load(dir).unwrap(), Checkpoint::open(dir).unwrap());
    let tile = dice.one_of(&[32, 64, 128]);
    let mut bytes: HashMap<String, Vec<u8>> = HashMap::new();
    let mut entries = Vec::new();
    for weight in weights(&config) {
        let form = form(&weight, &config, tile, dice);
        for (entry, data) in encode(&weight, &ck, form, tile) {
            bytes.insert(entry.name.clone(), data);
            entries.push(entry);
        }
    }
    let text = std::fs::read_to_string(dir.join("config.json")).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["quantization_config"]["weight_block_size"] = serde_json::json!([tile, tile]);
    // The old shards stay mapped by `ck` until here; the new ones replace them by name.
    finback_checkpoint::write(dir, &[entries], |entry, out| out.write_all(&bytes[&entry.name]))
        .unwrap();
    std::fs::write(dir.join("config.json"), json.to_string()).unwrap();
}

fn form(weight: &Weight, config: &Config, tile: usize, dice: &mut Dice) -> Dtype {
    let unscaled = [Dtype::Bf16, Dtype::F16, Dtype::F32];
    match weight.form {
        Form::Table => Dtype::F8E4M3,
        Form::Plain => dice.one_of(&unscaled),
        // A group's rows of wo_a must be whole tiles.
        Form::Linear
            if weight.name.ends_with("wo_a.weight") && !config.o_lora_rank.is_multiple_of(tile) =>
        {
            dice.one_of(&unscaled)
        }
        Form::Linear => dice.one_of(&[
            Dtype::F8E4M3,
            Dtype::F8E4M3,
            Dtype::I8,
            Dtype::U8,
            Dtype::Bf16,
            Dtype::F16,
            Dtype::F32,
        ]),
    }
}

/// A weight's tensors in a form: the values rounded to it.
fn encode(weight: &Weight, ck: &Checkpoint, form: Dtype, tile: usize) -> Vec<(Entry, Vec<u8>)> {
    let entry = |name: &str, dtype, shape: &[usize]| Entry {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
    };
    let tensor = ck.tensor(&weight.name).unwrap();
    let scale = ck.get(&weight.scale_name());
    if weight.form == Form::Table {
        let copy = |t: &Tensor| (entry(t.name(), t.dtype(), t.shape()), t.bytes().to_vec());
        return vec![copy(&tensor), copy(scale.unwrap())];
    }
    let values = lift(&tensor, scale);
    let unscaled = |data| vec![(entry(&weight.name, form, &weight.shape), data)];
    match form {
        Dtype::F32 => return unscaled(values.iter().flat_map(|v| v.to_le_bytes()).collect()),
        Dtype::Bf16 => {
            return unscaled(values.iter().flat_map(|&v| bf16::encode(v).to_le_bytes()).collect());
        }
        Dtype::F16 => return unscaled(values.iter().flat_map(|&v| f16(v)).collect()),
        _ => {}
    }
    let (codes, scales, shape) = quantise(&values, &weight.shape, form, tile);
    let mut packed = weight.shape.clone();
    if form != Dtype::F8E4M3 {
        packed[1] /= 2;
    }
    vec![
        (entry(&weight.name, form, &packed), codes),
        (entry(&weight.scale_name(), Dtype::F8E8M0, &shape), scales),
    ]
}

/// Codes and power-of-two scales of a matrix, and the scales' shape.
fn quantise(
    values: &[f32],
    shape: &[usize],
    form: Dtype,
    tile: usize,
) -> (Vec<u8>, Vec<u8>, Vec<usize>) {
    let (rows, columns) = (shape[0], shape[1]);
    let (high, wide, most) = if form == Dtype::F8E4M3 { (tile, tile, 256.0) } else { (1, 32, 4.0) };
    let scale_shape = vec![rows.div_ceil(high), columns.div_ceil(wide)];
    let scale_of = |i: usize| i / columns / high * scale_shape[1] + i % columns / wide;
    let mut largest = vec![0f32; scale_shape.iter().product()];
    values
        .iter()
        .enumerate()
        .for_each(|(i, v)| largest[scale_of(i)] = v.abs().max(largest[scale_of(i)]));
    let exponent = |amax: f32| (amax / most).log2().ceil().clamp(-100.0, 100.0);
    let exponents: Vec<f32> = largest.iter().map(|&amax| exponent(amax)).collect();
    let scaled = |i: usize| values[i] * (-exponents[scale_of(i)]).exp2();
    let codes = if form == Dtype::F8E4M3 {
        (0..values.len()).map(|i| fp8::encode(scaled(i))).collect()
    } else {
        let code = |i| fp4::encode(scaled(i));
        (0..values.len() / 2).map(|i| code(2 * i) | code(2 * i + 1) << 4).collect()
    };
    (codes, exponents.iter().map(|e| (e + 127.0) as u8).collect(), scale_shape)
}

/// The half next to `x` towards 0, by search.
fn f16(x: f32) -> [u8; 2] {
    let sign = if x.is_sign_negative() { 0x8000u16 } else { 0 };
    let finite = 0x7bff;
    let (mut low, mut high) = (0u16, finite);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if bf16::lift_f16(middle) <= x.abs() { low = middle } else { high = middle - 1 }
    }
    (sign | low).to_le_bytes()
}

/// The values of a tensor of the release's layout.
fn lift(tensor: &Tensor, scale: Option<&Tensor>) -> Vec<f32> {
    let bytes = tensor.bytes();
    let columns = *tensor.shape().last().unwrap();
    let scale_at = |row: usize, column: usize| {
        let scale = scale.unwrap();
        fp8::e8m0(scale.bytes()[row * scale.shape()[1] + column])
    };
    let place = |i: usize| (i / columns, i % columns);
    match tensor.dtype() {
        Dtype::F32 => bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
        Dtype::Bf16 => {
            let lift = |b: &[u8; 2]| bf16::lift(u16::from_le_bytes(*b));
            bytes.as_chunks().0.iter().map(lift).collect()
        }
        Dtype::F8E4M3 => {
            let lift = |(i, &code): (usize, &u8)| {
                let (row, column) = place(i);
                fp8::decode(code) * scale_at(row / 32, column / 32)
            };
            bytes.iter().enumerate().map(lift).collect()
        }
        Dtype::I8 => {
            let lift = |(i, &byte): (usize, &u8)| {
                let (row, column) = place(i);
                let scale = scale_at(row, column / 16);
                [fp4::decode(byte & 15) * scale, fp4::decode(byte >> 4) * scale]
            };
            bytes.iter().enumerate().flat_map(lift).collect()
        }
        other => panic!("the release stores no {other}"),
    }
}
