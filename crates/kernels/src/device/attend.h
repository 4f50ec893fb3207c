// Attention of one row and head over its window rows and picks, which are keys and values both. The last
// 2 * pairs channels of q are rotated by the row's angles, and those of the output back.
//
// s_k = (q . key_k) scale; out = sum_k exp(s_k - m) key_k / (sum_k exp(s_k - m) + exp(sink - m)).
// Keys come in order of position, then picks ascending. A score is a warp's: lane l takes the
// channels c with c / 4 % 32 == l, ascending, then warp_sum. The divisor is a group_sum over keys,
// plus the sink's share. An output channel is one chain over the keys ascending.
#pragma once

#define ATTEND_KEYS 1024u
#define ATTEND_DIM 2048u

// Where the keys of a row are.
struct KeyList {
    u32 slot, first, last, span_start, span_first;
};

DEVICE KeyList keys_of(GLOBAL const u32* rows, u64 row, u32 window, u32 draft) {
    GLOBAL const u32* words = rows + row * ROW_WORDS;
    const u32 start = words[ROW_SPAN_START], position = words[ROW_POSITION];
    // A draft row sees the positions before its block, then the whole block.
    const u32 past = draft != 0 ? start : position + 1u;
    const u32 first = past > window ? past - window : 0;
    const u32 last = draft != 0 ? start + words[ROW_SPAN_ROWS] - 1u : position;
    return KeyList{words[ROW_SLOT], first, last, start, words[ROW_SPAN_FIRST]};
}

// The window row of a position: kept rows lie in the slot's ring, the pass's own in `fresh`.
DEVICE GLOBAL const u8* window_row(GLOBAL const u8* ring, GLOBAL const u8* fresh, THREAD const KeyList& keys,
    u32 ring_rows, u32 dim, u32 position) {
    const u64 bytes = window_bytes(dim);
    if (position >= keys.span_start)
        return fresh + (u64(keys.span_first) + position - keys.span_start) * bytes;
    return ring + (u64(keys.slot) * ring_rows + position % ring_rows) * bytes;
}

// The largest of the group's values, none of them a NaN.
DEVICE float group_top(float x, SHARED_REF(float) part, u32 lane) {
    for (u32 apart = 16u; apart > 0; apart /= 2u) x = max_of(SHUFFLE_XOR(x, apart), x);
    if (lane % 32u == 0) part[lane / 32u] = x;
    BARRIER();
    float top = part[0];
    for (u32 i = 1; i < GROUP_WARPS; i++) top = max_of(part[i], top);
    BARRIER();
    return top;
}

// One group a (head, row). The output goes to `plain` as bf16, in q's place where none is given.
KERNEL(attend, AttendArgs) {
    SHARED(float, part, GROUP_WARPS);
    SHARED(float, weights, ATTEND_KEYS);
    SHARED(float, query, ATTEND_DIM);
    const u32 lane = LANE, dim = args.dim, first = dim - 2u * args.pairs;
    const u64 row = GROUP_Y;
    const u32 head = GROUP_X;
    const u64 own = (row * args.heads + head) * dim;
    GLOBAL float* q = args.q + own;
    GLOBAL const float* cos = args.cos + row * args.pairs;
    GLOBAL const float* sin = args.sin + row * args.pairs;
    // Fours of channels in the order in which lanes read them.
    for (u32 c = lane; c < dim; c += GROUP_LANES)
        query[c % 4u * (dim / 4u) + c / 4u] = turned(q[c], c, first, cos, sin, false, args.round);
    BARRIER();
    const KeyList keys = keys_of(args.rows, row, args.window, args.draft);
    const u32 windows = keys.last + 1u - keys.first;
    const u32 count = windows + (args.n_picks ? args.n_picks[row] : 0);
    const float sink = PLANTED(FAULT_ATTEND_NO_SINK) ? -1e30f : args.sinks[head];

    for (u32 k = lane / 32u; k < count; k += GROUP_WARPS) {
        float sum = 0.0f;
        const bool window = k < windows;
        GLOBAL const u8* key;
        if (window) {
            key = window_row(args.ring, args.fresh, keys, args.ring_rows, dim, keys.first + k);
        } else {
            const u32 j = args.picks[row * args.picks_stride + k - windows];
            key = args.pool + pool_row(args.blocks, keys.slot, args.blocks_stride, args.rows_per_block, j) *
                                  compressed_bytes(dim);
        }
        for (u32 four = lane % 32u; four < dim / 4u; four += 32u) {
            for (u32 c = four * 4u; c < four * 4u + 4u; c++) {
                const float value = window ? window_value(key, dim, c) : compressed_value(key, dim, c);
                sum = FMA(query[c % 4u * (dim / 4u) + four], value, sum);
            }
        }
        sum = warp_sum(sum);
        if (lane % 32u == 0) weights[k] = sum * args.scale;
    }
    if (!PLANTED(FAULT_ATTEND_MISSING_BARRIER)) BARRIER();

    float top = sink;
    for (u32 k = lane; k < count; k += GROUP_LANES) top = max_of(weights[k], top);
    top = group_top(top, part, lane);
    float sum = 0.0f;
    for (u32 k = lane; k < count; k += GROUP_LANES) {
        const float e = exp_of(weights[k] - top);
        weights[k] = e;
        sum = sum + e;
    }
    const float divisor = group_sum(sum, part, lane) + exp_of(sink - top);

    for (u32 c = lane; c < dim; c += GROUP_LANES) {
        float mixed = 0.0f;
        for (u32 k = 0; k < windows; k++) {
            GLOBAL const u8* key =
                window_row(args.ring, args.fresh, keys, args.ring_rows, dim, keys.first + k);
            mixed = FMA(weights[k], window_value(key, dim, c), mixed);
        }
        const u32 used = PLANTED(FAULT_ATTEND_DROPPED_KEY) && count > windows ? count - 1u : count;
        for (u32 k = windows; k < used; k++) {
            const u32 j = args.picks[row * args.picks_stride + k - windows];
            const u64 place = pool_row(args.blocks, keys.slot, args.blocks_stride, args.rows_per_block, j);
            GLOBAL const u8* key = args.pool + place * compressed_bytes(dim);
            mixed = FMA(weights[k], compressed_value(key, dim, c), mixed);
        }
        const float value = turned(stored(mixed / divisor, args.round), c, first, cos, sin, true, args.round);
        if (args.plain) args.plain[own + c] = u16(AS_BITS(round_bf16(value)) >> 16);
        else q[c] = value;
    }
}
