//! NCCL, opened at run time: how GPUs of one process bring their parts together.
//!
//! Only what is used is declared; these functions have had the same form since NCCL 2.4.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys::CUstream;
use libloading::Library;

use crate::driver::Said;

/// The library's names, as it is installed.
pub const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// `ncclUint8`.
const BYTES: c_int = 1;

type Comm = *mut c_void;

/// The functions of the library, which stays open.
struct Api {
    init_all: unsafe extern "C" fn(*mut Comm, c_int, *const c_int) -> c_int,
    all_gather:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, Comm, CUstream) -> c_int,
    abort: unsafe extern "C" fn(Comm) -> c_int,
    text: unsafe extern "C" fn(c_int) -> *const c_char,
    _library: Library,
}

impl Api {
    fn open() -> Result<Self, Said> {
        // SAFETY: opening NVIDIA's own library runs its start code only.
        let found = NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
        let Some(library) = found else {
            return Err(format!("neither {} was found", NAMES.join(" nor ")));
        };
        macro_rules! function {
            ($name:literal) => {{
                // SAFETY: the library's header declares the function as the field does.
                let found = unsafe { library.get(concat!($name, "\0").as_bytes()) };
                *found.map_err(|_| format!("{} has no {}", NAMES[0], $name))?
            }};
        }
        Ok(Self {
            init_all: function!("ncclCommInitAll"),
            all_gather: function!("ncclAllGather"),
            abort: function!("ncclCommAbort"),
            text: function!("ncclGetErrorString"),
            _library: library,
        })
    }

    fn done(&self, what: &str, code: c_int) -> Result<(), Said> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the library gives a text that lives as long as it.
        let text = unsafe { CStr::from_ptr((self.text)(code)) };
        Err(format!("NCCL, {what}: {}", text.to_string_lossy()))
    }
}

/// The library, or why it is not there.
fn api() -> Result<&'static Api, Said> {
    static API: OnceLock<Result<Api, Said>> = OnceLock::new();
    API.get_or_init(Api::open).as_ref().map_err(Clone::clone)
}

/// Whether the library is there.
///
/// # Errors
/// It is not, and what was looked for.
pub fn check() -> Result<(), Said> {
    api().map(|_| ())
}

/// A GPU's seat among those that gather.
#[derive(Debug)]
pub struct Communicator(Comm);

// SAFETY: the library takes calls from any thread, one at a time for each communicator; `&mut self` keeps
// them apart.
unsafe impl Send for Communicator {}

impl Communicator {
    /// One for each of the first `count` GPUs.
    pub fn all(count: usize) -> Result<Vec<Self>, Said> {
        let api = api()?;
        let mut comms = vec![std::ptr::null_mut(); count];
        let gpus: Vec<c_int> = (0..count as c_int).collect();
        // SAFETY: both lists have `count` entries.
        let code = unsafe { (api.init_all)(comms.as_mut_ptr(), count as c_int, gpus.as_ptr()) };
        api.done("its start", code)?;
        Ok(comms.into_iter().map(Self).collect())
    }

    /// Enqueues a gather of `bytes` bytes of each GPU, which may be recorded.
    pub fn gather(
        &mut self,
        from: u64,
        to: u64,
        bytes: usize,
        stream: CUstream,
    ) -> Result<(), Said> {
        let api = api()?;
        let (from, to) = (from as *const c_void, to as *mut c_void);
        // SAFETY: both are the caller's device memory; the stream is of this communicator's GPU.
        let code = unsafe { (api.all_gather)(from, to, bytes, BYTES, self.0, stream) };
        api.done("a gather", code)
    }
}

impl Drop for Communicator {
    /// Ends what waits for GPUs that do not come, too.
    fn drop(&mut self) {
        if let Ok(api) = api() {
            // SAFETY: the communicator is not used again; a failure leaves nothing to do.
            let _ = unsafe { (api.abort)(self.0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_the_library_says_what_was_looked_for() {
        // Where there is one, there is nothing to refuse.
        let Err(text) = check() else { return };
        assert!(text.contains("libnccl.so.2") && !text.contains('\n'), "{text}");
    }
}
