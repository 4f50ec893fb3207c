// The router, the order of rows by expert, and what lies between the experts' products.
#pragma once

#define ROUTE_EXPERTS 1024u
#define ROUTE_TOPK 16u

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
    for (u32 e = lane; e < args.count; e += GROUP_LANES) {
        const float x = logits[e] / args.temperature;
        if (args.scoring == SCORING_SQRT_SOFTPLUS) scores[e] = SQRT(softplus_of(x));
        else if (args.scoring == SCORING_SIGMOID) scores[e] = sigmoid_of(x);
        else scores[e] = exp_of(x - top) / all;
    }
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

#define SWIGLU_CHANNELS 512u

// weight * silu(min(gate, limit)) * clamp(up, -limit, limit); a limit of 0 is none. 512 channels of a row
// a group; as f32, and as bf16 rounded to e4m3 as an FP8 or FP4 linear's input is, each where its address
// is given.
KERNEL(swiglu, SwigluArgs) {
    const u32 first = GROUP_Y * SWIGLU_CHANNELS + LANE;
    const u64 row = GROUP_X;
    const float weight = args.weighted != 0 ? args.weights[row] : 1.0f;
    const u32 EACH = SWIGLU_CHANNELS / GROUP_LANES;
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
    const u32 lane = LANE;
    const u64 row = GROUP_X;
    for (u32 k = lane; k < args.width; k += GROUP_LANES) {
        float sum = 0.0f;
        for (u32 i = 0; i < args.topk; i++)
            sum = sum + args.routed[u64(args.places[row * args.topk + i]) * args.width + k];
        if (!PLANTED(FAULT_EXPERTS_NO_SHARED)) sum = sum + args.shared[row * args.width + k];
        args.out[row * args.width + k] = stored(sum, args.round);
    }
}
