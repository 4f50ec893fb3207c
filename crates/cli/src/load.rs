//! From the settings to a running engine: the plan first, then the backend, then the engine.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use finback_cpu::simd::Isa;
use finback_cpu::{CpuOps, CpuOptions};
use finback_engine::{Engine, Options};
use finback_model::inspect::Census;
use finback_model::plan::{Plan, PlanRequest, Verdict, plan};
use finback_model::{Config, ModelRunner, WINDOW_ROWS, spec};
use finback_ops::{BLOCK_POSITIONS, Limits, ModelSpec, Numerics};
use finback_protocol::Defaults;

use crate::machine;
use crate::open::{self, GENERATION_FILE, Opened};
use crate::settings::table::{
    CONTEXT, DRAFTS, ISA, NUMERICS, PARALLEL, PREFILL_CHUNK, THINKING, THREADS,
};
use crate::settings::{UsageError, Values};

/// The context where none is given, unless the checkpoint's own is shorter.
const DEFAULT_CONTEXT: usize = 32768;

/// A checkpoint with everything decided that its start needs; nothing is allocated.
#[derive(Debug)]
pub struct Prepared {
    /// The checkpoint's files.
    pub opened: Opened,
    /// What takes how much memory.
    pub plan: Plan,
    /// What requests get where they do not say.
    pub defaults: Defaults,
    /// `release` or `plain`.
    pub numerics: &'static str,
    spec: Arc<ModelSpec>,
    limits: Limits,
    cpu: CpuOptions,
    options: Options,
}

/// Opens and checks the checkpoint that the settings name, and plans its start.
pub fn prepare(values: &Values) -> anyhow::Result<Prepared> {
    let cpu = cpu_options(values)?;
    let opened = open::open(values)?;
    let (name, numerics) = match values.get(&NUMERICS).as_str() {
        "plain" => ("plain", Numerics::PLAIN),
        _ => ("release", Numerics::RELEASE),
    };
    let census = Census::of(&opened.config, &opened.checkpoint)?;
    let token_map = opened.token_map()?;
    let mut spec = spec::load(&opened.checkpoint, &opened.config, token_map, numerics)?;
    let drafts = values.get(&DRAFTS) == "on";
    if !drafts {
        spec.drafter = None;
    }
    let draft_tokens = spec.drafter.as_ref().map_or(0, |drafter| drafter.block);
    let limits = limits(values, &opened.config, draft_tokens);
    let plan = plan(
        &opened.config,
        &census,
        &PlanRequest {
            slots: limits.slots,
            context: limits.context,
            pool_positions: limits.blocks * BLOCK_POSITIONS,
            workspace_bytes: CpuOps::workspace_bytes(&spec, &limits, cpu),
            drafts,
            memory_bytes: machine::memory().map_or(u64::MAX, |(_, available)| available),
        },
    );
    let defaults = defaults(values, &opened.directory)?;
    let options = Options { parallel: limits.slots, draft_tokens };
    Ok(Prepared { opened, plan, defaults, numerics: name, spec: spec.into(), limits, cpu, options })
}

impl Prepared {
    /// Positions one request can have.
    pub fn context(&self) -> usize {
        self.limits.context
    }

    /// Whether it starts here.
    ///
    /// # Errors
    /// It does not: the plan's reason.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.plan.verdict == Verdict::Refused {
            bail!("this does not start here: {}", self.plan.reason);
        }
        Ok(())
    }

    /// Allocates and starts the engine.
    ///
    /// # Errors
    /// As [`Prepared::check`]; or the backend cannot start.
    pub fn start(&self) -> anyhow::Result<Engine> {
        self.check()?;
        let spec = Arc::clone(&self.spec);
        let ops = CpuOps::new(Arc::clone(&spec), self.limits, self.cpu)?;
        let runner = ModelRunner::new(Box::new(ops), spec);
        Ok(Engine::start(Box::new(runner), self.options)?)
    }
}

fn cpu_options(values: &Values) -> anyhow::Result<CpuOptions> {
    let isa = match values.get(&ISA).as_str() {
        "auto" => Isa::detect(),
        name => Isa::named(name).ok_or_else(|| {
            let here: Vec<&str> = Isa::available().map(Isa::name).collect();
            UsageError(format!("--isa: found \"{name}\", accepted here: auto, {}", here.join(", ")))
        })?,
    };
    Ok(CpuOptions { threads: values.get(&THREADS).unwrap_or_else(machine::cores), isa })
}

fn limits(values: &Values, config: &Config, draft_tokens: usize) -> Limits {
    let slots = values.get(&PARALLEL);
    let context =
        values.get(&CONTEXT).unwrap_or_else(|| config.max_position_embeddings.min(DEFAULT_CONTEXT));
    Limits {
        slots,
        rows: values.get(&PREFILL_CHUNK).max(slots * WINDOW_ROWS.max(draft_tokens)),
        logit_rows: ModelRunner::logit_rows(slots),
        context,
        blocks: slots * context.div_ceil(BLOCK_POSITIONS),
    }
}

/// The checkpoint's own defaults, and the settings that change them.
fn defaults(values: &Values, directory: &Path) -> anyhow::Result<Defaults> {
    let file = directory.join(GENERATION_FILE);
    let mut defaults = if file.exists() {
        Defaults::from_generation_config(&open::json(&file)?)
            .with_context(|| file.display().to_string())?
    } else {
        Defaults::default()
    };
    defaults.thinking = values.get(&THINKING) != "off";
    Ok(defaults)
}
