// The choice of sample.h for rows that a filter needs whole: the same token, by 1024 threads a row.
//
// Where a filter ends is found digit by digit, four bits of the key at a time: every thread adds what it
// sees of a digit in a place of its own, and integers have one sum in any order.
#pragma once

#define CHOOSE_LANES 1024u
#define CHOOSE_DIGITS 16u
#define CHOOSE_SHARED (CHOOSE_DIGITS * CHOOSE_LANES * 8u)

DEVICE u64 warp_most(u64 x) {
    for (u32 apart = 16u; apart > 0; apart /= 2u) {
        const u64 other = SHUFFLE_XOR(x, apart);
        x = other > x ? other : x;
    }
    return x;
}
DEVICE u64 warp_total(u64 x) {
    for (u32 apart = 16u; apart > 0; apart /= 2u) x += SHUFFLE_XOR(x, apart);
    return x;
}

// The largest word and the sum of all threads'; `part` has a word a warp and may be used again.
DEVICE u64 all_most(u64 x, u64* part) {
    x = warp_most(x);
    if (LANE % 32u == 0) part[LANE / 32u] = x;
    __syncthreads();
    const u64 most = warp_most(part[LANE % 32u]);
    __syncthreads();
    return most;
}
DEVICE u64 all_total(u64 x, u64* part) {
    x = warp_total(x);
    if (LANE % 32u == 0) part[LANE / 32u] = x;
    __syncthreads();
    const u64 total = warp_total(part[LANE % 32u]);
    __syncthreads();
    return total;
}

// The first key up to `last` at which the keys so far number or weigh `limit`; `last` where none does.
DEVICE u64 cut_after(const LogitRow& row, bool by_weight, u64 limit, u64 last, u64* bins, u64* part) {
    u64 found = 0, before = 0;
    u32 shift = 60u;
    while (true) {
        for (u32 digit = 0; digit < CHOOSE_DIGITS; digit++) bins[digit * CHOOSE_LANES + LANE] = 0;
        for (u32 id = LANE; id < row.vocab; id += CHOOSE_LANES) {
            const float x = row.logits[id];
            const u64 key = token_key(id, x);
            if (key > last || (shift < 60u && (key ^ found) >> (shift + 4u) != 0)) continue;
            bins[(u32(key >> shift) & 15u) * CHOOSE_LANES + LANE] += by_weight ? token_weight(row, x) : 1u;
        }
        __syncthreads();
        const u32 warp = LANE / 32u;
        if (warp < CHOOSE_DIGITS) {
            u64 sum = 0;
            for (u32 i = LANE % 32u; i < CHOOSE_LANES; i += 32u) sum += bins[warp * CHOOSE_LANES + i];
            sum = warp_total(sum);
            if (LANE % 32u == 0) part[warp] = sum;
        }
        __syncthreads();
        u32 digit = 0;
        while (digit < CHOOSE_DIGITS && before + part[digit] < limit) before += part[digit++];
        __syncthreads();
        if (digit == CHOOSE_DIGITS) return last;
        found |= u64(digit) << shift;
        if (shift == 0) return found;
        shift -= 4u;
        // Ids have no digits above the vocabulary's.
        while (shift < 32u && shift > 0 && (row.vocab - 1u) >> shift == 0) shift -= 4u;
    }
}

CUDA_KERNEL(tile_choose, ChooseArgs, 1024) {
    LAUNCH_SHARED(uint4, tile_shared);
    GROUP_SHARED(u64, part, [32]);
    u64* bins = reinterpret_cast<u64*>(tile_shared);
    const u64 at = GROUP_X;
    LogitRow row;
    row.logits = args.logits + at * args.stride;
    row.vocab = args.vocab;
    const u32* params = args.params + at * PARAM_WORDS;
    u64 best = 0, broken = 0;
    for (u32 id = LANE; id < args.vocab; id += CHOOSE_LANES) {
        const float x = row.logits[id];
        const u64 key = (u64(rising(x)) << 32) | (PLANTED(FAULT_CHOOSE_TIES_HIGH) ? id : ~id);
        best = key > best ? key : best;
        broken += is_finite(x) ? 0u : 1u;
    }
    best = all_most(best, part);
    broken = all_total(broken, part);
    const u32 low = u32(best & 0xffffffffu);
    const u32 greedy = PLANTED(FAULT_CHOOSE_TIES_HIGH) ? low : ~low;
    row.temperature = AS_FLOAT(params[0]);
    u32* choice = args.choices + at * args.choices_stride;
    if (broken > 0 || row.temperature == 0.0f) {
        if (LANE == 0) *choice = broken > 0 ? args.none : greedy;
        return;
    }
    row.top = row.logits[greedy];
    const u32 top_k = params[1];
    const float top_p = AS_FLOAT(params[2]), min_p = AS_FLOAT(params[3]);
    u64 last = ~u64(0);
    if (top_k > 0 && top_k < row.vocab) last = cut_after(row, false, top_k, last, bins, part);
    if (top_p < 1.0f) {
        u64 own = 0;
        for (u32 id = LANE; id < row.vocab; id += CHOOSE_LANES) {
            const float x = row.logits[id];
            if (token_key(id, x) <= last) own += token_weight(row, x);
        }
        const u64 total = all_total(own, part), share = u64(top_p * 16777216.0f);
        const u64 wanted = (total >> 24) * share + (((total & 0xffffffu) * share) >> 24);
        last = cut_after(row, true, wanted > 0 ? wanted : 1u, last, bins, part);
    }
    const u64 seed = args.seeds[at], position = args.positions[at];
    u64 winner = 0;
    for (u32 id = LANE; id < args.vocab; id += CHOOSE_LANES) {
        const float x = row.logits[id], z = scaled(row, x);
        bool kept = token_key(id, x) <= last || PLANTED(FAULT_CHOOSE_NO_FILTER);
        if (min_p > 0.0f && exp_of(z) < min_p) kept = false;
        // The most probable token is always kept.
        if (!kept && id != greedy) continue;
        const float score = z + gumbel_noise(uniform_draw(seed, position, id));
        const u64 key = (u64(rising(score)) << 32) | (~id);
        winner = key > winner ? key : winner;
    }
    winner = all_most(winner, part);
    if (LANE == 0) *choice = ~u32(winner & 0xffffffffu);
}
