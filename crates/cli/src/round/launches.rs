//! The launches of a round, listed without a device.

use std::fmt::Write as _;

use finback_kernels::device::{Device, DeviceError, Findings, HostMemory, Launch};
use finback_kernels::manifest::Kernel;
use finback_kernels::tape::Tape;
use serde_json::{Value, json};

use super::work::Class;

/// Groups that an H200 runs at once: what launches are made to fill.
const WIDTH: u32 = 132;

/// A GPU that runs nothing: memory is addresses alone, and reads as zeros.
pub struct Blank {
    next: u64,
    tensor_attention: bool,
}

impl Blank {
    /// One that has the kernels of [`finback_cuda::takes`].
    pub fn new(tensor_attention: bool) -> Self {
        Self { next: 256, tensor_attention }
    }
}

impl Device for Blank {
    fn name(&self) -> &'static str {
        finback_cuda::NAME
    }
    fn allocate(&mut self, bytes: usize) -> Result<u64, DeviceError> {
        let address = self.next;
        self.next += bytes.next_multiple_of(256) as u64;
        Ok(address)
    }
    fn free_memory(&mut self) -> Result<Option<usize>, DeviceError> {
        Ok(None)
    }
    fn register(&mut self, memory: Box<dyn HostMemory>) -> Result<u64, DeviceError> {
        // Where it lies: nothing reads it.
        Ok(memory.bytes().as_ptr().addr() as u64)
    }
    fn clear(&mut self) {
        self.next = 256;
    }
    fn write(&mut self, _: u64, _: &[u8]) -> Result<(), DeviceError> {
        Ok(())
    }
    fn read(&mut self, _: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        out.fill(0);
        Ok(())
    }
    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), DeviceError> {
        launch.check(self)
    }
    fn finish(&mut self) -> Result<Findings, DeviceError> {
        Ok(Findings::default())
    }
    fn has(&self, kernel: &Kernel) -> bool {
        finback_cuda::takes(kernel, self.tensor_attention)
    }
    fn width(&self) -> u32 {
        WIDTH
    }
}

/// One kind of round and its launches.
#[derive(Debug)]
pub struct Listed {
    /// Slots with a window.
    pub slots: usize,
    /// Rows of each.
    pub rows: usize,
    /// In order.
    pub tape: Tape,
}

impl Listed {
    /// Launches of a class.
    pub fn count(&self, class: Class) -> usize {
        self.tape.launches().filter(|launch| Class::of(launch.kernel) == class).count()
    }

    /// As lines.
    pub fn text(&self) -> String {
        let mut text =
            format!("\n{} slots x {} rows: {} launches", self.slots, self.rows, self.tape.len());
        // Writing to a string cannot fail.
        for class in Class::ALL {
            let _ = write!(text, ", {} {}", class.name(), self.count(class));
        }
        text.push('\n');
        for (i, launch) in self.tape.launches().enumerate() {
            let (name, [x, y]) = (launch.kernel.name, launch.grid);
            let (lanes, class) = (launch.kernel.lanes, Class::of(launch.kernel).name());
            let _ = writeln!(text, "{i:>5} {name:<20} {class:<9} {x:>5} x {y:<4} of {lanes}");
        }
        text
    }

    /// As a document.
    pub fn to_json(&self) -> Value {
        let launches: Vec<Value> = self
            .tape
            .launches()
            .map(|launch| {
                json!({
                    "kernel": launch.kernel.name, "class": Class::of(launch.kernel).name(),
                    "groups": launch.grid, "lanes": launch.kernel.lanes,
                })
            })
            .collect();
        json!({ "slots": self.slots, "rows": self.rows, "launches": launches })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use finback_kernels::args::{Args, RmsnormArgs};
    use finback_kernels::manifest::kernel;

    #[test]
    fn launches_are_listed_in_order_and_counted_by_class() {
        let mut tape = Tape::new();
        let norm = kernel("rmsnorm").unwrap();
        tape.push(norm, &RmsnormArgs::default(), [3, 1]);
        tape.push(norm, &RmsnormArgs::default(), [6, 1]);
        let listed = Listed { slots: 1, rows: 6, tape };
        assert_eq!((listed.count(Class::Glue), listed.count(Class::Dense)), (2, 0));
        let text = listed.text();
        assert!(text.contains("1 slots x 6 rows: 2 launches, dense 0,"), "{text}");
        assert!(
            text.ends_with("    1 rmsnorm              glue          6 x 1    of 128\n"),
            "{text}"
        );
        assert_eq!(listed.to_json()["launches"][1]["groups"][0], 6);
    }

    #[test]
    fn a_gpu_that_runs_nothing_has_the_kernels_of_one() {
        let tensor = kernel("tile_attend_mix").unwrap();
        let (portable, mut all) = (Blank::new(false), Blank::new(true));
        assert!(!portable.has(tensor) && all.has(tensor));
        let [one, two] = [300, 1].map(|bytes| all.allocate(bytes).unwrap());
        assert_eq!((one % 256, two), (0, one + 512));
        let mut word = [1; 4];
        all.read(one, &mut word).unwrap();
        assert_eq!(word, [0; 4]);
        let bytes = RmsnormArgs::default().bytes();
        let launch = |args| Launch::new(kernel("rmsnorm").unwrap(), args, [1, 1]);
        assert!(all.launch(&launch(&bytes)).is_ok() && all.launch(&launch(&bytes[1..])).is_err());
    }
}
