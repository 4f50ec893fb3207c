// Sums over a group of 128 lanes, in one order.
//
// Lane l takes the terms k with k % 128 == l in ascending order. A warp adds lanes 16, 8, 4, 2, 1
// apart; the four warps' sums a, b, c, d give (a + b) + (c + d). Every lane gets the same bits.
#pragma once

#define GROUP_LANES 128u
#define GROUP_WARPS 4u

// Where no sum crosses channels, groups in y take slices of so many of a row.
#define SLICE_CHANNELS 512u

// The first of a lane's four channels of a slice, which lie side by side.
DEVICE u32 slice_fours(u32 slice, u32 lane) { return slice * SLICE_CHANNELS + lane * 4u; }

DEVICE u32 slice_first(u32 slice, u32 lane) { return slice * SLICE_CHANNELS + lane; }
DEVICE u32 slice_end(u32 slice, u32 width) {
    const u32 end = (slice + 1u) * SLICE_CHANNELS;
    return end < width ? end : width;
}

DEVICE float warp_sum(float x) {
    x = x + SHUFFLE_XOR(x, 16u);
    x = x + SHUFFLE_XOR(x, 8u);
    x = x + SHUFFLE_XOR(x, 4u);
    x = x + SHUFFLE_XOR(x, 2u);
    return x + SHUFFLE_XOR(x, 1u);
}

// `part` has GROUP_WARPS words and may be used again after the call.
DEVICE float group_sum(float x, SHARED_REF(float) part, u32 lane) {
    x = warp_sum(x);
    if (lane % 32u == 0) part[lane / 32u] = x;
    if (!PLANTED(FAULT_MISSING_BARRIER)) BARRIER();
    const float sum = (part[0] + part[1]) + (part[2] + part[3]);
    BARRIER();
    return sum;
}

DEVICE u32 group_count(u32 x, SHARED_REF(u32) part, u32 lane) {
    x += SHUFFLE_XOR(x, 16u);
    x += SHUFFLE_XOR(x, 8u);
    x += SHUFFLE_XOR(x, 4u);
    x += SHUFFLE_XOR(x, 2u);
    x += SHUFFLE_XOR(x, 1u);
    if (lane % 32u == 0) part[lane / 32u] = x;
    BARRIER();
    const u32 sum = part[0] + part[1] + part[2] + part[3];
    BARRIER();
    return sum;
}

// The largest word of the group.
DEVICE u64 group_max(u64 x, SHARED_REF(u64) part, u32 lane) {
    for (u32 apart = 16u; apart > 0; apart /= 2u) {
        const u64 other = SHUFFLE_XOR(x, apart);
        x = other > x ? other : x;
    }
    if (lane % 32u == 0) part[lane / 32u] = x;
    BARRIER();
    u64 most = part[0];
    for (u32 i = 1; i < GROUP_WARPS; i++) {
        const u64 other = part[i];
        most = other > most ? other : most;
    }
    BARRIER();
    return most;
}

DEVICE u64 group_total(u64 x, SHARED_REF(u64) part, u32 lane) {
    for (u32 apart = 16u; apart > 0; apart /= 2u) x += SHUFFLE_XOR(x, apart);
    if (lane % 32u == 0) part[lane / 32u] = x;
    BARRIER();
    const u64 sum = part[0] + part[1] + part[2] + part[3];
    BARRIER();
    return sum;
}
