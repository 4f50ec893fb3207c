//! Compiles the kernels through the host's prelude, where fibers are written for the target.

use std::env::var;

fn main() {
    println!("cargo:rerun-if-changed=src/cuda");
    println!("cargo:rerun-if-changed=src/device");
    println!("cargo:rerun-if-changed=src/host");
    println!("cargo:rustc-check-cfg=cfg(host_build)");
    let arch = var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let unix = var("CARGO_CFG_UNIX").is_ok();
    if !unix || !["x86_64", "aarch64"].contains(&arch.as_str()) {
        return;
    }
    // The level is fixed: what a kernel computes must not depend on the profile.
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .flag("-ffp-contract=off")
        .flag("-fno-fast-math")
        // Kernels of CUDA read shared memory as other types than it was written in, and say how loops unroll.
        .flag("-fno-strict-aliasing")
        .flag("-Wno-unknown-pragmas")
        // What a device refuses or computes otherwise ends a launch.
        .flag_if_supported("-fsanitize=alignment,bounds,shift")
        .flag_if_supported("-fsanitize-undefined-trap-on-error");
    build.file("src/host/build.cpp").file("src/host/tiles.cpp").compile("finback_kernels_host");
    println!("cargo:rustc-cfg=host_build");
}
