//! Matrix products: the seam between a step and the kernels that multiply.
//!
//! A step names an input and a weight; here it is decided in which form the rows enter and which kernel
//! runs, for any number of rows. Whatever is chosen, a row's bits do not depend on how many there are.

use finback_kernels::args::{DenseArgs, ExpertArgs, OperandArgs, QuantiseArgs, format};
use finback_kernels::device::Device;
use finback_kernels::manifest::{DENSE_ROWS, Kernel, OUTPUTS, SLICE};
use finback_kernels::tiles::{self, Gated, Groups, step_inputs};
use finback_ops::{Format, Numerics, OpsError, OpsResult};

use crate::linear::{Grouped, Joined, Stack, Stacks, Takes, Tiled, Weight, index, side};
use crate::memory::Memory;
use crate::queue::{Queue, find};
use crate::rows::{Form, Input, Of, Out, Ready, Room, Used};

/// The products of a model on a device.
pub struct Products {
    round_inputs: bool,
    found: Found,
    x: Room,
    qr: Room,
    other: Room,
}

/// Rows and widths that products may be asked for.
#[derive(Debug, Clone)]
pub struct Most {
    /// Rows of a pass.
    pub rows: usize,
    /// Channels of the residual.
    pub hidden: usize,
    /// Channels of the queries' latent.
    pub q_rank: usize,
    /// Rows and width of each other input that may be rounded to e4m3.
    pub other: Vec<(usize, usize)>,
    /// Of each that never is.
    pub plain: Vec<(usize, usize)>,
}

impl Products {
    /// Allocates for the largest inputs.
    pub fn new(
        memory: &mut Memory<'_>,
        found: &Found,
        round_inputs: bool,
        most: Most,
    ) -> Result<Self, OpsError> {
        let Most { rows, hidden, q_rank, other, plain } = most;
        let tiled = found.tiled;
        Ok(Self {
            round_inputs,
            found: *found,
            x: Room::new(memory, tiled, &[(rows, hidden)], &[])?,
            qr: Room::new(memory, tiled, &[(rows, q_rank)], &[])?,
            other: Room::new(memory, tiled, &other, &plain)?,
        })
    }

    /// Forgets the forms of the rows of the pass before.
    pub fn begin(&mut self) {
        self.changed(Of::X);
        self.changed(Of::Qr);
    }

    /// Forgets the forms of rows that have new values.
    pub fn changed(&mut self, of: Of) {
        self.room(of).changed();
    }

    /// Addresses for rows of a kind as bf16 and as codes in steps, which the caller makes; 0 where no weight takes
    /// them so.
    pub fn make_both(&mut self, of: Of, rows: std::ops::Range<usize>, width: usize) -> [u64; 2] {
        let tiled = self.found.tiled;
        let room = self.room(of);
        let made = [
            (&mut room.plain, Form::Plain, format::BF16),
            (&mut room.coded, Form::Coded, format::FP8),
        ];
        made.map(|(made, form, format)| {
            if !tiled || !width.is_multiple_of(step_inputs(format)) {
                return 0;
            }
            made.rows = rows.clone();
            made.at + (rows.start * form.bytes(width)) as u64
        })
    }

    /// Groups that the device runs at once.
    pub fn width(&self) -> u32 {
        self.found.width
    }

    /// Products from now on take so many groups at most.
    pub fn set_width(&mut self, groups: u32) {
        self.found.width = groups;
    }

    /// Where rows that only these weights take lie as codes in steps; `None` where one of them takes another
    /// form.
    pub fn other_coded(&self, weights: &[&dyn Takes]) -> Option<u64> {
        let mut takes = weights.iter().flat_map(|weight| weight.takes());
        let coded = |(format, tiled)| self.form(format, tiled, true) == Some(Form::Coded);
        takes.all(coded).then_some(self.other.coded.at)
    }

    /// Where rows that only this weight takes lie as bf16, and as codes in steps, for who makes
    /// them; 0 for the form that it does not take, `None` where it takes neither.
    pub fn own_forms(&self, weight: &Weight) -> Option<[u64; 2]> {
        match self.form(weight.format, weight.tiled.is_some(), true) {
            Some(Form::Plain) => Some([self.other.plain.at, 0]),
            Some(Form::Coded) => Some([0, self.other.coded.at]),
            Some(Form::Codes) | None => None,
        }
    }

    /// Where rows of no kind lie as bf16 until the next ones are made.
    pub fn other_plain(&self) -> u64 {
        self.other.plain.at
    }

    fn room(&mut self, of: Of) -> &mut Room {
        match of {
            Of::X => &mut self.x,
            Of::Qr => &mut self.qr,
            Of::Other => &mut self.other,
        }
    }

    /// The form in which a weight takes rows; `None` as they are.
    fn form(&self, format: Format, tiled: bool, round: bool) -> Option<Form> {
        let coded = format.is_quantised() && round && self.round_inputs;
        match (tiled, coded) {
            (true, true) => Some(Form::Coded),
            (true, false) => Some(Form::Plain),
            (false, true) => Some(Form::Codes),
            (false, false) => None,
        }
    }

    /// Prepares rows, which are `at..` of their kind in the batch, for these weights.
    pub fn ready(
        &mut self,
        queue: &mut Queue,
        of: Of,
        at: usize,
        input: Input,
        weights: &[&dyn Takes],
    ) -> Result<Ready, OpsError> {
        let mut ready = Ready::new(input);
        for (format, tiled) in weights.iter().flat_map(|weight| weight.takes()) {
            match self.form(format, tiled, input.round) {
                None => {}
                Some(Form::Codes) if ready.codes == 0 => {
                    (ready.codes, ready.scales) = self.make(queue, of, at, &input, Form::Codes)?;
                }
                Some(Form::Coded) if ready.coded == 0 => {
                    ready.coded = self.make(queue, of, at, &input, Form::Coded)?.0;
                }
                // They are what is wanted.
                Some(Form::Plain) if input.kept => ready.plain = input.x,
                Some(Form::Plain) if ready.plain == 0 => {
                    ready.plain = self.make(queue, of, at, &input, Form::Plain)?.0;
                }
                Some(_) => {}
            }
        }
        Ok(ready)
    }

    /// Addresses of the rows in a form, and of its scales; makes it where it is not there.
    fn make(
        &mut self,
        queue: &mut Queue,
        of: Of,
        at: usize,
        input: &Input,
        form: Form,
    ) -> Result<(u64, u64), OpsError> {
        let Found { quantise, operand, .. } = self.found;
        let room = self.room(of);
        let made = match form {
            Form::Codes => &mut room.codes,
            Form::Coded => &mut room.coded,
            Form::Plain => &mut room.plain,
        };
        let at = if of == Of::Other { 0 } else { at };
        let (rows, width) = (at..at + input.rows, word(input.width));
        let bytes = form.bytes(input.width);
        let out = made.at + (at * bytes) as u64;
        let scales = made.scales + (at * (input.width / 32)) as u64;
        if of != Of::Other && made.rows.start <= rows.start && rows.end <= made.rows.end {
            return Ok((out, scales));
        }
        let grid = by_slice(input.rows, input.width);
        if form == Form::Codes {
            let args = QuantiseArgs { x: input.x, codes: out, scales, width, pad: 0 };
            queue.push(quantise, &args, grid)?;
        } else {
            let args = OperandArgs {
                x: input.x,
                out,
                width,
                x_stride: word(input.stride),
                out_stride: word(bytes),
                coded: u32::from(form == Form::Coded),
            };
            queue.push(known(queue, operand)?, &args, grid)?;
        }
        made.rows = rows;
        Ok((out, scales))
    }

    /// Every row times a weight.
    pub fn dense(&self, queue: &mut Queue, ready: &Ready, weight: &Weight, out: Out) -> OpsResult {
        if let Some(tiled) = &weight.tiled {
            let outs = (out, None);
            return self.tiled(queue, ready, weight.format, tiled, outs, &Groups::One);
        }
        let coded = ready.codes != 0 && weight.format.is_quantised();
        let kernel = known(queue, self.found.dense[index(weight.format)][usize::from(coded)])?;
        for first in (0..ready.input.rows).step_by(DENSE_ROWS) {
            let part = ready.part(first, DENSE_ROWS.min(ready.input.rows - first));
            let args = DenseArgs {
                weight: weight.data,
                scale: weight.scale,
                x: part.input.x,
                codes: part.codes,
                scales: part.scales,
                out: out.at + (4 * first * out.stride) as u64,
                rows: word(part.input.rows),
                inputs: word(weight.inp),
                outputs: word(weight.out),
                side: word(side(weight.format)),
                x_stride: word(part.input.stride),
                out_stride: word(out.stride),
                round: u32::from(out.round),
                x_round: u32::from(part.input.kept),
            };
            queue.push(kernel, &args, [word(weight.out).div_ceil(OUTPUTS), 1])?;
        }
        Ok(())
    }

    /// Every row times two weights.
    pub fn both(
        &self,
        queue: &mut Queue,
        ready: &Ready,
        joined: &Joined,
        outs: [Out; 2],
    ) -> OpsResult {
        let [first, second] = &joined.parts;
        if let Some(tiled) = &joined.tiled {
            let outs = (outs[0], Some((first.out, outs[1])));
            return self.tiled(queue, ready, first.format, tiled, outs, &Groups::One);
        }
        self.dense(queue, ready, first, outs[0])?;
        self.dense(queue, ready, second, outs[1])
    }

    /// The inputs of each group times its weight; rows hold the groups' inputs side by side, and so do
    /// outputs.
    pub fn grouped(
        &self,
        queue: &mut Queue,
        ready: &Ready,
        weight: &Grouped,
        out: Out,
    ) -> OpsResult {
        let Grouped { whole, groups, tiled } = weight;
        let own = whole.out / groups;
        if let Some(tiled) = tiled {
            let x_step = Form::Plain.bytes(whole.inp);
            let each = Groups::Each { count: *groups, x_step, out_step: own };
            return self.tiled(queue, ready, whole.format, tiled, (out, None), &each);
        }
        // A part of the weight begins at a scale tile; what it computes of the group before is
        // overwritten by that group, which comes after.
        let tile = match whole.format {
            Format::Fp8 { block } => block,
            _ => 1,
        };
        for g in (0..*groups).rev() {
            let start = g * own / tile * tile;
            let mut input = *ready;
            input.input.x += (4 * g * whole.inp) as u64;
            let out = Out { at: out.at + 4 * start as u64, ..out };
            self.dense(queue, &input, &whole.part(start..(g + 1) * own), out)?;
        }
        Ok(())
    }

    /// The rows of each group times its expert's weight; `rows` is the address of the row of each
    /// place, 0 where the places are the rows.
    pub fn experts(
        &self,
        queue: &mut Queue,
        ready: &Ready,
        stack: &Stack,
        used: Used,
        rows: u64,
        out: Out,
    ) -> OpsResult {
        let weight = &stack.first;
        if let Some(tiled) = &weight.tiled {
            let (groups, ready) = (used.groups(rows), ready.part(0, used.rows));
            return self.tiled(queue, &ready, weight.format, tiled, (out, None), &groups);
        }
        let coded = ready.codes != 0 && weight.format.is_quantised();
        let kernel = known(queue, self.found.expert[index(weight.format)][usize::from(coded)])?;
        let args = ExpertArgs {
            weight: weight.data,
            scale: weight.scale,
            x: ready.input.x,
            codes: ready.codes,
            scales: ready.scales,
            groups: used.at,
            rows,
            out: out.at,
            weight_bytes: stack.data_bytes,
            scale_bytes: stack.scale_bytes,
            inputs: word(weight.inp),
            outputs: word(weight.out),
            side: word(side(weight.format)),
            x_stride: word(ready.input.stride),
            out_stride: word(out.stride),
            round: u32::from(out.round),
        };
        queue.push(kernel, &args, [word(weight.out).div_ceil(OUTPUTS), word(used.count)])
    }

    /// The rows of each group times two weights of its expert.
    pub fn experts_both(
        &self,
        queue: &mut Queue,
        ready: &Ready,
        stacks: &Stacks,
        used: Used,
        rows: u64,
        outs: [Out; 2],
    ) -> OpsResult {
        let [first, second] = &stacks.parts;
        if let Some(tiled) = &stacks.tiled {
            let (weight, ready) = (&first.first, ready.part(0, used.rows));
            let outs = (outs[0], Some((weight.out, outs[1])));
            let groups = used.groups(rows);
            return self.tiled(queue, &ready, weight.format, tiled, outs, &groups);
        }
        self.experts(queue, ready, first, used, rows, outs[0])?;
        self.experts(queue, ready, second, used, rows, outs[1])
    }

    /// The row's channels of two weights of each of up to `count` experts, gated, as codes; whether one launch makes them.
    pub fn experts_gated(
        &self,
        queue: &mut Queue,
        ready: &Ready,
        stacks: &Stacks,
        count: usize,
        row: &Gated,
    ) -> Result<bool, OpsError> {
        let Some(tiled) = stacks.tiled.filter(|_| row.x != 0 && ready.input.rows == 1) else {
            return Ok(false);
        };
        let planned = tiled.tiles.gated(tiled.at, row, count, self.found.width);
        let Some((kernel, args, grid)) = planned else { return Ok(false) };
        queue.push(kernel, &args, grid)?;
        Ok(true)
    }

    /// A product on tensor cores; outputs from a channel on may go elsewhere.
    fn tiled(
        &self,
        queue: &mut Queue,
        ready: &Ready,
        format: Format,
        tiled: &Tiled,
        (out, second): (Out, Option<(usize, Out)>),
        groups: &Groups,
    ) -> OpsResult {
        let (x, form) = match self.form(format, true, ready.input.round) {
            Some(Form::Coded) => (ready.coded, Form::Coded),
            _ => (ready.plain, Form::Plain),
        };
        let (split, second) = second.unwrap_or((0, Out::NONE));
        let rows = tiles::Rows {
            x,
            x_stride: form.bytes(ready.input.width),
            rows: ready.input.rows,
            out: out.at,
            out_stride: out.stride,
            split,
            second: second.at,
            second_stride: second.stride,
            round: out.round,
            beside: ready.beside,
            early: ready.early,
            whole: ready.whole,
        };
        if rows.rows == 0 {
            return Ok(());
        }
        let planned = tiled.tiles.product(tiled.at, &rows, groups, self.found.width);
        let Some((kernel, args, grid)) = planned else {
            return Err(OpsError::Unsupported {
                backend: queue.name(),
                step: "a product",
                reason: format!("{} rows of {} values", rows.rows, ready.input.width),
            });
        };
        let before = queue.last();
        queue.push(kernel, &args, grid)?;
        if ready.early {
            queue.out_of_turn();
        } else if ready.beside && tiles::is_in_turn(kernel) {
            queue.stays_in_turn(before);
        }
        Ok(())
    }
}

/// The kernels of products that a device has.
#[derive(Clone, Copy)]
pub struct Found {
    quantise: &'static Kernel,
    operand: Option<&'static Kernel>,
    dense: [[Option<&'static Kernel>; 2]; 5],
    expert: [[Option<&'static Kernel>; 2]; 5],
    /// Whether weights are tiled: the device multiplies by them, and rows are codes or bf16 values.
    pub tiled: bool,
    /// Groups that the device runs at once.
    width: u32,
}

impl Found {
    /// Looks for them.
    ///
    /// # Errors
    /// No kernel that rounds inputs.
    pub fn new(device: &dyn Device, numerics: Numerics) -> Result<Self, OpsError> {
        let find = |name| find(device, name).ok();
        let rounded = numerics.round_inputs && numerics.round_stores;
        Ok(Self {
            quantise: crate::queue::find(device, "quantise")?,
            operand: find("operand"),
            dense: [
                [find("dense_fp8"), find("dense_fp8_codes")],
                [find("dense_fp4"), find("dense_fp4_codes")],
                [find("dense_bf16"), None],
                [find("dense_f16"), None],
                [find("dense_f32"), None],
            ],
            expert: [
                [find("expert_fp8"), find("expert_fp8_codes")],
                [find("expert_fp4"), find("expert_fp4_codes")],
                [find("expert_bf16"), None],
                [None, None],
                [None, None],
            ],
            tiled: rounded && find("tile_fp8_many").is_some() && find("operand").is_some(),
            width: device.width(),
        })
    }
}

fn known(queue: &Queue, kernel: Option<&'static Kernel>) -> Result<&'static Kernel, OpsError> {
    kernel.ok_or_else(|| OpsError::Unsupported {
        backend: queue.name(),
        step: "a product",
        reason: "the device has no kernel for the weight's format".into(),
    })
}

/// A grid of one group a row and slice of its channels.
pub fn by_slice(rows: usize, width: usize) -> [u32; 2] {
    [word(rows), word(width.div_ceil(SLICE))]
}

/// A size as kernels take it; `check` holds every size to 32 bits.
pub fn word(size: usize) -> u32 {
    size as u32
}
