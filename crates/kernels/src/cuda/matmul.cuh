// Matrix products on Hopper's tensor cores: out[r][o] = sum_k W[o][k] x[r][k], rows x in bf16, weights in their
// stored codes, rearranged by arrange.h and lifted exactly to bf16 in registers.
//
// Order of a sum. K is cut into `slices` of equal length, fixed by the weight's shape. A slice is one
// chain of products of 16 inputs, ascending, from zero; slices are added in ascending order, the first
// one taken as it is. Every kernel here does this for each (row, output), whatever the number of rows.
#pragma once
#ifdef HOPPER

// A warp's arrival, after what its lanes did.
template <u32 C> DEVICE void warp_arrives(u32 signal) {
    __syncwarp();
    if (LANE % 32u < WARP_ARRIVALS) signal_arrive<C>(signal);
}

// The stored bytes of 16 outputs times 64 inputs.
template <u32 F> DEVICE constexpr u32 step_bytes() {
    return F == FORMAT_FP8 ? 1024u : F == FORMAT_FP4 ? 544u : 2048u;
}

// Two powers of two, one a half, whose biased exponents lie where those of bf16 do.
DEVICE u32 multipliers(u32 exponents) {
    const u32 both = exponents & 0x7f807f80u;
    return PLANTED(FAULT_TILE_WRONG_SCALE) ? both + 0x00800080u : both;
}
// The two of an FP8 step, from their bytes.
DEVICE u32 multipliers_of(u32 bytes) { return multipliers((bytes << 7) | (bytes << 15)); }

// A lane's part of a step, and its scales: FP4's as they are stored, FP8's as multipliers.
template <u32 F> struct Codes {
    u32 word[F == FORMAT_FP8 ? 8u : F == FORMAT_FP4 ? 4u : 16u], scales;
};
// Reads it from shared memory, but the multipliers of FP8, which lie elsewhere.
template <u32 F> DEVICE void read_step(u32 from, u32 lane, u32 by, Codes<F>& to) {
#pragma unroll
    for (u32 i = 0; i < sizeof(to.word) / 16u; i++) load_words(from + i * 512u + lane * 16u, to.word + i * 4u);
    to.scales = F == FORMAT_FP4 ? load_word(from + 512u + lane / 4u * 4u) : by;
}

// The left operand of four products of 16 inputs: a[i] is inputs 16 i.. of a step.
template <u32 F> DEVICE void lift_codes(const Codes<F>& codes, u32 (&a)[4][4]) {
    if (F == FORMAT_FP8) {
#pragma unroll
        for (u32 i = 0; i < 8u; i++) {
            const u32 by = i < 4u ? low_twice(codes.scales) : high_twice(codes.scales), x = codes.word[i];
            const u32 second = ((x << 4) & 0x80f080f0u) | ((x >> 4) & 0x07000700u);
            a[i / 2u][i % 2u] = times_bf16(x & 0x87f087f0u, by);
            a[i / 2u][i % 2u + 2u] = times_bf16(second, by);
        }
    } else if (F == FORMAT_FP4) {
        // The multipliers of a row half: one for each 32 inputs.
        const u32 both[2] = {multipliers(codes.scales << 7), multipliers(codes.scales >> 1)};
#pragma unroll
        for (u32 i = 0; i < 4u; i++) {
            // Word i: row half i % 2, inputs 32 (i / 2)..; the scales' bytes lie in the same order.
            const u32 by = i < 2u ? low_twice(both[i]) : high_twice(both[i - 2u]), x = codes.word[i];
            const u32 right4 = __funnelshift_r(x, x, 4), right6 = __funnelshift_r(x, x, 6);
            const u32 k = i / 2u * 2u, half = i % 2u;
            a[k][half] = times_bf16(x & 0x81c081c0u, by);
            a[k][half + 2u] = times_bf16(right4 & 0x81c081c0u, by);
            a[k + 1u][half] = times_bf16((x << 6) & 0x81c081c0u, by);
            a[k + 1u][half + 2u] = times_bf16((right6 & 0x81808180u) | ((x << 2) & 0x00400040u), by);
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < 16u; i++) a[i / 4u][i % 4u] = codes.word[i];
    }
}

// Where outputs of a tile go: row r's are at `at + r * stride`. A tile lies on one side of the split.
struct Outputs {
    GLOBAL float* at;
    u64 stride;
};
DEVICE Outputs outputs_of(const TileArgs& args, u32 group, u32 start, u32 output) {
    const bool own = output < args.split;
    const u64 stride = own ? args.out_stride : args.second_stride;
    GLOBAL float* at = own ? args.out + u64(group) * args.out_step + output : args.second + (output - args.split);
    return Outputs{at + start * stride, stride};
}
#endif
