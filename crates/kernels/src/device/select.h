// Index scores and the choice of the best: the compressed rows that a row attends to.
#pragma once

// A row of the batch is eight words.
#define ROW_WORDS 8u
#define ROW_SLOT 0u
#define ROW_POSITION 1u
#define ROW_SPAN_START 2u
#define ROW_SPAN_FIRST 3u
#define ROW_SPAN_ROWS 4u

#define NO_PICK 0xffffffffu

// Compressed rows that a row sees.
DEVICE u32 seen_of(GLOBAL const u32* rows, u64 row, u32 ratio) {
    return (rows[row * ROW_WORDS + ROW_POSITION] + 1u) / ratio;
}

// Where compressed row j of a slot lies in its source's pool, in rows.
DEVICE u64 pool_row(GLOBAL const u32* blocks, u32 slot, u32 stride, u32 rows_per_block, u32 j) {
    const u32 block = blocks[u64(slot) * stride + j / rows_per_block];
    return u64(block) * rows_per_block + j % rows_per_block;
}

// Larger words for larger values, -0 as 0; 0 for a NaN.
DEVICE u32 rising(float x) {
    if (is_nan(x)) return 0;
    const u32 bits = AS_BITS(x + 0.0f);
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

// 0 for what may not be chosen: a NaN or minus infinity.
DEVICE u32 rank_of(float x) { return x > -infinity() ? rising(x) : 0; }

// The score of index key j, one lane a key: sum_h w_h relu(q_h . key), heads ascending, each dot one
// chain over the channels ascending.
DEVICE float index_score(GLOBAL const float* q, GLOBAL const float* w, float scale, u32 heads, u32 dim,
    GLOBAL const u8* key) {
    float sum = 0.0f;
    const u32 used = PLANTED(FAULT_INDEX_DROPPED_HEAD) ? heads - 1u : heads;
    for (u32 h = 0; h < used; h++) {
        float dot = 0.0f;
        for (u32 k = 0; k < dim; k++) dot = FMA(q[h * dim + k], index_value(key, dim, k), dot);
        const float positive = dot < 0.0f ? 0.0f : dot;
        sum = FMA(w[h] * scale, positive, sum);
    }
    return sum;
}

// Scores of all visible rows, or where `candidates` are given of the rows of those blocks, in their
// order. What is not visible gets minus infinity. A group takes 128 scores of row y.
KERNEL(index_scores, IndexScoresArgs) {
    const u32 at = GROUP_X * GROUP_LANES + LANE;
    const u64 row = GROUP_Y;
    if (at >= args.count) return;
    u32 j = at;
    bool there = true;
    if (args.candidates) {
        const u32 block = at / args.candidate_size;
        there = block < args.n_candidates[row];
        if (there)
            j = args.candidates[row * args.candidates_stride + block] * args.candidate_size +
                at % args.candidate_size;
    }
    float score = -infinity();
    if (there && j < seen_of(args.rows, row, args.ratio)) {
        const u32 slot = args.rows[row * ROW_WORDS + ROW_SLOT];
        const u32 from = PLANTED(FAULT_INDEX_WRONG_BLOCK) ? j ^ 1u : j;
        const u64 place = pool_row(args.blocks, slot, args.blocks_stride, args.rows_per_block, from);
        score = index_score(args.q + row * args.heads * args.dim, args.w + row * args.heads,
            args.scale, args.heads, args.dim, args.keys + place * index_bytes(args.dim));
    }
    args.scores[row * args.scores_stride + at] = score;
}

// The best score of each candidate block; the block of the newest visible row is above all.
KERNEL(block_best, BlockBestArgs) {
    const u32 block = GROUP_X * GROUP_LANES + LANE;
    const u64 row = GROUP_Y;
    if (block >= args.count) return;
    const u32 seen = seen_of(args.rows, row, args.ratio);
    float top = -infinity();
    for (u32 j = block * args.size; j < seen && j < (block + 1u) * args.size; j++)
        top = max_of(args.scores[row * args.scores_stride + j], top);
    const bool newest = seen > 0 && block == (seen - 1u) / args.size;
    if (newest && !PLANTED(FAULT_BLOCK_NEWEST_FORGOTTEN)) top = infinity();
    args.out[row * args.out_stride + block] = top;
}

// The best k of `count` scores, ascending by index, ties to the lower one; one group a row. The k-th
// value is found bit by bit; then each lane writes the picks of its own stretch. Places past the
// last pick hold NO_PICK. Where candidates are given, an index is that of a row in their order.
KERNEL(topk, TopkArgs) {
    SHARED(u32, part, GROUP_WARPS);
    SHARED(u32, above, GROUP_LANES);
    SHARED(u32, equal, GROUP_LANES);
    const u32 lane = LANE;
    const u64 row = GROUP_X;
    GLOBAL const float* scores = args.scores + row * args.scores_stride;
    u32 least = 0;
    for (u32 bit = 0x80000000u; bit > 0; bit >>= 1) {
        u32 own = 0;
        for (u32 i = lane; i < args.count; i += GROUP_LANES)
            own += rank_of(scores[i]) >= (least | bit) ? 1u : 0u;
        if (group_count(own, part, lane) >= args.k) least |= bit;
    }
    const u32 stretch = (args.count + GROUP_LANES - 1u) / GROUP_LANES;
    const u32 first = lane * stretch;
    const u32 end = first + stretch < args.count ? first + stretch : args.count;
    u32 more = 0, same = 0;
    for (u32 i = first; i < end; i++) {
        const u32 rank = rank_of(scores[i]);
        more += rank > least ? 1u : 0u;
        same += rank == least ? 1u : 0u;
    }
    above[lane] = more;
    equal[lane] = same;
    if (!PLANTED(FAULT_TOPK_MISSING_BARRIER)) BARRIER();
    u32 more_before = 0, same_before = 0, all = 0;
    for (u32 i = 0; i < GROUP_LANES; i++) {
        const u32 count = above[i];
        all += count;
        if (i < lane) {
            more_before += count;
            same_before += equal[i];
        }
    }
    // A k-th value of 0 means fewer than k may be chosen: none of its equals is.
    const u32 room = least == 0 ? 0 : args.k - all;
    u32 at = more_before + (same_before < room ? same_before : room);
    u32 taken = same_before;
    for (u32 i = first; i < end; i++) {
        const u32 rank = rank_of(scores[i]);
        const bool tie = PLANTED(FAULT_TOPK_TIES_HIGH) ? taken + room >= args.k : taken < room;
        if (rank > least || (rank == least && tie)) {
            u32 index = i;
            if (args.candidates)
                index = args.candidates[row * args.candidates_stride + i / args.candidate_size] *
                        args.candidate_size + i % args.candidate_size;
            if (at < args.k) args.picks[row * args.picks_stride + at] = index;
            at += 1u;
        }
        taken += rank == least ? 1u : 0u;
    }
    u32 sames = 0;
    for (u32 i = 0; i < GROUP_LANES; i++) sames += equal[i];
    const u32 total = all + (sames < room ? sames : room);
    for (u32 i = total + lane; i < args.k; i += GROUP_LANES)
        args.picks[row * args.picks_stride + i] = NO_PICK;
    if (lane == 0) args.n_picks[row] = total;
}
