//! From the settings to a running engine: the plan first, then the backend, then the engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use finback_checkpoint::is_there;
use finback_engine::{
    CacheOptions, DiskOptions, Engine, Options, Order, Parts, Prefill, Profile, StartError,
};
use finback_model::inspect::Census;
use finback_model::plan::{Kind, Plan, PlanRequest, Verdict, plan, pool_that_fits};
use finback_model::{Config, ModelRunner, WINDOW_ROWS, spec};
use finback_ops::{BLOCK_POSITIONS, Limits, ModelSpec, Numerics};
use finback_protocol::Defaults;

use crate::backend::{self, Backend};
use crate::identity;
use crate::machine;
use crate::open::{self, GENERATION_FILE, Opened};
use crate::outfile::OutFile;
use crate::profile::Recording;
use crate::settings::table::{
    CHECKPOINT, CONTEXT, DECODE_SHARE, DRAFT_CONFIDENCE, DRAFT_TOKENS, GPU_ATTENTION, ISA,
    MODEL_ID, NO_DRAFTS, NUMERICS, PARALLEL, POOL_TOKENS, PREFILL_BUDGET, PREFILL_ORDER,
    PROFILE_ROUNDS, PROMPT_CACHE_DIR, PROMPT_CACHE_DISK_GIB, PROMPT_CACHE_EVERY, PROMPT_CACHE_GIB,
    QUEUE, THINKING, THREADS,
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
    /// The kernels of attention on a GPU: `tensor` or `portable`.
    pub attention: Option<&'static str>,
    spec: Arc<ModelSpec>,
    limits: Limits,
    backend: Backend,
    options: Options,
    /// Where prefixes outlive the process.
    disk: Option<DiskOptions>,
    /// What gave that directory.
    disk_place: String,
    /// Where round times are written.
    profile: Option<PathBuf>,
}

/// Opens and checks the checkpoint that the settings name, and plans its start.
pub fn prepare(values: &Values) -> anyhow::Result<Prepared> {
    let backend = Backend::open(values)?;
    let opened = open::open(values)?;
    let (name, numerics) = match values.get(&NUMERICS).as_str() {
        "plain" => ("plain", Numerics::PLAIN),
        _ => ("release", Numerics::RELEASE),
    };
    let census = Census::of(&opened.config, &opened.checkpoint)?;
    let token_map = opened.token_map()?;
    let mut spec = spec::load(&opened.checkpoint, &opened.config, token_map, numerics)?;
    let drafts = !values.get(&NO_DRAFTS);
    if !drafts {
        spec.drafter = None;
    }
    let block = spec.drafter.as_ref().map_or(0, |drafter| drafter.block);
    let chunk = backend::chunk(values);
    let mut limits = limits(values, &opened.config, chunk, block);
    let host = machine::memory().map_or(u64::MAX, |(_, available)| available);
    let mut cache_bytes = (values.get(&PROMPT_CACHE_GIB) * f64::from(1 << 30)) as u64;
    if values.is_default(&PROMPT_CACHE_GIB) {
        // What nobody asked for keeps no small machine from a start.
        cache_bytes = cache_bytes.min(host / 16);
    }
    let mut request = PlanRequest {
        slots: limits.slots,
        context: limits.context,
        pool_positions: limits.blocks * BLOCK_POSITIONS,
        cache_bytes,
        workspace_bytes: backend.workspace_bytes(&spec, &limits)?,
        drafts,
        memory_bytes: backend.memory()?,
        device: backend.is_device(),
        experts_on_host: backend.experts_on_host(),
        places_bytes: backend.places_bytes(&spec, &limits),
        shared: backend.shared(&spec, &limits)?,
        host_bytes: host,
    };
    limits.blocks = blocks(values, &opened.config, &census, &request)?;
    request.pool_positions = limits.blocks * BLOCK_POSITIONS;
    // A pool of less than a context holds no longer stream.
    limits.context = limits.context.min(request.pool_positions);
    request.context = limits.context;
    let plan = plan(&opened.config, &census, &request);
    let defaults = defaults(values, &opened.directory)?;
    let options = Options {
        parallel: limits.slots,
        draft_tokens: values.get(&DRAFT_TOKENS).unwrap_or(block).min(block),
        plain_streams: backend::plain_streams(values),
        draft_confidence: values.get(&DRAFT_CONFIDENCE) as f32,
        // Commands with one user do not take it.
        queue: values.get(&QUEUE).unwrap_or(usize::MAX),
        prefill: Prefill {
            chunk,
            budget: values.get(&PREFILL_BUDGET).unwrap_or(usize::MAX),
            order: match values.get(&PREFILL_ORDER).as_str() {
                "fcfs" => Order::Fcfs,
                _ => Order::Srpt,
            },
            decode_share: values.get(&DECODE_SHARE),
        },
        cache: CacheOptions {
            bytes: cache_bytes as usize,
            // Commands that keep nothing do not take it.
            every: values.get(&PROMPT_CACHE_EVERY).max(1),
        },
    };
    let profile = values.get(&PROFILE_ROUNDS).map(PathBuf::from);
    let disk = disk(values, &opened, &backend.key(), name, drafts && spec.drafter.is_some())?;
    let attention = backend.attention(&spec, &limits)?;
    let spec = Arc::new(spec);
    Ok(Prepared {
        opened,
        plan,
        defaults,
        numerics: name,
        attention,
        spec,
        limits,
        backend,
        options,
        disk,
        disk_place: values.place(&PROMPT_CACHE_DIR),
        profile,
    })
}

impl Prepared {
    /// Positions one request can have.
    pub fn context(&self) -> usize {
        self.limits.context
    }

    /// What the settings that a start decides on come to here, by their names; [`backend::effective`] has those
    /// that the backend's name decides.
    pub fn effective(&self) -> Vec<(&'static str, String)> {
        let Options { draft_tokens, prefill, cache, .. } = self.options;
        let pool = self.limits.blocks * BLOCK_POSITIONS;
        let gib = cache.bytes as f64 / f64::from(1 << 30);
        let mut all = vec![
            (CHECKPOINT.declared.name, self.opened.directory.display().to_string()),
            (MODEL_ID.declared.name, self.opened.model_id.clone()),
            (DRAFT_TOKENS.declared.name, draft_tokens.to_string()),
            (CONTEXT.declared.name, self.context().to_string()),
            (THINKING.declared.name, on_or_off(self.defaults.thinking).to_owned()),
            (POOL_TOKENS.declared.name, pool.to_string()),
            (PREFILL_BUDGET.declared.name, prefill.budget.min(prefill.chunk).to_string()),
            (PROMPT_CACHE_GIB.declared.name, format!("{}", (gib * 1000.0).round() / 1000.0)),
        ];
        if let Some(attention) = self.attention {
            all.push((GPU_ATTENTION.declared.name, attention.to_owned()));
        }
        if let Backend::Cpu(options) = &self.backend {
            all.push((THREADS.declared.name, options.threads.to_string()));
            all.push((ISA.declared.name, options.isa.name().to_owned()));
        }
        all
    }

    /// Bytes of host memory that its start allocates.
    pub fn host_bytes(&self) -> u64 {
        let kind = if self.backend.is_device() { Kind::Host } else { Kind::Allocated };
        self.plan.bytes(kind)
    }

    /// Whether it starts here.
    ///
    /// # Errors
    /// It does not: the plan's reason, or what is wrong with the directory of kept prefixes.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.plan.verdict == Verdict::Refused {
            bail!("this does not start here: {}", self.plan.reason);
        }
        let checked = self.disk.as_ref().map(DiskOptions::check).transpose();
        checked.map(|_| ()).map_err(|error| self.named(error))
    }

    /// A failed start, with the setting where it is one's.
    fn named(&self, error: StartError) -> anyhow::Error {
        match error {
            StartError::Disk { .. } => anyhow!("{}: {error}", self.disk_place),
            error => error.into(),
        }
    }

    /// Allocates and starts the engine; with it what records its rounds, where that was asked for.
    ///
    /// # Errors
    /// As [`Prepared::check`]; or the backend cannot start.
    pub fn start(&self) -> anyhow::Result<(Engine, Option<Recording>)> {
        self.check()?;
        let file = |file| OutFile::create("--profile-rounds", file);
        let file = self.profile.as_ref().map(file).transpose()?;
        let spec = Arc::clone(&self.spec);
        let (ops, steps) = self.backend.start(Arc::clone(&spec), self.limits, file.is_some())?;
        let recording =
            file.zip(steps).map(|(file, steps)| Recording { profile: Profile::new(steps), file });
        let runner = Box::new(ModelRunner::new(ops, spec));
        let profile = recording.as_ref().map(|recording| recording.profile.clone());
        let parts = Parts { profile, disk: self.disk.clone(), clock: None };
        let engine = Engine::start_with(runner, self.options, parts);
        Ok((engine.map_err(|error| self.named(error))?, recording))
    }
}

/// Where kept prefixes go, if anywhere.
fn disk(
    values: &Values,
    opened: &Opened,
    backend: &str,
    numerics: &str,
    drafts: bool,
) -> anyhow::Result<Option<DiskOptions>> {
    let bytes = (values.get(&PROMPT_CACHE_DISK_GIB) * f64::from(1 << 30)) as u64;
    let Some(dir) = values.get(&PROMPT_CACHE_DIR) else { return Ok(None) };
    if bytes == 0 {
        let (dir, limit) = (values.place(&PROMPT_CACHE_DIR), values.place(&PROMPT_CACHE_DISK_GIB));
        tracing::warn!("{dir} is not used: {limit} leaves it no bytes");
        return Ok(None);
    }
    if values.get(&PROMPT_CACHE_GIB) == 0.0 {
        let text = format!(
            "{}: found beside {} 0, which keeps no prefixes; accepted: with more than 0",
            values.place(&PROMPT_CACHE_DIR),
            values.place(&PROMPT_CACHE_GIB)
        );
        return Err(UsageError(text).into());
    }
    let key = identity::key(opened, backend, numerics, drafts)?;
    Ok(Some(DiskOptions { dir: PathBuf::from(dir), bytes, key }))
}

/// Blocks of the KV pool: as asked for, or what every slot may fill, as far as it fits.
fn blocks(
    values: &Values,
    config: &Config,
    census: &Census,
    request: &PlanRequest,
) -> anyhow::Result<usize> {
    let Some(positions) = values.get(&POOL_TOKENS) else {
        return Ok(pool_that_fits(config, census, request) / BLOCK_POSITIONS);
    };
    let (slots, context, most) = (request.slots, request.context, request.pool_positions);
    if positions > most {
        let sum = format!("{slots} x {context}, each rounded up to blocks of {BLOCK_POSITIONS}");
        let place = values.place(&POOL_TOKENS);
        let text = format!(
            "{place}: found \"{positions}\", accepted: {BLOCK_POSITIONS} to {most} (--parallel x \
             --context: {sum})"
        );
        return Err(UsageError(text).into());
    }
    Ok(positions / BLOCK_POSITIONS)
}

/// What every slot may fill; the pool is cut later.
fn limits(values: &Values, config: &Config, chunk: usize, draft_tokens: usize) -> Limits {
    // A command with one user does not take it.
    let slots = values.get(&PARALLEL).max(1);
    let context =
        values.get(&CONTEXT).unwrap_or_else(|| config.max_position_embeddings.min(DEFAULT_CONTEXT));
    Limits {
        slots,
        rows: chunk.max(slots * WINDOW_ROWS.max(draft_tokens)),
        logit_rows: ModelRunner::logit_rows(slots),
        context,
        blocks: slots * context.div_ceil(BLOCK_POSITIONS),
    }
}

/// How a switch is written.
pub fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// The checkpoint's own defaults, and the settings that change them.
fn defaults(values: &Values, directory: &Path) -> anyhow::Result<Defaults> {
    let file = directory.join(GENERATION_FILE);
    let mut defaults = if is_there(&file) {
        Defaults::from_generation_config(&open::json(&file)?)
            .with_context(|| file.display().to_string())?
    } else {
        Defaults::default()
    };
    match values.get(&THINKING).as_str() {
        "on" => defaults.thinking = true,
        "off" => defaults.thinking = false,
        _ => {}
    }
    Ok(defaults)
}
