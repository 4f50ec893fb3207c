//! A device with a bound on its memory.

use finback_kernels::device::{Device, DeviceError, Findings, HostMemory, Launch};
use finback_kernels::manifest::Kernel;

/// A device that takes so much memory, and registers the host's or refuses it.
pub struct Small {
    pub inner: Box<dyn Device>,
    pub free: usize,
    pub registers: bool,
}

impl Device for Small {
    fn name(&self) -> &'static str {
        "small"
    }
    fn allocate(&mut self, bytes: usize) -> Result<u64, DeviceError> {
        self.free -= bytes.next_multiple_of(256);
        self.inner.allocate(bytes)
    }
    fn free_memory(&mut self) -> Result<Option<usize>, DeviceError> {
        Ok(Some(self.free))
    }
    fn register(&mut self, memory: Box<dyn HostMemory>) -> Result<u64, DeviceError> {
        if self.registers {
            return self.inner.register(memory);
        }
        let what = format!("{} bytes cannot be locked", memory.bytes().len());
        Err(DeviceError::Failed { device: "small", what })
    }
    fn clear(&mut self) {
        self.inner.clear();
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(address, bytes)
    }
    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(address, out)
    }
    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), DeviceError> {
        self.inner.launch(launch)
    }
    fn finish(&mut self) -> Result<Findings, DeviceError> {
        self.inner.finish()
    }
    fn has(&self, kernel: &Kernel) -> bool {
        self.inner.has(kernel)
    }
}
