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
#define ROUTE_SCORES 3072u
// Logits of a lane on their way at a time.
#define ROUTE_EACH 8u
// Scores of a lane at a time.
#define ROUTE_TURN 3u

// The choice of a row by one warp from its experts' ranks, a lane's experts at most N: leaves them in order of choice,
// and returns the sum of their scores.
template <u32 N>
DEVICE float choose_few(SHARED_REF(float) scores, SHARED_REF(u32) ranks, SHARED_REF(u32) chosen, u32 first, u32 count, u32 to, u32 topk, u32 lane) {
    u32 own[N];
    UNROLL
    for (u32 i = 0; i < N; i++) own[i] = i * 32u + lane < count ? ranks[first + i * 32u + lane] : 0;
    float sum = 0.0f;
    ROLLED
    for (u32 place = 0; place < topk; place++) {
        u32 best = 0;
        UNROLL
        for (u32 i = 0; i < N; i++) best = max_bits(best, own[i]);
        best = WARP_MAX(best);
        // Ties go to the lowest: the largest complement of a number.
        u32 name = 0;
        UNROLL
        for (u32 i = 0; i < N; i++) {
            const u32 e = i * 32u + lane;
            if (own[i] == best) name = max_bits(name, PLANTED(FAULT_ROUTE_TIES_HIGH) ? e + 1u : ~e);
        }
        name = WARP_MAX(name);
        const u32 expert = PLANTED(FAULT_ROUTE_TIES_HIGH) ? name - 1u : ~name;
        // A chosen expert's rank becomes 0, which no other's is.
        UNROLL
        for (u32 i = 0; i < N; i++) own[i] = i * 32u + lane == expert ? 0 : own[i];
        sum = sum + scores[first + expert];
        if (lane == 0) chosen[to + place] = expert;
    }
    return sum;
}

// route and group_routes of up to ROUTE_ROWS rows, ROUTE_ROUTES routes and ROUTE_SCORES scores, in one group: a
// lane a score, a warp a row's choice, then a lane a route. The same bits: a softmax's divisor is group_sum's,
// a lane standing for four. Loops are rolled, as one row waits for every instruction that is met for the first time.
KERNEL_AHEAD(route_few, RouteFewArgs, 1) {
    SHARED(float, scores, ROUTE_SCORES);
    SHARED(u32, ranks, ROUTE_SCORES);
    SHARED(float, bias, ROUTE_EXPERTS);
    SHARED(float, tops, ROUTE_ROWS);
    SHARED(float, alls, ROUTE_ROWS);
    SHARED(float, sums, ROUTE_ROWS);
    SHARED(u32, chosen, ROUTE_ROUTES);
    SHARED(u32, order, ROUTE_ROUTES);
    SHARED(float, shares, ROUTE_ROUTES);
    SHARED(u32, firsts, ROUTE_ROUTES);
    const u32 thread = LANE, lane = LANE % 32u, warp = LANE / 32u;
    const u32 routes = args.row_count * args.topk, route_row = thread / args.topk;
    ROLLED
    for (u32 e = thread; e < args.count; e += GROUP_LANES) bias[e] = PLANTED(FAULT_ROUTE_NO_BIAS) ? 0.0f : args.bias[e];
    // The first act is a rehearsal of one row of few zeros: it brings the instructions, while the logits are not there.
    ROLLED
    for (u32 act = FIRST_ACT(); act < 2u; act++) {
        const u32 rows = act == 0 ? 1u : args.row_count, topk = act == 0 ? 1u : args.topk;
        const u32 count = act == 0 && args.count > GROUP_LANES ? GROUP_LANES : args.count, all = rows * count;
        if (act > 0) {
            LAUNCHES_BEFORE();
        }
        ROLLED
        for (u32 first = thread; first < all; first += ROUTE_EACH * GROUP_LANES) {
            float logits[ROUTE_EACH];
            UNROLL
            for (u32 i = 0; i < ROUTE_EACH; i++) {
                const u32 at = first + i * GROUP_LANES;
                logits[i] = act > 0 && at < all ? args.logits[at] : 0.0f;
            }
            UNROLL
            for (u32 i = 0; i < ROUTE_EACH; i++) {
                const u32 at = first + i * GROUP_LANES;
                if (at < all) scores[at] = logits[i];
            }
        }
        BARRIER();
        const bool softmax = args.scoring == SCORING_SOFTMAX;
        if (softmax) {
            ROLLED
            for (u32 row = warp; row < rows; row += GROUP_WARPS) {
                float top = -infinity(), part[GROUP_WARPS];
                ROLLED
                for (u32 e = lane; e < count; e += 32u) top = max_of(scores[row * count + e] / args.temperature, top);
                for (u32 apart = 16u; apart > 0; apart /= 2u) top = max_of(SHUFFLE_XOR(top, apart), top);
                UNROLL
                for (u32 w = 0; w < GROUP_WARPS; w++) {
                    float sum = 0.0f;
                    ROLLED
                    for (u32 e = w * 32u + lane; e < count; e += GROUP_LANES) sum = sum + exp_of(scores[row * count + e] / args.temperature - top);
                    part[w] = warp_sum(sum);
                }
                if (lane == 0) tops[row] = top;
                if (lane == 0) alls[row] = (part[0] + part[1]) + (part[2] + part[3]);
            }
            BARRIER();
        }
        ROLLED
        for (u32 row = 0; row < rows; row++) {
            const float top = softmax ? tops[row] : 0.0f, divisor = softmax ? alls[row] : 1.0f;
            ROLLED
            for (u32 first = thread; first < count; first += ROUTE_TURN * GROUP_LANES) {
                float x[ROUTE_TURN];
                UNROLL
                for (u32 i = 0; i < ROUTE_TURN; i++) {
                    const u32 e = first + i * GROUP_LANES;
                    x[i] = (e < count ? scores[row * count + e] : 0.0f) / args.temperature;
                }
                if (args.scoring == SCORING_SQRT_SOFTPLUS) {
                    UNROLL
                    for (u32 i = 0; i < ROUTE_TURN; i++) x[i] = SQRT(softplus_of(x[i]));
                } else {
                    ROLLED
                    for (u32 i = 0; i < ROUTE_TURN; i++) x[i] = route_score(x[i], args.scoring, top, divisor);
                }
                UNROLL
                for (u32 i = 0; i < ROUTE_TURN; i++) {
                    const u32 e = first + i * GROUP_LANES;
                    if (e >= count) continue;
                    // A NaN's rank is 1, of which there is no other.
                    const u32 rank = rising(x[i] + bias[e]);
                    scores[row * count + e] = x[i];
                    ranks[row * count + e] = rank == 0 ? 1u : rank;
                }
            }
        }
        if (!PLANTED(FAULT_ROUTE_MISSING_BARRIER)) BARRIER();
        ROLLED
        for (u32 row = warp; row < rows; row += GROUP_WARPS) {
            const u32 first = row * count, to = row * topk;
            const float sum = count <= 384u ? choose_few<12u>(scores, ranks, chosen, first, count, to, topk, lane)
                                            : choose_few<32u>(scores, ranks, chosen, first, count, to, topk, lane);
            if (lane == 0) sums[row] = sum;
        }
        BARRIER();
    }
    const u32 count = args.count, topk = args.topk;
    const u32 i = thread;
    const bool mine = i < routes;
    if (mine) {
        const u32 expert = chosen[i];
        const float divisor = args.normalise != 0 ? sums[route_row] + 1e-20f : 1.0f;
        u32 place = route_row * topk;
        ROLLED
        for (u32 other = 0; other < topk; other++) place += chosen[route_row * topk + other] < expert ? 1u : 0u;
        const float weight = scores[route_row * count + expert] / divisor * args.scale;
        args.experts[place] = expert;
        args.weights[place] = weight;
        if (args.groups && args.row_count == 1u) {
            // One row's experts are all different.
            args.places[place] = place;
            args.rows[place] = 0;
            args.sorted[place] = weight;
            args.groups[place * 3u] = expert;
            args.groups[place * 3u + 1u] = place;
            args.groups[place * 3u + 2u] = place + 1u;
        }
        order[place] = expert;
        shares[place] = weight;
    }
    if (args.row_count == 1u) {
        ROLLED
        for (u32 k = topk * 3u + i; args.groups && k < args.groups_max * 3u; k += GROUP_LANES) args.groups[k] = 0;
    }
    if (!args.groups || args.row_count == 1u) return;
    BARRIER();
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
    ROLLED
    for (u32 k = used * 3u + i; k < args.groups_max * 3u; k += GROUP_LANES) args.groups[k] = 0;
    if (!mine) return;
    const u32 place = PLANTED(FAULT_GROUP_UNSTABLE) ? before + same - 1u - same_before : before + same_before;
    args.places[i] = place;
    args.rows[place] = route_row;
    args.sorted[place] = shares[i];
    if (same_before > 0) return;
    args.groups[groups_before * 3u] = expert;
    args.groups[groups_before * 3u + 1u] = before;
    args.groups[groups_before * 3u + 2u] = before + same;
}

// weight * silu(min(gate, limit)) * clamp(up, -limit, limit); a limit of 0 is none.
DEVICE float gated(ARGS_REF(SwigluArgs) args, float gate, float up, float weight) {
    if (args.limit > 0.0f && !PLANTED(FAULT_SWIGLU_NO_LIMIT)) {
        // The bound comes first: a NaN in the value passes through.
        gate = min_of(args.limit, gate);
        up = max_of(-args.limit, min_of(args.limit, up));
    }
    return stored(silu_of(gate) * up * weight, args.round);
}

// The gated values of a row, 512 channels and every `slices` times 512 further ones a group: as f32, or without an
// address for them as codes in steps.
KERNEL_REHEARSED(swiglu, SwigluArgs) {
    const u32 lane = LANE;
    const u64 row = GROUP_X;
    const bool acts = LIVE || PLANTED(FAULT_REHEARSAL_WRITES);
    const float weight = LIVE && args.weighted != 0 ? args.weights[row] : 1.0f;
    for (u32 slice = GROUP_Y; slice * SLICE_CHANNELS < args.width; slice += args.slices) {
        if (!args.out) {
            // Rows of whole steps: a lane takes four channels side by side. A warp past the row has none.
            const u32 k = slice * SLICE_CHANNELS + lane * 4u;
            if (k - lane % 32u * 4u >= args.width) break;
            const bool mine = LIVE && k < args.width;
            float gates[4] = {0.0f, 0.0f, 0.0f, 0.0f}, ups[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            if (mine) load_fours(args.gate + row * args.width + k, gates);
            if (mine) load_fours(args.up + row * args.width + k, ups);
            UNROLL
            for (u32 i = 0; i < 4u; i++) gates[i] = gated(args, gates[i], ups[i], weight);
            store_coded_fours(gates, acts && k < args.width, args.coded + row * row_bytes(args.width), k, args.width);
            continue;
        }
        const u32 EACH = SLICE_CHANNELS / GROUP_LANES, first = slice_first(slice, lane);
        float gates[EACH], ups[EACH];
        UNROLL
        for (u32 i = 0; i < EACH; i++) {
            const u32 k = first + i * GROUP_LANES;
            gates[i] = LIVE && k < args.width ? args.gate[row * args.width + k] : 0.0f;
            ups[i] = LIVE && k < args.width ? args.up[row * args.width + k] : 0.0f;
        }
        UNROLL
        for (u32 i = 0; i < EACH; i++) {
            const u32 k = first + i * GROUP_LANES;
            if (acts && k < args.width) args.out[row * args.width + k] = gated(args, gates[i], ups[i], weight);
        }
    }
}

// Experts on their way at a time.
#define SUM_EACH 6u

// The routed experts' rows in ascending id, then the shared one's, summed and rounded once.
KERNEL_REHEARSED(sum_experts, SumExpertsArgs) {
    const u32 lane = LANE, slice = GROUP_Y;
    const u64 row = GROUP_X;
    const u32 EACH = SLICE_CHANNELS / GROUP_LANES, k = slice_first(slice, lane);
    float sum[EACH];
    UNROLL
    for (u32 c = 0; c < EACH; c++) sum[c] = 0.0f;
    for (u32 first = 0; first < args.topk; first += SUM_EACH) {
        float term[SUM_EACH][EACH];
        UNROLL
        for (u32 i = 0; i < SUM_EACH; i++) {
            const u32 used = first + i < args.topk ? first + i : args.topk - 1u;
            GLOBAL const float* from = args.routed + u64(LIVE ? args.places[row * args.topk + used] : 0u) * args.width + k;
            UNROLL
            for (u32 c = 0; c < EACH; c++) term[i][c] = LIVE && k + c * GROUP_LANES < args.width ? from[c * GROUP_LANES] : 0.0f;
        }
        UNROLL
        for (u32 i = 0; i < SUM_EACH; i++) {
            UNROLL
            for (u32 c = 0; c < EACH; c++)
                if (first + i < args.topk) sum[c] = sum[c] + term[i][c];
        }
    }
    UNROLL
    for (u32 c = 0; c < EACH; c++) {
        const u32 at = k + c * GROUP_LANES;
        if (!LIVE || at >= args.width) continue;
        const float shared = args.shared[row * args.width + at];
        args.out[row * args.width + at] = stored(PLANTED(FAULT_EXPERTS_NO_SHARED) ? sum[c] : sum[c] + shared, args.round);
    }
}
