//! Every kernel's contract on the device. Planted faults are for `finback contract`: beside other tests
//! they could harm what those hold.

use finback_kernels::contract::{Scope, run};

use crate::load::device;

#[test]
fn every_kernel_keeps_its_contract() {
    let mut device = device();
    let scope = Scope { no_faults: true, ..Scope::default() };
    let report = run(device.as_mut(), scope, |_| ());
    println!("{}", report.summary());
    assert!(report.is_green(), "{}", report.text());
}
