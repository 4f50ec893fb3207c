//! Device memory by address: what is allocated, and the same counted before.

use finback_kernels::device::Device;
use finback_ops::OpsError;

use crate::queue::failed;

/// The alignment of what a device allocates.
const ALIGNMENT: u64 = 256;

/// Where memory comes from: a device, or a count of what one would give.
pub enum Memory<'a> {
    /// Bytes asked for so far; addresses mean nothing.
    Counted(u64),
    /// A device's own.
    Device(&'a mut dyn Device),
}

impl Memory<'_> {
    /// New memory, all zero.
    pub fn take(&mut self, bytes: u64) -> Result<u64, OpsError> {
        match self {
            Memory::Counted(sum) => {
                *sum += bytes.next_multiple_of(ALIGNMENT);
                Ok(ALIGNMENT)
            }
            Memory::Device(device) => {
                let name = device.name();
                let address = usize::try_from(bytes).ok().map(|bytes| device.allocate(bytes));
                match address {
                    Some(address) => address.map_err(|error| failed(name, "allocation", &error)),
                    None => Err(OpsError::Unsupported {
                        backend: name,
                        step: "allocation",
                        reason: format!("{bytes} bytes are more than this machine can address"),
                    }),
                }
            }
        }
    }

    /// Bytes counted; none where they are a device's.
    pub fn counted(&self) -> u64 {
        match self {
            Memory::Counted(bytes) => *bytes,
            Memory::Device(_) => 0,
        }
    }

    /// Rows of `width` bytes each.
    pub fn rows(&mut self, rows: usize, width: usize) -> Result<Buf, OpsError> {
        Ok(Buf { at: self.take(rows as u64 * width as u64)?, width: width as u64 })
    }

    /// Rows of `width` f32 or u32 values each.
    pub fn words(&mut self, rows: usize, width: usize) -> Result<Buf, OpsError> {
        self.rows(rows, 4 * width)
    }
}

/// Rows of one width in device memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct Buf {
    /// Address of the first row.
    pub at: u64,
    /// Bytes of a row.
    pub width: u64,
}

impl Buf {
    /// Address of a row.
    pub fn row(self, row: usize) -> u64 {
        self.at + row as u64 * self.width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_rounds_every_allocation_up_as_a_device_does() {
        let mut memory = Memory::Counted(0);
        memory.words(3, 5).unwrap();
        memory.take(257).unwrap();
        memory.take(0).unwrap();
        assert!(matches!(memory, Memory::Counted(768)));
        let buf = Buf { at: 1000, width: 20 };
        assert_eq!(buf.row(3), 1060);
    }
}
