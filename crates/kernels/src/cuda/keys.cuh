// Keys and queries as operands of the tensor cores: the exact lift of packed rows to bf16.
//
// mma_keys is out += A B with A [16, 16] and B [16, 8] in bf16 and out in f32, as m16n8k16. A lane is
// (g, t) = (lane / 4, lane % 4). Sixteen channels of a lane make eight words: word 4 m + i holds
// channels 8 m + i (low) and 8 m + i + 4 (high), so that codes spread by shifts alone; queries and
// keys take the same words in the same order.
#pragma once

DEVICE void mma_keys(float* out, const u32* a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
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
    if (byte <= 134u) return Factor{twice((byte + 120u) << 7), ONE_BF16};
    if (byte == 255u) return Factor{0x7fc07fc0u, ONE_BF16};
    return Factor{twice(247u << 7), twice(byte << 7)};
}
DEVICE Factor factor_index(u32 byte) {
    if (byte <= 128u) return Factor{twice((byte + 126u) << 7), ONE_BF16};
    if (byte == 255u) return Factor{0x7fc07fc0u, ONE_BF16};
    return Factor{twice(253u << 7), twice(byte << 7)};
}
DEVICE Factor factor_compressed(u32 byte) {
    if ((byte & 0x7fu) == 0x7fu) return Factor{0x7fc07fc0u, ONE_BF16};
    // 2^126 times a scale below 4 fits.
    const u32 scale = AS_BITS(lift_e4m3(byte)) >> 16;
    if ((byte & 0x7fu) < 0x48u) return Factor{times_bf16(twice(scale), twice(253u << 7)), ONE_BF16};
    return Factor{twice(253u << 7), twice(scale)};
}
DEVICE u32 finished(u32 placed, Factor by) {
    const u32 value = times_bf16(placed, by.first);
    return by.second == ONE_BF16 ? value : times_bf16(value, by.second);
}

// Eight e4m3 codes as four words.
DEVICE void lift_eight_e4m3(u32 low, u32 high, Factor by, u32* out) {
#pragma unroll
    for (u32 i = 0; i < 4u; i++) {
        const u32 x = __byte_perm(low, high, i << 4 | (i + 4u) << 12);
        out[i] = finished((x & 0x80008000u) | ((x >> 4) & 0x07f007f0u), by);
    }
}

// Eight e2m1 codes as four words.
DEVICE void lift_eight_e2m1(u32 codes, Factor by, u32* out) {
#pragma unroll
    for (u32 i = 0; i < 4u; i++) {
        const u32 size = i < 2u ? codes << (6u - 4u * i) : codes >> (4u * i - 6u);
        out[i] = finished(((codes << (12u - 4u * i)) & 0x80008000u) | (size & 0x01c001c0u), by);
    }
}

// Sixteen channels of a packed row: its codes, its scale, and which kind of row it is.
#define KEY_NONE 0u
#define KEY_WINDOW 1u
#define KEY_COMPRESSED 2u
struct Chunk {
    u32 code[4];
    u32 scale;
};

DEVICE Chunk load_chunk(const u8* row, u32 kind, u32 dim, u32 chunk) {
    Chunk c = {{0, 0, 0, 0}, 0};
    if (kind == KEY_WINDOW) {
        const uint4 codes = *reinterpret_cast<const uint4*>(row + chunk * 16u);
        c.code[0] = codes.x, c.code[1] = codes.y, c.code[2] = codes.z, c.code[3] = codes.w;
        c.scale = row[dim + chunk / 2u];
    } else if (kind == KEY_COMPRESSED) {
        const uint2 codes = *reinterpret_cast<const uint2*>(row + chunk * 8u);
        c.code[0] = codes.x, c.code[1] = codes.y;
        c.scale = row[dim / 2u + chunk];
    }
    return c;
}

DEVICE void lift_chunk16(Chunk c, u32 kind, u32* out) {
    if (kind == KEY_WINDOW) {
        const Factor by = factor_window(c.scale);
        lift_eight_e4m3(c.code[0], c.code[1], by, out);
        lift_eight_e4m3(c.code[2], c.code[3], by, out + 4);
    } else if (kind == KEY_COMPRESSED) {
        const Factor by = factor_compressed(c.scale);
        lift_eight_e2m1(c.code[0], by, out);
        lift_eight_e2m1(c.code[1], by, out + 4);
    } else {
#pragma unroll
        for (u32 i = 0; i < 8u; i++) out[i] = 0;
    }
}
