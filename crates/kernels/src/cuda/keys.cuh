// Keys and queries as operands of the tensor cores: the exact lift of packed rows to bf16.
//
// mma_keys is out += A B with A [16, 16] and B [16, 8] in bf16 and out in f32, as m16n8k16. A lane is
// (g, t) = (lane / 4, lane % 4). Sixteen channels of a lane make eight words: word 4 m + i holds
// channels 8 m + i (low) and 8 m + i + 4 (high), so that codes spread by shifts alone; queries and
// keys take the same words in the same order.
#pragma once

DEVICE void mma_keys(float* out, const u32* a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};\n"
                 : "+f"(out[0]), "+f"(out[1]), "+f"(out[2]), "+f"(out[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

DEVICE u32 shared_at(const void* at) { return u32(__cvta_generic_to_shared(at)); }

// Four 8 x 8 tiles of 16-bit words, each transposed; a lane gives the address of one row.
DEVICE void load_transposed(u32* out, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address));
}

// Two products of bf16, exact where the result fits.
DEVICE u32 times_bf16(u32 a, u32 b) {
    u32 out;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

// The two values of f32 nearest in bf16, `low` in the low half; a NaN stays one.
DEVICE u32 pair_bf16(float low, float high) {
    u32 out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

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
#pragma unroll
    for (u32 i = 0; i < 4u; i++) {
        const u32 size = i < 2u ? codes << (6u - 4u * i) : codes >> (4u * i - 6u);
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
