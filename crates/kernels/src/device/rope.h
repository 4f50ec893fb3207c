// Rotations of adjacent pairs of channels by the angles of a position.
#pragma once

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

// Rotates the adjacent pairs of the last 2 * pairs channels of each of a row's vectors, in place.
KERNEL(rope, RopeArgs) {
    const u32 lane = LANE;
    const u64 row = GROUP_X;
    GLOBAL const float* cos = args.cos + row * args.pairs;
    GLOBAL const float* sin = args.sin + row * args.pairs;
    for (u32 at = lane; at < args.vectors * args.pairs; at += GROUP_LANES) {
        const u32 vector = at / args.pairs, i = at % args.pairs;
        GLOBAL float* pair =
            args.x + (row * args.vectors + vector) * args.dim + args.dim - 2u * args.pairs + 2u * i;
        const bool back = args.inverse != 0 && !PLANTED(FAULT_ROPE_NOT_INVERSE);
        const float c = cos[i], s = back ? -sin[i] : sin[i];
        const float even = pair[0], odd = pair[1];
        pair[0] = stored(even * c - odd * s, args.round);
        pair[1] = stored(even * s + odd * c, args.round);
    }
}
