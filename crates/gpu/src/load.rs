//! Weights to the device: each tensor's bytes once, in pieces; or drawn there, or counted.

use std::ops::Range;

use finback_checkpoint::Tensor;
use finback_kernels::args::{Args, FillArgs};
use finback_kernels::device::Launch;
use finback_kernels::manifest::Kernel;
use finback_kernels::tiles::{Part, TILE_OUTPUTS, Tiles};
use finback_ops::{Expert, Format, Linear, OpsError, OpsResult};

use crate::hosted::{Fetched, Hosted};
use crate::linear::{Grouped, Joined, Stack, Stacks, Tiled, Weight, index, side, tiles_of};
use crate::memory::Memory;
use crate::queue::{failed, find};
use crate::share::Wholes;

/// Words that a group draws.
const DRAWN_WORDS: u32 = 4096;

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
    /// Where stored bytes wait to be rearranged; `None` where nothing is.
    staging: Option<u64>,
    drawn: Option<Drawn>,
    /// Where the routed experts come to, if they stay on the host.
    hosted: Option<&'a Hosted>,
    /// What weights are parts of.
    wholes: Wholes,
}

/// Tensors that the device draws: those of more bytes than this.
struct Drawn {
    over: usize,
    fill: &'static Kernel,
}

/// Which bits of a word are drawn, and which are set.
#[derive(Clone, Copy)]
struct Bits {
    keep: u32,
    set: u32,
}

impl Bits {
    /// Scales of 2^-7 and 2^-6.
    const SCALES: Self = Self { keep: 0x0101_0101, set: 0x7878_7878 };

    /// Values of a few magnitudes near those of a trained weight, never a NaN.
    fn of(format: Format) -> Self {
        let (keep, set) = match format {
            Format::Fp8 { .. } => (0x9f9f_9f9f, 0x2020_2020),
            Format::Fp4 => (u32::MAX, 0),
            Format::Bf16 => (0x80ff_80ff, 0x3c00_3c00),
            Format::F16 => (0x83ff_83ff, 0x2000_2000),
            Format::F32 => (0x80ff_ffff, 0x3c00_0000),
        };
        Self { keep, set }
    }
}

impl<'a> Placer<'a> {
    /// Into this memory; weights are `tiled` where their shape and scales allow it.
    pub fn new(
        mut memory: Memory<'a>,
        tiled: bool,
        progress: Progress<'a>,
    ) -> Result<Self, OpsError> {
        let staging = if tiled { Some(memory.take(2 * PIECE as u64)?) } else { None };
        let piece = Vec::new();
        let (drawn, hosted, wholes) = (None, None, Wholes::new());
        Ok(Self { memory, progress, done: 0, piece, staging, drawn, hosted, wholes })
    }

    /// Has parts of these tiled where the whole would be: a row's bits depend on which it is.
    pub fn decide_by(&mut self, wholes: Wholes) {
        self.wholes = wholes;
    }

    /// Leaves the routed experts on the host.
    pub fn leave_experts(&mut self, hosted: Option<&'a Hosted>) {
        self.hosted = hosted;
    }

    /// Draws tensors of more than `over` bytes on the device, which are not read then.
    ///
    /// # Errors
    /// A device that cannot.
    pub fn draw_over(&mut self, over: usize) -> OpsResult {
        if let Memory::Device(device) = &self.memory {
            self.drawn = Some(Drawn { over, fill: find(&**device, "fill")? });
        }
        Ok(())
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

    /// A table that is read by row.
    pub fn table(&mut self, linear: &Linear) -> Result<Weight, OpsError> {
        let weight = self.room(linear, 1)?;
        self.store(linear, &weight)?;
        Ok(weight)
    }

    /// A linear.
    pub fn linear(&mut self, linear: &Linear) -> Result<Weight, OpsError> {
        match self.tiled(&[&[linear]])? {
            None => self.table(linear),
            tiled => Ok(Weight { tiled, ..bare(linear) }),
        }
    }

    /// Two linears of the same rows.
    pub fn joined(&mut self, parts: [&Linear; 2]) -> Result<Joined, OpsError> {
        match self.tiled(&[&parts])? {
            None => {
                let parts = [self.linear(parts[0])?, self.linear(parts[1])?];
                Ok(Joined { parts, tiled: None })
            }
            tiled => Ok(Joined { parts: parts.map(bare), tiled }),
        }
    }

    /// A linear in groups of outputs that have inputs of their own.
    pub fn grouped(&mut self, linear: &Linear, groups: usize) -> Result<Grouped, OpsError> {
        let own = linear.out / groups;
        // A group begins at a scale tile.
        let whole = own.is_multiple_of(side(linear.format).max(TILE_OUTPUTS));
        match if whole { self.groups(linear, groups)? } else { None } {
            None => Ok(Grouped { whole: self.table(linear)?, groups, tiled: None }),
            tiled => Ok(Grouped { whole: bare(linear), groups, tiled }),
        }
    }

    /// One of the three linears of a layer's experts, one expert after another. They are checked to be
    /// alike before.
    pub fn stack(
        &mut self,
        experts: &[Expert],
        of: fn(&Expert) -> &Linear,
    ) -> Result<Stack, OpsError> {
        let Some(first) = experts.first().map(of) else {
            let first = Weight::NONE;
            return Ok(Stack { first, data_bytes: 0, scale_bytes: 0, fetched: None });
        };
        if let Some(fetched) = self.fetched(experts, &[of])? {
            return Ok(self.placed(&fetched, 0, first));
        }
        let linears: Vec<[&Linear; 1]> = experts.iter().map(|expert| [of(expert)]).collect();
        self.refuse_nan(linears.iter().flatten().copied())?;
        let lists: Vec<&[&Linear]> = linears.iter().map(|list| &list[..]).collect();
        let tiled = self.tiled(&lists)?;
        if tiled.is_some() {
            let first = Weight { tiled, ..bare(first) };
            return Ok(Stack { first, data_bytes: 0, scale_bytes: 0, fetched: None });
        }
        let data_bytes = (first.out * first.format.row_bytes(first.inp)) as u64;
        let scale_bytes = first.format.scale_bytes(first.out, first.inp) as u64;
        let room = self.room(first, experts.len())?;
        let stack = Stack { first: room, data_bytes, scale_bytes, fetched: None };
        for (linear, e) in experts.iter().map(of).zip(0..) {
            let data = stack.first.data + e * data_bytes;
            self.store(
                linear,
                &Weight { data, scale: stack.first.scale + e * scale_bytes, ..stack.first },
            )?;
        }
        Ok(stack)
    }

    /// Two of the linears of a layer's experts, which read the same rows.
    pub fn stacks(
        &mut self,
        experts: &[Expert],
        of: [fn(&Expert) -> &Linear; 2],
    ) -> Result<Stacks, OpsError> {
        if let (Some(fetched), Some(first)) = (self.fetched(experts, &of)?, experts.first()) {
            let parts = [0, 1].map(|i| self.placed(&fetched, i, of[i](first)));
            let tiled = parts[0].first.tiled;
            return Ok(Stacks { parts, tiled, fetched: Some(fetched) });
        }
        let linears: Vec<[&Linear; 2]> =
            experts.iter().map(|expert| of.map(|of| of(expert))).collect();
        self.refuse_nan(linears.iter().flatten().copied())?;
        let lists: Vec<&[&Linear]> = linears.iter().map(|list| &list[..]).collect();
        let tiled = self.tiled(&lists)?;
        let parts = match (tiled, linears.first()) {
            (Some(_), Some(first)) => {
                let stack =
                    Stack { first: bare(first[0]), data_bytes: 0, scale_bytes: 0, fetched: None };
                first.map(|linear| Stack { first: bare(linear), ..stack })
            }
            _ => [self.stack(experts, of[0])?, self.stack(experts, of[1])?],
        };
        Ok(Stacks { parts, tiled, fetched: None })
    }

    /// How a step brings these linears of every expert; `None` where they are copied.
    fn fetched(
        &mut self,
        experts: &[Expert],
        of: &[fn(&Expert) -> &Linear],
    ) -> Result<Option<Fetched>, OpsError> {
        let Some(hosted) = self.hosted else { return Ok(None) };
        let linears: Vec<Vec<&Linear>> =
            experts.iter().map(|expert| of.iter().map(|of| of(expert)).collect()).collect();
        self.refuse_nan(linears.iter().flatten().copied())?;
        let lists: Vec<&[&Linear]> = linears.iter().map(|list| &list[..]).collect();
        let (mut fetched, table) = hosted.plan(experts, of, self.tiles(&lists));
        let table: Vec<u8> = table.into_iter().flat_map(u64::to_ne_bytes).collect();
        fetched.table = self.memory.take(table.len() as u64)?;
        self.write(fetched.table, &table)?;
        Ok(Some(fetched))
    }

    /// One of the linears that a step brings, as it lies in the places.
    fn placed(&self, fetched: &Fetched, linear: usize, first: &Linear) -> Stack {
        let at = self.hosted.map_or(0, |hosted| hosted.tiles);
        let tiled = fetched.tiles.map(|tiles| Tiled { tiles, at });
        let fetched = Some(*fetched);
        let part = fetched.and_then(|fetched| fetched.parts[linear]);
        match part.and_then(|part| Some((part, part.several?))) {
            Some((part, several)) if tiled.is_none() => Stack {
                first: Weight { data: part.weight, scale: part.scale, ..bare(first) },
                data_bytes: several.weight_bytes,
                scale_bytes: several.scale_bytes,
                fetched,
            },
            _ => {
                let first = Weight { tiled, ..bare(first) };
                Stack { first, data_bytes: 0, scale_bytes: 0, fetched }
            }
        }
    }

    fn refuse_nan<'b>(&self, linears: impl Iterator<Item = &'b Linear>) -> OpsResult {
        if matches!(self.memory, Memory::Counted(_)) {
            return Ok(());
        }
        let scales = linears.filter_map(|linear| linear.scale.as_ref());
        let mut read = scales.filter(|scale| !self.draws(scale));
        read.try_for_each(OpsError::refuse_nan_scales)
    }

    /// The tiles of weights of one shape, each of a few linears behind one another; `None` where a shape or
    /// a scale does not fit.
    fn tiles(&self, weights: &[&[&Linear]]) -> Option<Tiles> {
        let tiles = self.staging.and(tiles_of(weights.first()?));
        tiles.filter(|_| self.lift(weights.iter().copied().flatten()))
    }

    /// The same, rearranged for tensor cores.
    fn tiled(&mut self, weights: &[&[&Linear]]) -> Result<Option<Tiled>, OpsError> {
        let (Some(staging), Some(tiles)) = (self.staging, self.tiles(weights)) else {
            return Ok(None);
        };
        let at = self.memory.take((weights.len() * tiles.bytes()) as u64)?;
        for (weight, e) in weights.iter().zip(0..) {
            let to = at + e * tiles.bytes() as u64;
            let mut before = 0;
            for linear in *weight {
                self.arrange(linear, 0..linear.out, &tiles, before, staging, to)?;
                before += linear.out / TILE_OUTPUTS;
            }
        }
        Ok(Some(Tiled { tiles, at }))
    }

    /// A linear's groups as weights of their own.
    fn groups(&mut self, linear: &Linear, groups: usize) -> Result<Option<Tiled>, OpsError> {
        let (own, format) = (linear.out / groups, linear.format);
        // No model rounds the inputs of such a linear.
        let tiles = Tiles::plain(index(format) as u32, side(format), linear.inp, own);
        let (Some(staging), Some(tiles)) = (self.staging, tiles) else { return Ok(None) };
        if !self.lift(std::iter::once(&linear)) {
            return Ok(None);
        }
        let at = self.memory.take((groups * tiles.bytes()) as u64)?;
        for g in 0..groups {
            let to = at + (g * tiles.bytes()) as u64;
            self.arrange(linear, g * own..(g + 1) * own, &tiles, 0, staging, to)?;
        }
        Ok(Some(Tiled { tiles, at }))
    }

    /// Whether all scales suit tensor cores; a count takes it that they do.
    fn lift<'b>(&self, mut linears: impl Iterator<Item = &'b &'b Linear>) -> bool {
        let exact = |linear: &&Linear| {
            let scale = linear.scale.as_ref().filter(|scale| !self.draws(scale));
            let scale = scale.map(|own| self.wholes.get(linear.weight.name()).unwrap_or(own));
            let scales = scale.map_or(&[][..], |scale| scale.bytes());
            Tiles::lifts(index(linear.format) as u32, scales)
        };
        matches!(self.memory, Memory::Counted(_)) || linears.all(exact)
    }

    /// Copies some outputs of a linear to the device in pieces and rearranges each, from tile `first` on.
    fn arrange(
        &mut self,
        linear: &Linear,
        outputs: Range<usize>,
        tiles: &Tiles,
        first: usize,
        staging: u64,
        to: u64,
    ) -> OpsResult {
        if matches!(self.memory, Memory::Counted(_)) {
            return Ok(());
        }
        let Linear { format, inp, .. } = *linear;
        let row = format.row_bytes(inp);
        let unit = side(format).max(TILE_OUTPUTS).next_multiple_of(TILE_OUTPUTS);
        let step = (PIECE / row / unit).max(1) * unit;
        for start in outputs.clone().step_by(step) {
            let rows = step.min(outputs.end - start);
            let bytes = start * row..(start + rows) * row;
            self.copy(&linear.weight, bytes, Bits::of(format), staging)?;
            let scale = staging + (rows * row).next_multiple_of(256) as u64;
            if let Some(tensor) = &linear.scale {
                let at = |rows: usize| format.scale_bytes(rows, inp);
                self.copy(tensor, at(start)..at(start + rows), Bits::SCALES, scale)?;
            }
            let part = Part {
                weight: staging,
                scale,
                side: side(format),
                outputs: rows,
                first: first + (start - outputs.start) / TILE_OUTPUTS,
                apart: 1,
                several: None,
            };
            let Memory::Device(device) = &mut self.memory else { return Ok(()) };
            let name = device.name();
            let Some((kernel, args, grid)) = tiles.arrange(&part, to) else {
                let reason = format!("{}: no kernel rearranges it", linear.weight.name());
                return Err(OpsError::Unsupported { backend: name, step: "a linear", reason });
            };
            let launched = device.launch(&Launch::new(kernel, &args.bytes(), grid));
            launched.map_err(|error| failed(name, "the copy of the weights", &error))?;
        }
        Ok(())
    }

    /// Memory for `count` linears of this shape, as they are stored.
    fn room(&mut self, linear: &Linear, count: usize) -> Result<Weight, OpsError> {
        let Linear { format, out, inp, .. } = *linear;
        let data = self.memory.take((count * out * format.row_bytes(inp)) as u64)?;
        let scale = match count * format.scale_bytes(out, inp) {
            0 => 0,
            bytes => self.memory.take(bytes as u64)?,
        };
        Ok(Weight { data, scale, ..bare(linear) })
    }

    /// Copies a linear as it is stored.
    fn store(&mut self, linear: &Linear, to: &Weight) -> OpsResult {
        let Linear { format, out, inp, .. } = *linear;
        self.copy(&linear.weight, 0..out * format.row_bytes(inp), Bits::of(format), to.data)?;
        match &linear.scale {
            None => Ok(()),
            Some(scale) => {
                self.copy(scale, 0..format.scale_bytes(out, inp), Bits::SCALES, to.scale)
            }
        }
    }

    /// Reads some of a tensor from its file, so that the map's pages stay out of memory.
    fn copy(&mut self, tensor: &Tensor, bytes: Range<usize>, bits: Bits, to: u64) -> OpsResult {
        if matches!(self.memory, Memory::Counted(_)) {
            return Ok(());
        }
        if self.draws(tensor) {
            return self.draw(bytes.len(), bits, to);
        }
        let mut piece = std::mem::take(&mut self.piece);
        for at in bytes.clone().step_by(PIECE) {
            piece.resize(PIECE.min(bytes.end - at), 0);
            tensor.read_at(at, &mut piece)?;
            self.write(to + (at - bytes.start) as u64, &piece)?;
        }
        self.piece = piece;
        Ok(())
    }

    fn draws(&self, tensor: &Tensor) -> bool {
        self.drawn.as_ref().is_some_and(|drawn| tensor.bytes().len() > drawn.over)
    }

    fn draw(&mut self, bytes: usize, Bits { keep, set }: Bits, out: u64) -> OpsResult {
        let (Memory::Device(device), Some(drawn)) = (&mut self.memory, &self.drawn) else {
            return Ok(());
        };
        let (count, width) = ((bytes as u64).div_ceil(4), DRAWN_WORDS);
        let seed = (out >> 8) as u32;
        let args = FillArgs { out, count, width, seed, keep, set, ..FillArgs::default() };
        let groups = count.div_ceil(u64::from(width)) as u32;
        let launched = device.launch(&Launch::new(drawn.fill, &args.bytes(), [groups, 1]));
        launched.map_err(|error| failed(device.name(), "drawing weights", &error))?;
        self.done += bytes as u64;
        (self.progress)(self.done);
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

/// A weight that lies nowhere yet.
fn bare(linear: &Linear) -> Weight {
    let Linear { format, out, inp, .. } = *linear;
    Weight { format, out, inp, ..Weight::NONE }
}
