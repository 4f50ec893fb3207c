// Keys and queries as operands of the tensor cores: the exact lift of packed rows to bf16.
//
// A lane is (g, t) = (lane / 4, lane % 4), as `multiply` has it. Sixteen channels of a lane make eight
// words: word 4 m + i holds channels 8 m + i (low) and 8 m + i + 4 (high), so that codes spread by shifts
// alone; queries and keys take the same words in the same order.
#pragma once

DEVICE u32 twice(u32 half) { return half | (half << 16); }

// The two factors that finish a lift: what a code in place lacks to its value, and its scale. There is no
// branch between them, so that the lifts of a lane's chunks run side by side.
struct Factor {
    u32 step, scale;
};
// Codes in place are 2^-120 (e4m3) and 2^-126 (e2m1) of their values.
#define STEP_E4M3 0x7b807b80u
#define STEP_E2M1 0x7e807e80u

// A power of two; the least is subnormal.
DEVICE u32 scale_e8m0(u32 byte) {
    u32 scale = byte << 7;
    if (byte == 0) scale = 0x0040u;
    if (byte == 255u) scale = 0x7fc0u;
    return twice(scale);
}
DEVICE Factor factor_window(u32 byte) { return Factor{STEP_E4M3, scale_e8m0(byte)}; }
DEVICE Factor factor_index(u32 byte) { return Factor{STEP_E2M1, scale_e8m0(byte)}; }
DEVICE Factor factor_compressed(u32 byte) {
    const u32 code = twice((byte & 0x7fu) << 4 | (byte & 0x80u) << 8);
    return Factor{STEP_E2M1, times_bf16(code, (byte & 0x7fu) == 0x7fu ? 0x7fc07fc0u : STEP_E4M3)};
}

// Eight e4m3 codes as four words, before their factors.
DEVICE void spread_e4m3(u32 low, u32 high, u32* out) {
#pragma unroll
    for (u32 i = 0; i < 4u; i++) {
        const u32 x = __byte_perm(low, high, i << 4 | (i + 4u) << 12);
        out[i] = (x & 0x80008000u) | ((x >> 4) & 0x07f007f0u);
    }
}

// Eight e2m1 codes as four words, before their factors.
DEVICE void spread_e2m1(u32 codes, u32* out) {
    const u32 last = codes >> 6u;
#pragma unroll
    for (u32 i = 0; i < 4u; i++) {
        const u32 size = i < 2u ? codes << (6u - 4u * i) : last << (12u - 4u * i);
        out[i] = ((codes << (12u - 4u * i)) & 0x80008000u) | (size & 0x01c001c0u);
    }
}

template <u32 N> DEVICE void finish_lift(u32* words, Factor by) {
#pragma unroll
    for (u32 i = 0; i < N; i++) words[i] = times_bf16(times_bf16(words[i], by.step), by.scale);
}
