// The packed forms of KV rows: codes first, then scales (finback-numerics, rows).
#pragma once

// The byte at which a row begins: `places` says, else rows lie one after another.
DEVICE u64 place_of(GLOBAL const u64* places, u64 row, u32 bytes) {
    return places ? places[row] : row * bytes;
}

DEVICE u32 window_bytes(u32 dim) { return dim + dim / 32u; }
DEVICE u32 compressed_bytes(u32 dim) { return dim / 2u + dim / 16u; }
DEVICE u32 index_bytes(u32 dim) { return dim / 2u + dim / 32u; }

KERNEL(pack_window, PackArgs) {
    const u32 lane = LANE;
    const u64 row = GROUP_X;
    GLOBAL u8* out = args.out + place_of(args.places, row, window_bytes(args.dim));
    for (u32 block = lane / 32u; block < args.dim / 32u; block += GROUP_WARPS) {
        const float x = args.x[row * args.dim + block * 32u + lane % 32u];
        store_e4m3_block(x, lane, out + block * 32u, out + args.dim + block);
    }
}

KERNEL(pack_compressed, PackArgs) {
    const u32 lane = LANE;
    const u64 row = GROUP_X;
    GLOBAL u8* out = args.out + place_of(args.places, row, compressed_bytes(args.dim));
    for (u32 block = lane / 32u; block < args.dim / 32u; block += GROUP_WARPS) {
        const float x = args.x[row * args.dim + block * 32u + lane % 32u];
        store_e2m1_halves(x, lane, out + block * 16u, out + args.dim / 2u + block * 2u);
    }
}

KERNEL(pack_index, PackArgs) {
    const u32 lane = LANE;
    const u64 row = GROUP_X;
    GLOBAL u8* out = args.out + place_of(args.places, row, index_bytes(args.dim));
    for (u32 block = lane / 32u; block < args.dim / 32u; block += GROUP_WARPS) {
        const float x = args.x[row * args.dim + block * 32u + lane % 32u];
        store_e2m1_block(x, lane, out + block * 16u, out + args.dim / 2u + block);
    }
}

// A channel of a packed row. A NaN scale makes its block NaN.
DEVICE float window_value(GLOBAL const u8* row, u32 dim, u32 k) {
    return lift_e4m3(row[k]) * lift_e8m0(row[dim + k / 32u]);
}
DEVICE float e4m3_scale(u32 byte) { return (byte & 0x7fu) == 0x7fu ? not_a_number() : lift_e4m3(byte); }
DEVICE u32 nibble(GLOBAL const u8* row, u32 k) { return (row[k / 2u] >> (4u * (k % 2u))) & 15u; }
DEVICE float compressed_value(GLOBAL const u8* row, u32 dim, u32 k) {
    return lift_e2m1(nibble(row, k)) * e4m3_scale(row[dim / 2u + k / 16u]);
}
DEVICE float index_value(GLOBAL const u8* row, u32 dim, u32 k) {
    return lift_e2m1(nibble(row, k)) * lift_e8m0(row[dim / 2u + k / 32u]);
}

#define UNPACK_KERNEL(name, bytes_of, value_of)                                                    \
    KERNEL(name, UnpackArgs) {                                                                     \
        const u32 lane = LANE;                                                                     \
        const u64 row = GROUP_X;                                                                   \
        GLOBAL const u8* from = args.rows + place_of(args.places, row, bytes_of(args.dim));        \
        for (u32 k = lane; k < args.dim; k += GROUP_LANES) {                                       \
            const u32 at = PLANTED(FAULT_UNPACK_SWAPPED) ? k ^ 1u : k;                             \
            args.out[row * args.dim + k] = value_of(from, args.dim, at);                           \
        }                                                                                          \
    }

UNPACK_KERNEL(unpack_window, window_bytes, window_value)
UNPACK_KERNEL(unpack_compressed, compressed_bytes, compressed_value)
UNPACK_KERNEL(unpack_index, index_bytes, index_value)

// The latent of each group that closes: per channel the softmax of the gates, weighting the kv rows.
// Raw rows are [kv, gate] of `dim` each; `members` names a group's, oldest first, which is the order
// of the sums. A lane has four channels side by side from k on.
#define POOL_ROWS 4u
struct Pool {
    float kv[POOL_ROWS][4], gate[POOL_ROWS][4];
};
// The members from i on, all on their way together.
DEVICE void load_pool(THREAD Pool* held, GLOBAL const float* raw, GLOBAL const u32* members, u32 i, u32 ratio, u32 dim, u32 k) {
    u64 at[POOL_ROWS];
    UNROLL
    for (u32 m = 0; m < POOL_ROWS; m++) at[m] = u64(members[i + m < ratio ? i + m : i]) * 2u * dim + k;
    UNROLL
    for (u32 m = 0; m < POOL_ROWS; m++) {
        load_fours(raw + at[m] + dim, held->gate[m]);
        load_fours(raw + at[m], held->kv[m]);
    }
}
DEVICE void pooled(GLOBAL const float* raw, GLOBAL const u32* members, u32 all, u32 dim, u32 k, u32 round, THREAD float* out) {
    const u32 ratio = PLANTED(FAULT_POOL_DROPPED_ROW) ? all - 1u : all;
    Pool held;
    float top[4], sum[4], divisor[4];
    UNROLL
    for (u32 c = 0; c < 4u; c++) top[c] = -infinity(), sum[c] = 0.0f, divisor[c] = 0.0f;
    // The tops first, then the sums; members past the first ones are read again.
    const u32 turns = (ratio + POOL_ROWS - 1u) / POOL_ROWS;
    ROLLED
    for (u32 turn = 0; turn < 2u * turns; turn++) {
        const u32 i = turn % turns * POOL_ROWS;
        if (turn == 0 || turns > 1u) load_pool(&held, raw, members, i, ratio, dim, k);
        UNROLL
        for (u32 m = 0; m < POOL_ROWS; m++) {
            if (i + m >= ratio) continue;
            UNROLL
            for (u32 c = 0; c < 4u; c++) {
                if (turn < turns) {
                    top[c] = max_of(held.gate[m][c], top[c]);
                    continue;
                }
                const float e = exp_of(held.gate[m][c] - top[c]);
                sum[c] = FMA(e, held.kv[m][c], sum[c]);
                divisor[c] = divisor[c] + e;
            }
        }
    }
    UNROLL
    for (u32 c = 0; c < 4u; c++) out[c] = stored(sum[c] / divisor[c], round);
}

// Copies so many bytes from each source to its place: window rows into rings, raw rows into open
// groups, blocks of the pool. One group a copy; a row that is read is not written in the same launch.
KERNEL(copy_rows, CopyArgs) {
    const u32 lane = LANE;
    GLOBAL const u8* from = args.from + args.sources[GROUP_X];
    GLOBAL u8* to = args.to + args.places[GROUP_X];
    const u32 bytes = PLANTED(FAULT_COPY_SHORT) ? args.bytes - 1u : args.bytes;
    for (u32 k = lane; k < bytes; k += GROUP_LANES) to[k] = from[k];
}
