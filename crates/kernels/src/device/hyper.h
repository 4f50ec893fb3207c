// Hyper-connections: the streams' mixes around a sublayer, one group a row, or where there is no sum over
// channels one a row and slice of them.
#pragma once

#define HC_MAX 8u

// X_i = table[token] for all streams; pre = [1, 0, ..].
DEVICE float table_value(GLOBAL const u8* table, u64 at, u32 format) {
    if (format == FORMAT_F32) return ((GLOBAL const float*)table)[at];
    const u32 bits = ((GLOBAL const u16*)table)[at];
    return format == FORMAT_BF16 ? lift_bf16(bits) : lift_f16(bits);
}

KERNEL(embed, EmbedArgs) {
    const u32 lane = LANE, slice = GROUP_Y, k = slice_fours(slice, lane);
    const u64 row = GROUP_X, from = u64(args.tokens[row]) * args.width + k, to = row * args.hc * args.width + k;
    if (slice == 0 && lane < args.hc) args.pre[row * args.hc + lane] = lane == 0 ? 1.0f : 0.0f;
    if (k >= args.width) return;
    float x[4];
    UNROLL
    for (u32 c = 0; c < 4u; c++) x[c] = table_value(args.table, from + c, args.format);
    const u32 copies = PLANTED(FAULT_EMBED_DROPPED_STREAM) ? args.hc - 1u : args.hc;
    for (u32 i = 0; i < copies; i++) store_kept_fours(x, args.streams, to + i * args.width, args.round);
}

// out = sum_i pre_i X_i, streams ascending.
KERNEL_REHEARSED(collapse, CollapseArgs) {
    const u32 lane = LANE, k = slice_fours(GROUP_Y, lane);
    const u64 row = GROUP_X;
    if (k >= args.width) return;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const u32 hc = PLANTED(FAULT_COLLAPSE_DROPPED_STREAM) ? args.hc - 1u : args.hc;
    for (u32 i = 0; i < hc; i++) {
        const float pre = LIVE ? args.pre[row * args.hc + i] : 0.0f;
        float x[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (LIVE) load_kept_fours(args.streams, (row * args.hc + i) * args.width + k, args.round, x);
        UNROLL
        for (u32 c = 0; c < 4u; c++) sum[c] = FMA(pre, x[c], sum[c]);
    }
    UNROLL
    for (u32 c = 0; c < 4u; c++) sum[c] = stored(sum[c], args.round);
    if (LIVE) store_fours(sum, args.out + row * args.width + k);
}

// Columns at..at+width of the taps take the mean of the streams.
KERNEL(tap, TapArgs) {
    const u32 lane = LANE, k = slice_fours(GROUP_Y, lane);
    const u64 row = GROUP_X;
    if (k >= args.width) return;
    float sum[4];
    load_kept_fours(args.streams, row * args.hc * args.width + k, args.round, sum);
    for (u32 i = 1; i < args.hc; i++) {
        float x[4];
        load_kept_fours(args.streams, (row * args.hc + i) * args.width + k, args.round, x);
        UNROLL
        for (u32 c = 0; c < 4u; c++) sum[c] = sum[c] + x[c];
    }
    const u32 count = PLANTED(FAULT_TAP_WRONG_SCALE) ? args.hc + 1u : args.hc;
    UNROLL
    for (u32 c = 0; c < 4u; c++) sum[c] = stored(sum[c] / float(count), args.round);
    store_fours(sum, args.out + row * args.stride + args.at + k);
}

// x = rmsnorm(collapse(X, pre)) with the pre that stands; then this site's own pre, post and comb
// from the mix (fn @ X) and the streams' RMS. The sum of squares runs over all streams, flattened.
// A row's comb lies in shared memory, one lane an entry; sums of it run ascending.
KERNEL(hyper_in, HyperInArgs) {
    SHARED(float, part, GROUP_WARPS);
    SHARED(float, comb, HC_MAX * HC_MAX);
    const u32 lane = LANE, hc = args.hc, width = args.width;
    const u64 row = GROUP_X;
    const u64 streams = row * hc * width;
    GLOBAL const float* mix = args.mix + row * (2u + hc) * hc;
    GLOBAL float* pre = args.pre + row * hc;
    GLOBAL float* x = args.x + row * width;

    float sum = 0.0f;
    for (u32 k = lane; k < width; k += GROUP_LANES) {
        float value = 0.0f;
        for (u32 i = 0; i < hc; i++) value = FMA(pre[i], load_kept(args.streams, streams + i * width + k, args.round), value);
        value = stored(value, args.round);
        x[k] = value;
        sum = FMA(value, value, sum);
    }
    const float x_inverse = inverse_rms(group_sum(sum, part, lane), width, args.eps);
    for (u32 k = lane; k < width; k += GROUP_LANES)
        x[k] = stored(x[k] * x_inverse * args.norm[k], args.round);

    sum = 0.0f;
    for (u32 k = lane; k < hc * width; k += GROUP_LANES) {
        const float value = load_kept(args.streams, streams + k, args.round);
        sum = FMA(value, value, sum);
    }
    const float inverse = inverse_rms(group_sum(sum, part, lane), hc * width, args.eps);
    if (lane < hc) {
        const float a = FMA(mix[lane] * inverse, args.scale_pre, args.base[lane]);
        const float b = FMA(mix[hc + lane] * inverse, args.scale_post, args.base[hc + lane]);
        pre[lane] = sigmoid_of(a) + args.hc_eps;
        args.post[row * hc + lane] = 2.0f * sigmoid_of(b);
    }

    // Lanes past the last entry walk along, so that all meet at the barriers.
    const bool mine = lane < hc * hc;
    const u32 i = mine ? lane / hc : 0, j = mine ? lane % hc : 0;
    float c = 0.0f;
    if (mine) {
        const u32 at = 2u * hc + lane;
        c = FMA(mix[at] * inverse, args.scale_comb, args.base[at]);
        comb[lane] = c;
    }
    BARRIER();
    float top = -infinity();
    for (u32 k = 0; k < hc; k++) top = max_of(comb[i * hc + k], top);
    c = exp_of(c - top);
    const u32 iterations = PLANTED(FAULT_SINKHORN_DROPPED_ROUND) ? 1u : args.iterations;
    for (u32 round = 0; round < 2u * iterations; round++) {
        // Even rounds divide rows (the first one without the epsilon), odd ones columns.
        BARRIER();
        if (mine) comb[lane] = c;
        if (!PLANTED(FAULT_SINKHORN_MISSING_BARRIER)) BARRIER();
        float all = 0.0f;
        for (u32 k = 0; k < hc; k++) {
            const float other = comb[round % 2u == 0 ? i * hc + k : k * hc + j];
            all = all + other;
        }
        c = round == 0 ? c / all + args.hc_eps : c / (all + args.hc_eps);
    }
    if (mine) args.comb[row * hc * hc + lane] = c;
}

// X_j = post_j y + sum_i comb[i][j] X_i, streams ascending, in place.
KERNEL(hyper_out, HyperOutArgs) {
    SHARED(float, comb, HC_MAX * HC_MAX);
    SHARED(float, post, HC_MAX);
    const u32 lane = LANE, hc = args.hc, width = args.width, k = slice_fours(GROUP_Y, lane);
    const u64 row = GROUP_X, at = row * hc * width + k;
    const bool mine = k < width;
    float old[HC_MAX][4], y[4];
    if (mine) {
        load_fours(args.y + row * width + k, y);
        UNROLL
        for (u32 i = 0; i < HC_MAX; i++)
            if (i < hc) load_kept_fours(args.streams, at + i * width, args.round, old[i]);
    }
    if (lane < hc * hc) comb[lane] = args.comb[row * hc * hc + lane];
    if (lane < hc) post[lane] = args.post[row * hc + lane];
    BARRIER();
    if (!mine) return;
    for (u32 j = 0; j < hc; j++) {
        float sum[4];
        const float by = post[j];
        UNROLL
        for (u32 c = 0; c < 4u; c++) sum[c] = by * y[c];
        UNROLL
        for (u32 i = 0; i < HC_MAX; i++) {
            if (i >= hc) continue;
            const float from = comb[PLANTED(FAULT_EXPAND_TRANSPOSED) ? j * hc + i : i * hc + j];
            UNROLL
            for (u32 c = 0; c < 4u; c++) sum[c] = FMA(from, old[i][c], sum[c]);
        }
        store_kept_fours(sum, args.streams, at + j * width, args.round);
    }
}
