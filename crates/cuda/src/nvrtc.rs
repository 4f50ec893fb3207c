//! The compiler's library: text to machine code.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char};

use cudarc::nvrtc::result::{self, NvrtcError};
use cudarc::nvrtc::sys;

/// Whether the compiler's library is there.
pub fn is_there() -> bool {
    // SAFETY: opening NVIDIA's own library runs its start code only.
    unsafe { sys::is_culib_present() }
}

fn said(what: &str, error: NvrtcError) -> String {
    // SAFETY: the library gives a text of its own for every code.
    let text = unsafe { CStr::from_ptr(sys::nvrtcGetErrorString(error.0)) };
    format!("{what}: {}", text.to_string_lossy())
}

/// Its version. Call [`is_there`] first: without the library this panics.
pub fn version() -> Result<(i32, i32), String> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library writes two integers.
    unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) }
        .result()
        .map_err(|error| said("the compiler's version", error))?;
    Ok((major, minor))
}

/// Stack of the thread that compiles: the compiler takes more than a thread has that says nothing.
const STACK: usize = 64 << 20;

/// Compiles a program to the machine code of the architecture that the options name. An error holds
/// the compiler's own messages.
pub fn compile(text: &str, options: &[String]) -> Result<Vec<u8>, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        let thread = thread.spawn_scoped(scope, || compile_here(text, options));
        let thread = thread.map_err(|error| format!("a thread for the compiler: {error}"))?;
        thread.join().unwrap_or_else(|_| Err("the compiler's thread panicked".into()))
    })
}

fn compile_here(text: &str, options: &[String]) -> Result<Vec<u8>, String> {
    let text = CString::new(text).map_err(|_| "the text holds a zero byte".to_owned())?;
    let program = result::create_program(&text, Some(c"kernels.cu"))
        .map_err(|error| said("the compiler", error))?;
    // SAFETY: the program lives until it is destroyed below, and the text longer.
    let compiled = unsafe {
        match result::compile_program(program, options) {
            Ok(()) => code(program).map_err(|error| said("its code", error)),
            Err(error) => Err(match result::get_program_log(program) {
                Ok(log) => first_errors(&log),
                Err(_) => said("the compiler", error),
            }),
        }
    };
    // SAFETY: the program is not used again.
    unsafe { result::destroy_program(program) }.map_err(|error| said("the compiler", error))?;
    compiled
}

/// # Safety
/// The program was compiled.
unsafe fn code(program: sys::nvrtcProgram) -> Result<Vec<u8>, NvrtcError> {
    let mut bytes = 0;
    // SAFETY: the library writes the size it then fills.
    unsafe {
        sys::nvrtcGetCUBINSize(program, &raw mut bytes).result()?;
        let mut code = vec![0u8; bytes];
        sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast()).result()?;
        Ok(code)
    }
}

/// The first errors of a log, in one line.
fn first_errors(log: &[c_char]) -> String {
    let bytes: Vec<u8> = log.iter().map(|c| c.cast_unsigned()).take_while(|&c| c != 0).collect();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let errors: Vec<&str> = text.lines().filter(|line| line.contains("error")).take(3).collect();
    match errors.is_empty() {
        true => text.replace('\n', " "),
        false => errors.join("; "),
    }
}
