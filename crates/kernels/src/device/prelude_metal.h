// The dialect for Metal. Compiled at load with MTLMathMode.safe and precise functions. Not compiled
// by this repository's checks: text until someone runs it on a Mac.
#pragma once
#include <metal_stdlib>
using namespace metal;
#pragma METAL fp contract(off)

typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef int i32;
typedef ulong u64;
typedef long i64;

#define GLOBAL device
#define THREAD thread
#define DEVICE static inline
#define SHARED_REF(T) threadgroup T*
#define ARGS_REF(T) constant const T&
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("nounroll")

// Pointers in the arguments are GPU addresses, as argument buffers of tier 2 hold them.
#define KERNEL(name, Args)                                                                         \
    kernel void name(constant Args& args [[buffer(0)]],                                            \
        uint3 group_in_grid [[threadgroup_position_in_grid]],                                      \
        uint lane_in_group [[thread_index_in_threadgroup]])
// Launches run one after another: there is nothing to rehearse or to be ahead of.
#define KERNEL_REHEARSED(name, Args) KERNEL(name, Args)
#define LIVE true
#define FIRST_ACT() 1u
#define KERNEL_AHEAD(name, Args, groups) KERNEL(name, Args)
#define LAUNCHES_BEFORE()
#define SHARED(T, name, count) threadgroup T name[count]

#define LANE lane_in_group
#define GROUP_X group_in_grid.x
#define GROUP_Y group_in_grid.y
#define BARRIER() threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device)

#define SHUFFLE_XOR(value, mask) simd_shuffle_xor(value, mask)
#define WARP_MAX(x) simd_max(x)
#define FMA(a, b, c) fma(a, b, c)
#define QUOTIENT(a, b) ((a) / (b))
#define SQRT(x) precise::sqrt(x)
#define AS_BITS(x) as_type<u32>(x)
#define AS_FLOAT(x) as_type<float>(x)
#define LOAD16(from) (*reinterpret_cast<GLOBAL const Bytes16*>(from))
#define STORE16(to, bytes) (*reinterpret_cast<GLOBAL Bytes16*>(to) = (bytes))

#ifndef PLANTED_FAULT
#define PLANTED_FAULT 0
#endif
#define PLANTED(fault) (PLANTED_FAULT == (fault))
