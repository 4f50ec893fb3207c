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
    const u32 lane = LANE, slice = GROUP_Y;
    const u64 row = GROUP_X;
    const u64 from = u64(args.tokens[row]) * args.width;
    GLOBAL float* streams = args.streams + row * args.hc * args.width;
    for (u32 k = slice_first(slice, lane); k < slice_end(slice, args.width); k += GROUP_LANES) {
        const float x = table_value(args.table, from + k, args.format);
        const u32 copies = PLANTED(FAULT_EMBED_DROPPED_STREAM) ? args.hc - 1u : args.hc;
        for (u32 i = 0; i < copies; i++) streams[i * args.width + k] = x;
    }
    if (slice == 0 && lane < args.hc) args.pre[row * args.hc + lane] = lane == 0 ? 1.0f : 0.0f;
}

DEVICE float collapsed(GLOBAL const float* streams, GLOBAL const float* pre, u32 hc, u32 width, u32 k) {
    float sum = 0.0f;
    for (u32 i = 0; i < hc; i++) sum = FMA(pre[i], streams[i * width + k], sum);
    return sum;
}

// out = sum_i pre_i X_i, streams ascending.
KERNEL(collapse, CollapseArgs) {
    const u32 lane = LANE, slice = GROUP_Y;
    const u64 row = GROUP_X;
    GLOBAL const float* streams = args.streams + row * args.hc * args.width;
    const u32 hc = PLANTED(FAULT_COLLAPSE_DROPPED_STREAM) ? args.hc - 1u : args.hc;
    for (u32 k = slice_first(slice, lane); k < slice_end(slice, args.width); k += GROUP_LANES)
        args.out[row * args.width + k] =
            stored(collapsed(streams, args.pre + row * args.hc, hc, args.width, k), args.round);
}

// Columns at..at+width of the taps take the mean of the streams.
KERNEL(tap, TapArgs) {
    const u32 lane = LANE, slice = GROUP_Y;
    const u64 row = GROUP_X;
    GLOBAL const float* streams = args.streams + row * args.hc * args.width;
    for (u32 k = slice_first(slice, lane); k < slice_end(slice, args.width); k += GROUP_LANES) {
        float sum = streams[k];
        for (u32 i = 1; i < args.hc; i++) sum = sum + streams[i * args.width + k];
        const u32 count = PLANTED(FAULT_TAP_WRONG_SCALE) ? args.hc + 1u : args.hc;
        args.out[row * args.stride + args.at + k] = stored(sum / float(count), args.round);
    }
}

// x = rmsnorm(collapse(X, pre)) with the pre that stands; then this site's own pre, post and comb
// from the mix (fn @ X) and the streams' RMS. The sum of squares runs over all streams, flattened.
// A row's comb lies in shared memory, one lane an entry; sums of it run ascending.
KERNEL(hyper_in, HyperInArgs) {
    SHARED(float, part, GROUP_WARPS);
    SHARED(float, comb, HC_MAX * HC_MAX);
    const u32 lane = LANE, hc = args.hc, width = args.width;
    const u64 row = GROUP_X;
    GLOBAL const float* streams = args.streams + row * hc * width;
    GLOBAL const float* mix = args.mix + row * (2u + hc) * hc;
    GLOBAL float* pre = args.pre + row * hc;
    GLOBAL float* x = args.x + row * width;

    float sum = 0.0f;
    for (u32 k = lane; k < width; k += GROUP_LANES) {
        const float value = stored(collapsed(streams, pre, hc, width, k), args.round);
        x[k] = value;
        sum = FMA(value, value, sum);
    }
    const float x_inverse = inverse_rms(group_sum(sum, part, lane), width, args.eps);
    for (u32 k = lane; k < width; k += GROUP_LANES)
        x[k] = stored(x[k] * x_inverse * args.norm[k], args.round);

    sum = 0.0f;
    for (u32 k = lane; k < hc * width; k += GROUP_LANES) sum = FMA(streams[k], streams[k], sum);
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
    const u32 lane = LANE, slice = GROUP_Y, hc = args.hc, width = args.width;
    const u64 row = GROUP_X;
    GLOBAL float* streams = args.streams + row * hc * width;
    const u32 EACH = SLICE_CHANNELS / GROUP_LANES;
    float old[EACH][HC_MAX], y[EACH];
    UNROLL
    for (u32 c = 0; c < EACH; c++) {
        const u32 k = slice_first(slice, lane) + c * GROUP_LANES;
        y[c] = k < width ? args.y[row * width + k] : 0.0f;
        UNROLL
        for (u32 i = 0; i < HC_MAX; i++) old[c][i] = i < hc && k < width ? streams[i * width + k] : 0.0f;
    }
    if (lane < hc * hc) comb[lane] = args.comb[row * hc * hc + lane];
    if (lane < hc) post[lane] = args.post[row * hc + lane];
    BARRIER();
    for (u32 j = 0; j < hc; j++) {
        float sum[EACH];
        const float by = post[j];
        UNROLL
        for (u32 c = 0; c < EACH; c++) sum[c] = by * y[c];
        UNROLL
        for (u32 i = 0; i < HC_MAX; i++) {
            if (i >= hc) continue;
            const float from = comb[PLANTED(FAULT_EXPAND_TRANSPOSED) ? j * hc + i : i * hc + j];
            UNROLL
            for (u32 c = 0; c < EACH; c++) sum[c] = FMA(from, old[c][i], sum[c]);
        }
        UNROLL
        for (u32 c = 0; c < EACH; c++) {
            const u32 k = slice_first(slice, lane) + c * GROUP_LANES;
            if (k < width) streams[j * width + k] = stored(sum[c], args.round);
        }
    }
}
