//! Memory of the host that launches read: locked in place, page by page, as long as its owner is kept.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::mem::MaybeUninit;

use cudarc::driver::sys;
use finback_kernels::device::HostMemory;

use crate::driver::{Said, said};

/// Bytes that registered memory begins and ends at multiples of: the least size of a page.
const PAGE: usize = 4096;

/// Registered memory. The context it was made in must be current, and all work on it over, when this is
/// dropped.
#[derive(Debug)]
pub struct Registered {
    start: *mut c_void,
    // Dropped after the memory is let go.
    _memory: Box<dyn HostMemory>,
}

// SAFETY: the address is only given back to the driver, and the owner may go to another thread.
unsafe impl Send for Registered {}

impl Registered {
    /// Registers memory that is only read, and the device's address of its first byte.
    pub fn new(memory: Box<dyn HostMemory>) -> Result<(Self, u64), Said> {
        let bytes = memory.bytes();
        let (start, length) = pages(bytes.as_ptr().expose_provenance(), bytes.len());
        let skip = (bytes.as_ptr().addr() - start) as u64;
        let what = format!(
            "{} bytes of the host's memory cannot be locked (free memory, or what a container or a \
             virtual machine may lock, is too small)",
            bytes.len()
        );
        let start = std::ptr::with_exposed_provenance_mut::<c_void>(start);
        // A map that is read-only is refused without the second.
        let flags = sys::CU_MEMHOSTREGISTER_DEVICEMAP | sys::CU_MEMHOSTREGISTER_READ_ONLY;
        let mut address = MaybeUninit::uninit();
        // SAFETY: the pages hold bytes that the owner keeps, which is kept until they are let go. The
        // driver writes the address where it succeeds.
        unsafe {
            sys::cuMemHostRegister_v2(start, length, flags)
                .result()
                .map_err(|error| said(&what, error))?;
            let registered = Self { start, _memory: memory };
            sys::cuMemHostGetDevicePointer_v2(address.as_mut_ptr(), start, 0)
                .result()
                .map_err(|error| said("an address of the host's memory", error))?;
            Ok((registered, address.assume_init() + skip))
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: the memory was registered and is not used again. A failure is the context's, and its
        // next use says it.
        let _ = unsafe { sys::cuMemHostUnregister(self.start) };
    }
}

/// The whole pages around some bytes: where they begin, and how long they are.
fn pages(start: usize, length: usize) -> (usize, usize) {
    let first = start / PAGE * PAGE;
    (first, (start + length).next_multiple_of(PAGE) - first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_all_bytes_and_no_page_more() {
        for (start, length, wanted) in [
            (8192, 4096, (8192, 4096)),
            (8200, 4096, (8192, 8192)),
            (8191, 1, (4096, 4096)),
            (8191, 2, (4096, 8192)),
            (8192, 1, (8192, 4096)),
        ] {
            assert_eq!(pages(start, length), wanted, "{start} {length}");
        }
    }
}
