// Engram: the hashed rows of a table, and their gates on the streams.
#pragma once

// Lifts the named rows of a table, or of rows staged for this batch; one group a batch row
// and slice.
KERNEL(engram_gather, EngramGatherArgs) {
    const u32 lane = LANE, slice = GROUP_Y;
    const u64 row = GROUP_X;
    const u32 width = args.columns * args.dim, blocks = args.dim / 32u;
    for (u32 at = slice_first(slice, lane); at < slice_end(slice, width); at += GROUP_LANES) {
        const u64 id = args.ids[row * args.columns + at / args.dim];
        const u32 k = at % args.dim;
        const u32 block = PLANTED(FAULT_ENGRAM_WRONG_SCALE) ? blocks - 1u - k / 32u : k / 32u;
        args.out[row * width + at] =
            lift_e4m3(args.table[id * args.dim + k]) * lift_e8m0(args.scales[id * blocks + block]);
    }
}

// Fours of channels of a lane that are on their way at a time.
#define GATE_FOURS 4u

// h += gate value, in place, for stream x of row y. Lane l of 128 takes channels 4 l to 4 l + 3 of every 512,
// ascending; the three sums are group_sums.
KERNEL(engram_gate, EngramGateArgs) {
    SHARED(float, part, GROUP_WARPS);
    const u32 lane = LANE, width = args.width;
    const u64 row = GROUP_Y;
    const u32 stream = GROUP_X;
    const u64 h = (row * args.hc + stream) * width;
    GLOBAL const float* kv = args.kv + row * (args.hc + 1u) * width;
    GLOBAL const float* key = kv + stream * width;
    GLOBAL const float* value = kv + args.hc * width;
    GLOBAL const float* qk = args.qk + u64(stream) * width;
    float dot = 0.0f, h_square = 0.0f, key_square = 0.0f;
    for (u32 first = lane * 4u; first < width; first += GATE_FOURS * SLICE_CHANNELS) {
        float held[GATE_FOURS][4], keys[GATE_FOURS][4], by[GATE_FOURS][4];
        UNROLL
        for (u32 i = 0; i < GATE_FOURS; i++) {
            const u32 k = first + i * SLICE_CHANNELS;
            if (k >= width) continue;
            load_kept_fours(args.streams, h + k, args.round, held[i]);
            load_fours(key + k, keys[i]);
            load_fours(qk + k, by[i]);
        }
        UNROLL
        for (u32 i = 0; i < GATE_FOURS; i++) {
            if (first + i * SLICE_CHANNELS >= width) continue;
            UNROLL
            for (u32 c = 0; c < 4u; c++) {
                dot = FMA(held[i][c] * by[i][c], keys[i][c], dot);
                h_square = FMA(held[i][c], held[i][c], h_square);
                key_square = FMA(keys[i][c], keys[i][c], key_square);
            }
        }
    }
    dot = group_sum(dot, part, lane);
    const float h_inverse = inverse_rms(group_sum(h_square, part, lane), width, args.eps);
    const float key_inverse = inverse_rms(group_sum(key_square, part, lane), width, args.eps);
    const float match = dot * h_inverse * key_inverse / SQRT(float(width));
    const float size = magnitude(match);
    const float least = size > 1e-6f || is_nan(match) ? size : 1e-6f;
    const float signed_root = PLANTED(FAULT_ENGRAM_NO_SIGN) ? SQRT(least) : with_sign(SQRT(least), match);
    const float gate = sigmoid_of(signed_root);
    for (u32 first = lane * 4u; first < width; first += GATE_FOURS * SLICE_CHANNELS) {
        float held[GATE_FOURS][4], added[GATE_FOURS][4];
        UNROLL
        for (u32 i = 0; i < GATE_FOURS; i++) {
            const u32 k = first + i * SLICE_CHANNELS;
            if (k >= width) continue;
            load_kept_fours(args.streams, h + k, args.round, held[i]);
            load_fours(value + k, added[i]);
        }
        UNROLL
        for (u32 i = 0; i < GATE_FOURS; i++) {
            const u32 k = first + i * SLICE_CHANNELS;
            if (k >= width) continue;
            UNROLL
            for (u32 c = 0; c < 4u; c++) held[i][c] = FMA(gate, added[i][c], held[i][c]);
            store_kept_fours(held[i], args.streams, h + k, args.round);
        }
    }
}
