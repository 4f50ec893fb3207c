//! The dialect's text: what a device compiles.

/// A device that the text is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// NVRTC.
    Cuda,
    /// The Metal compiler.
    Metal,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// Every file by name.
        pub static FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("device/", $name)))),*];
    };
}

files! {
    "prelude_host.h", "prelude_cuda.h", "prelude_metal.h", "kernels.h", "consts.h", "faults.h",
    "math.h", "kept.h", "args.h", "reduce.h", "elementary.h", "norm.h", "hyper.h", "rope.h", "quant.h", "fetch.h", "arrange.h", "mix.h", "dense.h",
    "kv.h", "latents.h", "select.h", "attend.h", "experts.h", "engram.h", "sample.h", "probe.h",
    "parts.h",
}

macro_rules! cuda_files {
    ($($name:literal),* $(,)?) => {
        /// Every file of CUDA alone, in the order they are compiled, after the dialect's.
        pub static CUDA_FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("cuda/", $name)))),*];
    };
}

cuda_files! { "primitives.cuh", "hopper.cuh", "keys.cuh", "matmul.cuh", "matmul_few.cuh", "matmul_wide.cuh", "matmul_gated.cuh", "matmul_many.cuh", "attend.cuh", "attend_many.cuh", "select.cuh", "routes.cuh", "choose.cuh", "mix.cuh" }

/// The text of a file of the dialect.
pub fn text(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(file, _)| *file == name).map(|(_, text)| *text)
}

/// The whole text for a device: its prelude, the files of `kernels.h` in order, then the device's own.
pub fn program(target: Target) -> String {
    let prelude = match target {
        Target::Cuda => "prelude_cuda.h",
        Target::Metal => "prelude_metal.h",
    };
    let list = text("kernels.h").unwrap_or_default();
    let names = list.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
    let own: &[(&str, &str)] = if target == Target::Cuda { CUDA_FILES } else { &[] };
    let parts: Vec<&str> = std::iter::once(prelude)
        .chain(names)
        .filter_map(text)
        .chain(own.iter().map(|(_, text)| *text))
        .flat_map(str::lines)
        .filter(|line| *line != "#pragma once")
        .collect();
    parts.join("\n") + "\n"
}

/// The planted faults, each with its number.
pub fn faults() -> impl Iterator<Item = (&'static str, u32)> {
    text("faults.h").unwrap_or_default().lines().filter_map(|line| {
        let (name, number) = line.strip_prefix("#define FAULT_")?.split_once(' ')?;
        Some((name, number.trim_end_matches('u').parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_every_file_once() {
        for target in [Target::Cuda, Target::Metal] {
            let program = program(target);
            assert!(!program.contains("#include \""));
            let shared = FILES.iter().filter(|(name, _)| {
                !name.starts_with("prelude") && *name != "kernels.h" && *name != "host.h"
            });
            for (name, text) in shared {
                let first = text.lines().next().unwrap();
                assert_eq!(program.matches(first).count(), 1, "{name}");
            }
        }
    }

    #[test]
    fn assembly_stands_where_the_host_has_a_version_of_it() {
        let own = ["primitives.cuh", "hopper.cuh"];
        for (name, text) in CUDA_FILES {
            assert_eq!(text.contains("asm"), own.contains(name), "{name}");
        }
    }

    #[test]
    fn faults_have_numbers_of_their_own() {
        let numbers: Vec<u32> = faults().map(|(_, number)| number).collect();
        assert_eq!(numbers, (1..=numbers.len() as u32).collect::<Vec<_>>());
        assert!(numbers.len() > 30);
    }
}
