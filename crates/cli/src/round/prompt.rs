//! Pieces of a long prompt at some depths.

use std::time::Instant;

use finback_model::{ModelRunner, Runner, Start};
use finback_ops::ModelSpec;

use super::Draw;
use super::decode::{classes, kernels};
use super::release;
use super::report::{Piece, Report};
use super::watch::Watch;
use super::work;

/// Measures the piece at each depth, on the way through one prompt.
pub fn measure(
    runner: &mut ModelRunner,
    watch: &Watch,
    spec: &ModelSpec,
    rows: usize,
    mut depths: Vec<usize>,
    report: &mut Report,
) -> anyhow::Result<()> {
    depths.sort_unstable();
    // Pieces begin at their multiples; the prompt goes on behind the last, as in its middle.
    depths.iter_mut().for_each(|depth| *depth = *depth / rows * rows);
    let end = depths.last().map_or(0, |depth| depth + 2 * rows);
    let prompt = Draw(7).tokens(end, spec.dims.vocab);
    // One before that counts: what is made once is made.
    runner.start(0, &prompt[..2 * rows], 2 * rows, &Start::default())?;
    runner.piece(0, rows)?;
    runner.release(0)?;
    runner.start(0, &prompt, end, &Start::default())?;
    let mut at = 0;
    for depth in depths {
        while at < depth {
            runner.stage(0, rows, rows)?;
            runner.piece(0, rows)?;
            at += rows;
        }
        watch.wait()?;
        let mut wall = 0.0;
        let tape = watch.launches(|| {
            let began = Instant::now();
            runner.piece(0, rows)?;
            watch.wait()?;
            wall = began.elapsed().as_secs_f64();
            Ok(())
        })?;
        at += rows;
        let classes = classes(watch, &tape, 2)?;
        let launches = tape.len();
        let kernels = kernels(watch, &tape, 2)?;
        let shares = vec![1.0; spec.layers.len()];
        let operations = work::piece_operations(spec, rows, &shares, 1.0);
        let whole = release::piece(watch, &tape, 2, (spec, rows), wall)?;
        let piece = Piece { depth, rows, wall, launches, classes, kernels, operations, whole };
        report.pieces.push(piece);
    }
    Ok(())
}
