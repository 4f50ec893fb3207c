// Hyper-connections in two launches over slices of channels, so that a row's work spreads over many
// groups.
//
// `hyper_mix` expands the streams by the sublayer before (where `expand` says so), collapses them with
// the pre that stands, and takes each slice's part of the site's mix: group x is a slice of `columns`
// channels (at most 64), group y a block of `rows_each` rows, a row at a time a warp. The sublayer's
// output is `y`, or with `routed` the sum of experts.
//
// Lane l of 32 takes channels l and l + 32 of the slice; its terms come stream after stream, l's before
// l + 32's, and lanes are added 16, 8, 4, 2, 1 apart. A slice's parts are the mix's outputs, then the sum
// of squares of all streams and that of the collapsed row. `hyper_norm` adds the slices, at most 128: lane
// l of 32 takes the slices s with s % 32 == l, ascending, then warp_sum.
#pragma once

#define HYPER_COLUMNS 64u
#define HYPER_WEIGHTS 6144u
#define HYPER_SLICES 128u

DEVICE u32 hyper_parts(u32 hc) { return (2u + hc) * hc + 2u; }

template <u32 APART> DEVICE void halve(THREAD float* x, u32 lane) {
    const bool high = (lane & APART) != 0;
    UNROLL
    for (u32 i = 0; i < APART; i++) {
        const float gives = high ? x[i] : x[i + APART], keeps = high ? x[i + APART] : x[i];
        x[i] = keeps + SHUFFLE_XOR(gives, APART);
    }
}

// The sum over a warp of 32 values of each lane: lane l gets that of value l.
DEVICE float warp_sums(THREAD float* x, u32 lane) {
    halve<16u>(x, lane);
    halve<8u>(x, lane);
    halve<4u>(x, lane);
    halve<2u>(x, lane);
    halve<1u>(x, lane);
    return x[0];
}

// What a slice is of a row.
struct HyperSlice {
    u32 slice, slices, first, columns;
};

// The new streams' values of lane l's channels of a row, l's first, for at most HC streams. Stores them, and
// the collapsed row; adds the squares of both.
template <u32 HC>
DEVICE void hyper_row(ARGS_REF(HyperMixArgs) args, THREAD const HyperSlice& at, u64 row, u32 lane, THREAD float* x, THREAD float* squares) {
    const u32 hc = args.hc, width = args.width;
    GLOBAL float* streams = args.streams + row * hc * width + at.first;
    // Everything is read before anything is written.
    float pre[HC], post[HC], comb[HC * HC], old[2u * HC], y[2];
    UNROLL
    for (u32 j = 0; j < HC; j++) {
        const bool there = j < hc, expands = there && args.expand != 0;
        pre[j] = there ? args.pre[row * hc + j] : 0.0f;
        post[j] = expands ? args.post[row * hc + j] : 0.0f;
        UNROLL
        for (u32 i = 0; i < HC; i++) {
            const u32 entry = PLANTED(FAULT_EXPAND_TRANSPOSED) ? j * hc + i : i * hc + j;
            comb[i * HC + j] = expands && i < hc ? args.comb[row * hc * hc + entry] : 0.0f;
        }
    }
    UNROLL
    for (u32 c = 0; c < 2u; c++) {
        const u32 k = lane + 32u * c;
        const bool mine = k < at.columns;
        UNROLL
        for (u32 i = 0; i < HC; i++) old[c * HC + i] = mine && i < hc ? streams[i * width + k] : 0.0f;
        y[c] = 0.0f;
        if (!mine || args.expand == 0) continue;
        if (args.routed) {
            float sum = 0.0f;
            for (u32 e = 0; e < args.topk; e++)
                sum = sum + args.routed[u64(args.places[row * args.topk + e]) * width + at.first + k];
            if (!PLANTED(FAULT_EXPERTS_NO_SHARED)) sum = sum + args.shared[row * width + at.first + k];
            y[c] = stored(sum, args.round);
        } else {
            y[c] = args.y[row * width + at.first + k];
        }
    }
    UNROLL
    for (u32 c = 0; c < 2u; c++) {
        const u32 k = lane + 32u * c;
        const bool mine = k < at.columns;
        float collapsed = 0.0f;
        UNROLL
        for (u32 j = 0; j < HC; j++) {
            float next = old[c * HC + j];
            if (args.expand != 0) {
                next = post[j] * y[c];
                UNROLL
                for (u32 i = 0; i < HC; i++)
                    if (i < hc) next = FMA(comb[i * HC + j], old[c * HC + i], next);
                next = stored(next, args.round);
            }
            if (j < hc) collapsed = FMA(pre[j], next, collapsed);
            x[c * HC + j] = mine && j < hc ? next : 0.0f;
            if (j < hc) squares[0] = FMA(x[c * HC + j], x[c * HC + j], squares[0]);
        }
        collapsed = stored(collapsed, args.round);
        if (!mine) continue;
        args.collapsed[row * width + at.first + k] = collapsed;
        squares[1] = FMA(collapsed, collapsed, squares[1]);
        if (args.expand == 0) continue;
        UNROLL
        for (u32 j = 0; j < HC; j++)
            if (j < hc) streams[j * width + k] = x[c * HC + j];
    }
}

template <u32 HC>
DEVICE void hyper_rows(ARGS_REF(HyperMixArgs) args, SHARED_REF(float) weight, THREAD const HyperSlice& at, u32 block, u32 warp, u32 lane) {
    const u32 hc = args.hc, mixes = (2u + hc) * hc, parts = hyper_parts(hc), inputs = hc * at.columns;
    const u32 past = (block + 1u) * args.rows_each, row_end = past < args.rows ? past : args.rows;
    for (u32 r = block * args.rows_each + warp; r < row_end; r += GROUP_WARPS) {
        float x[2u * HC], squares[2] = {0.0f, 0.0f};
        hyper_row<HC>(args, at, r, lane, x, squares);
        GLOBAL float* out = args.parts + (u64(r) * at.slices + at.slice) * parts;
        for (u32 base = 0; base < parts; base += 32u) {
            float sum[32];
            UNROLL
            for (u32 o = 0; o < 32u; o++)
                sum[o] = base + o == mixes ? squares[0] : base + o == mixes + 1u ? squares[1] : 0.0f;
            const u32 outputs = base + 32u < mixes ? 32u : mixes - base;
            UNROLL
            for (u32 i = 0; i < 2u * HC; i++) {
                const u32 k = lane + i % 2u * 32u;
                if (i / 2u >= hc || (PLANTED(FAULT_HYPER_DROPPED_STREAM) && i / 2u + 1u == hc)) continue;
                if (k >= at.columns) continue;
                const u32 from = base * inputs + i / 2u * at.columns + k;
                UNROLL
                for (u32 o = 0; o < 32u; o++)
                    if (o < outputs) sum[o] = FMA(weight[from + o * inputs], x[i % 2u * HC + i / 2u], sum[o]);
            }
            const float total = warp_sums(sum, lane);
            if (base + lane < parts) out[base + lane] = total;
        }
    }
}

// The slice of the mix's weights, three outputs of a warp on their way at a time.
template <u32 HC>
DEVICE void hyper_weights(ARGS_REF(HyperMixArgs) args, SHARED_REF(float) weight, THREAD const HyperSlice& at, u32 warp, u32 lane) {
    const u32 hc = args.hc, mixes = (2u + hc) * hc;
    for (u32 first = warp; first < mixes; first += 3u * GROUP_WARPS) {
        float held[3u * 2u * HC];
        UNROLL
        for (u32 i = 0; i < 3u * 2u * HC; i++) {
            const u32 o = first + i / (2u * HC) * GROUP_WARPS, j = i / 2u % HC, k = lane + i % 2u * 32u;
            const bool mine = o < mixes && j < hc && k < at.columns;
            held[i] = mine ? args.weight[(u64(o) * hc + j) * args.width + at.first + k] : 0.0f;
        }
        UNROLL
        for (u32 i = 0; i < 3u * 2u * HC; i++) {
            const u32 o = first + i / (2u * HC) * GROUP_WARPS, j = i / 2u % HC, k = lane + i % 2u * 32u;
            if (o < mixes && j < hc && k < at.columns) weight[(o * hc + j) * at.columns + k] = held[i];
        }
    }
}

KERNEL(hyper_mix, HyperMixArgs) {
    SHARED(float, weight, HYPER_WEIGHTS);
    const u32 lane = LANE % 32u, warp = LANE / 32u, block = GROUP_Y, hc = args.hc, width = args.width;
    HyperSlice at;
    at.slice = GROUP_X;
    at.slices = (width + args.columns - 1u) / args.columns;
    at.first = at.slice * args.columns;
    at.columns = at.first + args.columns < width ? args.columns : width - at.first;
    if (hc <= 4u) hyper_weights<4u>(args, weight, at, warp, lane);
    else hyper_weights<HC_MAX>(args, weight, at, warp, lane);
    if (!PLANTED(FAULT_HYPER_MISSING_BARRIER)) BARRIER();
    if (hc <= 4u) hyper_rows<4u>(args, weight, at, block, warp, lane);
    else hyper_rows<HC_MAX>(args, weight, at, block, warp, lane);
}

// A lane's parts o of a row: those of slices lane % 32, and 32, 64, 96 on.
DEVICE void hyper_load(GLOBAL const float* parts, u32 count, u32 slices, u32 o, u32 lane, THREAD float* part) {
    const u32 used = PLANTED(FAULT_HYPER_DROPPED_SLICE) ? slices - 1u : slices;
    UNROLL
    for (u32 i = 0; i < HYPER_SLICES / 32u; i++) {
        const u32 s = lane % 32u + 32u * i;
        part[i] = s < used ? parts[s * count + o] : 0.0f;
    }
}
DEVICE float hyper_sum(THREAD const float* part) {
    float sum = 0.0f;
    UNROLL
    for (u32 i = 0; i < HYPER_SLICES / 32u; i++) sum = sum + part[i];
    return warp_sum(sum);
}

#define HYPER_CHANNELS 512u

// x = rmsnorm(collapsed), as f32, as bf16, and as bf16 rounded to e4m3 as an FP8 linear's input is
// (each where its address is given): 512 channels of a row for each group y from 1 on. pre, post and
// comb: group (row, 0).
KERNEL(hyper_norm, HyperNormArgs) {
    SHARED(float, mix, HC_MAX * (HC_MAX + 2u) + 1u);
    const u32 lane = LANE, hc = args.hc, width = args.width, count = hyper_parts(hc), mixes = count - 2u;
    const u64 row = GROUP_X;
    const u32 group = GROUP_Y;
    GLOBAL const float* parts = args.parts + row * args.slices * count;
    if (group > 0) {
        const u32 EACH = HYPER_CHANNELS / GROUP_LANES;
        float x[EACH], by[EACH];
        for (u32 i = 0; i < EACH; i++) {
            const u32 k = (group - 1u) * HYPER_CHANNELS + i * GROUP_LANES + lane;
            x[i] = k < width ? args.collapsed[row * width + k] : 0.0f;
            by[i] = k < width ? args.norm[k] : 0.0f;
        }
        float part[HYPER_SLICES / 32u];
        hyper_load(parts, count, args.slices, mixes + 1u, lane, part);
        const float inverse = inverse_rms(hyper_sum(part), width, args.eps);
        for (u32 i = 0; i < EACH; i++) {
            const u32 k = (group - 1u) * HYPER_CHANNELS + i * GROUP_LANES + lane;
            const float value = stored(x[i] * inverse * by[i], args.round);
            if (args.x && k < width) args.x[row * width + k] = value;
            if (args.plain && k < width) args.plain[row * width + k] = u16(AS_BITS(value) >> 16);
            if (args.rounded) {
                const u32 byte = e4m3_scale_of(warp_amax(value));
                const float code = round_e4m3(quotient(value, e8m0_reciprocal(byte))) * lift_e8m0(byte);
                if (k < width) args.rounded[row * width + k] = u16(AS_BITS(code) >> 16);
            }
        }
        return;
    }
    // Seven outputs of a warp on their way at a time.
    for (u32 first = lane / 32u; first <= mixes; first += 7u * GROUP_WARPS) {
        float part[7u][HYPER_SLICES / 32u];
        UNROLL
        for (u32 n = 0; n < 7u; n++)
            hyper_load(parts, count, args.slices, first + n * GROUP_WARPS <= mixes ? first + n * GROUP_WARPS : mixes, lane, part[n]);
        UNROLL
        for (u32 n = 0; n < 7u; n++) {
            const u32 o = first + n * GROUP_WARPS;
            if (o > mixes) continue;
            const float sum = hyper_sum(part[n]);
            if (lane % 32u == 0) mix[o] = sum;
        }
    }
    BARRIER();
    if (lane >= 32u) return;
    const float inverse = inverse_rms(mix[mixes], hc * width, args.eps);
    if (lane < hc) {
        const float a = FMA(mix[lane] * inverse, args.scale_pre, args.base[lane]);
        const float b = FMA(mix[hc + lane] * inverse, args.scale_post, args.base[hc + lane]);
        args.pre[row * hc + lane] = sigmoid_of(a) + args.hc_eps;
        args.post[row * hc + lane] = 2.0f * sigmoid_of(b);
    }
    // Lane 8 i + j has the entries (i, j) and (i + 4, j) of comb. Sums of a row run over lanes 4, 2, 1 apart,
    // those of a column over its two entries, then lanes 16 and 8 apart; what is no entry is 0.
    const u32 i = lane / 8u, j = lane % 8u;
    const bool low = i < hc && j < hc, high = i + 4u < hc && j < hc;
    float a = -infinity(), b = -infinity();
    if (low) a = FMA(mix[(2u + i) * hc + j] * inverse, args.scale_comb, args.base[(2u + i) * hc + j]);
    if (high) b = FMA(mix[(6u + i) * hc + j] * inverse, args.scale_comb, args.base[(6u + i) * hc + j]);
    float a_top = a, b_top = b;
    for (u32 apart = 4u; apart > 0; apart /= 2u) {
        a_top = max_of(SHUFFLE_XOR(a_top, apart), a_top);
        b_top = max_of(SHUFFLE_XOR(b_top, apart), b_top);
    }
    a = low ? exp_of(a - a_top) : 0.0f;
    b = high ? exp_of(b - b_top) : 0.0f;
    const u32 iterations = PLANTED(FAULT_SINKHORN_DROPPED_ROUND) ? 1u : args.iterations;
    for (u32 round = 0; round < iterations; round++) {
        float row_a = a, row_b = b;
        for (u32 apart = 4u; apart > 0; apart /= 2u) {
            if (apart >= hc) continue;
            row_a = row_a + SHUFFLE_XOR(row_a, apart);
            if (hc > 4u) row_b = row_b + SHUFFLE_XOR(row_b, apart);
        }
        const float before = round == 0 ? 0.0f : args.hc_eps, after = round == 0 ? args.hc_eps : 0.0f;
        a = low ? a / (low ? row_a + before : 1.0f) + after : 0.0f;
        if (hc > 4u) b = high ? b / (high ? row_b + before : 1.0f) + after : 0.0f;
        float column = hc > 4u ? a + b : a;
        column = column + SHUFFLE_XOR(column, 16u);
        column = column + SHUFFLE_XOR(column, 8u);
        a = low ? a / (low ? column + args.hc_eps : 1.0f) : 0.0f;
        if (hc > 4u) b = high ? b / (high ? column + args.hc_eps : 1.0f) : 0.0f;
    }
    if (low) args.comb[(row * hc + i) * hc + j] = a;
    if (high) args.comb[(row * hc + i + 4u) * hc + j] = b;
}
