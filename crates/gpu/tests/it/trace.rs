//! What rows decide on their way, layer by layer.

use finback_model::Runner;
use finback_ops::{Numerics, Sampling};
use finback_testkit::{cases, logits};

use crate::load::{step, stored};
use crate::watched::Watched;

#[test]
fn the_last_row_decides_what_the_stored_trace_says() {
    let spec = stored("full", Numerics::PLAIN);
    let (mut r, notes) = Watched::runner(&spec, 1, true);
    for case in cases().into_iter().filter(|c| c.name == "full/17") {
        // The last row runs in a window, with every layer.
        r.begin(0, &case.prompt[..1], case.prompt.len() + 16, 1).unwrap();
        r.piece(0, 1).unwrap();
        r.finish(0, Sampling::GREEDY, &[], false).unwrap();
        for &id in &case.prompt[1..] {
            step(&mut r, 0, id);
        }
        let got = notes.lock().unwrap();
        assert_eq!(got.experts, case.trace.experts, "{}", case.name);
        assert_eq!(got.picked, case.trace.picked, "{}", case.name);
        assert_eq!(got.engram_rows, case.trace.engram_rows, "{}", case.name);
        let want = logits(&format!("{}/streams", case.name)).unwrap().values;
        let streams = got.streams.concat();
        assert_eq!(streams.len(), want.len());
        for (i, (a, b)) in streams.iter().zip(&want).enumerate() {
            assert!((f64::from(*a) - b).abs() < 1e-3, "{} stream value {i}", case.name);
        }
    }
}
