//! Launches on their way to the device: taped where rows are few, at once where they are many.

use finback_kernels::args::Args;
use finback_kernels::device::{Device, DeviceError, Findings, Gather, Launch, Place};
use finback_kernels::manifest::{Kernel, kernel};
use finback_kernels::tape::Tape;
use finback_ops::{OpsError, OpsResult};

/// Rows up to which a pass is taped. A round of few rows comes again and may be replayed; a piece of a
/// prompt does not, and its first launches may as well run while the others are made.
const TAPED_ROWS: usize = 128;

/// Launches of a taped pass that go to the device by themselves, to run while the others are made.
const FIRST: usize = 23;

/// A device and the launches that it has not got yet.
pub struct Queue {
    device: Box<dyn Device>,
    tape: Tape,
    taped: bool,
    /// Whether the pass's first launches still wait.
    first: bool,
    taped_rows: usize,
    scratch: Vec<u8>,
    last: Option<&'static Kernel>,
    /// Whether launches go aside now, whether one did, and whether the next one that does not waits for them.
    goes_aside: bool,
    aside: bool,
    joins: bool,
    /// Whether all passes so far are over, and whether those before the one that began were then: what runs may not
    /// read what is written beside it.
    over: bool,
    were_over: bool,
    /// Counts the passes that began.
    passes: u64,
    /// What the device noticed and nobody was told.
    findings: Findings,
}

impl Queue {
    /// A queue with nothing in it.
    pub fn new(device: Box<dyn Device>) -> Self {
        Self {
            device,
            tape: Tape::new(),
            taped: true,
            first: false,
            taped_rows: TAPED_ROWS,
            scratch: Vec::new(),
            last: None,
            goes_aside: false,
            aside: false,
            joins: false,
            over: true,
            were_over: true,
            passes: 0,
            findings: Findings::default(),
        }
    }

    /// The device's name.
    pub fn name(&self) -> &'static str {
        self.device.name()
    }

    /// Runs what waits, and takes launches of a pass of `rows` rows from now on.
    pub fn begin(&mut self, rows: usize) -> OpsResult {
        self.flush()?;
        self.goes_aside = false;
        self.taped = rows <= self.taped_rows;
        if !self.taped {
            // What is copied beside this pass's launches lies where those before may still read.
            self.wait()?;
        }
        self.were_over = std::mem::take(&mut self.over);
        self.first = true;
        self.passes += 1;
        Ok(())
    }

    /// Sets the rows up to which a pass is taped.
    pub fn tape_up_to(&mut self, rows: usize) {
        self.taped_rows = rows;
    }

    /// Whether the pass that began is taped.
    pub fn is_taped(&self) -> bool {
        self.taped
    }

    /// A launch; one of no groups is none.
    pub fn push<A: Args>(
        &mut self,
        kernel: &'static Kernel,
        args: &A,
        grid: [u32; 2],
    ) -> OpsResult {
        if grid.contains(&0) {
            return Ok(());
        }
        let place = match (self.goes_aside, self.joins) {
            (true, _) => Place::Aside,
            (false, true) => Place::Joined,
            (false, false) => Place::Main,
        };
        if self.goes_aside {
            self.aside = true;
        } else {
            (self.joins, self.last) = (false, Some(kernel));
        }
        if self.taped {
            self.tape.push_at(place, kernel, args, grid);
            let full = self.first && self.tape.len() >= FIRST;
            return if full { self.flush() } else { Ok(()) };
        }
        self.scratch.clear();
        args.put(&mut self.scratch);
        let launch = Launch::new(kernel, &self.scratch, grid);
        let name = self.device.name();
        self.device.launch(&launch).map_err(|error| failed(name, kernel.name, &error))
    }

    /// Of a taped pass: whether launches go aside from now on. Each is behind all before it, and those that do
    /// not go aside need not wait for it up to the next [`Queue::join`].
    pub fn go_aside(&mut self, aside: bool) {
        self.goes_aside = aside && self.taped;
    }

    /// The next launch that does not go aside waits for all that did.
    pub fn join(&mut self) {
        self.joins |= std::mem::take(&mut self.aside);
    }

    /// A gather, to which every device that shares the model comes.
    pub fn gather(&mut self, gather: Gather) -> OpsResult {
        self.last = None;
        if self.taped {
            self.tape.push_gather(gather);
            return Ok(());
        }
        let name = self.device.name();
        self.device.gather(&gather).map_err(|error| failed(name, "a gather", &error))
    }

    /// The kernel of the last launch but those aside, where the next one waits for it alone; of products that run beside
    /// each other the first: what was there before it may be read at once, where it is in turn, but nothing that these write.
    pub fn last(&self) -> Option<&'static Kernel> {
        self.last.filter(|_| !self.joins)
    }

    /// The last launch runs beside `before`, which stays the last one: what was there before that may be read at once, what
    /// either writes may not.
    pub fn stays_in_turn(&mut self, before: Option<&'static Kernel>) {
        self.last = before;
    }

    /// The next launch may not read anything before it has waited for the last one.
    pub fn out_of_turn(&mut self) {
        self.last = None;
    }

    /// Runs what waits.
    pub fn flush(&mut self) -> OpsResult {
        self.first = false;
        // A list ends where all of it has.
        (self.aside, self.joins) = (false, false);
        if self.tape.is_empty() {
            return Ok(());
        }
        let done = self.device.launch_all(&self.tape);
        self.tape.clear();
        done.map_err(|error| failed(self.device.name(), "a pass", &error))
    }

    /// Which pass began last; those before it have run, of its own launches some may wait.
    pub fn pass(&self) -> u64 {
        self.passes
    }

    /// The launches that wait.
    pub fn waiting(&self) -> &Tape {
        &self.tape
    }

    /// Writes bytes that no waiting launch reads.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> OpsResult {
        if bytes.is_empty() {
            return Ok(());
        }
        let done = self.device.write(address, bytes);
        done.map_err(|error| failed(self.device.name(), "a copy to the device", &error))
    }

    /// Writes bytes where no launch of this pass has read, while those may run. Launches between passes read nothing
    /// that is written so.
    pub fn write_beside(&mut self, address: u64, bytes: &[u8]) -> OpsResult {
        if !self.were_over {
            return self.write(address, bytes);
        }
        let done = self.device.write_beside(address, bytes);
        done.map_err(|error| failed(self.device.name(), "a copy to the device", &error))
    }

    /// Reads bytes after all that waits has run.
    pub fn read(&mut self, address: u64, out: &mut [u8]) -> OpsResult {
        self.flush()?;
        if out.is_empty() {
            return Ok(());
        }
        let done = self.device.read(address, out);
        done.map_err(|error| failed(self.device.name(), "a copy from the device", &error))?;
        self.over = true;
        Ok(())
    }

    /// Reads `count` words after all that waits has run.
    pub fn read_words(&mut self, address: u64, count: usize) -> Result<Vec<u32>, OpsError> {
        let mut bytes = vec![0; 4 * count];
        self.read(address, &mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect())
    }

    /// Waits for everything.
    pub fn wait(&mut self) -> OpsResult {
        self.flush()?;
        let done = self.device.finish();
        let found = done.map_err(|error| failed(self.device.name(), "a pass", &error))?;
        self.findings.add(found);
        self.over = true;
        Ok(())
    }

    /// Waits for everything; what the device noticed since the last call.
    pub fn finish(&mut self) -> Result<Findings, OpsError> {
        self.wait()?;
        Ok(std::mem::take(&mut self.findings))
    }
}

/// A device's failure as a backend's.
pub fn failed(backend: &'static str, step: &'static str, error: &DeviceError) -> OpsError {
    OpsError::Failed { backend, step, reason: error.to_string() }
}

macro_rules! kernels {
    ($($name:ident),* $(,)?) => {
        /// The kernels that the steps launch.
        #[allow(missing_docs, reason = "the kernels' files say what each does")]
        #[derive(Clone, Copy)]
        pub struct Kernels { $(pub $name: &'static Kernel),* }

        impl Kernels {
            /// Finds each one.
            ///
            /// # Errors
            /// One that the device has not.
            pub fn find(device: &dyn Device) -> Result<Self, OpsError> {
                Ok(Self { $($name: find(device, stringify!($name))?),* })
            }
        }
    };
}

kernels! {
    rmsnorm, embed, collapse, tap, hyper_in, hyper_out, index_query, finish_compressed, copy_rows,
    index_scores, block_best, topk, attend, route, route_few, group_routes, swiglu, finish_latents,
    sum_experts, engram_gather, engram_gate, choose, choose_top, choose_draw, choose_pick, adjust,
    add_rows, markov, join_parts,
}

/// The kernel of this name, where the device has it.
pub fn find(device: &dyn Device, name: &'static str) -> Result<&'static Kernel, OpsError> {
    kernel(name).filter(|kernel| device.has(kernel)).ok_or_else(|| OpsError::Unsupported {
        backend: device.name(),
        step: name,
        reason: "the device has no such kernel".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use finback_kernels::args::FillArgs;
    use finback_kernels::device::emu;

    #[test]
    fn a_pass_is_one_however_its_launches_go_to_the_device() {
        let Ok(mut device) = emu() else { return };
        let out = device.allocate(64).unwrap();
        let mut queue = Queue::new(device);
        let fill = kernel("fill").unwrap();
        let args = FillArgs { out, count: 16, width: 16, ..Default::default() };
        queue.begin(1).unwrap();
        let pass = queue.pass();
        for launch in 1..=FIRST + 2 {
            queue.push(fill, &args, [1, 1]).unwrap();
            assert_eq!(queue.waiting().len(), if launch < FIRST { launch } else { launch - FIRST });
            assert_eq!(queue.pass(), pass);
        }
        queue.begin(1).unwrap();
        assert!(queue.waiting().is_empty() && queue.pass() > pass);
    }

    #[test]
    fn rows_are_written_beside_a_pass_where_those_before_are_over() {
        let Ok(mut device) = emu() else { return };
        let out = device.allocate(64).unwrap();
        let mut queue = Queue::new(device);
        queue.begin(1).unwrap();
        assert!(queue.were_over);
        // What the last pass reads may still be wanted.
        queue.begin(1).unwrap();
        assert!(!queue.were_over);
        queue.read(out, &mut [0; 4]).unwrap();
        queue.begin(1).unwrap();
        assert!(queue.were_over);
        // A long pass waits by itself.
        queue.begin(TAPED_ROWS + 1).unwrap();
        assert!(queue.were_over);
    }

    #[test]
    fn taped_launches_go_aside_and_the_next_that_joins_waits_for_them() {
        let Ok(mut device) = emu() else { return };
        let out = device.allocate(64).unwrap();
        let mut queue = Queue::new(device);
        let fill = kernel("fill").unwrap();
        let args = FillArgs { out, count: 16, width: 16, ..Default::default() };
        let places = |queue: &mut Queue| {
            for aside in [false, true, false] {
                queue.go_aside(aside);
                queue.push(fill, &args, [1, 1]).unwrap();
            }
            assert!(queue.last().is_some());
            queue.join();
            let known = queue.last().is_some();
            queue.push(fill, &args, [1, 1]).unwrap();
            (known, queue.waiting().launches().map(|one| one.place).collect::<Vec<_>>())
        };
        queue.begin(TAPED_ROWS).unwrap();
        let few = [Place::Main, Place::Aside, Place::Main, Place::Joined];
        assert_eq!(places(&mut queue), (false, few.to_vec()));
        queue.begin(TAPED_ROWS + 1).unwrap();
        assert_eq!(places(&mut queue), (true, Vec::new()));
    }
}
