// The words of cuda/primitives.cuh and cuda/hopper.cuh on the host, and those of CUDA itself that the
// kernels use. What a launch does before those before it have ended is not seen here, nor which of the
// device's ways to memory a store takes: launches run one after another, and a store is there at once.
#pragma once
#include "shared.h"

#define HOPPER
#define __align__(n)
#define CUDA_KERNEL(name, Args, lanes) HOST_KERNEL(name, Args)
#define CUDA_KERNEL_BY_ITSELF(name, Args, lanes) HOST_KERNEL(name, Args)
#define CUDA_KERNEL_AHEAD(name, Args, lanes, groups) HOST_KERNEL(name, Args)
#define CUDA_FULL_KERNEL(name, Args, lanes) HOST_KERNEL(name, Args)
#define CUDA_HALF_KERNEL(name, Args, lanes) HOST_KERNEL(name, Args)
#define GROUP_SHARED(T, name, dimensions)                                                          \
    typedef T name##_shared dimensions;                                                            \
    name##_shared& name = *static_cast<name##_shared*>(finback::group_shared(sizeof(name##_shared)))
#define LAUNCH_SHARED(T, name) T* const name = static_cast<T*>(finback::launch_shared())
#define GROUPS_X finback::groups_x()

struct alignas(8) uint2 {
    u32 x, y;
};
struct alignas(16) uint4 {
    u32 x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
DEVICE uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return uint4{x, y, z, w}; }
DEVICE float2 make_float2(float x, float y) { return float2{x, y}; }

#define __syncthreads() finback::barrier(__LINE__)
DEVICE void __syncwarp() { finback::meet(finback::WARP, nullptr, nullptr); }
template <class T> DEVICE T __shfl_sync(u32, T value, u32 from) { return finback::shuffle(value, from); }
template <class T> DEVICE T __shfl_up_sync(u32, T value, u32 apart) {
    const u32 own = LANE % 32u;
    return finback::shuffle(value, own < apart ? own : own - apart);
}
DEVICE u32 __popc(u32 x) { return u32(__builtin_popcount(x)); }
DEVICE u32 atomicAdd(u32* at, u32 more) { return (*at += more) - more; }

// What a warp finds of one word a lane: the lanes with the same word, and the sum.
struct Peers {
    u32 word, same, sum;
};
DEVICE Peers peers_of(u32 word) {
    Peers own = {word, 0, 0};
    finback::meet(finback::WARP, [](void* const* brought, unsigned lanes) {
        for (unsigned i = 0; i < lanes; i++) {
            Peers& to = *static_cast<Peers*>(brought[i]);
            for (unsigned j = 0; j < lanes; j++) {
                const u32 other = static_cast<Peers*>(brought[j])->word;
                to.same |= (other == to.word ? 1u : 0u) << j;
                to.sum += other;
            }
        }
    }, &own);
    return own;
}
DEVICE u32 __match_any_sync(u32, u32 word) { return peers_of(word).same; }
DEVICE u32 __reduce_add_sync(u32, u32 word) { return peers_of(word).sum; }
DEVICE u32 __ballot_sync(u32, bool there) {
    const u32 same = peers_of(there ? 1u : 0u).same;
    return there ? same : ~same;
}

DEVICE u32 byte_select(u32 low, u32 high, u32 places) {
    const u64 bytes = u64(high) << 32 | low;
    u32 out = 0;
    for (u32 i = 0; i < 4u; i++) {
        const u32 place = places >> (4u * i), byte = u32(bytes >> (place & 7u) * 8u) & 0xffu;
        out |= ((place & 8u) == 0u ? byte : byte >= 0x80u ? 0xffu : 0u) << (8u * i);
    }
    return out;
}
DEVICE u32 __byte_perm(u32 low, u32 high, u32 places) { return byte_select(low, high, places & 0x7777u); }
DEVICE u32 __funnelshift_r(u32 low, u32 high, u32 by) { return u32((u64(high) << 32 | low) >> (by & 31u)); }

DEVICE u32 low_twice(u32 x) { return (x & 0xffffu) * 0x10001u; }
DEVICE u32 high_twice(u32 x) { return (x >> 16) * 0x10001u; }

DEVICE u32 shared_address(const void* at) { return finback::shared_address(at); }

DEVICE u32 half_of(float x) { return is_nan(x) ? 0x7fffu : AS_BITS(round_bf16(x)) >> 16; }
DEVICE u32 times_bf16(u32 a, u32 b) {
    const float low = lift_bf16(a & 0xffffu) * lift_bf16(b & 0xffffu), high = lift_bf16(a >> 16) * lift_bf16(b >> 16);
    return half_of(low) | half_of(high) << 16;
}
DEVICE u32 pair_bf16(float low, float high) { return half_of(low) | half_of(high) << 16; }
DEVICE float flushed(float x) { return magnitude(x) < AS_FLOAT(0x00800000u) ? with_sign(0.0f, x) : x; }
DEVICE float exp2_fast(float x) { return flushed(float(__builtin_exp2(flushed(x)))); }
DEVICE float positive_part(float x) { return is_nan(x) ? AS_FLOAT(0x7fffffffu) : x > 0.0f ? x : 0.0f; }

DEVICE void multiply(float* d, const u32* a, u32 b0, u32 b1) {
    finback::Product own = {d, a, {b0, b1}};
    finback::meet(finback::WARP, finback::multiply_warp, &own);
}

struct Parts {
    u32 from;
    u32* to;
};
// Lane i of part p gives row i of it; a lane takes two words of row lane / 4, or of column lane / 4.
template <bool COLUMNS> static void take_parts(void* const* brought, unsigned lanes) {
    u16 rows[32][8];
    for (unsigned i = 0; i < lanes; i++) memcpy(rows[i], finback::shared_at(static_cast<Parts*>(brought[i])->from, 16, 16), 16);
    for (unsigned i = 0; i < lanes; i++)
        for (unsigned part = 0; part < 4; part++) {
            const u16(*from)[8] = rows + part * 8;
            const u32 one = i / 4, two = i % 4 * 2;
            static_cast<Parts*>(brought[i])->to[part] = COLUMNS ? from[two][one] | u32(from[two + 1][one]) << 16
                                                                : from[one][two] | u32(from[one][two + 1]) << 16;
        }
}
DEVICE void load_parts(u32 from, u32* to) {
    Parts own = {from, to};
    finback::meet(finback::WARP, take_parts<false>, &own);
}
DEVICE void load_transposed(u32 from, u32* to) {
    Parts own = {from, to};
    finback::meet(finback::WARP, take_parts<true>, &own);
}

DEVICE u32 load_byte(u32 from) { return static_cast<u8>(*finback::shared_at(from, 1, 1)); }
DEVICE u32 load_half(u32 from) { return *reinterpret_cast<const u16*>(finback::shared_at(from, 2, 2)); }
DEVICE u32 load_word(u32 from) { return *reinterpret_cast<const u32*>(finback::shared_at(from, 4, 4)); }
DEVICE void load_words(u32 from, u32* to) { memcpy(to, finback::shared_at(from, 16, 16), 16); }
DEVICE void load_pair(u32 from, float* to) { memcpy(to, finback::shared_at(from, 8, 8), 8); }
DEVICE void load_pair(u32 from, u32* to) { memcpy(to, finback::shared_at(from, 8, 8), 8); }
DEVICE void load_floats(u32 from, float* to) { memcpy(to, finback::shared_at(from, 16, 16), 16); }
DEVICE void store_word(u32 to, u32 x) { *reinterpret_cast<u32*>(finback::shared_at(to, 4, 4)) = x; }

// A team is ten warps or sixteen.
DEVICE void team_meets(u32, u32 lanes) {
    if (lanes != 320u && lanes != 512u) finback::note(&finback::Report::diverged);
    finback::meet(lanes == 512u ? finback::SIXTEEN_WARPS : finback::TEN_WARPS, nullptr, nullptr);
}

DEVICE void copy16(u32 to, GLOBAL const void* from) { finback::copy(to, from, 16); }
DEVICE void copy4(u32 to, GLOBAL const void* from) { finback::copy(to, from, 4); }
DEVICE void copies_arrive(u32 signal) { finback::arrive_after_copies(signal); }
DEVICE void copies_commit() { finback::commit_copies(); }
template <u32 N> DEVICE void copies_wait() { finback::wait_for_copies(N); }
DEVICE void copies_shown() {}

DEVICE void signal_new(u32 signal, u32 arrivals) { finback::make_signal(signal, arrivals); }
DEVICE void signals_made() {}
DEVICE void signal_arrive(u32 signal) { finback::arrive(signal, 0); }
#define WARP_ARRIVALS 1u
DEVICE void signal_expect(u32 signal, u32 bytes) { finback::arrive(signal, bytes); }
DEVICE void signal_wait(u32 signal, u32 parity) { finback::wait_for_signal(signal, parity); }
DEVICE void copy_bulk(u32 to, GLOBAL const u8* from, u32 bytes, u32 signal, u64) {
    finback::copy_in_bulk(to, from, bytes, signal);
}
DEVICE u64 read_often() { return 0; }
DEVICE u64 read_once() { return 0; }
DEVICE void dependents_may_start() {}
DEVICE void wait_for_launches_before() {}

DEVICE void group_begin() {}
DEVICE void group_commit() { finback::commit_products(); }
template <u32 N = 0> DEVICE void group_wait() { finback::wait_for_products(N); }
DEVICE void settled(float&) {}
template <u32 N> DEVICE void registers_take() {}
template <u32 N> DEVICE void registers_give() {}
DEVICE void ask_for_product(float* d, const u32* a, u64 left, u64 b, u32 rows, bool add, finback::Kind kind) {
    finback::ask_for_product(finback::RowsProduct{d, a, left, b, rows, add, kind, 0});
}
template <u32 N> DEVICE void multiply_rows(float* d, const u32 (&a)[4], u64 b, bool add) {
    ask_for_product(d, a, 0, b, N, add, finback::BF16);
}
template <u32 N> DEVICE void multiply_rows(float* d, u64 a, u64 b, bool add) {
    ask_for_product(d, nullptr, a, b, N, add, finback::BF16);
}
template <u32 N> DEVICE void multiply_codes(float* d, const u32 (&a)[4], u64 b, bool add) {
    ask_for_product(d, a, 0, b, N, add, finback::CODES);
}
template <u32 N> DEVICE void multiply_codes(float* d, u64 a, u64 b, bool add) {
    ask_for_product(d, nullptr, a, b, N, add, finback::CODES);
}
DEVICE void multiply_columns(float (&d)[64], u64 a, u64 b, bool add) {
    ask_for_product(d, nullptr, a, b, 128, add, finback::COLUMNS);
}
