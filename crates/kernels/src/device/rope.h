// Rotations of adjacent pairs of channels by the angles of a position.
#pragma once

// Four channels of a vector of so many that lie side by side from c on, an even number, after the rotation of its last
// `pairs` of channels by these angles.
DEVICE void turn_fours(THREAD float* x, u32 c, u32 width, u32 pairs, GLOBAL const float* cos, GLOBAL const float* sin, u32 round) {
    const u32 still = width - 2u * pairs;
    UNROLL
    for (u32 i = 0; i < 4u; i += 2u) {
        if (c + i < still) continue;
        const u32 pair = (c + i - still) / 2u;
        const float by = cos[pair], at = sin[pair], even = x[i], odd = x[i + 1u];
        x[i] = stored(even * by - odd * at, round);
        x[i + 1u] = stored(even * at + odd * by, round);
    }
}

// Channel c of a vector after the rotation of its channels from `first` on, whose pairs have these angles;
// `back` turns them back. x is the lane's own channel, the other one of its pair the lane's beside it.
DEVICE float turned(float x, u32 c, u32 first, GLOBAL const float* cos, GLOBAL const float* sin, bool back, u32 round) {
    const float other = SHUFFLE_XOR(x, 1u);
    if (c < first) return x;
    const u32 pair = (c - first) / 2u;
    const bool turns_back = back && !PLANTED(FAULT_ROPE_NOT_INVERSE);
    const float by = cos[pair], at = turns_back ? -sin[pair] : sin[pair];
    const float even = c % 2u == 0 ? x : other, odd = c % 2u == 0 ? other : x;
    return stored(c % 2u == 0 ? even * by - odd * at : even * at + odd * by, round);
}
