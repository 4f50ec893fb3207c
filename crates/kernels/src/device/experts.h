// The router, the order of rows by expert, and what lies between the experts' products.
#pragma once

#define ROUTE_EXPERTS 1024u
#define ROUTE_TOPK 16u

// The score of a router's logit; top and all are the softmax's largest value and divisor.
DEVICE float route_score(float x, u32 scoring, float top, float all) {
    if (scoring == SCORING_SQRT_SOFTPLUS) return SQRT(softplus_of(x));
    if (scoring == SCORING_SIGMOID) return sigmoid_of(x);
    return exp_of(x - top) / all;
}

// From a row's router logits to its experts, ascending, and their weights; one group a row. Ties go
// to the lowest expert and a NaN is never better. Weights are summed in order of choice.
KERNEL(route, RouteArgs) {
    SHARED(float, part, GROUP_WARPS);
    SHARED(u64, keys, GROUP_WARPS);
    SHARED(float, scores, ROUTE_EXPERTS);
    SHARED(u32, chosen, ROUTE_TOPK);
    const u32 lane = LANE;
    const u64 row = GROUP_X;
    GLOBAL const float* logits = args.logits + row * args.count;
    float top = -infinity(), all = 0.0f;
    if (args.scoring == SCORING_SOFTMAX) {
        for (u32 e = lane; e < args.count; e += GROUP_LANES)
            top = max_of(logits[e] / args.temperature, top);
        top = group_top(top, part, lane);
        for (u32 e = lane; e < args.count; e += GROUP_LANES)
            all = all + exp_of(logits[e] / args.temperature - top);
        all = group_sum(all, part, lane);
    }
    for (u32 e = lane; e < args.count; e += GROUP_LANES)
        scores[e] = route_score(logits[e] / args.temperature, args.scoring, top, all);
    BARRIER();
    // A lane's experts as words that order them; a chosen one becomes 0.
    u64 own[ROUTE_EXPERTS / GROUP_LANES];
    for (u32 i = 0; i < ROUTE_EXPERTS / GROUP_LANES; i++) {
        const u32 e = lane + i * GROUP_LANES;
        own[i] = 0;
        if (e >= args.count) continue;
        const u32 rank = rising(scores[e] + (PLANTED(FAULT_ROUTE_NO_BIAS) ? 0.0f : args.bias[e]));
        own[i] = (u64(rank) << 32) | (PLANTED(FAULT_ROUTE_TIES_HIGH) ? e : 0xffffffffu - e);
    }
    for (u32 place = 0; place < args.topk; place++) {
        u64 best = 0;
        for (u32 i = 0; i < ROUTE_EXPERTS / GROUP_LANES; i++) best = own[i] > best ? own[i] : best;
        best = group_max(best, keys, lane);
        for (u32 i = 0; i < ROUTE_EXPERTS / GROUP_LANES; i++) own[i] = own[i] == best ? 0 : own[i];
        const u32 low = u32(best & 0xffffffffu);
        if (lane == 0) chosen[place] = PLANTED(FAULT_ROUTE_TIES_HIGH) ? low : 0xffffffffu - low;
    }
    BARRIER();
    if (lane != 0) return;
    float sum = 0.0f;
    for (u32 i = 0; i < args.topk; i++) sum = sum + scores[chosen[i]];
    const float divisor = args.normalise != 0 ? sum + 1e-20f : 1.0f;
    for (u32 i = 0; i < args.topk; i++) {
        const u32 expert = chosen[i];
        u32 place = 0;
        for (u32 other = 0; other < args.topk; other++) place += chosen[other] < expert ? 1u : 0u;
        args.experts[row * args.topk + place] = expert;
        args.weights[row * args.topk + place] = scores[expert] / divisor * args.scale;
    }
}

// Sorts the routes of a batch by expert, then by row; one group. `places` of a route is where it
// went; `rows` and `sorted` hold each place's row and weight; `groups` the (expert, start, end) of
// the used experts, ascending, then zeros.
KERNEL(group_routes, GroupArgs) {
    const u32 lane = LANE;
    for (u32 i = lane; i < args.groups_max * 3u; i += GROUP_LANES) args.groups[i] = 0;
    BARRIER();
    for (u32 i = lane; i < args.routes; i += GROUP_LANES) {
        const u32 expert = args.experts[i];
        u32 before = 0, same_before = 0, same = 0, groups_before = 0;
        for (u32 other = 0; other < args.routes; other++) {
            const u32 theirs = args.experts[other];
            before += theirs < expert ? 1u : 0u;
            same += theirs == expert ? 1u : 0u;
            same_before += theirs == expert && other < i ? 1u : 0u;
            if (theirs < expert) {
                // Counts each smaller expert at its first route.
                bool first = true;
                for (u32 k = 0; k < other; k++) first = first && args.experts[k] != theirs;
                groups_before += first ? 1u : 0u;
            }
        }
        u32 place = before + same_before;
        if (PLANTED(FAULT_GROUP_UNSTABLE)) place = before + same - 1u - same_before;
        args.places[i] = place;
        args.rows[place] = i / args.topk;
        args.sorted[place] = args.weights[i];
        if (same_before == 0) {
            args.groups[groups_before * 3u] = expert;
            args.groups[groups_before * 3u + 1u] = before;
            args.groups[groups_before * 3u + 2u] = before + same;
        }
    }
}

#define ROUTE_ROWS 8u
#define ROUTE_ROUTES 128u

// route and group_routes of up to ROUTE_ROWS rows and ROUTE_ROUTES routes, in one group: a warp a row at a
// time, then a lane a route. The same bits: a softmax's divisor is group_sum's, a lane standing for four.
KERNEL(route_few, RouteFewArgs) {
    SHARED(float, scores, GROUP_WARPS * ROUTE_EXPERTS);
    SHARED(u32, chosen, GROUP_WARPS * ROUTE_TOPK);
    SHARED(u32, order, ROUTE_ROUTES);
    SHARED(float, shares, ROUTE_ROUTES);
    SHARED(u32, firsts, ROUTE_ROUTES);
    const u32 own_route = LANE, lane = LANE % 32u, warp = LANE / 32u, own = warp * ROUTE_EXPERTS;
    const u32 count = args.count, topk = args.topk;
    for (u32 base = 0; base < args.row_count; base += GROUP_WARPS) {
        const u32 row = base + warp;
        const bool there = row < args.row_count;
        GLOBAL const float* logits = args.logits + u64(there ? row : base) * count;
        float top = -infinity(), all = 0.0f;
        if (args.scoring == SCORING_SOFTMAX) {
            for (u32 e = lane; e < count; e += 32u) top = max_of(logits[e] / args.temperature, top);
            for (u32 apart = 16u; apart > 0; apart /= 2u) top = max_of(SHUFFLE_XOR(top, apart), top);
            float sums[GROUP_WARPS];
            for (u32 w = 0; w < GROUP_WARPS; w++) {
                float sum = 0.0f;
                for (u32 e = w * 32u + lane; e < count; e += GROUP_LANES) sum = sum + exp_of(logits[e] / args.temperature - top);
                sums[w] = warp_sum(sum);
            }
            all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        }
        // A lane's experts as words that order them; a chosen one becomes 0.
        u64 words[ROUTE_EXPERTS / 32u];
        UNROLL
        for (u32 i = 0; i < ROUTE_EXPERTS / 32u; i++) {
            const u32 e = lane + i * 32u;
            words[i] = 0;
            if (e >= count) continue;
            const float score = route_score(logits[e] / args.temperature, args.scoring, top, all);
            scores[own + e] = score;
            const u32 rank = rising(score + (PLANTED(FAULT_ROUTE_NO_BIAS) ? 0.0f : args.bias[e]));
            words[i] = (u64(rank) << 32) | (PLANTED(FAULT_ROUTE_TIES_HIGH) ? e : 0xffffffffu - e);
        }
        for (u32 place = 0; place < topk; place++) {
            u64 best = 0;
            UNROLL
            for (u32 i = 0; i < ROUTE_EXPERTS / 32u; i++)
                if (i * 32u < count) best = words[i] > best ? words[i] : best;
            for (u32 apart = 16u; apart > 0; apart /= 2u) {
                const u64 other = SHUFFLE_XOR(best, apart);
                best = other > best ? other : best;
            }
            UNROLL
            for (u32 i = 0; i < ROUTE_EXPERTS / 32u; i++)
                if (i * 32u < count) words[i] = words[i] == best ? 0 : words[i];
            const u32 low = u32(best & 0xffffffffu);
            if (lane == 0) chosen[warp * ROUTE_TOPK + place] = PLANTED(FAULT_ROUTE_TIES_HIGH) ? low : 0xffffffffu - low;
        }
        if (!PLANTED(FAULT_ROUTE_MISSING_BARRIER)) BARRIER();
        if (there && lane < topk) {
            float sum = 0.0f;
            for (u32 i = 0; i < topk; i++) sum = sum + scores[own + chosen[warp * ROUTE_TOPK + i]];
            const float divisor = args.normalise != 0 ? sum + 1e-20f : 1.0f;
            const u32 expert = chosen[warp * ROUTE_TOPK + lane];
            u32 place = row * topk;
            for (u32 i = 0; i < topk; i++) place += chosen[warp * ROUTE_TOPK + i] < expert ? 1u : 0u;
            const float weight = scores[own + expert] / divisor * args.scale;
            args.experts[place] = expert;
            args.weights[place] = weight;
            order[place] = expert;
            shares[place] = weight;
        }
        BARRIER();
    }
    if (!args.groups) return;
    const u32 routes = args.row_count * topk, i = own_route;
    const bool mine = i < routes;
    const u32 expert = mine ? order[i] : 0;
    u32 before = 0, same_before = 0, same = 0;
    for (u32 other = 0; other < routes; other++) {
        const u32 theirs = order[other];
        before += theirs < expert ? 1u : 0u;
        same += theirs == expert ? 1u : 0u;
        same_before += theirs == expert && other < i ? 1u : 0u;
    }
    firsts[i] = mine && same_before == 0 ? 1u : 0u;
    BARRIER();
    u32 groups_before = 0, used = 0;
    for (u32 other = 0; other < routes; other++) {
        used += firsts[other];
        groups_before += order[other] < expert ? firsts[other] : 0u;
    }
    for (u32 k = used * 3u + i; k < args.groups_max * 3u; k += GROUP_LANES) args.groups[k] = 0;
    if (!mine) return;
    const u32 place = PLANTED(FAULT_GROUP_UNSTABLE) ? before + same - 1u - same_before : before + same_before;
    args.places[i] = place;
    args.rows[place] = i / topk;
    args.sorted[place] = shares[i];
    if (same_before > 0) return;
    args.groups[groups_before * 3u] = expert;
    args.groups[groups_before * 3u + 1u] = before;
    args.groups[groups_before * 3u + 2u] = before + same;
}

// weight * silu(min(gate, limit)) * clamp(up, -limit, limit); a limit of 0 is none. 512 channels of a row
// a group; as f32, and as bf16 rounded to e4m3 as an FP8 or FP4 linear's input is, each where its address
// is given.
KERNEL(swiglu, SwigluArgs) {
    const u32 first = GROUP_Y * SLICE_CHANNELS + LANE;
    const u64 row = GROUP_X;
    const float weight = args.weighted != 0 ? args.weights[row] : 1.0f;
    const u32 EACH = SLICE_CHANNELS / GROUP_LANES;
    float gates[EACH], ups[EACH];
    UNROLL
    for (u32 i = 0; i < EACH; i++) {
        const u32 k = first + i * GROUP_LANES;
        gates[i] = k < args.width ? args.gate[row * args.width + k] : 0.0f;
        ups[i] = k < args.width ? args.up[row * args.width + k] : 0.0f;
    }
    UNROLL
    for (u32 i = 0; i < EACH; i++) {
        const u32 k = first + i * GROUP_LANES;
        float gate = gates[i], up = ups[i];
        if (args.limit > 0.0f && !PLANTED(FAULT_SWIGLU_NO_LIMIT)) {
            // The bound comes first: a NaN in the value passes through.
            gate = min_of(args.limit, gate);
            up = max_of(-args.limit, min_of(args.limit, up));
        }
        const float value = stored(silu_of(gate) * up * weight, args.round);
        if (args.out && k < args.width) args.out[row * args.width + k] = value;
        if (args.coded) {
            const u32 byte = e4m3_scale_of(warp_amax(value));
            const float code = round_e4m3(quotient(value, e8m0_reciprocal(byte))) * lift_e8m0(byte);
            if (k < args.width) args.coded[row * args.width + k] = u16(AS_BITS(code) >> 16);
        }
    }
}

// The routed experts' rows in ascending id, then the shared one's, summed and rounded once.
KERNEL(sum_experts, SumExpertsArgs) {
    const u32 lane = LANE, slice = GROUP_Y;
    const u64 row = GROUP_X;
    for (u32 k = slice_first(slice, lane); k < slice_end(slice, args.width); k += GROUP_LANES) {
        float sum = 0.0f;
        for (u32 i = 0; i < args.topk; i++)
            sum = sum + args.routed[u64(args.places[row * args.topk + i]) * args.width + k];
        if (!PLANTED(FAULT_EXPERTS_NO_SHARED)) sum = sum + args.shared[row * args.width + k];
        args.out[row * args.width + k] = stored(sum, args.round);
    }
}
