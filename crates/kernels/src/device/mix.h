// Hyper-connections in two launches over slices of channels, so that a row's work spreads over many
// groups.
//
// `hyper_mix` expands the streams by the sublayer before (where `expand` says so), collapses them with
// the pre that stands, and takes each slice's part of the site's mix: group x is a slice of `columns`
// channels (at most 128), group y a block of `rows_each` rows (at most 64). Rows come in fours: each warp
// makes one row's new streams, then adds all four rows to its six outputs, whose weights it holds. The
// sublayer's output is `y`, or with `routed` the sum of experts.
//
// Lane l of 32 takes channels 4 l to 4 l + 3 of the slice, widths are multiples of four; its terms come stream after
// stream, channels ascending, and lanes are added 16, 8, 4, 2, 1 apart. A slice's parts are the mix's outputs, then the
// sum of squares of all streams and that of the collapsed row. `hyper_norm` adds the slices, at most 128: lane
// l of 32 takes the slices s with s % 32 == l, ascending, then warp_sum.
#pragma once

#define HYPER_STREAMS 4u
#define HYPER_COLUMNS 128u
#define HYPER_SLICES 128u
#define HYPER_ROWS 64u
#define HYPER_TOPK 16u

// Channels of a lane, side by side, its values of all streams, outputs of a warp, and experts on their way at a time.
#define HYPER_EACH 4u
#define HYPER_VALUES 16u
#define HYPER_OUTPUTS 6u
#define HYPER_TERMS 3u
// A row's pre, post and comb.
#define HYPER_FACTORS 24u

DEVICE u32 hyper_parts(u32 hc) { return (2u + hc) * hc + 2u; }

// Of 2 COUNT values of each lane, lanes APART apart keep and add the half that is theirs.
template <u32 COUNT, u32 APART> DEVICE void halve(THREAD float* x, u32 lane) {
    const bool high = (lane & APART) != 0;
    UNROLL
    for (u32 i = 0; i < COUNT; i++) {
        const float gives = high ? x[i] : x[i + COUNT], keeps = high ? x[i + COUNT] : x[i];
        x[i] = keeps + SHUFFLE_XOR(gives, APART);
    }
}

// The sum over a warp of 8 values of each lane: lane l gets that of value l / 4.
DEVICE float warp_sums(THREAD float* x, u32 lane) {
    halve<4u, 16u>(x, lane);
    halve<2u, 8u>(x, lane);
    halve<1u, 4u>(x, lane);
    const float sum = x[0] + SHUFFLE_XOR(x[0], 2u);
    return sum + SHUFFLE_XOR(sum, 1u);
}

// What a slice is of a row, and the rows of a block.
struct HyperSlice {
    u32 slice, slices, first, columns, begin, end;
};

// A lane's values of a row's streams as they stand: stream after stream, 0 past the last row, stream or channel.
// WHOLE here and below: four streams to expand, 128 channels, values kept as bf16.
template <bool WHOLE>
DEVICE void hyper_old(ARGS_REF(HyperMixArgs) args, THREAD const HyperSlice& at, u32 row, u32 lane, THREAD float* old) {
    const u32 hc = WHOLE ? HYPER_STREAMS : args.hc;
    const u64 from = u64(row) * hc * args.width + at.first + lane * HYPER_EACH;
    UNROLL
    for (u32 j = 0; j < HYPER_STREAMS; j++) {
        THREAD float* x = old + j * HYPER_EACH;
        UNROLL
        for (u32 c = 0; c < HYPER_EACH; c++) x[c] = 0.0f;
        if (row < at.end && (WHOLE || (j < hc && lane * HYPER_EACH < at.columns)))
            load_kept_fours(args.streams, from + u64(j * args.width), WHOLE ? 1u : args.round, x);
    }
}

// A lane's channels of what the sublayer gave a row.
template <bool WHOLE>
DEVICE void hyper_y(ARGS_REF(HyperMixArgs) args, THREAD const HyperSlice& at, SHARED_REF(u32) places, u32 row, u32 lane, THREAD float* y) {
    if ((!WHOLE && (args.expand == 0 || lane * HYPER_EACH >= at.columns)) || row >= at.end) return;
    const u32 first = at.first + lane * HYPER_EACH;
    load_fours((args.routed ? args.shared : args.y) + u64(row) * args.width + first, y);
    if (!args.routed) return;
    float sum[HYPER_EACH];
    UNROLL
    for (u32 c = 0; c < HYPER_EACH; c++) sum[c] = 0.0f;
    const i32 named = i32((row - at.begin) * args.topk);
    for (u32 turn = 0; turn < args.topk; turn += HYPER_TERMS) {
        float term[HYPER_TERMS][HYPER_EACH];
        UNROLL
        for (u32 e = 0; e < HYPER_TERMS; e++) {
            if (turn + e >= args.topk) continue;
            const u32 place = places[named + i32(turn + e)];
            load_fours(args.routed + u64(place) * args.width + first, term[e]);
        }
        UNROLL
        for (u32 e = 0; e < HYPER_TERMS; e++) {
            if (turn + e >= args.topk) continue;
            UNROLL
            for (u32 c = 0; c < HYPER_EACH; c++) sum[c] = sum[c] + term[e][c];
        }
    }
    UNROLL
    for (u32 c = 0; c < HYPER_EACH; c++)
        y[c] = stored(PLANTED(FAULT_EXPERTS_NO_SHARED) ? sum[c] : sum[c] + y[c], WHOLE ? 1u : args.round);
}

// The factors of a block's rows, each row's pre, post and comb[i][j] one after another for four streams, and
// the places of its experts.
DEVICE void hyper_factors(ARGS_REF(HyperMixArgs) args, THREAD const HyperSlice& at, SHARED_REF(float) factors, SHARED_REF(u32) places, u32 thread) {
    const u32 hc = args.hc;
    for (u32 n = thread; n < (at.end - at.begin) * HYPER_FACTORS; n += GROUP_LANES) {
        const u64 row = at.begin + n / HYPER_FACTORS;
        const u32 which = n % HYPER_FACTORS, i = which / HYPER_STREAMS, j = which % HYPER_STREAMS;
        float x = 0.0f;
        if (j < hc) {
            if (i == 0) {
                x = args.pre[row * hc + j];
            } else if (args.expand != 0) {
                const u32 entry = PLANTED(FAULT_EXPAND_TRANSPOSED) ? j * hc + i - 2u : (i - 2u) * hc + j;
                if (i == 1u) x = args.post[row * hc + j];
                else if (i - 2u < hc) x = args.comb[row * hc * hc + entry];
            }
        }
        factors[n] = x;
    }
    if (!args.routed) return;
    for (u32 n = thread; n < (at.end - at.begin) * args.topk; n += GROUP_LANES) places[n] = args.places[at.begin * args.topk + n];
}

// A row's new streams and its collapsed row: stores both, and leaves them in `fresh`.
template <bool WHOLE>
DEVICE void hyper_expand(ARGS_REF(HyperMixArgs) args, THREAD const HyperSlice& at, SHARED_REF(float) factors, SHARED_REF(float) fresh, u32 row, i32 own,
    u32 lane, THREAD float* x, THREAD const float* y) {
    const i32 factor = i32((row - at.begin) * HYPER_FACTORS);
    const u32 hc = WHOLE ? HYPER_STREAMS : args.hc, round = WHOLE ? 1u : args.round;
    const u64 k = at.first + lane * HYPER_EACH, to = u64(row) * hc * args.width + k;
    const bool mine = WHOLE || lane * HYPER_EACH < at.columns;
    float sum[HYPER_EACH];
    UNROLL
    for (u32 c = 0; c < HYPER_EACH; c++) sum[c] = 0.0f;
    UNROLL
    for (u32 j = 0; j < HYPER_STREAMS; j++) {
        // Streams that are not there are 0.
        float next[HYPER_EACH];
        UNROLL
        for (u32 c = 0; c < HYPER_EACH; c++) next[c] = x[j * HYPER_EACH + c];
        if (WHOLE || (args.expand != 0 && j < hc)) {
            const float post = factors[factor + i32(HYPER_STREAMS + j)];
            UNROLL
            for (u32 c = 0; c < HYPER_EACH; c++) next[c] = post * y[c];
            UNROLL
            for (u32 i = 0; i < HYPER_STREAMS; i++) {
                if (!WHOLE && i >= hc) continue;
                const float comb = factors[factor + i32((2u + i) * HYPER_STREAMS + j)];
                UNROLL
                for (u32 c = 0; c < HYPER_EACH; c++) next[c] = FMA(comb, x[i * HYPER_EACH + c], next[c]);
            }
            UNROLL
            for (u32 c = 0; c < HYPER_EACH; c++) next[c] = stored(next[c], round);
            if (mine) store_kept_fours(next, args.streams, to + u64(j * args.width), round);
        }
        const float pre = factors[factor + i32(j)];
        UNROLL
        for (u32 c = 0; c < HYPER_EACH; c++) {
            if (WHOLE || j < hc) sum[c] = FMA(pre, next[c], sum[c]);
            fresh[own + i32(j * HYPER_COLUMNS + c)] = next[c];
        }
    }
    UNROLL
    for (u32 c = 0; c < HYPER_EACH; c++) {
        sum[c] = stored(sum[c], round);
        fresh[own + i32(HYPER_STREAMS * HYPER_COLUMNS + c)] = sum[c];
    }
    if (mine) store_fours(sum, args.collapsed + u64(row) * args.width + k);
}

// A row's part of a warp's outputs, and the first warp's sum of squares of the streams, the second's of the
// collapsed row. Lane l has that of output l / 4, the squares' behind the outputs'.
DEVICE float hyper_outputs(THREAD const float* weight, SHARED_REF(float) fresh, i32 own, u32 hc, u32 warp, u32 lane) {
    float x[HYPER_VALUES], sum[8];
    UNROLL
    for (u32 i = 0; i < HYPER_VALUES; i++) x[i] = fresh[own + i32(i / HYPER_EACH * HYPER_COLUMNS + i % HYPER_EACH)];
    UNROLL
    for (u32 o = 0; o < 8u; o++) sum[o] = 0.0f;
    UNROLL
    for (u32 i = 0; i < HYPER_VALUES; i++) {
        if (PLANTED(FAULT_HYPER_DROPPED_STREAM) && i / HYPER_EACH + 1u == hc) continue;
        UNROLL
        for (u32 o = 0; o < HYPER_OUTPUTS; o++) sum[o] = FMA(weight[o * HYPER_VALUES + i], x[i], sum[o]);
    }
    if (warp == 0) {
        UNROLL
        for (u32 i = 0; i < HYPER_VALUES; i++) sum[HYPER_OUTPUTS] = FMA(x[i], x[i], sum[HYPER_OUTPUTS]);
    } else if (warp == 1u) {
        UNROLL
        for (u32 c = 0; c < HYPER_EACH; c++) {
            const float value = fresh[own + i32(HYPER_STREAMS * HYPER_COLUMNS + c)];
            sum[HYPER_OUTPUTS] = FMA(value, value, sum[HYPER_OUTPUTS]);
        }
    }
    return warp_sums(sum, lane);
}

template <bool WHOLE>
DEVICE void hyper_rows(ARGS_REF(HyperMixArgs) args, THREAD const HyperSlice& at, SHARED_REF(float) fresh, SHARED_REF(float) factors, SHARED_REF(u32) places,
    u32 thread) {
    const u32 lane = thread % 32u, warp = thread / 32u, hc = args.hc, mixes = (2u + hc) * hc, parts = mixes + 2u;
    const i32 a_row = i32((HYPER_STREAMS + 1u) * HYPER_COLUMNS), a_turn = i32(GROUP_WARPS) * a_row;
    float weight[HYPER_OUTPUTS * HYPER_VALUES];
    UNROLL
    for (u32 n = 0; n < HYPER_OUTPUTS * HYPER_STREAMS; n++) {
        const u32 o = warp * HYPER_OUTPUTS + n / HYPER_STREAMS, j = n % HYPER_STREAMS;
        THREAD float* to = weight + n * HYPER_EACH;
        UNROLL
        for (u32 c = 0; c < HYPER_EACH; c++) to[c] = 0.0f;
        if (WHOLE || (o < mixes && j < hc && lane * HYPER_EACH < at.columns))
            load_fours(args.weight + (u64(o) * hc + j) * args.width + at.first + lane * HYPER_EACH, to);
    }
    // The part that this lane stores of a row.
    const u32 value = lane / 4u, output = warp * HYPER_OUTPUTS + value;
    const bool squares = value == HYPER_OUTPUTS && warp < 2u;
    const bool stores = lane % 4u == 0 && (squares || (value < HYPER_OUTPUTS && (WHOLE || output < mixes)));
    LAUNCHES_BEFORE();
    float x[HYPER_VALUES], y[HYPER_EACH];
    UNROLL
    for (u32 c = 0; c < HYPER_EACH; c++) y[c] = 0.0f;
    hyper_old<WHOLE>(args, at, at.begin + warp, lane, x);
    hyper_factors(args, at, factors, places, thread);
    BARRIER();
    hyper_y<WHOLE>(args, at, places, at.begin + warp, lane, y);
    GLOBAL float* out = args.parts + (u64(at.begin) * at.slices + at.slice) * parts + (squares ? mixes + warp : output);
    i32 from = i32(lane * HYPER_EACH);
    for (u32 base = at.begin; base < at.end; base += GROUP_WARPS) {
        const u32 row = base + warp;
        if (row < at.end) hyper_expand<WHOLE>(args, at, factors, fresh, row, from + i32(warp) * a_row, lane, x, y);
        // The next rows are on their way while these are added.
        hyper_old<WHOLE>(args, at, row + GROUP_WARPS, lane, x);
        hyper_y<WHOLE>(args, at, places, row + GROUP_WARPS, lane, y);
        if (!PLANTED(FAULT_HYPER_MISSING_BARRIER)) BARRIER();
        const u32 rows = at.end - base < GROUP_WARPS ? at.end - base : GROUP_WARPS;
        i32 own = from;
        for (u32 r = 0; r < rows; r++) {
            const float total = hyper_outputs(weight, fresh, own, hc, warp, lane);
            if (stores) *out = total;
            out += u64(at.slices) * parts;
            own += a_row;
        }
        from = from < a_turn ? from + a_turn : from - a_turn;
    }
}

KERNEL_AHEAD(hyper_mix, HyperMixArgs, 3) {
    SHARED(float, fresh, 2u * GROUP_WARPS * (HYPER_STREAMS + 1u) * HYPER_COLUMNS);
    SHARED(float, factors, HYPER_ROWS * HYPER_FACTORS);
    SHARED(u32, places, HYPER_ROWS * HYPER_TOPK);
    const u32 thread = LANE;
    HyperSlice at;
    at.slice = GROUP_X;
    at.slices = (args.width + args.columns - 1u) / args.columns;
    at.first = at.slice * args.columns;
    at.columns = at.first + args.columns < args.width ? args.columns : args.width - at.first;
    at.begin = GROUP_Y * args.rows_each;
    at.end = at.begin + args.rows_each < args.rows ? at.begin + args.rows_each : args.rows;
    const bool whole = args.hc == HYPER_STREAMS && at.columns == HYPER_COLUMNS && args.expand != 0 && args.round != 0;
    if (whole) hyper_rows<true>(args, at, fresh, factors, places, thread);
    else hyper_rows<false>(args, at, fresh, factors, places, thread);
}

// A lane's parts o of a row: those of slices lane % 32, and 32, 64, 96 on.
DEVICE void hyper_load(GLOBAL const float* parts, u32 count, u32 slices, u32 o, u32 lane, THREAD float* part) {
    const u32 used = PLANTED(FAULT_HYPER_DROPPED_SLICE) ? slices - 1u : slices;
    UNROLL
    for (u32 i = 0; i < HYPER_SLICES / 32u; i++) {
        const u32 s = lane + 32u * i;
        part[i] = s < used ? parts[s * count + o] : 0.0f;
    }
}
DEVICE float hyper_added(THREAD const float* part) {
    float sum = 0.0f;
    UNROLL
    for (u32 i = 0; i < HYPER_SLICES / 32u; i++) sum = sum + part[i];
    return sum;
}

#define HYPER_CHANNELS 512u

// An entry of comb over a sum; FULL: every lane has one. What is no entry is 0, by way of 1 / 1: devices take long
// to divide 0.
template <bool FULL> DEVICE float entry_over(bool there, float x, float sum) {
    if (FULL) return x / sum;
    const float quotient = (there ? x : 1.0f) / (there ? sum : 1.0f);
    return there ? quotient : 0.0f;
}

// Rows and columns of comb divided by their sums, rows first. Lanes 4 i + j and 16 further have the entry (i, j); sums
// of a row run over lanes 2 and 1 apart, those of a column over lanes 8 and 4 apart.
template <bool FULL> DEVICE float sinkhorn(bool there, float x, u32 iterations, float eps) {
    for (u32 round = 0; round < iterations; round++) {
        float row = x + SHUFFLE_XOR(x, 2u);
        row = row + SHUFFLE_XOR(row, 1u);
        if (round == 0) x = entry_over<FULL>(there, x, row) + (there ? eps : 0.0f);
        else x = entry_over<FULL>(there, x, row + eps);
        float column = x + SHUFFLE_XOR(x, 8u);
        column = column + SHUFFLE_XOR(column, 4u);
        x = entry_over<FULL>(there, x, column + eps);
    }
    return x;
}

// A row's pre, post and comb from its parts.
DEVICE void hyper_factors_of(ARGS_REF(HyperNormArgs) args, GLOBAL const float* parts, SHARED_REF(float) mix, u64 row, u32 lane) {
    const u32 hc = args.hc, mixes = hyper_parts(hc) - 2u, warp = lane / 32u, own = lane % 32u;
    float part[8u][HYPER_SLICES / 32u], sum[8];
    UNROLL
    for (u32 n = 0; n < 8u; n++) hyper_load(parts, mixes + 2u, args.slices, warp * 8u + n <= mixes ? warp * 8u + n : mixes, own, part[n]);
    UNROLL
    for (u32 n = 0; n < 8u; n++) sum[n] = hyper_added(part[n]);
    const float total = warp_sums(sum, own);
    if (own % 4u == 0) mix[warp * 8u + own / 4u] = total;
    BARRIER();
    const float inverse = inverse_rms(mix[mixes], hc * args.width, args.eps);
    if (warp == 1u && own < hc) {
        const float a = FMA(mix[own] * inverse, args.scale_pre, args.base[own]);
        const float b = FMA(mix[hc + own] * inverse, args.scale_post, args.base[hc + own]);
        args.pre[row * hc + own] = sigmoid_of(a) + args.hc_eps;
        args.post[row * hc + own] = 2.0f * sigmoid_of(b);
    }
    if (warp != 0) return;
    const u32 i = own / HYPER_STREAMS % HYPER_STREAMS, j = own % HYPER_STREAMS, at = (2u + i) * hc + j;
    const bool there = i < hc && j < hc;
    float x = there ? FMA(mix[at] * inverse, args.scale_comb, args.base[at]) : -infinity();
    float top = max_of(SHUFFLE_XOR(x, 2u), x);
    top = max_of(SHUFFLE_XOR(top, 1u), top);
    x = there ? exp_of(x - top) : 0.0f;
    const u32 iterations = PLANTED(FAULT_SINKHORN_DROPPED_ROUND) ? 1u : args.iterations;
    x = hc == HYPER_STREAMS ? sinkhorn<true>(there, x, iterations, args.hc_eps) : sinkhorn<false>(there, x, iterations, args.hc_eps);
    if (there && own < 16u) args.comb[(row * hc + i) * hc + j] = x;
}

// x = rmsnorm(collapsed), which is bf16 where `kept` says so, as f32, as bf16, and as codes in steps (each where its
// address is given): 512 channels of a row for each group y from 1 on. pre, post and
// comb: group (row, 0). Groups count from `first`. `known`: what is read was there before the launch before.
KERNEL_AHEAD(hyper_norm, HyperNormArgs, 4) {
    SHARED(float, mix, 8u * GROUP_WARPS);
    const u32 lane = LANE, width = args.width, count = hyper_parts(args.hc);
    const u64 row = GROUP_X;
    const u32 group = GROUP_Y + args.first;
    GLOBAL const float* parts = args.parts + row * args.slices * count;
    if (args.known == 0) {
        LAUNCHES_BEFORE();
    }
    if (group > 0) {
        // A lane's four channels lie side by side.
        const u32 k = (group - 1u) * HYPER_CHANNELS + lane * 4u;
        const u64 at = row * width + k;
        const bool mine = k < width;
        float x[4] = {0.0f, 0.0f, 0.0f, 0.0f}, by[4] = {0.0f, 0.0f, 0.0f, 0.0f}, part[HYPER_SLICES / 32u];
        if (mine) load_kept_fours(args.collapsed, at, args.kept, x);
        if (mine) load_fours(args.norm + k, by);
        hyper_load(parts, count, args.slices, count - 1u, lane % 32u, part);
        const float inverse = inverse_rms(warp_sum(hyper_added(part)), width, args.eps);
        UNROLL
        for (u32 i = 0; i < 4u; i++) x[i] = stored(x[i] * inverse * by[i], args.round);
        if (args.x && mine) store_fours(x, args.x + at);
        if (args.plain && mine) store_plain_fours(x, args.plain + at);
        if (args.rounded) store_coded_fours(x, mine, args.rounded + row * row_bytes(width), k, width);
    } else {
        hyper_factors_of(args, parts, mix, row, lane);
    }
    if (args.known != 0) {
        LAUNCHES_BEFORE();
    }
}
