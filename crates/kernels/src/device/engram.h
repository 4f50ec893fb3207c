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

// Channels of a lane on their way at a time.
#define GATE_EACH 8u

// h += gate value, in place, for stream x of row y. The three sums are group_sums.
KERNEL(engram_gate, EngramGateArgs) {
    SHARED(float, part, GROUP_WARPS);
    const u32 lane = LANE, width = args.width;
    const u64 row = GROUP_Y;
    const u32 stream = GROUP_X;
    GLOBAL float* h = args.streams + (row * args.hc + stream) * width;
    GLOBAL const float* kv = args.kv + row * (args.hc + 1u) * width;
    GLOBAL const float* key = kv + stream * width;
    GLOBAL const float* value = kv + args.hc * width;
    GLOBAL const float* qk = args.qk + u64(stream) * width;
    float dot = 0.0f, h_square = 0.0f, key_square = 0.0f;
    for (u32 first = lane; first < width; first += GATE_EACH * GROUP_LANES) {
        float held[GATE_EACH], keys[GATE_EACH], by[GATE_EACH];
        UNROLL
        for (u32 i = 0; i < GATE_EACH; i++) {
            const u32 k = first + i * GROUP_LANES;
            held[i] = k < width ? h[k] : 0.0f;
            keys[i] = k < width ? key[k] : 0.0f;
            by[i] = k < width ? qk[k] : 0.0f;
        }
        UNROLL
        for (u32 i = 0; i < GATE_EACH; i++) {
            if (first + i * GROUP_LANES >= width) continue;
            dot = FMA(held[i] * by[i], keys[i], dot);
            h_square = FMA(held[i], held[i], h_square);
            key_square = FMA(keys[i], keys[i], key_square);
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
    for (u32 first = lane; first < width; first += GATE_EACH * GROUP_LANES) {
        float held[GATE_EACH], added[GATE_EACH];
        UNROLL
        for (u32 i = 0; i < GATE_EACH; i++) {
            const u32 k = first + i * GROUP_LANES;
            held[i] = k < width ? h[k] : 0.0f;
            added[i] = k < width ? value[k] : 0.0f;
        }
        UNROLL
        for (u32 i = 0; i < GATE_EACH; i++) {
            const u32 k = first + i * GROUP_LANES;
            if (k < width) h[k] = stored(FMA(gate, added[i], held[i]), args.round);
        }
    }
}
