//! Experts brought from the host's memory.

use super::super::case::{Case, Gate, Want, bytes};
use super::super::data::Data;
use crate::args::{Args, FetchArgs};
use crate::fetch::{Tensor, grid, table};

/// Experts that there are.
const EXPERTS: usize = 4;

pub fn cases() -> Vec<Case> {
    vec![
        // Two pieces and a few bytes, which begin anywhere in a line.
        fetch([9001, 131], [5, 64, 8, 127]),
        // Whole words, to the end of a line and of a piece, and past it.
        fetch([8192, 128], [0, 64, 128, 4]),
        fetch([68, 4], [124, 120, 4, 0]),
    ]
}

/// A step is one row of the case: three used experts and a place without one. `skips` is where in a line
/// of the map each expert's tensors begin.
fn fetch(sizes: [usize; 2], skips: [usize; EXPERTS]) -> Case {
    let groups: [[u32; 3]; 4] = [[1, 0, 2], [0, 2, 3], [3, 3, 9], [2, 9, 9]];
    let apart = (sizes[0] + 256).next_multiple_of(128);
    let offset = move |e: usize, tensor: usize| (2 * e + tensor) * apart + skips[e];
    let map = Data::new(97).bytes((2 * EXPERTS + 1) * apart);
    // A place has both tensors, each from a whole word on.
    let second = sizes[0].next_multiple_of(4);
    let own = second + sizes[1].next_multiple_of(4) + 8;
    let tensors = [(sizes[0], 0), (sizes[1], second)].map(|(bytes, to)| Tensor {
        bytes: bytes as u64,
        to: to as u64,
        apart: own as u64,
    });
    let offsets: Vec<u64> =
        (0..EXPERTS).flat_map(|e| [0, 1].map(|tensor| offset(e, tensor) as u64)).collect();
    let mut out = vec![0u8; groups.len() * own];
    let mut named = groups;
    for (place, ([expert, start, end], name)) in groups.into_iter().zip(&mut named).enumerate() {
        *name = if start == end { [0; 3] } else { [place as u32, start, end] };
        for (tensor, Tensor { bytes, to, .. }) in tensors.iter().enumerate() {
            let (from, to) = (offset(expert as usize, tensor), place * own + *to as usize);
            let bytes = if start == end { 0 } else { *bytes as usize };
            out[to..to + bytes].copy_from_slice(&map[from..from + bytes]);
        }
    }
    Case::new("fetch", format!("{} and {} bytes of 3 experts", sizes[0], sizes[1]), 1)
        .shared("map", &map)
        .shared("table", &table(&tensors, &offsets))
        .shared("groups", groups.as_flattened())
        .in_place("out", &vec![0u8; out.len()])
        .out("named", 12 * groups.len())
        .launch(move |at, _| {
            let args = FetchArgs {
                map: at.of("map"),
                table: at.of("table"),
                groups: at.of("groups"),
                named: at.of("named"),
                out: at.of("out"),
                count: 2,
                pad: 0,
            };
            (args.bytes(), grid(&tensors, groups.len()))
        })
        .want(move |_| vec![Want::Bytes(out.clone()), Want::Bytes(bytes(named.as_flattened()))])
        .fault("FETCH_SHORT", Gate::Reference)
        .fault("FETCH_NEIGHBOUR", Gate::Reference)
        .fault("FETCH_NAMES_EXPERT", Gate::Reference)
}
