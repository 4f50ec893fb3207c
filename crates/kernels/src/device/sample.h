// The token of a logit row, bit for bit as finback-numerics' `sample` chooses it, and the drafter's
// Markov term.
#pragma once

// Words of a row's parameters: temperature, top_k, top_p, min_p.
#define PARAM_WORDS 4u

// Orders tokens by falling logit, then by rising id.
DEVICE u64 token_key(u32 id, float x) { return (u64(~rising(x)) << 32) | id; }

// Philox4x32-10 with the counter (position, id / 4): the uniform draw of a token in (0, 1).
DEVICE float uniform_draw(u64 seed, u64 position, u32 id) {
    u32 c0 = u32(position), c1 = u32(position >> 32), c2 = id / 4u, c3 = 0;
    u32 k0 = u32(seed), k1 = u32(seed >> 32);
    for (u32 round = 0; round < 10u; round++) {
        const u64 first = u64(0xd2511f53u) * c0, second = u64(0xcd9e8d57u) * c2;
        const u32 n0 = u32(second >> 32) ^ c1 ^ k0, n2 = u32(first >> 32) ^ c3 ^ k1;
        c1 = u32(second);
        c3 = u32(first);
        c0 = n0;
        c2 = n2;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    const u32 word = id % 4u == 0 ? c0 : id % 4u == 1u ? c1 : id % 4u == 2u ? c2 : c3;
    const float u = FMA(float(word), 1.0f / 4294967296.0f, 1.0f / 8589934592.0f);
    return min_of(u, 1.0f - 5.9604644775390625e-8f);
}

DEVICE float gumbel_noise(float u) { return -ln_of(-log1p_of(-u)); }

// A row under a temperature above 0.
struct LogitRow {
    GLOBAL const float* logits;
    u32 vocab;
    float top, temperature;
};

DEVICE float scaled(THREAD const LogitRow& row, float x) { return (x - row.top) / row.temperature; }

// A token's probability in units of 2^-40 of the largest: integers, so their sum has no order.
DEVICE u64 token_weight(THREAD const LogitRow& row, float x) {
    return u64(i64(exp_of(scaled(row, x)) * 1099511627776.0f));
}

// The largest key whose smaller keys number fewer than `limit`, or weigh less than it; keys above
// `last` count for nothing. Found bit by bit.
DEVICE u64 key_before(THREAD const LogitRow& row, bool by_weight, u64 limit, u64 last,
    SHARED_REF(u64) part, u32 lane) {
    u64 found = 0;
    for (u64 bit = u64(1) << 63; bit > 0; bit >>= 1) {
        const u64 candidate = found | bit;
        u64 own = 0;
        for (u32 id = lane; id < row.vocab; id += GROUP_LANES) {
            const float x = row.logits[id];
            const u64 key = token_key(id, x);
            if (key < candidate && key <= last) own += by_weight ? token_weight(row, x) : 1u;
        }
        if (group_total(own, part, lane) < limit) found = candidate;
    }
    return found < last ? found : last;
}

// The largest key that top_k and top_p keep.
DEVICE u64 last_kept(THREAD const LogitRow& row, u32 top_k, float top_p, SHARED_REF(u64) part, u32 lane) {
    u64 last = ~u64(0);
    if (top_k > 0 && top_k < row.vocab) last = key_before(row, false, top_k, last, part, lane);
    if (top_p < 1.0f) {
        u64 own = 0;
        for (u32 id = lane; id < row.vocab; id += GROUP_LANES) {
            const float x = row.logits[id];
            if (token_key(id, x) <= last) own += token_weight(row, x);
        }
        const u64 total = group_total(own, part, lane);
        const u64 share = u64(top_p * 16777216.0f);
        const u64 wanted = (total >> 24) * share + (((total & 0xffffffu) * share) >> 24);
        last = key_before(row, true, wanted > 0 ? wanted : 1u, last, part, lane);
    }
    return last;
}

// One group a row; `none` where a logit is a NaN or an infinity. Params are bits: temperature (0
// is greedy), top_k, top_p, min_p.
KERNEL(choose, ChooseArgs) {
    SHARED(u64, part, GROUP_WARPS);
    const u32 lane = LANE;
    const u64 at = GROUP_X;
    LogitRow row;
    row.logits = args.logits + at * args.stride;
    row.vocab = args.vocab;
    GLOBAL const u32* params = args.params + at * PARAM_WORDS;
    u64 best = 0, broken = 0;
    for (u32 id = lane; id < args.vocab; id += GROUP_LANES) {
        const float x = row.logits[id];
        const u32 low = PLANTED(FAULT_CHOOSE_TIES_HIGH) ? id : ~id;
        const u64 key = (u64(rising(x)) << 32) | low;
        best = key > best ? key : best;
        broken += is_finite(x) ? 0u : 1u;
    }
    best = group_max(best, part, lane);
    broken = group_total(broken, part, lane);
    const u32 low = u32(best & 0xffffffffu);
    const u32 greedy = PLANTED(FAULT_CHOOSE_TIES_HIGH) ? low : ~low;
    row.temperature = AS_FLOAT(params[0]);
    if (broken > 0 || row.temperature == 0.0f) {
        if (lane == 0) args.choices[at * args.choices_stride] = broken > 0 ? args.none : greedy;
        return;
    }
    row.top = row.logits[greedy];
    const float min_p = AS_FLOAT(params[3]);
    const u64 last = last_kept(row, params[1], AS_FLOAT(params[2]), part, lane);
    const u64 seed = args.seeds[at], position = args.positions[at];
    u64 winner = 0;
    for (u32 id = lane; id < args.vocab; id += GROUP_LANES) {
        const float x = row.logits[id], z = scaled(row, x);
        bool kept = token_key(id, x) <= last || PLANTED(FAULT_CHOOSE_NO_FILTER);
        if (min_p > 0.0f && exp_of(z) < min_p) kept = false;
        // The most probable token is always kept.
        if (!kept && id != greedy) continue;
        const float score = z + gumbel_noise(uniform_draw(seed, position, id));
        const u64 key = (u64(rising(score)) << 32) | (~id);
        winner = key > winner ? key : winner;
    }
    winner = group_max(winner, part, lane);
    if (lane == 0) args.choices[at * args.choices_stride] = ~u32(winner & 0xffffffffu);
}

// The same choice in slices of a row, so that many groups share it, where nothing is filtered: the
// best of each slice, then each slice's winning draw, then the row's choice. Largest words have no order.
#define BROKEN_SLICE (~u64(0))

// Group (slice, row).
KERNEL(choose_top, ChooseSliceArgs) {
    SHARED(u64, part, GROUP_WARPS);
    const u32 lane = LANE, slice = GROUP_X, each = (args.vocab + args.slices - 1u) / args.slices;
    const u64 at = GROUP_Y;
    GLOBAL const float* logits = args.logits + at * args.stride;
    const u32 end = (slice + 1u) * each < args.vocab ? (slice + 1u) * each : args.vocab;
    u64 best = 0;
    for (u32 id = slice * each + lane; id < end; id += GROUP_LANES) {
        const float x = logits[id];
        const u32 low = PLANTED(FAULT_CHOOSE_TIES_HIGH) ? id : ~id;
        const u64 key = is_finite(x) ? (u64(rising(x)) << 32) | low : BROKEN_SLICE;
        best = key > best ? key : best;
    }
    best = group_max(best, part, lane);
    if (lane == 0) args.tops[at * args.slices + slice] = best;
}

DEVICE u64 most_of(GLOBAL const u64* words, u32 count, SHARED_REF(u64) part, u32 lane) {
    u64 most = 0;
    for (u32 i = lane; i < count; i += GROUP_LANES) most = words[i] > most ? words[i] : most;
    return group_max(most, part, lane);
}

// Group (slice, row); 0 for a row that is not drawn from.
KERNEL(choose_draw, ChooseSliceArgs) {
    SHARED(u64, part, GROUP_WARPS);
    const u32 lane = LANE, slice = GROUP_X, each = (args.vocab + args.slices - 1u) / args.slices;
    const u64 at = GROUP_Y;
    const u64 best = most_of(args.tops + at * args.slices, args.slices, part, lane);
    LogitRow row;
    row.logits = args.logits + at * args.stride;
    row.vocab = args.vocab;
    row.temperature = AS_FLOAT(args.params[at * PARAM_WORDS]);
    const u32 end = (slice + 1u) * each < args.vocab ? (slice + 1u) * each : args.vocab;
    u64 winner = 0;
    if (best != BROKEN_SLICE && row.temperature != 0.0f) {
        row.top = row.logits[~u32(best & 0xffffffffu)];
        const u64 seed = args.seeds[at], position = args.positions[at];
        const u64 used = PLANTED(FAULT_CHOOSE_WRONG_DRAW) ? position + 1u : position;
        for (u32 id = slice * each + lane; id < end; id += GROUP_LANES) {
            const float score = scaled(row, row.logits[id]) + gumbel_noise(uniform_draw(seed, used, id));
            const u64 key = (u64(rising(score)) << 32) | (~id);
            winner = key > winner ? key : winner;
        }
    }
    winner = group_max(winner, part, lane);
    if (lane == 0) args.winners[at * args.slices + slice] = winner;
}

// One group a row.
KERNEL(choose_pick, ChooseSliceArgs) {
    SHARED(u64, part, GROUP_WARPS);
    const u32 lane = LANE;
    const u64 at = GROUP_X;
    const u32 slices = PLANTED(FAULT_CHOOSE_DROPPED_SLICE) ? args.slices - 1u : args.slices;
    const u64 best = most_of(args.tops + at * args.slices, slices, part, lane);
    u64 winner = best;
    if (AS_FLOAT(args.params[at * PARAM_WORDS]) != 0.0f)
        winner = most_of(args.winners + at * args.slices, slices, part, lane);
    if (lane == 0)
        args.choices[at * args.choices_stride] = best == BROKEN_SLICE ? args.none : ~u32(winner & 0xffffffffu);
}

// Whether an id is one of the entries first..end.
DEVICE bool named(GLOBAL const u32* ids, u32 first, u32 end, u32 id) {
    for (u32 i = first; i < end; i++)
        if (ids[i] == id) return true;
    return false;
}

// Adds a row's entries to its logits and keeps what was there, or with `restore` puts that back. An
// entry loses `frequency` for each time its id is in the chain of drafts before; a draft that no
// entry names gets -presence - frequency, and -frequency for each further time. Penalties are
// (presence, frequency) a row. Entries of row r are starts[r]..starts[r + 1], ids of a row differ.
KERNEL(adjust, AdjustArgs) {
    const u32 lane = LANE;
    const u64 row = GROUP_X;
    GLOBAL float* logits = args.logits + row * args.stride;
    GLOBAL const u32* chain = args.chain + row * args.chain_stride;
    const u32 first = args.starts[row], end = args.starts[row + 1u];
    const float presence = args.penalties[row * 2u], frequency = args.penalties[row * 2u + 1u];
    for (u32 i = first + lane; i < end; i += GROUP_LANES) {
        const u32 id = args.ids[i];
        if (args.restore != 0) {
            logits[id] = args.saved[i];
            continue;
        }
        float add = args.adds[i];
        const u32 count = PLANTED(FAULT_ADJUST_NO_CHAIN) ? 0 : args.chain_count;
        for (u32 c = 0; c < count; c++)
            if (chain[c] == id) add = add - frequency;
        const float own = logits[id];
        args.saved[i] = own;
        logits[id] = own + add;
    }
    for (u32 c = lane; c < args.chain_count; c += GROUP_LANES) {
        GLOBAL float* kept = args.saved_chain + row * args.chain_stride + c;
        const u32 id = chain[c];
        bool counts = !named(chain, 0, c, id) && !named(args.ids, first, end, id);
        if (args.restore != 0) {
            if (counts && !PLANTED(FAULT_ADJUST_NOT_RESTORED)) logits[id] = *kept;
            continue;
        }
        float own = 0.0f;
        if (counts) {
            float add = -presence - frequency;
            for (u32 later = c + 1u; later < args.chain_count; later++)
                if (chain[later] == id) add = add - frequency;
            own = logits[id];
            logits[id] = own + add;
        }
        *kept = own;
    }
}

// x += term: the Markov term on a logit row.
KERNEL(add_rows, AddArgs) {
    const u32 lane = LANE, slice = GROUP_Y;
    const u64 row = GROUP_X;
    for (u32 k = slice_first(slice, lane); k < slice_end(slice, args.width); k += GROUP_LANES) {
        const float term = PLANTED(FAULT_ADD_DROPPED) && k == 0 ? 0.0f : args.term[row * args.width + k];
        args.x[row * args.x_stride + k] = args.x[row * args.x_stride + k] + term;
    }
}

// The Markov embedding of the token before, and the draft's raw confidence: projection . [h, embed],
// as two group_sums added.
KERNEL(markov, MarkovArgs) {
    SHARED(float, part, GROUP_WARPS);
    const u32 lane = LANE;
    const u64 row = GROUP_X;
    const u64 from = u64(args.tokens[row * args.tokens_stride]) * args.rank;
    float embedded = 0.0f, hidden = 0.0f;
    for (u32 k = lane; k < args.rank; k += GROUP_LANES) {
        const float x = table_value(args.table, from + k, args.format);
        args.embed[row * args.rank + k] = x;
        embedded = FMA(args.projection[args.width + k], x, embedded);
    }
    for (u32 k = lane; k < args.width; k += GROUP_LANES)
        hidden = FMA(args.projection[k], args.h[row * args.h_stride + k], hidden);
    hidden = group_sum(hidden, part, lane);
    embedded = group_sum(embedded, part, lane);
    if (PLANTED(FAULT_MARKOV_DROPPED_EMBED)) embedded = 0.0f;
    if (lane == 0) args.confidence[row * args.confidence_stride] = hidden + embedded;
}
