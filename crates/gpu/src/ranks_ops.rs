//! [`Ops`] over several devices: steps are made on all of them, what is read is the same on each.

use finback_ops::{Adjust, Keep, Limits, Ops, OpsResult, Penalties, Rows, Sampling, Site, Span};

use crate::ranks::Ranks;

/// A span that a device's thread may keep.
struct Held {
    slot: usize,
    start: usize,
    tokens: Vec<u32>,
    blocks: Vec<u32>,
}

fn held(spans: &[Span<'_>]) -> Vec<Held> {
    let held = |span: &Span<'_>| Held {
        slot: span.slot,
        start: span.start,
        tokens: span.tokens.to_vec(),
        blocks: span.blocks.to_vec(),
    };
    spans.iter().map(held).collect()
}

fn lent<'a>(held: &'a [Held]) -> Vec<Span<'a>> {
    let lent = |held: &'a Held| Span {
        slot: held.slot,
        start: held.start,
        tokens: &held.tokens,
        blocks: &held.blocks,
    };
    held.iter().map(lent).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn values(bits: Vec<u32>) -> impl Iterator<Item = f32> {
    bits.into_iter().map(f32::from_bits)
}

macro_rules! steps {
    ($(fn $name:ident($($arg:ident: $type:ty),*);)*) => {$(
        fn $name(&mut self, $($arg: $type),*) -> OpsResult {
            self.all(move |ops| ops.$name($($arg.clone()),*))
        }
    )*};
}

impl Ops for Ranks {
    fn name(&self) -> &'static str {
        self.first.ops.name()
    }

    fn limits(&self) -> Limits {
        self.first.ops.limits()
    }

    fn was_staged(&self) -> Option<bool> {
        self.first.ops.was_staged()
    }

    fn begin(&mut self, spans: &[Span<'_>]) -> OpsResult {
        let spans = held(spans);
        self.all(move |ops| ops.begin(&lent(&spans)))
    }

    fn begin_draft(&mut self, spans: &[Span<'_>]) -> OpsResult {
        let spans = held(spans);
        self.all(move |ops| ops.begin_draft(&lent(&spans)))
    }

    steps! {
        fn embed(rows: Rows);
        fn engram(layer: usize, rows: Rows);
        fn tap(layer: usize, rows: Rows);
        fn hyper_in(layer: usize, site: Site, rows: Rows);
        fn hyper_out(rows: Rows);
        fn project(layer: usize, kv: Rows, q: Rows);
        fn compress(layer: usize, rows: Rows);
        fn select(layer: usize, rows: Rows);
        fn attend(layer: usize, rows: Rows);
        fn attn_out(layer: usize, rows: Rows);
        fn route(layer: usize, rows: Rows);
        fn experts(layer: usize, rows: Rows);
        fn head(rows: Rows, at: usize);
        fn draft_context(rows: Rows);
        fn draft_head(rows: Rows, at: usize);
        fn reset(slot: usize);
        fn copy_block(from: u32, to: u32);
    }

    fn choose(&mut self, at: usize, params: &[(Sampling, usize)], adjust: &Adjust) -> OpsResult {
        let (params, adjust) = (params.to_vec(), adjust.clone());
        self.all(move |ops| ops.choose(at, &params, &adjust))
    }

    fn draft_chain(
        &mut self,
        at: usize,
        params: &[(Sampling, Penalties)],
        adjust: &Adjust,
    ) -> OpsResult {
        let (params, adjust) = (params.to_vec(), adjust.clone());
        self.all(move |ops| ops.draft_chain(at, &params, &adjust))
    }

    fn keep(&mut self, keeps: &[Keep], computed_from: &[usize]) -> OpsResult {
        let (keeps, computed_from) = (keeps.to_vec(), computed_from.to_vec());
        self.all(move |ops| ops.keep(&keeps, &computed_from))
    }

    fn stage(&mut self, slot: usize, start: usize, before: &[u32], tokens: &[u32]) -> OpsResult {
        let (before, tokens) = (before.to_vec(), tokens.to_vec());
        self.all(move |ops| ops.stage(slot, start, &before, &tokens))
    }

    fn write_slot(&mut self, slot: usize, bytes: &[u8]) -> OpsResult {
        let bytes = bytes.to_vec();
        self.all(move |ops| ops.write_slot(slot, &bytes))
    }

    fn write_rows(&mut self, length: usize, blocks: &[u32], bytes: &[u8]) -> OpsResult {
        let (blocks, bytes) = (blocks.to_vec(), bytes.to_vec());
        self.all(move |ops| ops.write_rows(length, &blocks, &bytes))
    }

    fn write_logits(&mut self, at: usize, row: &[f32]) -> OpsResult {
        let row = row.to_vec();
        self.all(move |ops| ops.write_logits(at, &row))
    }

    fn read_slot(&mut self, slot: usize, out: &mut Vec<u8>) -> OpsResult {
        let bytes = self.ask("read_slot", move |ops| {
            let mut bytes = Vec::new();
            ops.read_slot(slot, &mut bytes).map(|()| bytes)
        })?;
        out.extend(bytes);
        Ok(())
    }

    fn read_rows(&mut self, length: usize, blocks: &[u32], out: &mut Vec<u8>) -> OpsResult {
        let blocks = blocks.to_vec();
        let bytes = self.ask("read_rows", move |ops| {
            let mut bytes = Vec::new();
            ops.read_rows(length, &blocks, &mut bytes).map(|()| bytes)
        })?;
        out.extend(bytes);
        Ok(())
    }

    fn read_state(
        &mut self,
        slot: usize,
        length: usize,
        blocks: &[u32],
        out: &mut Vec<u8>,
    ) -> OpsResult {
        let blocks = blocks.to_vec();
        let bytes = self.ask("read_state", move |ops| {
            let mut bytes = Vec::new();
            ops.read_state(slot, length, &blocks, &mut bytes).map(|()| bytes)
        })?;
        out.extend(bytes);
        Ok(())
    }

    fn read_choices(&mut self, out: &mut Vec<Option<u32>>) -> OpsResult {
        *out = self.ask("read_choices", |ops| {
            let mut choices = Vec::new();
            ops.read_choices(&mut choices).map(|()| choices)
        })?;
        Ok(())
    }

    fn read_logits(&mut self, at: usize, out: &mut Vec<f32>) -> OpsResult {
        let row = self.ask("read_logits", move |ops| {
            let mut row = Vec::new();
            ops.read_logits(at, &mut row).map(|()| bits(&row))
        })?;
        out.clear();
        out.extend(values(row));
        Ok(())
    }

    fn read_drafts(&mut self, tokens: &mut Vec<u32>, confidence: &mut Vec<f32>) -> OpsResult {
        let (ids, sure) = self.ask("read_drafts", |ops| {
            let (mut ids, mut sure) = (Vec::new(), Vec::new());
            ops.read_drafts(&mut ids, &mut sure).map(|()| (ids, bits(&sure)))
        })?;
        *tokens = ids;
        confidence.clear();
        confidence.extend(values(sure));
        Ok(())
    }
}
