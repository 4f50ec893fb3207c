//! The contract: what every kernel keeps on every device.
//!
//! Five gates a kernel: it matches float64 (or exact bytes) within a bound from its operation count;
//! a row's bits are the same at every row count, beside any neighbour, in any order of lanes; it
//! writes every output and nothing else; a NaN stays in its row and goes where the kernel's rule
//! says; and a speed record, which the host has none of. Every kernel has planted faults, and each
//! must turn its gate red: a gate that cannot fail holds nothing.

mod case;
mod cases;
mod data;
mod gates;
mod report;

pub use case::{Case, Gate};
pub use cases::all as cases;
pub use report::{FaultResult, KernelResult, Report, Verdict};

use crate::device::Device;
use crate::manifest::{KERNELS, Kernel};
use crate::source;
use gates::{Bench, Red};

/// What of the contract is run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope<'a> {
    /// The one kernel, or every one.
    pub only: Option<&'a str>,
    /// Leaves the planted faults out: for a race checker, which would report theirs.
    pub no_faults: bool,
}

/// How planted faults end that only a race checker is sure to see, or a device whose launches can be stopped.
const HIDDEN: [&str; 2] = ["MISSING_BARRIER", "REHEARSAL_WRITES"];

/// Runs the contract on a device. `watch` hears each kernel's name.
pub fn run(device: &mut dyn Device, scope: Scope<'_>, mut watch: impl FnMut(&str)) -> Report {
    let Scope { only, no_faults } = scope;
    let all = cases();
    let mut report = Report { device: device.name(), kernels: Vec::new(), skipped: Vec::new() };
    for kernel in KERNELS.iter().filter(|kernel| only.is_none_or(|name| name == kernel.name)) {
        watch(kernel.name);
        if !device.has(kernel) {
            report.skipped.push(kernel.name);
            continue;
        }
        let own: Vec<&Case> = all.iter().filter(|case| case.kernel == kernel.name).collect();
        report.kernels.push(kernel_result(device, kernel, &own, no_faults));
    }
    report
}

fn kernel_result(
    device: &mut dyn Device,
    kernel: &'static Kernel,
    cases: &[&Case],
    no_faults: bool,
) -> KernelResult {
    let mut result =
        KernelResult { kernel: kernel.name, shapes: cases.len(), ..Default::default() };
    for gate in Gate::ALL {
        let mut bench = Bench { device, kernel, fault: 0 };
        let red = cases.iter().find_map(|case| {
            let red = bench.gate(case, gate).err()?;
            Some(format!("{}: {red}", case.shape))
        });
        let none = gate == Gate::Broken && cases.iter().all(|case| case.strikes.is_empty());
        let passed = if none { Verdict::None } else { Verdict::Pass };
        result.gates.push((gate, red.map_or(passed, Verdict::Fail)));
    }
    for case in cases {
        for &(name, gate) in &case.faults {
            let hidden = HIDDEN.iter().any(|end| name.ends_with(end));
            if no_faults || hidden && !device.sees_races() {
                result.faults_skipped += 1;
                continue;
            }
            let fault = source::faults().find(|(known, _)| *known == name).map_or(0, |(_, n)| n);
            let found = Bench { device, kernel, fault }.gate(case, gate);
            result.faults.push(FaultResult {
                name,
                gate,
                red: fault != 0 && matches!(found, Err(Red::Found(_))),
            });
        }
    }
    result
}

#[cfg(test)]
#[cfg(host_build)]
mod tests {
    use super::*;
    use crate::host::Host;
    use crate::manifest;

    #[test]
    fn every_kernel_keeps_its_contract_and_every_fault_is_seen() {
        let report = run(&mut Host::new(), Scope::default(), |_| {});
        println!("{}", report.summary());
        assert!(report.is_green(), "{}", report.text());
        assert_eq!((report.kernels.len(), report.skipped.len()), (KERNELS.len(), 0));
    }

    #[test]
    fn every_kernel_has_cases_and_a_fault_and_every_fault_a_kernel() {
        let all = cases();
        for kernel in KERNELS {
            let own: Vec<&Case> = all.iter().filter(|case| case.kernel == kernel.name).collect();
            assert!(!own.is_empty(), "{}: no case", kernel.name);
            assert!(own.iter().any(|case| !case.faults.is_empty()), "{}: no fault", kernel.name);
        }
        for (fault, _) in source::faults() {
            let used = all.iter().flat_map(|case| &case.faults).any(|(name, _)| *name == fault);
            assert!(used, "{fault} is planted nowhere");
        }
        for (name, _) in all.iter().flat_map(|case| &case.faults) {
            assert!(source::faults().any(|(known, _)| known == *name), "{name} is no fault");
        }
    }

    #[test]
    fn faults_are_left_out_and_said_to_be() {
        let scope = Scope { only: Some("rmsnorm"), no_faults: true };
        let report = run(&mut Host::new(), scope, |_| {});
        assert!(report.is_green() && report.kernels[0].faults.is_empty());
        assert_eq!(report.kernels[0].faults_skipped, 6);
    }

    #[test]
    fn a_gate_that_stays_green_under_a_fault_is_a_miss() {
        let mut case = Case::new("rmsnorm", "nothing", 1);
        case.faults.push(("NORM_UNWRITTEN", Gate::Writes));
        // No rows are launched, so nothing can turn red.
        let kernel = manifest::kernel("rmsnorm").unwrap();
        case = case.launch(|_, _| (vec![0; 40], [0, 0]));
        let result = kernel_result(&mut Host::new(), kernel, &[&case], false);
        let report = Report { device: "emu", kernels: vec![result], skipped: Vec::new() };
        assert!(!report.is_green());
        assert!(
            report.text().ends_with("faults_red=0 faults_missed=1 skipped=0 faults_skipped=0\n"),
            "{}",
            report.text()
        );
    }
}
