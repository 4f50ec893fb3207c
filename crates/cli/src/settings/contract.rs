//! The settings of `finback contract`.

use super::{
    Category, Command::BenchRound, Command::Contract, Declared, Kind, Setting, table::BASE,
};

/// What they share.
const CONTRACT: Declared =
    Declared { category: Category::Contract, env: false, commands: &[Contract], ..BASE };

pub(super) static ALL: &[&Declared] = &[&DEVICE.declared, &KERNEL.declared, &NO_FAULTS.declared];

/// Where kernels run.
pub static DEVICE: Setting<String> = Setting::new(Declared {
    name: "device",
    kind: Kind::Choice(&["emu", "cuda", "metal"]),
    default: "emu",
    commands: &[Contract, BenchRound],
    help: "Device that runs the kernels: emu is the host, each lane a fiber",
    ..CONTRACT
});

/// Whether planted faults are left out.
pub static NO_FAULTS: Setting<bool> = Setting::new(Declared {
    name: "no-faults",
    kind: Kind::Switch,
    unset: "every planted fault must be seen",
    help: "Plants no faults, and every lane signals for itself: for a race checker beside it",
    ..CONTRACT
});

/// One kernel alone.
pub static KERNEL: Setting<Option<String>> = Setting::new(Declared {
    name: "kernel",
    kind: Kind::Text("NAME"),
    unset: "all of them",
    help: "Runs the contract of this kernel alone",
    ..CONTRACT
});
