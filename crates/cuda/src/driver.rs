//! The driver, with lifetimes: the only module that calls it.
//!
//! A handle stays valid while the [`Driver`] that made it lives; the device keeps both together.
//! Launches take addresses as they are: a kernel that is given wrong ones ends the context, and every
//! later call says so.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int, c_void};

use cudarc::driver::result::{self, DriverError, event, graph, module, stream};
use cudarc::driver::sys;
use finback_kernels::device::HostMemory;

use crate::blas::{self, Blas};
use crate::registered::Registered;

/// What the driver said, as one line.
pub type Said = String;

pub(crate) fn said(what: &str, error: DriverError) -> Said {
    let text = error.error_string().map(CStr::to_string_lossy);
    format!("{what}: {}", text.unwrap_or_else(|_| format!("{:?}", error.0).into()))
}

/// Whether the driver's library is there.
pub fn is_there() -> bool {
    // SAFETY: opening the system's own driver runs its start code only.
    unsafe { sys::is_culib_present() }
}

/// What a device is.
#[derive(Debug, Clone)]
pub struct About {
    /// Its name.
    pub name: String,
    /// Major and minor compute capability.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory.
    pub memory: usize,
    /// The newest CUDA version that the driver takes, as 1000 times the major and 10 times the minor.
    pub driver: u32,
    /// Whether it registers memory of the host that may only be read, such as a mapped file's.
    pub reads_maps: bool,
}

/// A device's context with a stream in whose order all work happens, one for what runs beside it, and copies beside
/// both.
#[derive(Debug)]
pub struct Driver {
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// The stream of what runs aside, and what orders the two.
    aside: sys::CUstream,
    meeting: sys::CUevent,
    staging: Option<Staging>,
    /// `ANSWER` bytes of pinned memory.
    answer: *mut c_void,
    registered: Vec<Registered>,
    watch: Watch,
}

/// Says why what was enqueued will never end, where that depends on another GPU.
type Missing = Box<dyn Fn() -> Option<String> + Send>;

/// What a wait looks at beside its own stream.
#[derive(Default)]
struct Watch(Option<Missing>);

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Watch").field(&self.0.is_some()).finish()
    }
}

impl Watch {
    /// Waits until `query` says that something is over.
    fn wait(missing: &Missing, query: impl Fn() -> sys::CUresult, what: &str) -> Result<(), Said> {
        loop {
            match query() {
                sys::CUresult::CUDA_ERROR_NOT_READY => {}
                code => return code.result().map_err(|error| said(what, error)),
            }
            if let Some(why) = missing() {
                return Err(why);
            }
            std::thread::yield_now();
        }
    }
}

/// Pinned parts by turns: one is filled while those before it wait for their copies.
#[derive(Debug)]
struct Staging {
    memory: *mut c_void,
    /// Of each part: its last copy is over.
    done: Vec<sys::CUevent>,
    next: usize,
    /// Copies beside the launches, and whether the last of them is over.
    beside: sys::CUstream,
    copied: sys::CUevent,
}

/// Bytes of one part, and parts: what a long piece of a prompt copies fits beside the one before.
const PART: usize = 4 << 20;
const PARTS: usize = 32;
/// Bytes of pinned memory for what is read back: to memory that is not pinned the driver copies by way of its own.
const ANSWER: usize = 16 << 10;
/// Bytes that the driver takes a copy of at once; more would wait for the launches before.
const AT_ONCE: usize = 16 << 10;

/// A loaded module.
#[derive(Debug)]
pub struct Module(sys::CUmodule);

/// A kernel of a loaded module.
#[derive(Debug, Clone, Copy)]
pub struct Function(sys::CUfunction);

/// A recorded list of launches.
#[derive(Debug)]
pub struct Graph(sys::CUgraphExec);

/// One launch's shape.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Groups in x and y.
    pub grid: [u32; 2],
    /// Threads of a group.
    pub lanes: u32,
    /// Bytes of shared memory beside what the kernel declares.
    pub shared: u32,
    /// Whether it may be on the device before the launch before it has ended, for which it waits itself.
    pub early: bool,
    /// Whether it runs aside.
    pub aside: bool,
}

// SAFETY: the handles may be used from any thread; every method makes the context current first, and
// `&mut self` or the owner keeps calls apart.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Send for Graph {}

/// A stream of this priority, which waits for no other.
fn new_stream(priority: c_int) -> Result<sys::CUstream, Said> {
    let mut stream = stream::null();
    let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: a context is current; the driver writes one handle.
    unsafe { sys::cuStreamCreateWithPriority(&raw mut stream, flags, priority) }
        .result()
        .map_err(|error| said("a stream", error))?;
    Ok(stream)
}

impl Driver {
    /// How many devices there are. Call [`is_there`] first: without a driver this panics.
    pub fn count() -> Result<usize, Said> {
        result::init().map_err(|error| said("the driver does not start", error))?;
        let count = result::device::get_count().map_err(|error| said("counting devices", error))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The device of this number, below [`Driver::count`].
    pub fn open(number: usize) -> Result<Self, Said> {
        let device = result::device::get(number as c_int)
            .map_err(|error| said(&format!("device {number}"), error))?;
        // SAFETY: the device was just given by the driver; the context is released when dropped.
        let context = unsafe { result::primary_ctx::retain(device) }
            .map_err(|error| said("a context", error))?;
        let mut driver = Self {
            device,
            context,
            stream: stream::null(),
            aside: stream::null(),
            meeting: std::ptr::null_mut(),
            staging: None,
            answer: std::ptr::null_mut(),
            registered: Vec::new(),
            watch: Watch::default(),
        };
        driver.bind()?;
        // Of groups that wait for room on the device those that are not aside come first; in a recorded list all are equal.
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: the driver writes two integers.
        unsafe { sys::cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest) }
            .result()
            .map_err(|error| said("priorities of streams", error))?;
        driver.stream = new_stream(greatest)?;
        driver.aside = new_stream(least)?;
        // SAFETY: the memory is given back when this is dropped.
        driver.answer = unsafe { result::malloc_host(ANSWER, 0) }
            .map_err(|error| said("pinned memory for what is read", error))?;
        driver.meeting = event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
            .map_err(|error| said("an event", error))?;
        Ok(driver)
    }

    /// What the device is.
    pub fn about(&self) -> Result<About, Said> {
        use sys::CUdevice_attribute as Attribute;
        let attribute = |which| {
            // SAFETY: the device is the driver's own.
            let value = unsafe { result::device::get_attribute(self.device, which) };
            value.map(|value| value.unsigned_abs()).map_err(|error| said("an attribute", error))
        };
        let mut driver: c_int = 0;
        // SAFETY: the driver writes one integer.
        unsafe { sys::cuDriverGetVersion(&raw mut driver) }
            .result()
            .map_err(|error| said("its version", error))?;
        Ok(About {
            name: result::device::get_name(self.device).map_err(|e| said("its name", e))?,
            capability: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            // SAFETY: the device is the driver's own.
            memory: unsafe { result::device::total_mem(self.device) }
                .map_err(|error| said("its memory", error))?,
            driver: driver.unsigned_abs(),
            reads_maps: attribute(Attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)
                .is_ok_and(|supported| supported > 0),
        })
    }

    /// From now on a wait also ends where `missing` says that it will not end by itself.
    pub fn watch(&mut self, missing: impl Fn() -> Option<String> + Send + 'static) {
        self.watch = Watch(Some(Box::new(missing)));
    }

    /// The stream in whose order all work happens.
    pub fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// Makes its context the thread's.
    pub fn bind(&self) -> Result<(), Said> {
        // SAFETY: the context lives until this is dropped.
        unsafe { result::ctx::set_current(self.context) }
            .map_err(|error| said("its context", error))
    }

    /// Free bytes of memory.
    pub fn free_memory(&self) -> Result<usize, Said> {
        self.bind()?;
        result::mem_get_info().map(|(free, _)| free).map_err(|error| said("free memory", error))
    }

    /// New memory, all zero; `None` where there is too little.
    pub fn allocate(&self, bytes: usize) -> Result<Option<u64>, Said> {
        self.bind()?;
        // SAFETY: the memory is given back by `free` or with the context.
        let address = match unsafe { result::malloc_sync(bytes) } {
            Ok(address) => address,
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => return Ok(None),
            Err(error) => return Err(said("new memory", error)),
        };
        // SAFETY: the memory was just allocated with this size.
        unsafe { result::memset_d8_async(address, 0, bytes, self.stream) }
            .map_err(|error| said("clearing memory", error))?;
        Ok(Some(address))
    }

    /// Gives memory of [`Driver::allocate`] back; work on it is over then.
    pub fn free(&self, address: u64) -> Result<(), Said> {
        self.wait()?;
        // SAFETY: nothing runs any more, and the address came from `allocate`.
        unsafe { result::free_sync(address) }.map_err(|error| said("freeing memory", error))
    }

    /// Locks memory that is only read and gives the device's address of it; it is kept until
    /// [`Driver::unregister`].
    pub fn register(&mut self, memory: Box<dyn HostMemory>) -> Result<u64, Said> {
        self.bind()?;
        let (registered, address) = Registered::new(memory)?;
        self.registered.push(registered);
        Ok(address)
    }

    /// Lets go of all that was registered; work on it is over then.
    pub fn unregister(&mut self) -> Result<(), Said> {
        let over = self.wait();
        self.registered.clear();
        over
    }

    /// Copies bytes to the device in the stream's order; they may change on return.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Said> {
        self.bind()?;
        if bytes.len() > AT_ONCE {
            self.staging()?;
            return self.write_staged(address, bytes, self.stream);
        }
        // SAFETY: the driver takes a copy of pageable bytes before it returns.
        unsafe { result::memcpy_htod_async(address, bytes, self.stream) }
            .map_err(|error| said(&format!("{} bytes to {address:#x}", bytes.len()), error))
    }

    /// Copies bytes to the device while launches run that do not use what is there; those that are
    /// enqueued later find them. They may change on return.
    pub fn write_beside(&mut self, address: u64, bytes: &[u8]) -> Result<(), Said> {
        self.bind()?;
        self.staging()?;
        let Some(&Staging { beside, copied, .. }) = self.staging.as_ref() else { return Ok(()) };
        self.write_staged(address, bytes, beside)?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: streams and event live until this is dropped.
        unsafe {
            event::record(copied, beside)
                .and_then(|()| stream::wait_event(self.stream, copied, flags))
                .map_err(|error| said("waiting for a copy", error))
        }
    }

    fn write_staged(
        &mut self,
        address: u64,
        bytes: &[u8],
        stream: sys::CUstream,
    ) -> Result<(), Said> {
        let Self { staging, watch, .. } = self;
        let Some(Staging { memory, done, next, .. }) = staging else { return Ok(()) };
        let mut at = address;
        for chunk in bytes.chunks(PART) {
            let (part, over) = (*next, done[*next]);
            *next = (part + 1) % done.len();
            if let Watch(Some(missing)) = watch {
                // SAFETY: the event lives as long as the staging.
                Watch::wait(missing, || unsafe { sys::cuEventQuery(over) }, "a copy")?;
            }
            let failed = |error| said(&format!("{} bytes to {at:#x}", chunk.len()), error);
            // SAFETY: the part is not written before the copy from it is over; it holds `PART` bytes.
            unsafe {
                event::synchronize(over).map_err(failed)?;
                let to = memory.cast::<u8>().add(part * PART);
                to.copy_from_nonoverlapping(chunk.as_ptr(), chunk.len());
                let staged = std::slice::from_raw_parts(to, chunk.len());
                result::memcpy_htod_async(at, staged, stream).map_err(failed)?;
                event::record(over, stream).map_err(failed)?;
            }
            at += chunk.len() as u64;
        }
        Ok(())
    }

    fn staging(&mut self) -> Result<(), Said> {
        if self.staging.is_none() {
            let failed = |error| said("pinned memory for staging", error);
            // SAFETY: the memory is given back when this is dropped.
            let memory = unsafe { result::malloc_host(PARTS * PART, 0) }.map_err(failed)?;
            let new = || event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING);
            let done = (0..PARTS).map(|_| new().map_err(failed)).collect::<Result<_, _>>()?;
            let beside = stream::create(stream::StreamKind::NonBlocking).map_err(failed)?;
            let copied = new().map_err(failed)?;
            self.staging = Some(Staging { memory, done, next: 0, beside, copied });
        }
        Ok(())
    }

    /// Waits and copies device memory to `out`.
    pub fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), Said> {
        self.bind()?;
        if self.watch.0.is_some() {
            // The copy itself waits without looking at anything else.
            self.wait()?;
        }
        let what = format!("{} bytes from {address:#x}", out.len());
        let copy = |to: &mut [u8]| {
            // SAFETY: `to` is borrowed until the copy is over.
            unsafe {
                let copied = result::memcpy_dtoh_async(to, address, self.stream);
                let over = stream::synchronize(self.stream);
                copied.and(over).map_err(|error| said(&what, error))
            }
        };
        if out.len() > ANSWER {
            return copy(out);
        }
        // SAFETY: it has `ANSWER` bytes, and `&mut self` keeps others from it.
        let answer = unsafe { std::slice::from_raw_parts_mut(self.answer.cast(), out.len()) };
        copy(answer)?;
        out.copy_from_slice(answer);
        Ok(())
    }

    /// NVIDIA's matrix product in the stream's order; `None` where its library is not there.
    pub fn blas(&self) -> Result<Option<Blas>, Said> {
        self.bind()?;
        blas::is_there().then(|| Blas::new(self.stream)).transpose()
    }

    /// Waits for all that was enqueued.
    pub fn wait(&self) -> Result<(), Said> {
        self.bind()?;
        if let Watch(Some(missing)) = &self.watch {
            // SAFETY: the stream lives until this is dropped.
            return Watch::wait(missing, || unsafe { sys::cuStreamQuery(self.stream) }, "a launch");
        }
        // SAFETY: the stream lives until this is dropped.
        unsafe { stream::synchronize(self.stream) }.map_err(|error| said("a launch", error))
    }

    /// Loads compiled code.
    pub fn module(&self, code: &[u8]) -> Result<Module, Said> {
        self.bind()?;
        // SAFETY: the driver checks the image's header and copies it.
        let loaded = unsafe { module::load_data(code.as_ptr().cast()) };
        loaded.map(Module).map_err(|error| said("loading the kernels", error))
    }

    /// The kernel of this name, made ready for so many bytes of a launch's shared memory; `None` where
    /// the module has none, or the device not so much.
    pub fn function(&self, of: &Module, name: &str, shared: u32) -> Result<Option<Function>, Said> {
        self.bind()?;
        let Ok(name) = CString::new(name) else { return Ok(None) };
        // SAFETY: the module is loaded.
        let function = match unsafe { module::get_function(of.0, name.clone()) } {
            Ok(function) => function,
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_FOUND)) => return Ok(None),
            Err(error) => return Err(said(&name.to_string_lossy(), error)),
        };
        if shared > 0 {
            use sys::CUfunction_attribute_enum as Attribute;
            let most = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is the module's.
            let set =
                unsafe { result::function::set_function_attribute(function, most, shared as i32) };
            match set {
                Ok(()) => {}
                // A group of this device has less.
                Err(DriverError(sys::CUresult::CUDA_ERROR_INVALID_VALUE)) => return Ok(None),
                Err(error) => {
                    let what = format!("{}: {shared} bytes shared", name.to_string_lossy());
                    return Err(said(&what, error));
                }
            }
        }
        Ok(Some(Function(function)))
    }

    /// Has a kernel on the device now, and not at its first launch, which could wait for what runs.
    pub fn preload(&self, function: Function) -> Result<(), Said> {
        self.bind()?;
        use sys::CUfunction_attribute_enum as Attribute;
        let mut registers: c_int = 0;
        // SAFETY: the driver writes one integer; the function's module is loaded.
        unsafe {
            let which = Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS;
            sys::cuFuncGetAttribute(&raw mut registers, which, function.0).result()
        }
        .map_err(|error| said("loading a kernel", error))
    }

    /// Sets a word of a module, in the stream's order.
    pub fn set_word(&self, of: &Module, name: &CStr, value: u32) -> Result<(), Said> {
        self.bind()?;
        let what = name.to_string_lossy();
        // SAFETY: the module is loaded; the variable's size is checked before it is written.
        unsafe {
            let (address, bytes) =
                module::get_global(of.0, name.to_owned()).map_err(|e| said(&what, e))?;
            if bytes != 4 {
                return Err(format!("{what}: {bytes} bytes, wanted 4"));
            }
            result::memcpy_htod_async(address, &[value], self.stream).map_err(|e| said(&what, e))
        }
    }

    /// Enqueues a launch; `args` are the bytes of the kernel's one argument.
    pub fn launch(&self, function: Function, args: &[u8], shape: Shape) -> Result<(), Said> {
        self.bind()?;
        let Shape { grid: [x, y], lanes, shared, early, aside } = shape;
        let mut params = [args.as_ptr().cast_mut().cast::<c_void>()];
        let mut value = sys::CUlaunchAttributeValue { pad: [0; 64] };
        value.programmaticStreamSerializationAllowed = 1;
        let id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        let mut attribute = sys::CUlaunchAttribute { id, pad: [0; 4], value };
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: 1,
            blockDimX: lanes,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared,
            hStream: if aside { self.aside } else { self.stream },
            attrs: &raw mut attribute,
            numAttrs: early.into(),
        };
        // SAFETY: the driver copies the argument's bytes, whose number the caller has checked, and the
        // one attribute.
        unsafe {
            let none = std::ptr::null_mut();
            sys::cuLaunchKernelEx(&raw const config, function.0, params.as_mut_ptr(), none).result()
        }
        .map_err(|error| said(&format!("a launch of {x} x {y} groups of {lanes}"), error))
    }

    /// What is aside from here on waits for all before.
    pub fn fork(&self) -> Result<(), Said> {
        self.order(self.stream, self.aside)
    }

    /// What follows waits for all that is aside.
    pub fn join(&self) -> Result<(), Said> {
        self.order(self.aside, self.stream)
    }

    fn order(&self, before: sys::CUstream, after: sys::CUstream) -> Result<(), Said> {
        self.bind()?;
        // SAFETY: the streams and the event live until this is dropped; a wait takes the event as it is now.
        let ordered = unsafe {
            event::record(self.meeting, before).and_then(|()| {
                let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
                stream::wait_event(after, self.meeting, flags)
            })
        };
        ordered.map_err(|error| said("an order of streams", error))
    }

    /// From here on what is enqueued is recorded and not run, up to [`Driver::end_recording`], which must
    /// follow whatever happens between.
    pub fn begin_recording(&self) -> Result<(), Said> {
        self.bind()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is this one's.
        unsafe { stream::begin_capture(self.stream, mode) }
            .map_err(|error| said("recording", error))
    }

    /// What was recorded.
    pub fn end_recording(&self) -> Result<Graph, Said> {
        self.bind()?;
        let failed = |error| said("recording", error);
        // SAFETY: the stream is this one's, and so is what was captured on it.
        unsafe {
            let captured = stream::end_capture(self.stream).map_err(failed)?;
            let ready = graph::instantiate(captured, sys::CUgraphInstantiate_flags(0));
            // An instantiated graph needs its description no more.
            graph::destroy(captured).map_err(failed)?;
            ready.map(Graph).map_err(failed)
        }
    }

    /// Enqueues a recorded list.
    pub fn replay(&self, recorded: &Graph) -> Result<(), Said> {
        self.bind()?;
        // SAFETY: the graph was made in this context.
        unsafe { graph::launch(recorded.0, self.stream) }.map_err(|error| said("a replay", error))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the graph is not used again; a failure is the context's, and its next use says it.
        let _ = unsafe { graph::exec_destroy(self.0) };
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Nothing can be done about failures here; the process's end frees all of it.
        let _ = self.unregister();
        // SAFETY: everything was made by this one and nothing of it is used again.
        unsafe {
            if let Some(Staging { memory, done, beside, copied, .. }) = self.staging.take() {
                let _ = result::free_host(memory);
                let _ = stream::destroy(beside);
                for event in done.into_iter().chain([copied]) {
                    let _ = event::destroy(event);
                }
            }
            if !self.answer.is_null() {
                let _ = result::free_host(self.answer);
            }
            if !self.meeting.is_null() {
                let _ = event::destroy(self.meeting);
                let _ = stream::destroy(self.aside);
            }
            let _ = stream::destroy(self.stream);
            let _ = result::primary_ctx::release(self.device);
        }
    }
}
