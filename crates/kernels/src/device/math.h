// Number formats and elementary functions: the formulas of finback-numerics, bit for bit.
#pragma once

struct alignas(16) Bytes16 {
    u32 word[4];
};

DEVICE float max_of(float a, float b) { return a > b ? a : b; }
DEVICE float min_of(float a, float b) { return a < b ? a : b; }
DEVICE u32 max_bits(u32 a, u32 b) { return a > b ? a : b; }
DEVICE float magnitude(float x) { return AS_FLOAT(AS_BITS(x) & 0x7fffffffu); }
DEVICE float with_sign(float x, float sign) {
    return AS_FLOAT((AS_BITS(x) & 0x7fffffffu) | (AS_BITS(sign) & 0x80000000u));
}
DEVICE float infinity() { return AS_FLOAT(0x7f800000u); }
DEVICE float not_a_number() { return AS_FLOAT(0x7fc00000u); }
DEVICE bool is_nan(float x) { return (AS_BITS(x) & 0x7fffffffu) > 0x7f800000u; }
DEVICE bool is_finite(float x) { return (AS_BITS(x) & 0x7fffffffu) < 0x7f800000u; }

// 2^n for n in -126..127.
DEVICE float power_of_two(i32 n) { return AS_FLOAT(u32(n + 127) << 23); }

// e^x is the product, in order, of a value near 1 and two powers of two.
struct ExpParts {
    float near_one, first, second;
};

DEVICE ExpParts exp_parts(float x) {
    const float to_integer = 12582912.0f, ln2_high = 0.69314575f, ln2_low = 1.4286068e-6f;
    x = max_of(-128.0f, min_of(128.0f, x));
    const float shifted = FMA(x, 1.44269504088896340736f, to_integer);
    const float n = shifted - to_integer;
    const float r = FMA(-n, ln2_low, FMA(-n, ln2_high, x));
    float q = FMA(1.3950594e-3f, r, 8.368954e-3f);
    q = FMA(q, r, 4.1666206e-2f);
    q = FMA(q, r, 0.16666518f);
    q = FMA(q, r, 0.5f);
    const float p = FMA(FMA(q, r, 1.0f), r, 1.0f);
    const i32 whole = i32(AS_BITS(shifted) - AS_BITS(to_integer));
    const i32 first = whole >> 1;
    return ExpParts{p, power_of_two(first), power_of_two(whole - first)};
}

DEVICE float exp_of(float x) {
    const ExpParts e = exp_parts(x);
    return e.near_one * e.first * e.second;
}

// The natural logarithm: -infinity at 0, NaN below.
DEVICE float ln_of(float x) {
    const float to_integer = 12582912.0f, ln2_high = 0.69314575f, ln2_low = 1.4286068e-6f;
    const bool tiny = x < 1.17549435e-38f;
    const float lifted = tiny ? x * 8388608.0f : x;
    const float bias = tiny ? 23.0f : 0.0f;
    const u32 above = AS_BITS(lifted) - AS_BITS(0.70710678118654752440f);
    const float m = AS_FLOAT(AS_BITS(lifted) - (above & 0xff800000u));
    const u32 steps = u32(i32(above) >> 23);
    const float e = (AS_FLOAT(steps + AS_BITS(to_integer)) - to_integer) - bias;
    const float f = m - 1.0f;
    const float s = QUOTIENT(f, f + 2.0f);
    const float z = s * s;
    float r = FMA(z, 0.2359f, 0.2853692f);
    r = FMA(r, z, 0.4000034f);
    r = FMA(r, z, 0.6666666f) * z;
    const float tail = FMA(e, ln2_low, s * (r - f));
    float value = FMA(e, ln2_high, f + tail);
    value = x < infinity() ? value : x;
    value = 0.0f < x ? value : not_a_number();
    return magnitude(x) < AS_FLOAT(1u) ? -infinity() : value;
}

DEVICE float log1p_of(float x) {
    const float w = x + 1.0f;
    const float lost = QUOTIENT(x - (w - 1.0f), w);
    return magnitude(lost) < 1.0f ? ln_of(w) + lost : ln_of(w);
}

DEVICE float softplus_of(float x) { return max_of(0.0f, x) + log1p_of(exp_of(-magnitude(x))); }

DEVICE float sigmoid_of(float x) {
    const float small = exp_of(-magnitude(x));
    return (x < 0.0f ? small : 1.0f) / (small + 1.0f);
}

DEVICE float silu_of(float x) {
    const ExpParts e = exp_parts(-magnitude(x));
    const float small = e.near_one * e.first * e.second;
    const float low = max_of(-128.0f, x);
    const float top = x < 0.0f ? low * e.near_one * e.first * e.second : x;
    return top / (small + 1.0f);
}

// bf16: nearest, ties to even; a NaN stays a quiet one. A device's own rounding may give it other bits.
DEVICE float round_bf16(float x) {
#ifdef NEAREST_BF16
    return NEAREST_BF16(x);
#else
    const u32 bits = AS_BITS(x);
    if (is_nan(x)) return AS_FLOAT((bits & 0xffff0000u) | 0x00400000u);
    return AS_FLOAT((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
#endif
}
DEVICE float stored(float x, u32 round) { return round != 0 ? round_bf16(x) : x; }

DEVICE float lift_bf16(u32 bits) { return AS_FLOAT(bits << 16); }
DEVICE float lift_f16(u32 bits) {
    const u32 top = (bits & 0x7fffu) << 13, sign = (bits & 0x8000u) << 16;
    const float value = AS_FLOAT(top) * AS_FLOAT(239u << 23);
    return AS_FLOAT((value < 65536.0f ? AS_BITS(value) : (top | 0x7f800000u)) | sign);
}

// e4m3 and e2m1: a code's bits in place are its value times 2^-120 and 2^-126.
DEVICE float lift_e4m3(u32 code) {
    return AS_FLOAT(((code & 0x80u) << 24) | ((code & 0x7fu) << 20)) * AS_FLOAT(247u << 23);
}
DEVICE float lift_e2m1(u32 code) {
    return AS_FLOAT(((code & 8u) << 28) | ((code & 7u) << 22)) * AS_FLOAT(253u << 23);
}

// To the nearest value of the grid, ties to even, saturating; x is not a NaN.
DEVICE float round_e4m3(float x) {
    const float size = min_of(magnitude(x), 448.0f);
    const u32 bits = AS_BITS(max_of(size, AS_FLOAT(121u << 23)));
    const float big = AS_FLOAT((bits & 0x7f800000u) + (20u << 23));
    return with_sign((size + big) - big, x);
}
DEVICE float round_e2m1(float x) {
    const float size = min_of(magnitude(x), 6.0f);
    const u32 bits = AS_BITS(max_of(size, 1.0f));
    const float big = AS_FLOAT((bits & 0x7f800000u) + (22u << 23));
    return with_sign((size + big) - big, x);
}
DEVICE u32 code_e4m3(float x) {
    const u32 bits = AS_BITS(round_e4m3(x) * AS_FLOAT(7u << 23));
    return ((bits >> 20) & 0x7fu) | ((bits >> 24) & 0x80u);
}
DEVICE u32 code_e2m1(float x) {
    const u32 bits = AS_BITS(round_e2m1(x) * AS_FLOAT(1u << 23));
    return ((bits >> 22) & 7u) | ((bits >> 28) & 8u);
}

// 2^(byte - 127); byte 0 is 2^-127, byte 255 is NaN.
DEVICE float lift_e8m0(u32 byte) {
    if (byte == 255u) return not_a_number();
    return AS_FLOAT(byte == 0 ? 0x00400000u : byte << 23);
}
// The byte of the smallest power of two that is at least x, 255 where there is none.
DEVICE u32 pow2_at_least(float x) {
    const u32 bits = AS_BITS(x) & 0x7fffffffu;
    if (bits <= 0x00400000u) return 0;
    const u32 byte = (bits + 0x007fffffu) >> 23;
    return byte > 254u ? 255u : byte;
}
