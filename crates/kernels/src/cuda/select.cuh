// Index scores and top-k for long contexts: 32 index heads of 128 channels.
//
// A dot is one chain of 8 products of 16 channels: steps 2 m and 2 m + 1 of lane (g, t) take the words of
// its channels 32 t + 8 m on. Lane t adds w_h relu(dot_h) for heads 8 n + 2 t and 8 n + 2 t + 1, n
// ascending; then lanes 1 and 2 apart are added. So a score depends on its row and its key alone.
//
// The best of each 16 scores is written as well. The best k scores, ties to the lower place, lie among the
// best k of these sixteens, ties likewise: each of those begins with a score better than any elsewhere.
#pragma once

#define TILE_INDEX_HEADS 32u
#define TILE_INDEX_DIM 128u
#define TILE_INDEX_KEYS 512u
#define TILE_INDEX_ROW (TILE_INDEX_HEADS * TILE_INDEX_DIM * 2u)
#define TILE_INDEX_STAGE (TILE_INDEX_ROW + TILE_INDEX_HEADS * 4u)
#define TILE_INDEX_HALF (TILE_INDEX_ROW / 2u)
// Scores that have one best.
#define TILE_INDEX_GROUP 16u

// Brings a row's queries and weights to a stage, by 512 threads.
DEVICE void copy_row(const TileIndexArgs& args, u32 to, u64 row, u32 thread) {
    copy16(to + thread * 16u, args.q + row * TILE_INDEX_ROW + thread * 16u);
    if (thread < TILE_INDEX_HEADS / 4u)
        copy16(to + TILE_INDEX_ROW + thread * 16u, args.w + row * TILE_INDEX_HEADS + thread * 4u);
}

DEVICE u32 tops_stride(const TileIndexArgs& args) { return (args.scores_stride + TILE_INDEX_GROUP - 1u) / TILE_INDEX_GROUP; }

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

// 32 channels of a key: codes and scale. Where there is no key, zeros.
struct IndexKey {
    u32 codes[4], scale;
};

DEVICE IndexKey load_key(const TileIndexArgs& args, u32 slot, u32 j, u32 t) {
    IndexKey k = {{0, 0, 0, 0}, 127u};
    if (j == NO_PICK) return k;
    if (PLANTED(FAULT_INDEX_WRONG_BLOCK)) j ^= 1u;
    const u64 place = pool_row(args.blocks, slot, args.blocks_stride, args.rows_per_block, j);
    const u8* key = args.keys + place * index_bytes(TILE_INDEX_DIM);
    // A row is 68 bytes: its words are aligned, no more.
    const u32* words = reinterpret_cast<const u32*>(key) + t * 4u;
#pragma unroll
    for (u32 i = 0; i < 4u; i++) k.codes[i] = words[i];
    k.scale = key[TILE_INDEX_DIM / 2u + t];
    return k;
}

// As row g or g + 8 of the eight steps' operands.
DEVICE void lift_key(const IndexKey& key, u32 half, u32 (&a)[8][4]) {
    const Factor by = factor_index(key.scale);
#pragma unroll
    for (u32 i = 0; i < 4u; i++) {
        u32 word[4];
        spread_e2m1(key.codes[i], word);
        finish_lift<4>(word, by);
        a[2u * i][half] = word[0], a[2u * i][half + 2u] = word[1];
        a[2u * i + 1u][half] = word[2], a[2u * i + 1u][half + 2u] = word[3];
    }
}

// The best of 16 scores, two a lane of one t, at every such lane. A NaN is none.
DEVICE float best_of(float x, float y) {
    float best = max_of(y, max_of(x, -infinity()));
    for (u32 apart = 4u; apart < 32u; apart *= 2u) best = max_of(SHUFFLE_XOR(best, apart), best);
    return best;
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
                    lift_key(load_key(args, slot, j, t), half, a[m]);
                }
        }
        if (any) {
            const uint4* q = query[(r - first) % 4u];
            const u32 operands = shared_address(q) + lane % 8u * 128u;
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
                    // Two steps' pieces of eight heads, where `index_operand` put them.
                    u32 b[4];
                    load_parts(operands + m / 2u * TILE_INDEX_HALF + n * 1024u + ((m % 2u * 4u + lane / 8u) ^ lane % 8u) * 16u, b);
#pragma unroll
                    for (u32 k = 0; k < TILE_INDEX_TILES; k++) multiply(dot[k], a[k][2u * m], b[0], b[1]);
#pragma unroll
                    for (u32 k = 0; k < TILE_INDEX_TILES; k++) multiply(dot[k], a[k][2u * m + 1u], b[2], b[3]);
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
            for (u32 k = 0; k < TILE_INDEX_TILES; k++) {
                const u32 at0 = key0 + warp * TILE_INDEX_WARP + k * 16u;
#pragma unroll
                for (u32 half = 0; half < 2u; half++) {
                    float x = sum[k][half];
                    x = x + SHUFFLE_XOR(x, 1u);
                    x = x + SHUFFLE_XOR(x, 2u);
                    const u32 at = at0 + half * 8u + g;
                    const bool there = args.candidates ? scored_row(args, row, at) != NO_PICK : at < seen && at < args.count;
                    sum[k][half] = there ? x : -infinity();
                    if (t == k && at < args.count) args.scores[row * args.scores_stride + at] = sum[k][half];
                }
                if (args.tops) {
                    const float best = best_of(sum[k][0], sum[k][1]);
                    if (lane == 0 && at0 < args.count)
                        args.tops[row * tops_stride(args) + at0 / TILE_INDEX_GROUP] = best;
                }
            }
        }
    }
}

#ifdef HOPPER
// The same scores of many rows of one span, by an instruction four warps wide whose sums have the bits of
// `multiply`'s: a warpgroup has 128 keys in registers, and four rows' queries pass by. A group takes an equal
// share of all pairs of a tile of keys and four rows, tile by tile.
#define INDEX_MANY_ROWS 4u
#define INDEX_MANY_KEYS 384u
#define INDEX_MANY_STAGES 4u
#define INDEX_MANY_APART (INDEX_MANY_ROWS * TILE_INDEX_ROW + 1024u)

CUDA_FULL_KERNEL(tile_index_many, TileIndexArgs, 384) {
    LAUNCH_SHARED(__align__(1024) u8, stages);
    GROUP_SHARED(u64, signals, [2 * INDEX_MANY_STAGES]);
    const u32 base = (shared_address(stages) + 1023u) / 1024u * 1024u;
    const u32 full = shared_address(signals), empty = full + INDEX_MANY_STAGES * 8u;
    const u32 lane = LANE % 32u, warp = LANE / 32u, g = lane / 4u, t = lane % 4u;
    const u32 parts = (args.row_count + INDEX_MANY_ROWS - 1u) / INDEX_MANY_ROWS;
    const u32 tiles = (args.count + INDEX_MANY_KEYS - 1u) / INDEX_MANY_KEYS;
    const u32 first = u32(u64(tiles) * parts * GROUP_X / GROUPS_X), end = u32(u64(tiles) * parts * (GROUP_X + 1u) / GROUPS_X);
    if (LANE == 0) {
        for (u32 i = 0; i < INDEX_MANY_STAGES; i++) {
            signal_new(full + i * 8u, 1u);
            signal_new(empty + i * 8u, 12u * WARP_ARRIVALS);
        }
        signals_made();
    }
    __syncthreads();
    dependents_may_start();
    wait_for_launches_before();
    const u32 slot = args.rows[ROW_SLOT], position = args.rows[ROW_POSITION];
    const u64 policy = read_often();
    const auto load = [&](u32 unit) {
        const u32 stage = (unit - first) % INDEX_MANY_STAGES, to = base + stage * INDEX_MANY_APART, signal = full + stage * 8u;
        const u32 row = unit % parts * INDEX_MANY_ROWS, left = args.row_count - row;
        const u32 rows = left < INDEX_MANY_ROWS ? left : INDEX_MANY_ROWS;
        signal_expect(signal, rows * (TILE_INDEX_ROW + TILE_INDEX_HEADS * 4u));
        for (u32 i = 0; i < 2u * rows; i++)
            copy_bulk(to + (i % 2u * INDEX_MANY_ROWS + i / 2u) * TILE_INDEX_HALF,
                args.q + u64(row) * TILE_INDEX_ROW + i * TILE_INDEX_HALF, TILE_INDEX_HALF, signal, policy);
        copy_bulk(to + INDEX_MANY_ROWS * TILE_INDEX_ROW, reinterpret_cast<GLOBAL const u8*>(args.w + u64(row) * TILE_INDEX_HEADS),
            rows * TILE_INDEX_HEADS * 4u, signal, policy);
    };
    if (LANE == 0)
        for (u32 unit = first; unit < end && unit < first + INDEX_MANY_STAGES - 1u; unit++) load(unit);
    u32 a[2][8][4];
    u32 held = NO_PICK, own0 = 0;
    for (u32 unit = first; unit < end; unit++) {
        const u32 turn = unit - first, stage = turn % INDEX_MANY_STAGES, tile = unit / parts;
        if (LANE == 0 && unit + INDEX_MANY_STAGES - 1u < end) {
            // The stage of the unit before.
            const u32 before = turn + INDEX_MANY_STAGES - 1u;
            if (turn > 0) signal_wait(empty + before % INDEX_MANY_STAGES * 8u, (before / INDEX_MANY_STAGES + 1u) & 1u);
            load(unit + INDEX_MANY_STAGES - 1u);
        }
        __syncwarp();
        if (tile != held) {
            held = tile;
            own0 = tile * INDEX_MANY_KEYS + warp * 32u;
            const u32 seen = (position + args.row_count) / args.ratio;
#pragma unroll
            for (u32 m = 0; m < 2u; m++)
#pragma unroll
                for (u32 half = 0; half < 2u; half++) {
                    const u32 at = own0 + m * 16u + half * 8u + g;
                    lift_key(load_key(args, slot, at < seen ? at : NO_PICK, t), half, a[m]);
                }
        }
        signal_wait(full + stage * 8u, turn / INDEX_MANY_STAGES & 1u);
        __syncwarp();
        const u32 row0 = unit % parts * INDEX_MANY_ROWS, last = row0 + INDEX_MANY_ROWS;
        const u32 seen_last = (position + (last < args.row_count ? last : args.row_count)) / args.ratio;
        if (tile * INDEX_MANY_KEYS < seen_last) {
            const u32 at_stage = base + stage * INDEX_MANY_APART;
            const u64 queries = rows_descriptor(at_stage);
            const u32 weights = at_stage + INDEX_MANY_ROWS * TILE_INDEX_ROW + t * 8u;
            // Lane t writes what row t has.
            const u64 row = row0 + t;
            const u32 seen = row < args.row_count ? (position + u32(row) + 1u) / args.ratio : 0;
#pragma unroll
            for (u32 m = 0; m < 2u; m++) {
                float sum[64];
                group_begin();
#pragma unroll
                for (u32 i = 0; i < 8u; i++)
                    multiply_rows<128u>(sum, a[m][i], queries + i / 4u * (INDEX_MANY_ROWS * TILE_INDEX_HALF / 16u) + i % 4u * 2u, i > 0);
                group_commit();
                group_wait();
                float x[4][2];
#pragma unroll
                for (u32 r = 0; r < 4u; r++) {
                    x[r][0] = 0.0f, x[r][1] = 0.0f;
#pragma unroll
                    for (u32 n = 0; n < 4u; n++) {
                        if (PLANTED(FAULT_INDEX_DROPPED_HEAD) && n == 3u) continue;
                        float w[2];
                        load_pair(weights + r * TILE_INDEX_HEADS * 4u + n * 32u, w);
#pragma unroll
                        for (u32 i = 0; i < 4u; i++)
                            x[r][i >> 1] = FMA(w[i & 1u] * args.scale, positive_part(sum[(r * 4u + n) * 4u + i]), x[r][i >> 1]);
                    }
                }
                const u32 at = own0 + m * 16u + g;
                float own[2];
#pragma unroll
                for (u32 half = 0; half < 2u; half++) {
                    // Lanes 1 apart add up rows 0 and 1, or 2 and 3; lanes 2 apart a row of each.
                    float pair[2];
#pragma unroll
                    for (u32 i = 0; i < 2u; i++) {
                        const float kept = x[2u * i + 0u][half], other = x[2u * i + 1u][half];
                        pair[i] = (t & 1u ? other : kept) + SHUFFLE_XOR(t & 1u ? kept : other, 1u);
                    }
                    const float all = (t & 2u ? pair[1] : pair[0]) + SHUFFLE_XOR(t & 2u ? pair[0] : pair[1], 2u);
                    own[half] = at + half * 8u < seen && at + half * 8u < args.count ? all : -infinity();
                    if (row < args.row_count && at + half * 8u < args.count)
                        args.scores[row * args.scores_stride + at + half * 8u] = own[half];
                }
                const float best = best_of(own[0], own[1]);
                if (g == 0 && row < args.row_count && at < args.count)
                    args.tops[row * tops_stride(args) + at / TILE_INDEX_GROUP] = best;
            }
        }
        warp_arrives(empty + stage * 8u);
    }
}
#endif

// The best k of each tile of 16384 scores, ascending by place, ties to the lower one: places into `ids`
// and, where they go on to another round, their scores. `limit` words a row say how many scores there
// are: what the row sees, or its candidates' rows. The last round writes picks. With `spread` a candidate's
// scores lie where the row has them, as far as it sees, not in the candidates' order.
#define TOPK_LANES 1024u
#define TOPK_EACH 16u
#define TOPK_TILE (TOPK_LANES * TOPK_EACH)
#define TOPK_SHARED (TOPK_TILE * 6u)
#define TOPK_PASSES 6u

// The place among a row's scores, and all ids, of score `at` in the order of the row's candidates.
DEVICE u32 place_among(const TileTopkArgs& args, u64 row, u32 at) {
    return args.candidates[row * args.candidates_stride + at / args.candidate_size] * args.candidate_size + at % args.candidate_size;
}

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
    const auto score = [&](u32 at) {
        if (!args.spread) return scores[at];
        const u32 place = place_among(args, row, at);
        // The last candidate may be cut short.
        return place < seen_of(args.rows, row, args.ratio) ? scores[place] : -infinity();
    };

    // Of 1024 scores so many times; loops end there.
    u32 each = count > tile0 ? (count - tile0 + TOPK_LANES - 1u) / TOPK_LANES : 0;
    if (each > TOPK_EACH) each = TOPK_EACH;
    u32 rank[TOPK_EACH], top = 0;
#pragma unroll
    for (u32 i = 0; i < TOPK_EACH; i++) {
        if (i >= each) break;
        const u32 at = tile0 + i * TOPK_LANES + LANE;
        rank[i] = at < count ? rank_of(score(at)) : 0;
    }
    for (u32 i = LANE; i < TOPK_PASSES * 256u; i += TOPK_LANES) counts[i / 256u][i % 256u] = 0;
#pragma unroll
    for (u32 i = 0; i < TOPK_EACH; i++) {
        if (i >= each) break;
        top = max_bits(top, rank[i]);
    }
    __syncthreads();
    // The k-th best of the lanes' best is a bound that at least k scores reach; half its bits will do.
    Digits bound = {0, args.k};
    if (args.k <= TOPK_LANES && tile0 < count) {
        const auto own = [&](u32) { return top; };
        digit(bound, own, TOPK_LANES, 24u, counts[0], result);
        if (bound.room <= TOPK_LANES) digit(bound, own, TOPK_LANES, 16u, counts[1], result);
    }
    const u32 low = bound.prefix == 0 ? 1u : bound.prefix;
    u32 ballot[TOPK_EACH];
#pragma unroll
    for (u32 i = 0; i < TOPK_EACH; i++) {
        if (i >= each) break;
        ballot[i] = __ballot_sync(0xffffffffu, rank[i] >= low);
        if (lane == i) offsets[i * 33u + warp] = __popc(ballot[i]);
    }
    __syncthreads();
    // Warp i adds up its stretch of 1024 scores, then each takes what lies before it.
    if (warp < each) {
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
        if (i >= each) break;
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
            if (!args.from && args.candidates) id = place_among(args, row, from);
            args.ids[to] = id;
            if (args.best) args.best[to] = score(from);
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
