// Values between launches. What the numerics round to bf16 is kept as bf16, anything else as f32: `round` says which.
#pragma once

// Value `at` of those that begin at `from`.
DEVICE float load_kept(GLOBAL const u8* from, u64 at, u32 round) {
    if (round != 0) return lift_bf16(((GLOBAL const u16*)from)[at]);
    return ((GLOBAL const float*)from)[at];
}

// Four f32 values that lie side by side, their address a multiple of 16 bytes.
DEVICE void load_fours(GLOBAL const float* from, THREAD float* x) {
    const Bytes16 bytes = LOAD16(from);
    UNROLL
    for (u32 i = 0; i < 4u; i++) x[i] = AS_FLOAT(bytes.word[i]);
}

DEVICE void store_fours(THREAD const float* x, GLOBAL float* to) {
    Bytes16 bytes;
    UNROLL
    for (u32 i = 0; i < 4u; i++) bytes.word[i] = AS_BITS(x[i]);
    STORE16(to, bytes);
}

// Four values that lie side by side from `at` on, a multiple of four: their bytes, in two words where they are bf16,
// and what those stand for.
DEVICE Bytes16 fetch_kept_fours(GLOBAL const u8* from, u64 at, u32 round) {
    if (round == 0) return LOAD16(from + 4u * at);
    const u64 bits = *(GLOBAL const u64*)(from + 2u * at);
    return Bytes16{{u32(bits), u32(bits >> 32), 0u, 0u}};
}
DEVICE void lift_kept_fours(THREAD const Bytes16& bytes, u32 round, THREAD float* x) {
    UNROLL
    for (u32 i = 0; i < 4u; i++) {
        const u32 half_of = bytes.word[i / 2u];
        x[i] = AS_FLOAT(round == 0 ? bytes.word[i] : i % 2u == 0 ? half_of << 16 : half_of & 0xffff0000u);
    }
}
DEVICE void load_kept_fours(GLOBAL const u8* from, u64 at, u32 round, THREAD float* x) {
    const Bytes16 bytes = fetch_kept_fours(from, at, round);
    lift_kept_fours(bytes, round, x);
}

DEVICE void store_kept_fours(THREAD const float* x, GLOBAL u8* to, u64 at, u32 round) {
    if (round == 0) {
        store_fours(x, (GLOBAL float*)to + at);
        return;
    }
    u32 bits[4];
    UNROLL
    for (u32 i = 0; i < 4u; i++) bits[i] = AS_BITS(round_bf16(x[i]));
    const u32 low = bits[0] >> 16 | (bits[1] & 0xffff0000u), high = bits[2] >> 16 | (bits[3] & 0xffff0000u);
    *(GLOBAL u64*)(to + 2u * at) = low | u64(high) << 32;
}
