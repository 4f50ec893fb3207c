"""Compiles the device text where no device is: NVRTC for CUDA, and clang's C++ for OpenCL, whose address
spaces are Metal's, as a check of syntax and spaces. Nothing is run.

    pip install nvidia-cuda-nvrtc libclang
    python crates/kernels/check/compile.py
"""

import ctypes
import importlib.util
import re
import sys
from functools import partial
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
DEVICE = SOURCE / "device"
FILES = re.findall(r'#include "(.*)"', (DEVICE / "kernels.h").read_text())
# The tensor-core kernels, in the order they are compiled.
CUDA_LIST = re.search(r"cuda_files! \{(.*?)\}", (SOURCE / "source.rs").read_text(), re.DOTALL)
CUDA_FILES = re.findall(r'"(.*?)"', CUDA_LIST[1])
# Of the dialect's words, what C++ for OpenCL has instead. Entries of kernels are rewritten: there,
# arguments arrive as bytes, since a kernel of OpenCL takes no struct with pointers.
SPACES = """
#define GLOBAL __global
#define THREAD __private
#define DEVICE static inline
#define SHARED_REF(T) __local T*
#define ARGS_REF(T) __constant T&
#define UNROLL
#define ROLLED
#define SHARED(T, name, count) __local T name[count]
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef int i32;
typedef unsigned long u64; typedef long i64;
u32 lane_of(); u32 group_x_of(); u32 group_y_of(); void barrier_of();
u32 most_of(u32); float fma_of(float, float, float); float sqrt_of(float);
template <class T> T shuffle_of(T, u32);
#define LANE lane_of()
#define GROUP_X group_x_of()
#define GROUP_Y group_y_of()
#define BARRIER() barrier_of()
#define SHUFFLE_XOR(x, mask) shuffle_of(x, mask)
#define LAUNCHES_BEFORE()
#define FIRST_ACT() 1u
#define LIVE true
#define WARP_MAX(x) most_of(x)
#define FMA(a, b, c) fma_of(a, b, c)
#define QUOTIENT(a, b) ((a) / (b))
#define SQRT(x) sqrt_of(x)
#define AS_BITS(x) __builtin_astype(float(x), u32)
#define AS_FLOAT(x) __builtin_astype(u32(x), float)
#define WORD(from, i) ((GLOBAL const u32*)(from))[i]
#define LOAD16(from) Bytes16{{WORD(from, 0), WORD(from, 1), WORD(from, 2), WORD(from, 3)}}
#define STORE16(to, bytes) for (u32 w = 0; w < 4u; w++) ((GLOBAL u32*)(to))[w] = (bytes).word[w]
#define PLANTED(fault) (lane_of() == (fault))
"""
LACKS = ["generic_address_space", "program_scope_global_variables", "pipes", "device_enqueue"]


def text(name, folder=DEVICE):
    return f'#line 1 "{name}"\n' + (folder / name).read_text().replace("#pragma once", "")


def nvrtc(architecture):
    """Errors of the CUDA text, None where NVRTC is not installed."""
    # A package of libraries alone: its folder names the CUDA version.
    found = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in found.submodule_search_locations] if found else []
    libraries = [path for root in roots for path in root.glob("*/lib/libnvrtc.so*")]
    if not libraries:
        return None
    library = ctypes.CDLL(str(libraries[0]))
    files = [text(name) for name in ["prelude_cuda.h", *FILES]]
    files += [text(name, SOURCE / "cuda") for name in CUDA_FILES]
    source = "\n".join(files).encode()
    options = [f"--gpu-architecture={architecture}", "--std=c++17", "--fmad=false", "--ftz=false"]
    options = [option.encode() for option in [*options, "--prec-div=true", "--prec-sqrt=true"]]
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", 0, None, None)
    array = (ctypes.c_char_p * len(options))(*options)
    if library.nvrtcCompileProgram(program, len(options), array) == 0:
        return []
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    return log.value.decode().splitlines()


def spaces():
    """Errors of the text as C++ for OpenCL, None where libclang is not installed."""
    if not importlib.util.find_spec("clang"):
        return None
    from clang import cindex

    source = SPACES + "\n".join(text(name) for name in FILES)
    entry = r"__kernel void \1(__constant u8* raw) { __constant \2& args = *(__constant \2*)raw;"
    source = re.sub(r"(?m)^KERNEL(?:_AHEAD|_REHEARSED)?\((\w+), (\w+)(?:, \d+)?\) \{", entry, source)
    source = re.sub(r"(?m)^    KERNEL\((name), (\w+)\) \{", entry, source)
    options = ["-x", "cl", "-cl-std=clc++2021", "-target", "spir64", "-cl-no-stdinc", "-ferror-limit=0"]
    options += ["-Xclang", "-cl-ext=" + ",".join(f"-__opencl_c_{name}" for name in LACKS)]
    unit = cindex.Index.create().parse("kernels.clcpp", options, [("kernels.clcpp", source)])
    bad = [found for found in unit.diagnostics if found.severity >= cindex.Diagnostic.Error]
    return [f"{found.location.line}: {found.spelling}" for found in bad]


def main():
    failed = False
    # The least device that is accepted, and the one whose own instructions are used.
    checks = [(f"nvrtc {name}", partial(nvrtc, name)) for name in ("sm_80", "sm_90a")]
    checks.append(("address spaces", spaces))
    for name, check in checks:
        errors = check()
        word = "skipped, not installed" if errors is None else f"{len(errors)} errors"
        print(f"{name}: {word}", *(errors or []), sep="\n  ")
        failed |= bool(errors)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
