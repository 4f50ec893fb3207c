//! A pass of the release's 40 layers, from the measured times of one layer or more of each kind.
//!
//! A pass is cut where a layer begins: at its first hyper-connection. Its Engram, whose launches come
//! before that, is a part of its own. Each part is timed alone; what the parts take together then stands
//! for what they take in the pass, where launches overlap.

use finback_kernels::tape::Tape;
use finback_model::synth::layer_kinds;
use finback_ops::ModelSpec;

use super::watch::Watch;
use super::work;

/// Layers of the release.
pub const LAYERS: usize = 40;
/// Its layers with an Engram, both below the decoder half.
const ENGRAMS: f64 = 2.0;
/// Its layers that a prompt's piece runs whole; of the next it makes the compressed rows.
const PIECE_LAYERS: usize = 20;

/// A pass of the release.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Whole {
    /// Seconds, the host's included.
    pub wall: f64,
    /// Bytes of weights that a round reads, or operations of a piece's products.
    pub work: f64,
}

/// What a launch belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The embedding, the head, sampling.
    Rest,
    Engram,
    Layer(usize),
}

/// The part of each launch, and the sites of hyper-connections among them.
fn parts<'a>(kernels: impl Iterator<Item = &'a str>) -> (Vec<Part>, usize) {
    let (mut sites, mut now) = (0, Part::Rest);
    let of = |name: &str| {
        match name {
            "engram_gather" => now = Part::Engram,
            "collapse" => now = Part::Rest,
            "hyper_mix" | "tile_hyper_mix" => {
                if sites % 2 == 0 {
                    now = Part::Layer(sites / 2);
                }
                sites += 1;
            }
            _ => {}
        }
        now
    };
    (kernels.map(of).collect(), sites)
}

/// How often each of the first `run` of so many layers stands in the first `of` of the release's; `None`
/// where a kind is missing.
fn shares(layers: usize, run: usize, of: usize) -> Option<Vec<f64>> {
    let (own, wanted) = (&layer_kinds(layers)[..run], &layer_kinds(LAYERS)[..of]);
    if wanted.iter().any(|kind| !own.contains(kind)) {
        return None;
    }
    let count = |all: &[_], kind| all.iter().filter(|other| **other == kind).count() as f64;
    Some(own.iter().map(|kind| count(wanted, *kind) / count(own, *kind)).collect())
}

/// A round of the release that took `wall` seconds over the measured layers; `None` where not every kind
/// of layer is among them or their hyper-connections are other kernels.
pub fn round(
    watch: &Watch,
    tape: &Tape,
    times: usize,
    (spec, rows, same): (&ModelSpec, usize, bool),
    (wall, device): (f64, f64),
) -> anyhow::Result<Option<Whole>> {
    let layers = spec.layers.len();
    let Some(shares) = shares(layers, layers, LAYERS) else { return Ok(None) };
    let Some(factor) = factor(watch, tape, times, &shares, 2 * layers, spec)? else {
        return Ok(None);
    };
    let engram: f64 = spec.layers.iter().map(work::engram_bytes).sum();
    let one = |layer| work::layer_bytes(layer, rows, same) - work::engram_bytes(layer);
    let weighted = spec.layers.iter().zip(&shares).map(|(layer, share)| share * one(layer));
    let work = weighted.sum::<f64>() + ENGRAMS / engrams(spec) * engram + work::head_bytes(spec);
    Ok(Some(Whole { wall: wall - device + device * factor, work }))
}

/// A piece of a prompt of the release, likewise.
pub fn piece(
    watch: &Watch,
    tape: &Tape,
    times: usize,
    (spec, rows): (&ModelSpec, usize),
    wall: f64,
) -> anyhow::Result<Option<Whole>> {
    let run = spec.sources.last().map_or(spec.layers.len(), |source| source.layer);
    let Some(mut shares) = shares(spec.layers.len(), run, PIECE_LAYERS) else { return Ok(None) };
    let per_layer = shares.clone();
    shares.push(1.0);
    let Some(factor) = factor(watch, tape, times, &shares, 2 * run + 1, spec)? else {
        return Ok(None);
    };
    let work = work::piece_operations(spec, rows, &per_layer, ENGRAMS / engrams(spec));
    Ok(Some(Whole { wall: wall * factor, work }))
}

/// Layers with an Engram; 1 where there are none, whose parts are empty.
fn engrams(spec: &ModelSpec) -> f64 {
    spec.layers.iter().filter(|layer| layer.engram.is_some()).count().max(1) as f64
}

/// Seconds of the release's pass over those of the measured one.
fn factor(
    watch: &Watch,
    tape: &Tape,
    times: usize,
    shares: &[f64],
    wanted: usize,
    spec: &ModelSpec,
) -> anyhow::Result<Option<f64>> {
    let (labels, sites) = parts(tape.launches().map(|launch| launch.kernel.name));
    if sites != wanted {
        return Ok(None);
    }
    let time = |part| {
        let (_, seconds) = watch.alone(tape, times, |at, _| labels.get(at) == Some(&part))?;
        anyhow::Ok(seconds)
    };
    let (rest, engram) = (time(Part::Rest)?, time(Part::Engram)?);
    let (mut measured, mut weighted) = (rest + engram, rest + ENGRAMS / engrams(spec) * engram);
    for (layer, share) in shares.iter().enumerate() {
        let seconds = time(Part::Layer(layer))?;
        measured += seconds;
        weighted += share * seconds;
    }
    Ok((measured > 0.0).then_some(weighted / measured))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_layers_stand_for_forty() {
        let all = shares(10, 10, LAYERS).unwrap();
        assert!((all.iter().sum::<f64>() - 40.0).abs() < 1e-9, "{all:?}");
        // Layers 3 and 2, 4 of ten: one of ratio 2 that selects nothing, two sources of rows.
        assert_eq!(all[2..5], [1.5, 15.0, 1.5]);
        let below = shares(10, 5, PIECE_LAYERS).unwrap();
        assert_eq!(below, [1.0, 1.0, 1.5, 15.0, 1.5]);
        assert_eq!(shares(4, 4, LAYERS), None);
        assert_eq!(shares(40, 40, LAYERS).unwrap(), [1.0; LAYERS]);
    }

    #[test]
    fn a_pass_is_cut_where_layers_begin() {
        use Part::{Engram, Layer, Rest};
        let names = "embed hyper_mix attend hyper_mix swiglu hyper_out engram_gather engram_gate hyper_mix topk hyper_mix collapse head";
        let (labels, sites) = parts(names.split(' '));
        let (a, b) = (Layer(0), Layer(1));
        assert_eq!(labels, [Rest, a, a, a, a, a, Engram, Engram, b, b, b, Rest, Rest]);
        assert_eq!(sites, 4);
    }
}
