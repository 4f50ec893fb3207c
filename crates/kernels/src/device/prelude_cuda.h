// The dialect for NVRTC. Compiled at load with --fmad=false --ftz=false --prec-div=true
// --prec-sqrt=true, never with fast math.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

#define GLOBAL
#define THREAD
#define DEVICE __device__ static inline
#define SHARED_REF(T) T*
#define ARGS_REF(T) const T&
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")

// A launch may be on the device before the one before it has ended: it lets the next one come, and
// waits before it reads or writes anything that another writes.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define NEXT_MAY_COME() asm volatile("griddepcontrol.launch_dependents;" ::: "memory")
#define LAUNCHES_BEFORE() asm volatile("griddepcontrol.wait;" ::: "memory")
#else
#define NEXT_MAY_COME()
#define LAUNCHES_BEFORE()
#endif
// How a kernel begins: the next launch comes at once; the kernel waits by itself; or it lets the next one come by
// itself too.
#define AT_START() NEXT_MAY_COME(); LAUNCHES_BEFORE()
#define AHEAD() NEXT_MAY_COME()
#define BY_ITSELF()
#define KERNEL_BODY(name, Args, bounds, begin)                                                     \
    static __device__ __forceinline__ void name##_lanes(const Args& args);                         \
    extern "C" __global__ void bounds name(const __grid_constant__ Args args) {                    \
        begin();                                                                                   \
        name##_lanes(args);                                                                        \
    }                                                                                              \
    static __device__ __forceinline__ void name##_lanes(const Args& args)
#define KERNEL(name, Args) KERNEL_BODY(name, Args, , AT_START)
// A kernel may rehearse before it waits: in act 0 it neither reads nor writes what a launch writes, but its instructions are
// there in act 1. Of many groups most begin after the wait: they have no act 0.
#define FIRST_ACT() (gridDim.x * gridDim.y > 64u ? 1u : 0u)
// A kernel whose body is LIVE in act 1 alone.
#define KERNEL_REHEARSED(name, Args)                                                               \
    static __device__ __forceinline__ void name##_lanes(const Args& args, const bool live);        \
    extern "C" __global__ void name(const __grid_constant__ Args args) {                           \
        NEXT_MAY_COME();                                                                           \
        ROLLED                                                                                     \
        for (u32 act = FIRST_ACT(); act < 2u; act++) {                                             \
            if (act > 0) { LAUNCHES_BEFORE(); }                                                    \
            name##_lanes(args, act > 0);                                                           \
        }                                                                                          \
    }                                                                                              \
    static __device__ __forceinline__ void name##_lanes(const Args& args, const bool live)
#define LIVE live
// A kernel that waits by itself, after it has read what no launch writes; so many groups share a processor.
#define KERNEL_AHEAD(name, Args, groups) KERNEL_BODY(name, Args, __launch_bounds__(128, groups), AHEAD)
// A kernel of CUDA alone: so many threads a group; its shared memory may be the launch's.
#define CUDA_KERNEL(name, Args, lanes) KERNEL_BODY(name, Args, __launch_bounds__(lanes), AT_START)
#define CUDA_KERNEL_BY_ITSELF(name, Args, lanes) KERNEL_BODY(name, Args, __launch_bounds__(lanes), BY_ITSELF)
#define CUDA_KERNEL_AHEAD(name, Args, lanes, groups) KERNEL_BODY(name, Args, __launch_bounds__(lanes, groups), AHEAD)
#define SHARED(T, name, count) __shared__ T name[count]

#define LANE threadIdx.x
#define GROUP_X blockIdx.x
#define GROUP_Y blockIdx.y
#define BARRIER() __syncthreads()

#define SHUFFLE_XOR(value, mask) __shfl_xor_sync(0xffffffffu, value, mask)
#define WARP_MAX(x) __reduce_max_sync(0xffffffffu, x)
#define FMA(a, b, c) __fmaf_rn(a, b, c)
#define SQRT(x) __fsqrt_rn(x)
#define AS_BITS(x) __float_as_uint(x)
#define AS_FLOAT(x) __uint_as_float(x)
#define QUOTIENT(a, b) normal_quotient(a, b)
// The way that a division goes where no step of it leaves the normal numbers.
static __device__ __forceinline__ float normal_quotient(float a, float b) {
    float by;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(by) : "f"(b));
    by = FMA(by, FMA(-b, by, 1.0f), by);
    float q = a * by;
    q = FMA(by, FMA(-b, q, a), q);
    return FMA(by, FMA(-b, q, a), q);
}
#define NEAREST_BF16(x) nearest_bf16(x)
static __device__ __forceinline__ float nearest_bf16(float x) {
    u32 bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(x), "f"(0.0f));
    return AS_FLOAT(bits);
}
#define LOAD16(from) (*reinterpret_cast<const Bytes16*>(from))
#define STORE16(to, bytes) (*reinterpret_cast<Bytes16*>(to) = (bytes))

// The contract plants faults: its build asks a variable of the module which. A product build has none.
#ifdef PLANTED_AT_RUN_TIME
extern "C" __device__ u32 planted_fault = 0;
#define PLANTED(fault) (planted_fault == (fault))
#else
#define PLANTED(fault) (false)
#endif
