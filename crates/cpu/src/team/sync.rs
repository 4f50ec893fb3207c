//! What the gate takes from the system.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;

pub(super) use std::hint::spin_loop;
pub(super) use std::sync::Mutex;
pub(super) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
pub(super) use std::thread::{JoinHandle, Thread, current, park};

/// Turns a waiter spins before it parks: tens of microseconds, longer than most gaps between steps.
pub(super) const SPINS: u32 = 4000;

/// A value that its users take turns with.
pub(super) struct Slot<T>(UnsafeCell<T>);

impl<T: Copy> Slot<T> {
    pub(super) fn new(value: T) -> Slot<T> {
        Slot(UnsafeCell::new(value))
    }

    /// Reads the value.
    ///
    /// # Safety
    /// Nobody writes meanwhile.
    pub(super) unsafe fn get(&self) -> T {
        // SAFETY: the caller vouches for it.
        unsafe { *self.0.get() }
    }

    /// Writes the value.
    ///
    /// # Safety
    /// Nobody reads or writes meanwhile.
    pub(super) unsafe fn set(&self, value: T) {
        // SAFETY: the caller vouches for it.
        unsafe { *self.0.get() = value }
    }
}
