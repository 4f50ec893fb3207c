// Hyper-connections in two launches over slices of channels, so that a row's work spreads over many
// groups.
//
// `hyper_mix` expands the streams by the sublayer before (where `expand` says so), collapses
// them with the pre that stands, and takes each slice's part of the site's mix: group x is a slice,
// group y a block of rows. The sublayer's output is `y`, or with `routed` the sum of experts.
//
// A slice's inputs are hc * columns values, stream after stream; lane l of 32 takes the inputs k with
// k % 32 == l, ascending, then warp_sum. Its parts are the mix's outputs, then the sum of squares of
// all streams and that of the collapsed row. `hyper_norm` adds the slices: lane l of 32 takes the slices
// s with s % 32 == l, ascending, then warp_sum.
#pragma once

#define HYPER_INPUTS 256u
#define HYPER_EACH 8u
#define HYPER_HELD 6u

DEVICE u32 hyper_parts(u32 hc) { return (2u + hc) * hc + 2u; }

KERNEL(hyper_mix, HyperMixArgs) {
    SHARED(float, values, HYPER_INPUTS);
    const u32 lane = LANE, hc = args.hc, width = args.width, slices = (width + args.columns - 1u) / args.columns;
    const u32 slice = GROUP_X, block = GROUP_Y, first = slice * args.columns;
    const u32 columns = first + args.columns < width ? args.columns : width - first;
    const u32 inputs = hc * columns, mixes = (2u + hc) * hc, parts = hyper_parts(hc);
    const u32 row_end = (block + 1u) * args.rows_each;
    // The weights of a warp's first outputs are on their way before the streams are.
    u32 offset[HYPER_EACH];
    float held[HYPER_HELD][HYPER_EACH];
    for (u32 i = 0; i < HYPER_EACH; i++) {
        const u32 at = lane % 32u + i * 32u;
        offset[i] = at < inputs ? at / columns * width + at % columns + first : 0;
        for (u32 n = 0; n < HYPER_HELD; n++) {
            const u32 o = lane / 32u + n * GROUP_WARPS;
            held[n][i] = o < mixes && at < inputs ? args.weight[u64(o) * hc * width + offset[i]] : 0.0f;
        }
    }
    for (u32 r = block * args.rows_each; r < row_end && r < args.rows; r++) {
        const u64 row = r;
        GLOBAL float* streams = args.streams + row * hc * width + first;
        float mine[HYPER_INPUTS / GROUP_LANES];
        for (u32 i = 0; i < HYPER_INPUTS / GROUP_LANES; i++) {
            const u32 at = lane + i * GROUP_LANES;
            mine[i] = 0.0f;
            if (at >= inputs) continue;
            const u32 j = at / columns, k = at % columns;
            if (args.expand == 0) {
                mine[i] = streams[j * width + k];
                continue;
            }
            float y;
            if (args.routed) {
                y = 0.0f;
                for (u32 e = 0; e < args.topk; e++)
                    y = y + args.routed[u64(args.places[row * args.topk + e]) * width + first + k];
                if (!PLANTED(FAULT_EXPERTS_NO_SHARED)) y = y + args.shared[row * width + first + k];
                y = stored(y, args.round);
            } else {
                y = args.y[row * width + first + k];
            }
            float sum = args.post[row * hc + j] * y;
            for (u32 s = 0; s < hc; s++) {
                const u32 entry = PLANTED(FAULT_EXPAND_TRANSPOSED) ? j * hc + s : s * hc + j;
                sum = FMA(args.comb[row * hc * hc + entry], streams[s * width + k], sum);
            }
            mine[i] = stored(sum, args.round);
        }
        // The streams are read by now, and the last row's values no more.
        if (!PLANTED(FAULT_HYPER_MISSING_BARRIER)) BARRIER();
        for (u32 i = 0; i < HYPER_INPUTS / GROUP_LANES; i++) {
            const u32 at = lane + i * GROUP_LANES;
            if (at >= inputs) continue;
            values[at] = mine[i];
            if (args.expand != 0) streams[at / columns * width + at % columns] = mine[i];
        }
        BARRIER();
        GLOBAL float* out = args.parts + (row * slices + slice) * parts;
        float own[HYPER_EACH];
        for (u32 i = 0; i < HYPER_EACH; i++) {
            const u32 at = lane % 32u + i * 32u;
            const u32 used = PLANTED(FAULT_HYPER_DROPPED_STREAM) ? inputs - columns : inputs;
            own[i] = at < used ? values[at] : 0.0f;
        }
        for (u32 n = 0; n < HYPER_HELD; n++) {
            const u32 o = lane / 32u + n * GROUP_WARPS;
            if (o >= mixes) continue;
            float sum = 0.0f;
            for (u32 i = 0; i < HYPER_EACH; i++) sum = FMA(held[n][i], own[i], sum);
            sum = warp_sum(sum);
            if (lane % 32u == 0) out[o] = sum;
        }
        for (u32 o = lane / 32u + HYPER_HELD * GROUP_WARPS; o < mixes; o += GROUP_WARPS) {
            float sum = 0.0f;
            for (u32 i = 0; i < HYPER_EACH; i++)
                if (lane % 32u + i * 32u < inputs) sum = FMA(args.weight[u64(o) * hc * width + offset[i]], own[i], sum);
            sum = warp_sum(sum);
            if (lane % 32u == 0) out[o] = sum;
        }
        if (lane < 32u) {
            float sum = 0.0f;
            for (u32 i = 0; i < HYPER_EACH; i++) sum = FMA(own[i], own[i], sum);
            sum = warp_sum(sum);
            if (lane == 0) out[mixes] = sum;
        } else if (lane < 64u) {
            float sum = 0.0f;
            for (u32 k = lane % 32u; k < columns; k += 32u) {
                float x = 0.0f;
                for (u32 s = 0; s < hc; s++) x = FMA(args.pre[row * hc + s], values[s * columns + k], x);
                x = stored(x, args.round);
                args.collapsed[row * width + first + k] = x;
                sum = FMA(x, x, sum);
            }
            sum = warp_sum(sum);
            if (lane == 32u) out[mixes + 1u] = sum;
        }
    }
}

// Part o of a row, over its slices.
DEVICE float hyper_sum(GLOBAL const float* parts, u32 count, u32 slices, u32 o, u32 lane) {
    float sum = 0.0f;
    const u32 used = PLANTED(FAULT_HYPER_DROPPED_SLICE) ? slices - 1u : slices;
    for (u32 s = lane % 32u; s < used; s += 32u) sum = sum + parts[s * count + o];
    return warp_sum(sum);
}

// x = rmsnorm(collapsed), as f32, as bf16, and as bf16 rounded to e4m3 as an FP8 linear's input is
// (each where its address is given): group (row, 0). pre, post and comb: group (row, 1).
KERNEL(hyper_norm, HyperNormArgs) {
    SHARED(float, mix, HC_MAX * (HC_MAX + 2u) + 1u);
    const u32 lane = LANE, hc = args.hc, width = args.width, count = hyper_parts(hc), mixes = count - 2u;
    const u64 row = GROUP_X;
    GLOBAL const float* parts = args.parts + row * args.slices * count;
    if (GROUP_Y == 0) {
        const float inverse = inverse_rms(hyper_sum(parts, count, args.slices, mixes + 1u, lane), width, args.eps);
        for (u32 k = lane; k < width; k += GROUP_LANES) {
            const u64 at = row * width + k;
            const float x = stored(args.collapsed[at] * inverse * args.norm[k], args.round);
            if (args.x) args.x[at] = x;
            if (args.plain) args.plain[at] = u16(AS_BITS(x) >> 16);
            if (args.rounded) {
                const u32 byte = e4m3_scale_of(warp_amax(x));
                const float code = round_e4m3(quotient(x, e8m0_reciprocal(byte))) * lift_e8m0(byte);
                args.rounded[at] = u16(AS_BITS(code) >> 16);
            }
        }
        return;
    }
    for (u32 o = lane / 32u; o <= mixes; o += GROUP_WARPS) {
        const float sum = hyper_sum(parts, count, args.slices, o, lane);
        if (lane % 32u == 0) mix[o] = sum;
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
    // Row `lane` of comb. Sums of a row run ascending; those of a column over lanes 4, 2, 1 apart.
    float c[HC_MAX];
    float top = -infinity();
    for (u32 j = 0; j < HC_MAX; j++) {
        c[j] = 0.0f;
        if (j >= hc || lane >= hc) continue;
        const u32 at = (2u + lane) * hc + j;
        c[j] = FMA(mix[at] * inverse, args.scale_comb, args.base[at]);
        top = max_of(c[j], top);
    }
    for (u32 j = 0; j < HC_MAX; j++)
        if (j < hc && lane < hc) c[j] = exp_of(c[j] - top);
    const u32 iterations = PLANTED(FAULT_SINKHORN_DROPPED_ROUND) ? 1u : args.iterations;
    for (u32 round = 0; round < iterations; round++) {
        float all = c[0];
        for (u32 j = 1; j < HC_MAX; j++) all = all + c[j];
        for (u32 j = 0; j < HC_MAX; j++)
            if (j < hc && lane < hc) c[j] = round == 0 ? c[j] / all + args.hc_eps : c[j] / (all + args.hc_eps);
        for (u32 j = 0; j < HC_MAX; j++) {
            if (j >= hc) continue;
            float column = c[j];
            for (u32 apart = HC_MAX / 2u; apart > 0; apart /= 2u) column = column + SHUFFLE_XOR(column, apart);
            if (lane < hc) c[j] = c[j] / (column + args.hc_eps);
        }
    }
    for (u32 j = 0; j < HC_MAX; j++)
        if (j < hc && lane < hc) args.comb[(row * hc + lane) * hc + j] = c[j];
}
