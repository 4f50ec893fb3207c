// The dialect on the host: lanes are fibers of one thread that switch at barriers and shuffles.
// host/fibers.h runs them; this file only gives the dialect's words their meaning.
#pragma once
#include "../host/fibers.h"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

#define GLOBAL
#define THREAD
#define DEVICE static inline
#define SHARED_REF(T) finback::Shared<T>
#define ARGS_REF(T) const T&
#define UNROLL
#define ROLLED

// A kernel is a function of its arguments; the entry that the launcher calls is made beside it, and the
// size of the arguments.
#define HOST_KERNEL(name, Args)                                                                    \
    static void name##_lanes(const Args& args);                                                    \
    extern "C" void finback_emu_##name(const void* args) {                                         \
        name##_lanes(*static_cast<const Args*>(args));                                             \
    }                                                                                              \
    extern "C" u32 finback_emu_size_##name() { return sizeof(Args); }                              \
    static void name##_lanes(const Args& args)
#define KERNEL(name, Args) HOST_KERNEL(name, Args)
#define KERNEL_REHEARSED(name, Args)                                                               \
    static void name##_acts(const Args& args, const bool live);                                    \
    KERNEL(name, Args) {                                                                           \
        name##_acts(args, false);                                                                  \
        LAUNCHES_BEFORE();                                                                         \
        name##_acts(args, true);                                                                   \
    }                                                                                              \
    static void name##_acts(const Args& args, const bool live)
#define LIVE live
#define FIRST_ACT() 0u
// Launches run one after another: there is nothing to be ahead of.
#define KERNEL_AHEAD(name, Args, groups) KERNEL(name, Args)
#define LAUNCHES_BEFORE() if (finback::stops()) return
#define NEXT_MAY_COME()

// Words of a group's shared memory; every access passes the race shadow.
#define SHARED(T, name, count)                                                                     \
    static thread_local finback::Cell<T> name##_cells[count];                                      \
    finback::Shared<T> name = {name##_cells, count}

#define LANE finback::lane()
#define GROUP_X finback::group_x()
#define GROUP_Y finback::group_y()
#define BARRIER() finback::barrier(__LINE__)

#define SHUFFLE_XOR(value, mask) finback::shuffle_xor(value, mask)
#define WARP_MAX(x) finback::warp_max(x)
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#define QUOTIENT(a, b) ((a) / (b))
#define SQRT(x) __builtin_sqrtf(x)
#define AS_BITS(x) finback::cast<u32>(x)
#define AS_FLOAT(x) finback::cast<float>(x)
#define LOAD16(from) finback::load<Bytes16>(from)
#define STORE16(to, bytes) (*reinterpret_cast<Bytes16*>(to) = (bytes))
#define PLANTED(fault) (finback::planted() == (fault))
