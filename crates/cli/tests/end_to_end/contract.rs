//! The kernels' contract as a command.

use finback_kernels::manifest::KERNELS;

use crate::support::{failure, json, stdout};

#[test]
fn the_contract_holds_on_the_host() {
    let text = stdout(&["contract"]);
    let summary = text.lines().last().expect("a summary");
    let words: Vec<&str> = summary.split(' ').collect();
    assert_eq!(words[..2], ["SUMMARY", "device=emu"], "{summary}");
    assert_eq!(
        words[4..],
        ["fails=0", words[5], "faults_missed=0", "skipped=0", "faults_skipped=0"],
        "{summary}"
    );
    // Every kernel has a line of its own in the table.
    assert_eq!(words[2], format!("kernels={}", KERNELS.len()));
    let rows = text.lines().filter(|line| line.contains("  skipped  ")).count();
    assert_eq!(rows, KERNELS.len(), "{summary}");
}

#[test]
fn one_kernel_is_checked_alone() {
    let report = json(&["contract", "--kernel", "attend", "--json"]);
    let kernels = report["kernels"].as_array().expect("kernels");
    assert_eq!(kernels.len(), 1);
    assert_eq!(
        (&kernels[0]["kernel"], &kernels[0]["gates"]["rows"]),
        (&"attend".into(), &"pass".into())
    );
    assert!(
        kernels[0]["faults"].as_array().expect("faults").iter().all(|fault| fault["red"] == true)
    );
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    let (code, message) = failure(&["contract", "--device", "metal"]);
    let wanted =
        "error: --device metal: this build has no Metal backend yet; it has emu and cuda\n";
    assert_eq!((code, message.as_str()), (2, wanted));
    let (code, message) = failure(&["contract", "--kernel", "attention"]);
    assert!(
        code == 2 && message.starts_with("error: --kernel: found \"attention\", wanted one of "),
        "{message}"
    );
}
