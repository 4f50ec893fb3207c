//! The gates: each runs a case's kernel in some ways and compares what came out.

use std::collections::HashMap;
use std::ops::Range;

use super::case::{Addresses, Case, Gate, Role, Rule, Strike, Want, bytes, encoded};
use crate::device::{Device, DeviceError, Findings, Launch, STOPS};
use crate::manifest::{self, Kernel};

/// Bytes in front of and behind every buffer, which no kernel may touch.
const GUARD: usize = 256;
const GUARD_BYTE: u8 = 0xc3;
/// What an output holds before a launch.
const POISON: u8 = 0xa5;
const OTHER_POISON: u8 = 0x5b;

/// Why a gate is red: a line, or a device that failed.
#[derive(Debug, thiserror::Error)]
pub enum Red {
    /// What was found.
    #[error("{0}")]
    Found(String),
    /// The device did not run it.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

fn red<T>(what: impl Into<String>) -> Result<T, Red> {
    Err(Red::Found(what.into()))
}

/// How a case is run.
#[derive(Clone, Copy)]
struct Way<'a> {
    rows: &'a [usize],
    seed: u64,
    poison: u8,
    strike: Option<(usize, Strike)>,
    /// Another kernel instead.
    twin: Option<usize>,
}

/// What a run left.
struct Ran {
    rows: Vec<usize>,
    outs: Vec<Vec<u8>>,
    /// Whether an output is other than before.
    written: bool,
    findings: Findings,
    /// Guards and inputs that changed.
    touched: Option<String>,
}

/// A kernel on a device, with a fault or without.
pub struct Bench<'a> {
    /// The device.
    pub device: &'a mut dyn Device,
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The planted fault, 0 for none.
    pub fault: u32,
}

impl Bench<'_> {
    /// Runs one gate on a case.
    ///
    /// # Errors
    /// Why the gate is red.
    pub fn gate(&mut self, case: &Case, gate: Gate) -> Result<(), Red> {
        match gate {
            Gate::Reference => self.reference(case),
            Gate::Rows => self.rows(case),
            Gate::Writes => self.writes(case),
            Gate::Broken => self.broken(case),
        }
    }

    fn all(&mut self, case: &Case) -> Result<Ran, Red> {
        let rows: Vec<usize> = (0..case.rows).collect();
        self.run(case, Way { rows: &rows, seed: 1, poison: POISON, strike: None, twin: None })
    }

    fn reference(&mut self, case: &Case) -> Result<(), Red> {
        let ran = self.all(case)?;
        for row in 0..case.rows {
            for ((name, got), want) in ran.row(case, row).into_iter().zip((case.want)(row)) {
                compare(case, name, row, got, &want)?;
            }
        }
        Ok(())
    }

    fn rows(&mut self, case: &Case) -> Result<(), Red> {
        let base = self.all(case)?;
        if let Some(found) = base.findings.text() {
            return red(found);
        }
        let all: Vec<usize> = (0..case.rows).collect();
        let reversed: Vec<usize> = all.iter().rev().copied().collect();
        let mut ways: Vec<(Vec<usize>, u64)> =
            vec![(all.clone(), 2), (all.clone(), 3), (reversed, 1)];
        ways.extend(all.iter().map(|&row| (vec![row], 4)));
        ways.extend(
            [2, 3, 5, 9].into_iter().filter(|&n| n < case.rows).map(|n| (all[..n].to_vec(), 5)),
        );
        let ways = ways.iter().map(|(rows, seed)| (&rows[..], *seed, None));
        let twins = (0..case.twins.len()).map(|twin| (&all[..], 1, Some(twin)));
        for (rows, seed, twin) in ways.chain(twins) {
            let ran = self.run(case, Way { rows, seed, poison: POISON, strike: None, twin })?;
            if let Some(found) = ran.findings.text() {
                return red(found);
            }
            for (i, &row) in rows.iter().enumerate() {
                let pairs = base.row(case, row).into_iter().zip(ran.row(case, i));
                for ((name, whole), (_, part)) in pairs {
                    if whole != part {
                        let at = first_difference(whole, part);
                        let by = twin.map_or("", |twin| case.twins[twin].0);
                        return red(format!(
                            "{name}: row {row} has other bits among {} rows {by} than among {}, from byte {at} on",
                            rows.len(),
                            case.rows
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    fn writes(&mut self, case: &Case) -> Result<(), Red> {
        let rows: Vec<usize> = (0..case.rows).collect();
        let base = self.all(case)?;
        let way = Way { rows: &rows, seed: 1, poison: OTHER_POISON, strike: None, twin: None };
        let other = self.run(case, way)?;
        for (ran, poison) in [(&base, POISON), (&other, OTHER_POISON)] {
            if let Some(touched) = &ran.touched {
                return red(touched.clone());
            }
            if ran.findings.outside > 0 {
                return red(ran.findings.text().unwrap_or_default());
            }
            for ((name, out), whole) in case.outs().zip(&ran.outs) {
                let own: Vec<Range<usize>> = (0..case.rows)
                    .map(|i| (out.place)(&rows, i)..(out.place)(&rows, i) + out.bytes)
                    .collect();
                let strange = |at: &usize| !own.iter().any(|range| range.contains(at));
                if let Some(at) = (0..whole.len()).filter(strange).find(|&at| whole[at] != poison) {
                    return red(format!("{name}: byte {at} belongs to no row and was written"));
                }
            }
        }
        self.waits(case, &base)?;
        for row in 0..case.rows {
            for ((name, a), (_, b)) in base.row(case, row).into_iter().zip(other.row(case, row)) {
                if a != b {
                    let at = first_difference(a, b);
                    return red(format!("{name}: row {row} is not written at byte {at}"));
                }
            }
        }
        Ok(())
    }

    /// A kernel that is stopped where it first waits for the launches before it has written nothing. Others write all.
    fn waits(&mut self, case: &Case, base: &Ran) -> Result<(), Red> {
        if !self.device.sees_races() {
            return Ok(());
        }
        let fault = self.fault;
        self.fault |= STOPS;
        let stopped = self.all(case);
        self.fault = fault;
        let stopped = stopped?;
        match stopped.written && stopped.outs != base.outs {
            true => red("it writes before it has waited for the launches before it"),
            false => Ok(()),
        }
    }

    fn broken(&mut self, case: &Case) -> Result<(), Red> {
        let base = self.all(case)?;
        let rows: Vec<usize> = (0..case.rows).collect();
        let struck = case.rows / 2;
        for strike in &case.strikes {
            let way = Way {
                rows: &rows,
                seed: 1,
                poison: POISON,
                strike: Some((struck, *strike)),
                twin: None,
            };
            let ran = self.run(case, way)?;
            let what = format!("{} of {} in row {struck}", strike.value, strike.buffer);
            for row in rows.iter().copied().filter(|&row| row != struck) {
                if base.row(case, row) != ran.row(case, row) {
                    return red(format!("{what} changes row {row}"));
                }
            }
            let (before, after) = (base.row(case, struck), ran.row(case, struck));
            if !follows(case, strike.rule, &before, &after) {
                return red(format!("{what}: not {:?}", strike.rule));
            }
        }
        Ok(())
    }

    fn run(&mut self, case: &Case, way: Way<'_>) -> Result<Ran, Red> {
        self.device.clear();
        let mut addresses = HashMap::new();
        let mut held = Vec::with_capacity(case.buffers.len());
        let sees_outside = self.device.sees_outside();
        for (name, role) in &case.buffers {
            let data = contents(case, name, role, &way);
            let (first, whole) = room(data.len(), sees_outside);
            let mut guarded = vec![GUARD_BYTE; whole];
            guarded[first..first + data.len()].copy_from_slice(&data);
            let address = self.device.allocate(whole)?;
            self.device.write(address, &guarded)?;
            addresses.insert(*name, address + first as u64);
            held.push((*name, address, data));
        }
        let (kernel, plan) = match way.twin {
            Some(twin) => {
                let (name, plan) = &case.twins[twin];
                let missing = || Red::Found(format!("{name}: no such kernel"));
                (manifest::kernel(name).ok_or_else(missing)?, plan)
            }
            None => (self.kernel, &case.plan),
        };
        let (args, grid) = plan(&Addresses(addresses), way.rows);
        let launch =
            Launch { seed: way.seed, fault: self.fault, ..Launch::new(kernel, &args, grid) };
        self.device.launch(&launch)?;
        let findings = self.device.finish()?;
        let (rows, outs) = (way.rows.to_vec(), Vec::new());
        let mut ran = Ran { rows, outs, written: false, findings, touched: None };
        for ((name, address, data), (_, role)) in held.into_iter().zip(&case.buffers) {
            let (first, whole) = room(data.len(), sees_outside);
            let mut now = vec![0; whole];
            self.device.read(address, &mut now)?;
            let inside = first..first + data.len();
            let guards = now[..GUARD].iter().chain(&now[inside.end..]);
            if guards.into_iter().any(|&byte| byte != GUARD_BYTE) {
                ran.touched = Some(format!("{name}: written in front of it or behind it"));
            }
            let now = &now[inside];
            match role {
                Role::Out(_) => {
                    ran.written |= now != data;
                    ran.outs.push(now.to_vec());
                }
                _ if now != data => ran.touched = Some(format!("{name}: an input was written")),
                _ => {}
            }
        }
        Ok(ran)
    }
}

impl Ran {
    /// What launch row `i` wrote, by output.
    fn row<'a>(&'a self, case: &'a Case, i: usize) -> Vec<(&'static str, &'a [u8])> {
        let outs = case.outs().zip(&self.outs);
        outs.map(|((name, out), whole)| {
            let at = (out.place)(&self.rows, i);
            (name, &whole[at..at + out.bytes])
        })
        .collect()
    }
}

/// Where a buffer of so many bytes begins in its allocation, and how many that has. It ends where the
/// allocation does, but for what a load of 16 bytes wants, where a device sees what goes past that.
fn room(bytes: usize, sees_outside: bool) -> (usize, usize) {
    match sees_outside {
        true => {
            let whole = (GUARD + bytes).next_multiple_of(GUARD);
            (whole - bytes.next_multiple_of(16), whole)
        }
        false => (GUARD, GUARD + bytes + GUARD),
    }
}

/// What a buffer holds before a launch.
fn contents(case: &Case, name: &str, role: &Role, way: &Way<'_>) -> Vec<u8> {
    let mut data = match role {
        Role::Shared(data) => data.clone(),
        Role::Row(data, each) => {
            way.rows.iter().flat_map(|&row| &data[row * each..(row + 1) * each]).copied().collect()
        }
        Role::Made(make) => make(way.rows),
        Role::Out(out) => {
            let mut data = vec![way.poison; (out.size)(way.rows.len())];
            for (i, &row) in way.rows.iter().enumerate() {
                if let Some(before) = &out.before {
                    let to = (out.place)(way.rows, i);
                    let own = &before[row * out.bytes..(row + 1) * out.bytes];
                    data[to..to + out.bytes].copy_from_slice(own);
                }
            }
            data
        }
    };
    if let Some((row, strike)) = &way.strike
        && strike.buffer == name
        && let Some(i) = way.rows.iter().position(|r| r == row)
    {
        let first = match role {
            Role::Row(_, each) => i * each,
            Role::Out(out) => (out.place)(way.rows, i),
            _ => 0,
        };
        let each = case.bytes_of(name);
        let value = match each {
            2 => bytes(&encoded(&[strike.value])),
            _ => bytes(&[strike.value]),
        };
        data[first + each * strike.at..][..each].copy_from_slice(&value);
    }
    data
}

fn compare(case: &Case, name: &str, row: usize, got: &[u8], wanted: &Want) -> Result<(), Red> {
    match wanted {
        Want::Bytes(want) if got == want => Ok(()),
        Want::Bytes(want) => {
            let at = first_difference(got, want);
            let show =
                |bytes: &[u8]| bytes.get(at).map_or("nothing".into(), |b| format!("{b:#04x}"));
            red(format!("{name}: row {row}, byte {at}: found {}, wanted {}", show(got), show(want)))
        }
        Want::Near(want) => {
            let got = case.values(name, got);
            if got.len() != want.len() {
                return red(format!("{name}: {} values, wanted {}", got.len(), want.len()));
            }
            let mut pairs = got.iter().zip(want).enumerate();
            // A NaN is in no bound; an infinity is within that of itself.
            match pairs.find(|(_, (got, (want, bound)))| {
                let gap = (f64::from(**got) - want).abs();
                f64::from(**got) != *want && (gap > *bound || gap.is_nan())
            }) {
                None => Ok(()),
                Some((k, (got, (want, bound)))) => red(format!(
                    "{name}: row {row}, value {k}: found {got:e}, wanted {want:e} within {bound:.1e}"
                )),
            }
        }
    }
}

fn first_difference(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()))
}

type Parts<'a> = [(&'static str, &'a [u8])];

/// Whether what a broken value did is what its rule says.
fn follows(case: &Case, rule: Rule, before: &Parts<'_>, after: &Parts<'_>) -> bool {
    let part = |parts: &Parts<'_>, name: &str| {
        parts.iter().find(|(out, _)| *out == name).map_or(Vec::new(), |(_, part)| part.to_vec())
    };
    let values = |parts: &Parts<'_>, name: &str| case.values(name, &part(parts, name));
    match rule {
        Rule::Nan(name) => every(&values(after, name), f32::is_nan),
        Rule::NotFinite(name) => every(&values(after, name), |x| !x.is_finite()),
        Rule::NanAt(name, at) => nan_in(&values(before, name), &values(after, name), at..at + 1),
        Rule::NanIn(name, at, n) => nan_in(&values(before, name), &values(after, name), at..at + n),
        Rule::Check(name, check) => check(&part(before, name), &part(after, name)),
        Rule::Same(name) => {
            !part(after, name).is_empty() && part(before, name) == part(after, name)
        }
    }
}

fn every(values: &[f32], is: impl Fn(f32) -> bool) -> bool {
    !values.is_empty() && values.iter().copied().all(is)
}

fn nan_in(before: &[f32], after: &[f32], range: Range<usize>) -> bool {
    let values = before.iter().zip(after).enumerate();
    range.end <= after.len()
        && values.into_iter().all(|(k, (before, after))| match range.contains(&k) {
            true => after.is_nan(),
            false => before.to_bits() == after.to_bits(),
        })
}
