//! The device: code, memory and launches.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Instant;

use finback_kernels::args::{Args, FillArgs};
use finback_kernels::device::{Device, DeviceError, Findings, Gather, HostMemory, Launch, Place};
use finback_kernels::manifest::{KERNELS, Kernel, kernel};
use finback_kernels::meeting::{Meeting, Seat};
use finback_kernels::source::{Target, program};
use finback_kernels::tape::{Tape, Work};

use crate::driver::{About, Driver, Function, Graph, Module, Shape};
use crate::graphs::{Graphs, Turn};
use crate::nccl::{self, Communicator};
use crate::{NAME, cache, driver, nvrtc};

/// The least compute capability: its tensor cores multiply BF16.
const LEAST: (u32, u32) = (8, 0);
/// From this one on every kernel waits by itself for the launch before it (`IN_ORDER` of the prelude).
const IN_ORDER: (u32, u32) = (9, 0);

/// Rows of the matrices that measure it, and how often they are multiplied.
const MATMUL_SIDE: i32 = 8192;
const MATMUL_TRIES: usize = 8;

/// What [`Options::tensor_attention`] stands for; a model runs by other kernels without them.
const ATTENTION: [&str; 7] = [
    "tile_attend_scores",
    "tile_attend_mix",
    "tile_attend_many",
    "index_operand",
    "tile_index_scores",
    "tile_index_many",
    "tile_topk",
];

/// Whether a device opened so runs this kernel.
pub fn takes(kernel: &Kernel, tensor_attention: bool) -> bool {
    tensor_attention || !ATTENTION.contains(&kernel.name)
}

/// How a device is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where compiled kernels are kept; nowhere if `None`.
    pub kernels: Option<PathBuf>,
    /// Whether attention, index scores and picks may run on tensor cores.
    pub tensor_attention: bool,
    /// Whether every lane gives its warp's signals, as a race checker needs to see their order.
    pub every_lane_signals: bool,
}

/// What the device of this machine is.
///
/// # Errors
/// There is none, and why.
pub fn about() -> Result<About, DeviceError> {
    Ok(find(0)?.1)
}

/// Opens the device of this machine and makes its kernels ready, which takes some seconds where they
/// are not kept yet.
///
/// # Errors
/// There is none, and why; its driver's or compiler's own failure.
pub fn open(options: &Options) -> Result<Cuda, DeviceError> {
    let (driver, about) = find(0)?;
    start(options, driver, about)
}

/// How many devices there are.
///
/// # Errors
/// There is none, and why.
pub fn count() -> Result<usize, DeviceError> {
    find(0)?;
    Driver::count().map_err(|reason| missing(&reason))
}

/// Whether several devices can share a model here.
///
/// # Errors
/// The library that they gather by is not there, and what was looked for.
pub fn gathers() -> Result<(), DeviceError> {
    nccl::check().map_err(|what| {
        missing(&format!(
            "{what}: several GPUs take NVIDIA's NCCL; install it, or name its directory in \
             LD_LIBRARY_PATH"
        ))
    })
}

/// Opens the first `count` devices of this machine, which then share a model, in order of rank.
///
/// # Errors
/// As [`open`]; too few devices or different ones, or no library that they gather by.
pub fn open_all(options: &Options, count: usize) -> Result<Vec<Cuda>, DeviceError> {
    let found = (0..count).map(find).collect::<Result<Vec<_>, _>>()?;
    let kind = |about: &About| (about.name.clone(), about.capability);
    let first = found.first().map(|(_, about)| kind(about));
    if let Some(other) = found.iter().position(|(_, about)| Some(kind(about)) != first) {
        let name = |i: usize| found[i].1.name.as_str();
        return Err(missing(&format!(
            "GPU 0 is {} and GPU {other} {}; GPUs of one kind share a model",
            name(0),
            name(other)
        )));
    }
    gathers()?;
    let comms = Communicator::all(count).map_err(failed)?;
    let seats = Meeting::seats(count);
    found
        .into_iter()
        .zip(seats.into_iter().zip(comms))
        .map(|((driver, about), (seat, comm))| {
            let mut cuda = start(options, driver, about)?;
            let code = cuda.code.iter().flat_map(|code| code.functions.values());
            for function in code {
                cuda.driver.preload(*function).map_err(failed)?;
            }
            let own = seat.clone();
            cuda.driver.watch(move || own.alone());
            cuda.shared = Some(Shared { seat, comm });
            Ok(cuda)
        })
        .collect()
}

fn start(options: &Options, driver: Driver, about: About) -> Result<Cuda, DeviceError> {
    let mut cuda = Cuda {
        code: None,
        planted: None,
        allocated: Vec::new(),
        graphs: Graphs::default(),
        options: options.clone(),
        about,
        after_gather: Cell::new(false),
        shared: None,
        driver,
    };
    cuda.code = Some(cuda.build(false)?);
    Ok(cuda)
}

fn missing(reason: &str) -> DeviceError {
    DeviceError::Missing { device: NAME, reason: reason.into() }
}

/// The device of this number.
fn find(number: usize) -> Result<(Driver, About), DeviceError> {
    if !driver::is_there() {
        return Err(missing("libcuda was not found: no NVIDIA driver is installed here"));
    }
    if !nvrtc::is_there() {
        return Err(missing(
            "libnvrtc was not found: install CUDA's run-time compiler, or name its directory in \
             LD_LIBRARY_PATH",
        ));
    }
    let count = Driver::count().map_err(|reason| missing(&reason))?;
    if count <= number {
        return Err(missing(&match count {
            0 => "the driver finds no device".into(),
            1 => format!("GPU {number} is wanted and the driver finds 1 device"),
            _ => format!("GPU {number} is wanted and the driver finds {count} devices"),
        }));
    }
    let driver = Driver::open(number).map_err(|reason| missing(&reason))?;
    let about = driver.about().map_err(|reason| missing(&reason))?;
    if about.capability < LEAST {
        let ((major, minor), name) = (about.capability, &about.name);
        let text =
            format!("{name} has compute capability {major}.{minor}, accepted: 8.0 and later");
        return Err(missing(&text));
    }
    Ok((driver, about))
}

/// An NVIDIA GPU.
#[derive(Debug)]
pub struct Cuda {
    /// The kernels of a product.
    code: Option<Code>,
    /// The same with planted faults, built when one is asked for.
    planted: Option<Code>,
    allocated: Vec<u64>,
    graphs: Graphs<Graph>,
    options: Options,
    about: About,
    /// Whether what was enqueued last is a gather.
    after_gather: Cell<bool>,
    // Behind the recordings, which may hold its gathers.
    shared: Option<Shared>,
    // Last: the others are parts of its context.
    driver: Driver,
}

/// What a device has that shares a model.
#[derive(Debug)]
struct Shared {
    seat: Seat,
    comm: Communicator,
}

impl Shared {
    /// Waits until all devices are about to enqueue the same; `what` says what.
    fn meet(&self, what: &[u8]) -> Result<(), DeviceError> {
        let parts = self.seat.exchange(what.to_vec()).map_err(failed)?;
        match parts.iter().position(|part| part != what) {
            None => Ok(()),
            Some(rank) => Err(failed(format!("GPU {rank} is about to enqueue something else"))),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.seat.leave("it was closed");
    }
}

/// A loaded module and its kernels by name.
#[derive(Debug)]
struct Code {
    module: Module,
    functions: HashMap<&'static str, Function>,
}

impl Cuda {
    /// What the device is.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Operations a second of NVIDIA's own BF16 product of square matrices, the best of some; `None`
    /// where its library is not there. Takes memory until [`Device::clear`].
    ///
    /// # Errors
    /// Too little memory, or the device's own failure.
    pub fn matmul_rate(&mut self) -> Result<Option<f64>, DeviceError> {
        let Some(blas) = self.driver.blas().map_err(failed)? else { return Ok(None) };
        let side = MATMUL_SIDE as usize;
        let matrices =
            [self.random(side * side)?, self.random(side * side)?, self.random(side * side)?];
        let mut best = f64::INFINITY;
        for _ in 0..MATMUL_TRIES {
            self.driver.wait().map_err(failed)?;
            let began = Instant::now();
            blas.square(MATMUL_SIDE, matrices).map_err(failed)?;
            self.driver.wait().map_err(failed)?;
            best = best.min(began.elapsed().as_secs_f64());
        }
        Ok(Some(2.0 * (side as f64).powi(3) / best))
    }

    /// So many random BF16 values.
    fn random(&mut self, values: usize) -> Result<u64, DeviceError> {
        let out = self.allocate(2 * values)?;
        let (count, width) = (values as u64 / 2, 4096);
        // Sign, mantissa and the exponent's last bit are drawn: values near 2^-7.
        let (keep, set) = (0x80ff_80ff, 0x3c00_3c00);
        let args =
            FillArgs { out, count, width, keep, set, seed: out as u32, ..FillArgs::default() };
        let groups = count.div_ceil(u64::from(width)) as u32;
        let Some(fill) = kernel("fill") else { return Ok(out) };
        self.launch(&Launch::new(fill, &args.bytes(), [groups, 1]))?;
        Ok(out)
    }

    /// Compiles and loads the kernels, with faults that can be planted or without.
    fn build(&self, planted: bool) -> Result<Code, DeviceError> {
        let text = program(Target::Cuda);
        let mut options = compile_options(self.about.capability, planted);
        if self.options.every_lane_signals {
            options.push("--define-macro=EVERY_LANE_SIGNALS".into());
        }
        let file = match &self.options.kernels {
            Some(directory) => {
                let compiler = nvrtc::version().map_err(failed)?;
                Some(directory.join(cache::name(&text, &options, compiler)))
            }
            None => None,
        };
        let code = match file.as_deref().and_then(cache::read) {
            Some(code) => code,
            None => {
                let code = nvrtc::compile(&text, &options)
                    .map_err(|what| failed(format!("compiling the kernels: {what}")))?;
                if let Some(file) = &file {
                    cache::write(file, &code);
                }
                code
            }
        };
        let module = self.driver.module(&code).map_err(failed)?;
        let mut functions = HashMap::new();
        for kernel in KERNELS {
            let found =
                self.driver.function(&module, kernel.name, kernel.shared).map_err(failed)?;
            functions.extend(found.map(|function| (kernel.name, function)));
        }
        Ok(Code { module, functions })
    }

    fn function(&self, code: Option<&Code>, kernel: &Kernel) -> Result<Function, DeviceError> {
        let found = code.and_then(|code| code.functions.get(kernel.name));
        found.copied().ok_or(DeviceError::NoKernel { device: NAME, kernel: kernel.name })
    }

    fn enqueue(&self, code: Option<&Code>, launch: &Launch<'_>) -> Result<(), DeviceError> {
        launch.check(self)?;
        let Launch { kernel, args, grid, place, .. } = *launch;
        let function = self.function(code, kernel)?;
        if grid.contains(&0) {
            return Ok(());
        }
        // What follows a gather waits for its end as any launch does.
        let aside = place == Place::Aside;
        let early = self.about.capability >= IN_ORDER && (aside || !self.after_gather.take());
        let shape = Shape { grid, lanes: kernel.lanes, shared: kernel.shared, early, aside };
        let enqueued = self.driver.launch(function, args, shape);
        enqueued.map_err(|what| failed(format!("{}: {what}", kernel.name)))
    }

    /// Enqueues a gather that all devices are about to enqueue.
    fn enqueue_gather(&mut self, gather: &Gather) -> Result<(), DeviceError> {
        let Some(shared) = &mut self.shared else {
            let what = format!("a gather of {} bytes on one GPU", gather.bytes);
            return Err(failed(what));
        };
        self.after_gather.set(true);
        let Gather { from, to, bytes } = *gather;
        self.driver.bind().map_err(failed)?;
        shared.comm.gather(from, to, bytes, self.driver.stream()).map_err(failed)
    }

    /// Enqueues a list, plainly or into a recording.
    fn enqueue_all(&mut self, tape: &Tape) -> Result<(), DeviceError> {
        // Whether something came since what is aside was ordered behind all, and whether something is aside.
        let (mut behind, mut aside) = (true, false);
        for work in tape.works() {
            let place = match &work {
                Work::Launch(launch) => launch.place,
                Work::Gather(_) => Place::Main,
            };
            match place {
                Place::Aside => {
                    if std::mem::take(&mut behind) {
                        self.driver.fork().map_err(failed)?;
                    }
                    aside = true;
                }
                Place::Joined if std::mem::take(&mut aside) => {
                    self.driver.join().map_err(failed)?;
                    behind = true;
                }
                Place::Main | Place::Joined => behind = true,
            }
            match work {
                Work::Launch(launch) => self.enqueue(self.code.as_ref(), &launch)?,
                Work::Gather(gather) => self.enqueue_gather(&gather)?,
            }
        }
        match aside {
            true => self.driver.join().map_err(failed),
            false => Ok(()),
        }
    }
}

fn failed(what: String) -> DeviceError {
    DeviceError::Failed { device: NAME, what }
}

/// How the text is compiled: no contraction and no fast mathematics, as every bit of a sum counts.
fn compile_options(capability: (u32, u32), planted: bool) -> Vec<String> {
    let (major, minor) = capability;
    // Hopper's own instructions are in the code of `a` alone.
    let own = if (major, minor) == (9, 0) { "a" } else { "" };
    let mut options = vec![format!("--gpu-architecture=sm_{major}{minor}{own}")];
    let fixed =
        ["--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"];
    options.extend(fixed.map(String::from));
    if planted {
        options.push("--define-macro=PLANTED_AT_RUN_TIME".into());
    }
    options
}

impl Device for Cuda {
    fn name(&self) -> &'static str {
        NAME
    }

    fn key(&self) -> String {
        let (major, minor) = self.about.capability;
        let attention = if self.options.tensor_attention { "tensor" } else { "portable" };
        format!("{NAME} {major}.{minor} {attention}")
    }

    fn allocate(&mut self, bytes: usize) -> Result<u64, DeviceError> {
        match self.driver.allocate(bytes.max(1)).map_err(failed)? {
            Some(address) => {
                self.allocated.push(address);
                Ok(address)
            }
            None => {
                let free = self.driver.free_memory().map_err(failed)?;
                Err(DeviceError::Memory { device: NAME, wanted: bytes, free })
            }
        }
    }

    fn free_memory(&mut self) -> Result<Option<usize>, DeviceError> {
        self.driver.free_memory().map(Some).map_err(failed)
    }

    fn register(&mut self, memory: Box<dyn HostMemory>) -> Result<u64, DeviceError> {
        if !self.about.reads_maps {
            let what = "it or its driver reads no memory of the host that is read-only";
            return Err(failed(what.into()));
        }
        self.driver.register(memory).map_err(failed)
    }

    fn clear(&mut self) {
        // A failure here is the context's, and the next call says it.
        self.graphs.clear();
        let _ = self.driver.unregister();
        for address in std::mem::take(&mut self.allocated) {
            let _ = self.driver.free(address);
        }
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        match bytes.is_empty() {
            true => Ok(()),
            false => self.driver.write(address, bytes).map_err(failed),
        }
    }

    fn write_beside(&mut self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        match bytes.is_empty() {
            true => Ok(()),
            false => self.driver.write_beside(address, bytes).map_err(failed),
        }
    }

    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        match out.is_empty() {
            true => Ok(()),
            false => self.driver.read(address, out).map_err(failed),
        }
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), DeviceError> {
        // Alone it has nothing to be beside.
        let launch = &Launch { place: Place::Main, ..*launch };
        if launch.fault == 0 {
            return self.enqueue(self.code.as_ref(), launch);
        }
        if self.planted.is_none() {
            self.planted = Some(self.build(true)?);
        }
        if let Some(code) = &self.planted {
            self.driver.set_word(&code.module, c"planted_fault", launch.fault).map_err(failed)?;
        }
        self.enqueue(self.planted.as_ref(), launch)
    }

    fn launch_all(&mut self, tape: &Tape) -> Result<(), DeviceError> {
        let hash = tape.hash();
        let turn = self.graphs.turn(tape, hash);
        if let Some(shared) = self.shared.as_ref().filter(|_| tape.has_gathers()) {
            // A gather is recorded by all devices or by none.
            shared.meet(&[match turn {
                Turn::Plain => 0,
                Turn::Record => 1,
                Turn::Replay(_) => 2,
            }])?;
        }
        let place = match turn {
            Turn::Plain => return self.enqueue_all(tape),
            Turn::Record => {
                self.driver.begin_recording().map_err(failed)?;
                let enqueued = self.enqueue_all(tape);
                let recorded = self.driver.end_recording();
                self.after_gather.set(false);
                enqueued?;
                let graph = recorded.map_err(failed)?;
                self.graphs.keep(tape, hash, graph);
                match self.graphs.turn(tape, hash) {
                    Turn::Replay(place) => place,
                    _ => return Err(failed("a recording was lost".into())),
                }
            }
            Turn::Replay(place) => place,
        };
        match self.graphs.at(place) {
            Some(graph) => self.driver.replay(graph).map_err(failed),
            None => Err(failed("a recording was lost".into())),
        }
    }

    fn seat(&self) -> Option<Seat> {
        self.shared.as_ref().map(|shared| shared.seat.clone())
    }

    fn gather(&mut self, gather: &Gather) -> Result<(), DeviceError> {
        if let Some(shared) = &self.shared {
            shared.meet(&gather.bytes.to_ne_bytes())?;
        }
        self.enqueue_gather(gather)
    }

    fn finish(&mut self) -> Result<Findings, DeviceError> {
        self.driver.wait().map_err(failed)?;
        Ok(Findings::default())
    }

    fn width(&self) -> u32 {
        self.about.multiprocessors
    }

    fn has(&self, kernel: &Kernel) -> bool {
        let code = self.code.as_ref().filter(|_| takes(kernel, self.options.tensor_attention));
        code.is_some_and(|code| code.functions.contains_key(kernel.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_leave_no_rounding_to_the_compiler() {
        let options = compile_options((9, 0), false);
        assert_eq!(options[0], "--gpu-architecture=sm_90a");
        for flag in ["--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"] {
            assert!(options.iter().any(|option| option == flag), "{flag}");
        }
        assert!(!options.iter().any(|option| option.contains("fast")));
        assert_eq!(compile_options((8, 6), true)[0], "--gpu-architecture=sm_86");
        assert_ne!(compile_options((9, 0), true), options);
    }

    #[test]
    fn kernels_compile_for_the_least_device() {
        // Without the compiler there is nothing to see.
        if !nvrtc::is_there() {
            return;
        }
        nvrtc::compile(&program(Target::Cuda), &compile_options(LEAST, false)).unwrap();
    }

    #[test]
    fn a_machine_without_a_device_says_why_in_one_line() {
        // Where there is one, there is nothing to refuse.
        let Err(error) = about() else { return };
        let text = error.to_string();
        assert!(text.starts_with("cuda: ") && !text.contains('\n'), "{text}");
    }
}
