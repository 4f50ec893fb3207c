//! Any device at a meeting: what it gathers goes by way of the host.

use crate::device::{Device, DeviceError, Findings, Gather, HostMemory, Launch, emu};
use crate::manifest::Kernel;
use crate::meeting::{Meeting, Seat};

/// The host as so many devices that share one model, in order of rank.
///
/// # Errors
/// As [`emu`].
pub fn emu_group(count: usize) -> Result<Vec<Box<dyn Device>>, DeviceError> {
    let seats = Meeting::seats(count).into_iter();
    seats.map(|seat| Ok(seated(emu()?, seat))).collect()
}

/// A device with a seat.
pub fn seated(device: Box<dyn Device>, seat: Seat) -> Box<dyn Device> {
    Box::new(Seated { device, seat })
}

struct Seated {
    device: Box<dyn Device>,
    seat: Seat,
}

impl Device for Seated {
    fn name(&self) -> &'static str {
        self.device.name()
    }

    fn key(&self) -> String {
        self.device.key()
    }

    fn allocate(&mut self, bytes: usize) -> Result<u64, DeviceError> {
        self.device.allocate(bytes)
    }

    fn free_memory(&mut self) -> Result<Option<usize>, DeviceError> {
        self.device.free_memory()
    }

    fn register(&mut self, memory: Box<dyn HostMemory>) -> Result<u64, DeviceError> {
        self.device.register(memory)
    }

    fn clear(&mut self) {
        self.device.clear();
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.device.write(address, bytes)
    }

    fn write_beside(&mut self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.device.write_beside(address, bytes)
    }

    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(address, out)
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), DeviceError> {
        self.device.launch(launch)
    }

    fn gather(&mut self, gather: &Gather) -> Result<(), DeviceError> {
        let mut own = vec![0; gather.bytes];
        self.device.read(gather.from, &mut own)?;
        let failed = |what| DeviceError::Failed { device: self.device.name(), what };
        let parts = self.seat.exchange(own).map_err(failed)?;
        self.device.write(gather.to, &parts.concat())
    }

    fn finish(&mut self) -> Result<Findings, DeviceError> {
        self.device.finish()
    }

    fn has(&self, kernel: &Kernel) -> bool {
        self.device.has(kernel)
    }

    fn width(&self) -> u32 {
        self.device.width()
    }

    fn sees_races(&self) -> bool {
        self.device.sees_races()
    }

    fn seat(&self) -> Option<Seat> {
        Some(self.seat.clone())
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.seat.leave("it was closed");
    }
}

#[cfg(test)]
#[cfg(host_build)]
mod tests {
    use super::*;
    use crate::tape::Tape;

    #[test]
    fn every_device_has_all_parts_after_a_gather_on_a_tape() {
        let threads: Vec<_> = emu_group(3)
            .unwrap()
            .into_iter()
            .map(|mut device| {
                std::thread::spawn(move || {
                    let rank = device.seat().unwrap().rank as u8;
                    let (from, to) = (device.allocate(4).unwrap(), device.allocate(12).unwrap());
                    device.write(from, &[rank; 4]).unwrap();
                    let mut tape = Tape::new();
                    tape.push_gather(Gather { from, to, bytes: 4 });
                    device.launch_all(&tape).unwrap();
                    let mut out = [9; 12];
                    device.read(to, &mut out).unwrap();
                    out
                })
            })
            .collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
        }
        let gather = Gather { from: 0, to: 0, bytes: 4 };
        let text = emu().unwrap().gather(&gather).unwrap_err().to_string();
        assert_eq!(text, "emu: a gather of 4 bytes, and no other device shares the model");
    }
}
