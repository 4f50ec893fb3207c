// Keys and queries as operands of the tensor cores: the exact lift of packed rows to bf16.
//
// A lane is (g, t) = (lane / 4, lane % 4), as `multiply` has it. Sixteen channels of a lane make eight
// words: word 4 m + i holds channels 8 m + i (low) and 8 m + i + 4 (high), so that codes spread by shifts
// alone; queries and keys take the same words in the same order.
#pragma once

DEVICE u32 twice(u32 half) { return half | (half << 16); }

// The factors that finish a lift: the second is 1 but where the first would be too large for bf16.
struct Factor {
    u32 first, second;
};
#define ONE_BF16 0x3f803f80u

// Codes in place are 2^-120 (e4m3) and 2^-126 (e2m1) of their values.
DEVICE Factor factor_window(u32 byte) {
    const bool small = byte <= 134u;
    u32 first = small ? (byte + 120u) << 7 : 247u << 7;
    if (byte == 255u) first = 0x7fc0u;
    return Factor{twice(first), small ? ONE_BF16 : twice(byte << 7)};
}
DEVICE Factor factor_index(u32 byte) {
    const bool small = byte <= 128u;
    u32 first = small ? (byte + 126u) << 7 : 253u << 7;
    if (byte == 255u) first = 0x7fc0u;
    return Factor{twice(first), small ? ONE_BF16 : twice(byte << 7)};
}
DEVICE Factor factor_compressed(u32 byte) {
    const u32 scale = times_bf16(twice((byte & 0x7fu) << 4 | (byte & 0x80u) << 8), twice(247u << 7));
    // 2^126 times a scale below 4 fits.
    if ((byte & 0x7fu) < 0x48u) return Factor{times_bf16(scale, twice(253u << 7)), ONE_BF16};
    return Factor{(byte & 0x7fu) == 0x7fu ? 0x7fc07fc0u : twice(253u << 7), scale};
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
    for (u32 i = 0; i < N; i++) words[i] = times_bf16(words[i], by.first);
    if (by.second == ONE_BF16) return;
#pragma unroll
    for (u32 i = 0; i < N; i++) words[i] = times_bf16(words[i], by.second);
}
