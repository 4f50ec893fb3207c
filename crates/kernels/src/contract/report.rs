//! What a run of the contract found, as a table and a summary.

use std::fmt::Write as _;

use super::case::Gate;

/// How a gate stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Green at every shape.
    Pass,
    /// Nothing of it applies: the kernel has no float input to break.
    None,
    /// Red, and why.
    Fail(String),
}

impl Verdict {
    fn word(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::None => "none",
            Self::Fail(_) => "FAIL",
        }
    }
}

/// One planted fault.
#[derive(Debug, Clone)]
pub struct FaultResult {
    /// Its name.
    pub name: &'static str,
    /// The gate that it must turn red.
    pub gate: Gate,
    /// Whether it did.
    pub red: bool,
}

/// One kernel.
#[derive(Debug, Clone, Default)]
pub struct KernelResult {
    /// Its name.
    pub kernel: &'static str,
    /// Shapes it was run at.
    pub shapes: usize,
    /// Every gate.
    pub gates: Vec<(Gate, Verdict)>,
    /// Its planted faults.
    pub faults: Vec<FaultResult>,
    /// Planted faults left out, or left to the device's race checker.
    pub faults_skipped: usize,
}

impl KernelResult {
    /// Whether it has cases and no gate is red.
    pub fn passes(&self) -> bool {
        let red = |(_, verdict): &(Gate, Verdict)| matches!(verdict, Verdict::Fail(_));
        self.shapes > 0 && !self.gates.iter().any(red)
    }
}

/// A run of the contract.
#[derive(Debug, Clone)]
pub struct Report {
    /// The device.
    pub device: &'static str,
    /// Every kernel that was run.
    pub kernels: Vec<KernelResult>,
    /// Kernels that the device has not.
    pub skipped: Vec<&'static str>,
}

impl Report {
    /// Whether every kernel passes and every fault was seen.
    pub fn is_green(&self) -> bool {
        let (_, fails, _, missed) = self.counts();
        fails == 0 && missed == 0 && !self.kernels.is_empty()
    }

    /// Kernels that pass and that fail, faults that turned their gate red and that did not.
    pub fn counts(&self) -> (usize, usize, usize, usize) {
        let passes = self.kernels.iter().filter(|kernel| kernel.passes()).count();
        let faults = || self.kernels.iter().flat_map(|kernel| &kernel.faults);
        let red = faults().filter(|fault| fault.red).count();
        (passes, self.kernels.len() - passes, red, faults().count() - red)
    }

    /// The summary in one line.
    pub fn summary(&self) -> String {
        let (passes, fails, red, missed) = self.counts();
        format!(
            "SUMMARY device={} kernels={} passes={passes} fails={fails} faults_red={red} \
             faults_missed={missed} skipped={} faults_skipped={}",
            self.device,
            self.kernels.len(),
            self.skipped.len(),
            self.kernels.iter().map(|kernel| kernel.faults_skipped).sum::<usize>()
        )
    }

    /// A line a kernel, what is red under it, and the summary.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = write!(text, "{:<20} {:>6}", "kernel", "shapes");
        for gate in Gate::ALL {
            let _ = write!(text, "  {:<9}", gate.name());
        }
        let _ = writeln!(text, "  {:<7}  faults red", "speed");
        for kernel in &self.kernels {
            let _ = write!(text, "{:<20} {:>6}", kernel.kernel, kernel.shapes);
            for (_, verdict) in &kernel.gates {
                let _ = write!(text, "  {:<9}", verdict.word());
            }
            let red = kernel.faults.iter().filter(|fault| fault.red).count();
            let _ = writeln!(text, "  {:<7}  {red} of {}", "skipped", kernel.faults.len());
            for (gate, verdict) in &kernel.gates {
                if let Verdict::Fail(why) = verdict {
                    let _ = writeln!(text, "  {}: {why}", gate.name());
                }
            }
            for fault in kernel.faults.iter().filter(|fault| !fault.red) {
                let _ =
                    writeln!(text, "  MISSED {}: {} stays green", fault.name, fault.gate.name());
            }
        }
        if !self.skipped.is_empty() {
            let names = self.skipped.join(", ");
            let _ = writeln!(text, "skipped, not on the {} device: {names}", self.device);
        }
        let _ = writeln!(text, "speed: skipped, the {} device has no speed to record", self.device);
        text + &self.summary() + "\n"
    }
}
