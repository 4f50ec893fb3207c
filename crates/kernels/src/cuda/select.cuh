// Index scores and top-k for long contexts: 32 index heads of 128 channels.
//
// A dot is one chain of 8 products of 16 channels: steps 2 m and 2 m + 1 of lane (g, t) take the words of
// its channels 32 t + 8 m on. Lane t adds w_h relu(dot_h) for heads 8 n + 2 t and 8 n + 2 t + 1, n
// ascending; then lanes 1 and 2 apart are added. So a score depends on its row and its key alone.
#pragma once

#define TILE_INDEX_HEADS 32u
#define TILE_INDEX_DIM 128u
#define TILE_INDEX_KEYS 512u
#define TILE_INDEX_ROW (TILE_INDEX_HEADS * TILE_INDEX_DIM * 2u)
#define TILE_INDEX_STAGE (TILE_INDEX_ROW + TILE_INDEX_HEADS * 4u)

// Brings a row's queries and weights to a stage, by 512 threads.
DEVICE void copy_row(const TileIndexArgs& args, u32 to, u64 row, u32 thread) {
    copy16(to + thread * 16u, args.q + row * TILE_INDEX_ROW + thread * 16u);
    if (thread < TILE_INDEX_HEADS / 4u)
        copy16(to + TILE_INDEX_ROW + thread * 16u, args.w + row * TILE_INDEX_HEADS + thread * 4u);
}

// The compressed row of score `at`, all ones where there is none.
DEVICE u32 scored_row(const TileIndexArgs& args, u64 row, u32 at) {
    if (at >= args.count) return NO_PICK;
    u32 j = at;
    if (args.candidates) {
        const u32 block = at / args.candidate_size;
        if (block >= args.n_candidates[row]) return NO_PICK;
        j = args.candidates[row * args.candidates_stride + block] * args.candidate_size + at % args.candidate_size;
    }
    return j < seen_of(args.rows, row, args.ratio) ? j : NO_PICK;
}

// 512 scores of `rows_each` rows: 32 keys a warp, whose operands stay in registers while rows pass by.
// Keys are read again where the slot changes, and for each row among candidates.
#define TILE_INDEX_TILES 2u
#define TILE_INDEX_WARP (TILE_INDEX_TILES * 16u)
CUDA_KERNEL(tile_index_scores, TileIndexArgs, 512) {
    // A row's queries, then its heads' weights; two rows are there while two are on their way.
    GROUP_SHARED(uint4, query, [4][TILE_INDEX_STAGE / 16u]);
    const u32 lane = LANE % 32u, warp = LANE / 32u, g = lane / 4u, t = lane % 4u;
    const u32 key0 = GROUP_X * TILE_INDEX_KEYS;
    const u32 first = GROUP_Y * args.rows_each;
    const u32 end = first + args.rows_each < args.row_count ? first + args.rows_each : args.row_count;
    // Nothing is written for a row that sees none of these keys: top-k does not read there.
    u32 a[TILE_INDEX_TILES][8][4];
    u32 slot = NO_PICK;
    for (u32 ahead = 0; ahead < 2u; ahead++) {
        if (first + ahead < end) copy_row(args, shared_address(query[ahead]), first + ahead, LANE);
        copies_commit();
    }
    u32 next_slot = args.rows[u64(first) * ROW_WORDS + ROW_SLOT], next_seen = seen_of(args.rows, first, args.ratio);
    for (u32 r = first; r < end; r++) {
        const u64 row = r;
        const u32 own = next_slot, seen = next_seen;
        if (r + 1u < end) {
            next_slot = args.rows[(row + 1u) * ROW_WORDS + ROW_SLOT];
            next_seen = seen_of(args.rows, row + 1u, args.ratio);
        }
        if ((r - first) % 2u == 0) {
            copies_wait<0>();
            __syncthreads();
            // Every warp is past the two rows before, whose stages are free.
            for (u32 ahead = 2u; ahead < 4u; ahead++)
                if (r + ahead < end) copy_row(args, shared_address(query[(r + ahead - first) % 4u]), row + ahead, LANE);
            copies_commit();
        }
        const bool any = args.candidates ? key0 < args.n_candidates[row] * args.candidate_size : key0 < seen;
        if (any && (own != slot || args.candidates)) {
            slot = own;
            // Later rows of the span see more; what none of them sees here has no place yet.
            const u32 position = args.rows[row * ROW_WORDS + ROW_POSITION];
            const u32 span_end = args.rows[row * ROW_WORDS + ROW_SPAN_START] + args.rows[row * ROW_WORDS + ROW_SPAN_ROWS];
            const u32 past = position + (end - r) < span_end ? position + (end - r) : span_end;
            const u32 seen_later = past / args.ratio;
#pragma unroll
            for (u32 m = 0; m < TILE_INDEX_TILES; m++)
#pragma unroll
                for (u32 half = 0; half < 2u; half++) {
                    const u32 at = key0 + warp * TILE_INDEX_WARP + m * 16u + half * 8u + g;
                    u32 j = args.candidates ? scored_row(args, row, at) : at;
                    if (!args.candidates && j >= seen_later) j = NO_PICK;
                    uint4 codes = make_uint4(0, 0, 0, 0);
                    u32 scale = 127u;
                    if (j != NO_PICK) {
                        if (PLANTED(FAULT_INDEX_WRONG_BLOCK)) j ^= 1u;
                        const u64 place = pool_row(args.blocks, slot, args.blocks_stride, args.rows_per_block, j);
                        const u8* key = args.keys + place * index_bytes(TILE_INDEX_DIM);
                        // A row is 68 bytes: its words are aligned, no more.
                        const u32* words = reinterpret_cast<const u32*>(key) + t * 4u;
                        codes = make_uint4(words[0], words[1], words[2], words[3]);
                        scale = key[TILE_INDEX_DIM / 2u + t];
                    }
                    const Factor by = factor_index(scale);
                    const u32 code[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
                    for (u32 i = 0; i < 4u; i++) {
                        u32 word[4];
                        spread_e2m1(code[i], word);
                        finish_lift<4>(word, by);
                        a[m][2u * i][half] = word[0], a[m][2u * i][half + 2u] = word[1];
                        a[m][2u * i + 1u][half] = word[2], a[m][2u * i + 1u][half + 2u] = word[3];
                    }
                }
        }
        if (any) {
            const uint4* q = query[(r - first) % 4u];
            float w[8];
#pragma unroll
            for (u32 n = 0; n < 4u; n++) {
                const float2 pair = reinterpret_cast<const float2*>(q + TILE_INDEX_ROW / 16u)[n * 4u + t];
                w[2u * n] = pair.x * args.scale, w[2u * n + 1u] = pair.y * args.scale;
            }
            float sum[TILE_INDEX_TILES][2] = {};
#pragma unroll
            for (u32 n = 0; n < 4u; n++) {
                if (PLANTED(FAULT_INDEX_DROPPED_HEAD) && n == 3u) continue;
                float dot[TILE_INDEX_TILES][4] = {};
#pragma unroll
                for (u32 m = 0; m < 4u; m++) {
                    const uint4 b = q[(n * 4u + m) * 32u + lane];
#pragma unroll
                    for (u32 k = 0; k < TILE_INDEX_TILES; k++) multiply(dot[k], a[k][2u * m], b.x, b.y);
#pragma unroll
                    for (u32 k = 0; k < TILE_INDEX_TILES; k++) multiply(dot[k], a[k][2u * m + 1u], b.z, b.w);
                }
#pragma unroll
                for (u32 k = 0; k < TILE_INDEX_TILES; k++)
#pragma unroll
                    for (u32 i = 0; i < 4u; i++) {
                        const float x = positive_part(dot[k][i]);
                        sum[k][i >> 1] = FMA(w[2u * n + (i & 1u)], x, sum[k][i >> 1]);
                    }
            }
#pragma unroll
            for (u32 k = 0; k < TILE_INDEX_TILES; k++)
#pragma unroll
                for (u32 half = 0; half < 2u; half++) {
                    float x = sum[k][half];
                    x = x + SHUFFLE_XOR(x, 1u);
                    x = x + SHUFFLE_XOR(x, 2u);
                    const u32 at = key0 + warp * TILE_INDEX_WARP + k * 16u + half * 8u + g;
                    if (t == k && at < args.count) {
                        const bool there = args.candidates ? scored_row(args, row, at) != NO_PICK : at < seen;
                        args.scores[row * args.scores_stride + at] = there ? x : -infinity();
                    }
                }
        }
    }
}

// The best k of each tile of 16384 scores, ascending by place, ties to the lower one: places into `ids`
// and, where they go on to another round, their scores. `limit` words a row say how many scores there
// are: what the row sees, or its candidates' rows. The last round writes picks.
#define TOPK_LANES 1024u
#define TOPK_EACH 16u
#define TOPK_TILE (TOPK_LANES * TOPK_EACH)
#define TOPK_SHARED (TOPK_TILE * 6u)
#define TOPK_PASSES 6u

// What is known of the k-th best so far: the bits above, and how many of the best lie above those.
struct Digits {
    u32 prefix, room;
};

// One pass: counts the byte `shift` bits up of the words that have the prefix, and takes the byte of the
// k-th. `counts` are zero before; every thread meets at two barriers.
template <class Words> DEVICE void digit(Digits& found, Words words, u32 n, u32 shift, u32* counts, u32* result) {
    for (u32 i = LANE; i < n; i += TOPK_LANES) {
        const u32 word = words(i);
        const bool mine = word != 0 && (shift == 24u || (word ^ found.prefix) >> (shift + 8u) == 0);
        if (mine) atomicAdd(&counts[word >> shift & 255u], 1u);
    }
    __syncthreads();
    if (LANE < 32u) {
        // Lane l has the bytes from 255 - 8 l down.
        u32 count[8], own = 0;
#pragma unroll
        for (u32 i = 0; i < 8u; i++) {
            count[i] = counts[255u - 8u * LANE - i];
            own += count[i];
        }
        u32 upto = own;
        for (u32 apart = 1u; apart < 32u; apart *= 2u) {
            const u32 other = __shfl_up_sync(0xffffffffu, upto, apart);
            if (LANE >= apart) upto += other;
        }
        u32 above = upto - own;
        const u32 all = __shfl_sync(0xffffffffu, upto, 31);
        if (all < found.room) {
            // There are not so many: the bound is 0.
            if (LANE == 0) result[0] = 0, result[1] = 0xffffffffu;
        } else if (above < found.room && found.room <= upto) {
            bool done = false;
#pragma unroll
            for (u32 i = 0; i < 8u; i++) {
                if (!done && above + count[i] >= found.room) {
                    result[0] = found.prefix | (255u - 8u * LANE - i) << shift;
                    result[1] = found.room - above;
                    done = true;
                }
                above += count[i];
            }
        }
    }
    __syncthreads();
    found.prefix = result[0];
    found.room = result[1];
}

CUDA_KERNEL(tile_topk, TileTopkArgs, 1024) {
    LAUNCH_SHARED(uint4, tile_shared);
    u32* ranks = reinterpret_cast<u32*>(tile_shared);
    u16* places = reinterpret_cast<u16*>(ranks + TOPK_TILE);
    GROUP_SHARED(u32, counts, [TOPK_PASSES][256]);
    GROUP_SHARED(u32, offsets, [TOPK_EACH * 33u]);
    GROUP_SHARED(u32, part, [32]);
    GROUP_SHARED(u32, result, [2]);
    const u32 lane = LANE % 32u, warp = LANE / 32u;
    const u64 row = GROUP_Y;
    const u32 tile0 = GROUP_X * TOPK_TILE;
    u32 count = args.count;
    if (args.rows) {
        const u32 seen = seen_of(args.rows, row, args.ratio);
        count = args.unit > 1u ? (seen + args.unit - 1u) / args.unit : seen;
    }
    if (args.n_candidates) count = args.n_candidates[row] * args.candidate_size;
    if (count > args.count) count = args.count;
    const float* scores = args.scores + row * args.scores_stride;

    u32 rank[TOPK_EACH], most = 0;
#pragma unroll
    for (u32 i = 0; i < TOPK_EACH; i++) {
        const u32 at = tile0 + i * TOPK_LANES + LANE;
        rank[i] = at < count ? rank_of(scores[at]) : 0;
    }
    for (u32 i = LANE; i < TOPK_PASSES * 256u; i += TOPK_LANES) counts[i / 256u][i % 256u] = 0;
#pragma unroll
    for (u32 i = 0; i < TOPK_EACH; i++) most = max_bits(most, rank[i]);
    __syncthreads();
    // The k-th best of the lanes' best is a bound that at least k scores reach; half its bits will do.
    Digits bound = {0, args.k};
    if (args.k <= TOPK_LANES && tile0 < count) {
        const auto own = [&](u32) { return most; };
        digit(bound, own, TOPK_LANES, 24u, counts[0], result);
        if (bound.room <= TOPK_LANES) digit(bound, own, TOPK_LANES, 16u, counts[1], result);
    }
    const u32 low = bound.prefix == 0 ? 1u : bound.prefix;
    u32 ballot[TOPK_EACH];
#pragma unroll
    for (u32 i = 0; i < TOPK_EACH; i++) {
        ballot[i] = __ballot_sync(0xffffffffu, rank[i] >= low);
        if (lane == i) offsets[i * 33u + warp] = __popc(ballot[i]);
    }
    __syncthreads();
    // Warp i adds up its stretch of 1024 scores, then each takes what lies before it.
    if (warp < TOPK_EACH) {
        const u32 own = offsets[warp * 33u + lane];
        u32 before = own;
        for (u32 apart = 1u; apart < 32u; apart *= 2u) {
            const u32 other = __shfl_up_sync(0xffffffffu, before, apart);
            if (lane >= apart) before += other;
        }
        offsets[warp * 33u + lane] = before - own;
        if (lane == 31u) part[warp] = before;
    } else if (lane == 0) {
        part[warp] = 0;
    }
    __syncthreads();
    const u32 stretch = part[lane], below = (1u << lane) - 1u;
    const u32 n = __reduce_add_sync(0xffffffffu, stretch);
    u32 at0 = 0;
#pragma unroll
    for (u32 i = 0; i < TOPK_EACH; i++) {
        if (rank[i] >= low) {
            const u32 to = at0 + offsets[i * 33u + warp] + __popc(ballot[i] & below);
            ranks[to] = rank[i];
            places[to] = u16(i * TOPK_LANES + LANE);
        }
        at0 += __shfl_sync(0xffffffffu, stretch, i);
    }
    __syncthreads();
    // The k-th best of what is left; 0 where all of it is chosen.
    Digits least = {0, args.k};
    if (n > args.k) {
        const auto listed = [&](u32 i) { return ranks[i]; };
        for (u32 pass = 0; pass < 4u; pass++) digit(least, listed, n, 24u - 8u * pass, counts[2u + pass], result);
    }
    const u32 kth = least.prefix;
    // `room` of the k-th's equals are chosen, the first ones.
    const u32 room = n > args.k ? least.room : 0;
    const u64 out0 = (row * args.tiles + GROUP_X) * args.k;
    u32 more = 0, same = 0;
    for (u32 first = 0; first < n; first += TOPK_LANES) {
        const u32 at = first + LANE;
        const u32 own = at < n ? ranks[at] : 0;
        const bool over = at < n && own > kth, equal = at < n && kth > 0 && own == kth;
        const u32 overs = __ballot_sync(0xffffffffu, over), equals = __ballot_sync(0xffffffffu, equal);
        if (lane == 0) part[warp] = __popc(overs) << 16 | __popc(equals);
        __syncthreads();
        u32 before = part[lane];
        const u32 all = __reduce_add_sync(0xffffffffu, before);
        before = __reduce_add_sync(0xffffffffu, lane < warp ? before : 0);
        const u32 m = more + (before >> 16) + __popc(overs & below);
        const u32 e = same + (before & 0xffffu) + __popc(equals & below);
        const bool tie = PLANTED(FAULT_TOPK_TIES_HIGH) ? false : e < room;
        if (over || (equal && tie)) {
            const u64 to = out0 + m + (e < room ? e : room);
            const u32 from = tile0 + places[at];
            u32 id = args.from ? args.from[row * args.scores_stride + from] : from;
            if (!args.from && args.candidates)
                id = args.candidates[row * args.candidates_stride + from / args.candidate_size] *
                         args.candidate_size + from % args.candidate_size;
            args.ids[to] = id;
            if (args.best) args.best[to] = scores[from];
        }
        more += all >> 16;
        same += all & 0xffffu;
        __syncthreads();
    }
    const u32 total = more + (same < room ? same : room);
    for (u32 i = total + LANE; i < args.k; i += TOPK_LANES) {
        args.ids[out0 + i] = NO_PICK;
        if (args.best) args.best[out0 + i] = -infinity();
    }
    if (args.n_picks && LANE == 0) args.n_picks[row] = total;
}
