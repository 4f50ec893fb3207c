// Attention of many rows on Hopper: the sums of attend.cuh, in its order.
//
// A group takes rows one after another, 64 heads of each, by four warpgroups. One brings a row's queries
// and lifts its keys, tile by tile of 32, into stages of a ring; one makes scores and from them weights; two add
// the keys by those weights, half of the channels each.
//
// A tile has for each 64 channels rows of 128 bytes, a key each, whose 16-byte piece p lies at p ^ (key % 8). Word t
// of piece p is word p of the key's chunk t of those channels, so that the rows are the scores' right operand as
// they lie, and the mix's by columns. Weights are a row of 128 bytes a head, the high parts before the low ones.
#pragma once
#ifdef HOPPER
#define MANY_HEADS 64u
#define MANY_BLOCK (32u * 128u)
#define MANY_RING 4u
#define MANY_STAGE 33792u
// A stage has a tile, or the queries of 16 heads: rows of floats with what keeps banks apart. Then it has the
// number of keys of the tile, or of the row's tiles.
#define MANY_QUERY (TILE_DIM * 4u + 16u)
#define MANY_COUNT (16u * MANY_QUERY)
// Steps whose queries lie in shared memory; those of the others are in registers.
#define MANY_HELD 16u
// A key as it is stored, with what keeps banks apart; two tiles of those are on their way.
#define MANY_RAW 576u
// The weights of a tile, what the sums so far are multiplied by, 1 over the divisors, and whether it is a row's last.
#define MANY_WEIGHTS 9216u
#define MANY_SHRINK (MANY_HEADS * 128u)
#define MANY_DIVISOR (MANY_SHRINK + MANY_HEADS * 4u)
#define MANY_LAST (MANY_DIVISOR + MANY_HEADS * 4u)
// Where all of it lies.
#define MANY_WEIGHTS_AT (MANY_RING * MANY_STAGE)
#define MANY_QUERIES_AT (MANY_WEIGHTS_AT + 2u * MANY_WEIGHTS)
#define MANY_RAW_AT (MANY_QUERIES_AT + MANY_HELD / 4u * MANY_HEADS * 128u)
#define MANY_PLACES_AT (MANY_RAW_AT + 2u * 32u * MANY_RAW)
#define MANY_FULL_AT (MANY_PLACES_AT + 3u * TILE_KEYS * 4u)
#define MANY_FREE_AT (MANY_FULL_AT + MANY_RING * 8u)
#define MANY_WEIGHED_AT (MANY_FREE_AT + MANY_RING * 8u)
#define MANY_MIXED_AT (MANY_WEIGHED_AT + 16u)
#define MANY_PLACED_AT (MANY_MIXED_AT + 16u)
#define MANY_ASKED_AT (MANY_PLACED_AT + 8u)

// Where the mix's right operand begins: 64 columns lie a block apart, eight keys 1024 bytes.
DEVICE u64 columns_descriptor(u32 at) {
    return u64((at & 0x3ffffu) >> 4) | (u64(MANY_BLOCK / 16u) << 16) | (u64(64u) << 32) | (u64(1u) << 62);
}

// What all lanes of a warp have alike, as a word that the compiler knows to be so.
DEVICE u32 alike(u32 word) { return __shfl_sync(0xffffffffu, word, 0u); }

// The place in the ring of the n-th use of a stage, and the signals of that.
DEVICE u32 many_stage(u32 base, u32 n) { return base + n % MANY_RING * MANY_STAGE; }
DEVICE u32 many_full(u32 base, u32 n) { return base + MANY_FULL_AT + n % MANY_RING * 8u; }
DEVICE u32 many_free(u32 base, u32 n) { return base + MANY_FREE_AT + n % MANY_RING * 8u; }
DEVICE void await_full(u32 base, u32 n) { signal_wait(many_full(base, n), n / MANY_RING % 2u); }
DEVICE void await_free(u32 base, u32 n) { signal_wait(many_free(base, n), n / MANY_RING % 2u ^ 1u); }

// Tiles of a row, two at least: keys of no weight change nothing.
DEVICE u32 many_tiles(u32 count) { return count > 32u ? (count + 31u) / 32u : 2u; }

// Asks for a key as it is stored, by four lanes.
template <bool POOL> DEVICE void copy_key(const u8* row, u32 to) {
    const u32 pieces = u32(POOL ? compressed_bytes(TILE_DIM) : window_bytes(TILE_DIM)) / 16u;
    row += LANE % 4u * 16u, to += LANE % 4u * 16u;
#pragma unroll
    for (u32 i = 0; i < pieces / 4u; i++) copy16(to + i * 64u, row + i * 64u);
    if (LANE % 4u < pieces % 4u) copy16(to + pieces / 4u * 64u, row + pieces / 4u * 64u);
}

// Lifts a key into its row of a tile, by four lanes: 16 channels of each 64.
template <bool POOL> DEVICE void lift_key(u32 from, bool there, u32 tile, u32 key) {
    const u32 t = LANE % 4u;
    u32 to[8];
#pragma unroll
    for (u32 p = 0; p < 8u; p++) to[p] = tile + key * 128u + t * 4u + ((p ^ key % 8u) << 4);
#pragma unroll
    for (u32 block0 = 0; block0 < 8u; block0 += 4u) {
        u32 codes[4][4], scales[4];
        if (POOL) {
#pragma unroll
            for (u32 i = 0; i < 4u; i++) load_pair(from + (block0 + i) * 32u + t * 8u, codes[i]);
            load_words(from + TILE_DIM / 2u + block0 * 4u, scales);
        } else {
#pragma unroll
            for (u32 i = 0; i < 4u; i++) load_words(from + (block0 + i) * 64u + t * 16u, codes[i]);
            load_pair(from + TILE_DIM + block0 * 2u, scales);
        }
#pragma unroll
        for (u32 i = 0; i < 4u; i++) {
            u32 word[8];
            Factor by;
            if (POOL) {
                spread_e2m1(codes[i][0], word);
                spread_e2m1(codes[i][1], word + 4);
                by = factor_compressed(__byte_perm(scales[i], 0u, 0x4440u | t));
            } else {
                spread_e4m3(codes[i][0], codes[i][1], word);
                spread_e4m3(codes[i][2], codes[i][3], word + 4);
                by = factor_window(__byte_perm(scales[i / 2u], 0u, 0x4440u | (i % 2u * 2u + t / 2u)));
            }
            if (!there) by.scale = 0u;
            finish_lift<8>(word, by);
#pragma unroll
            for (u32 p = 0; p < 8u; p++) store_word(to[p] + (block0 + i) * MANY_BLOCK, word[p]);
        }
    }
}

// The keys of a row, and their places by 128 lanes.
DEVICE TileKeys many_places(const TileAttendArgs& args, u64 row, u32* places) {
    const TileKeys keys = tile_keys(args, row);
    u32 pick[TILE_KEYS / 128u];
#pragma unroll
    for (u32 i = 0; i < TILE_KEYS / 128u; i++) pick[i] = pick_of(args, keys, LANE % 128u + 128u * i);
#pragma unroll
    for (u32 i = 0; i < TILE_KEYS / 128u; i++) {
        const u32 k = LANE % 128u + 128u * i;
        places[k] = place_of_key(args, keys, k, pick[i]);
    }
    return keys;
}

// Brings each row's queries, then lifts its keys.
DEVICE void many_keys(const TileAttendArgs& args, u32 base, u32* all_places) {
    const u32 lane = LANE % 32u, warp = LANE / 32u % 4u, own = warp * 8u + lane / 4u, head0 = GROUP_Y * MANY_HEADS;
    const u32 own_raw = base + MANY_RAW_AT + own * MANY_RAW;
    const u64 policy = read_once();
    u32 use = 0, parity = 0, buffer = 0, turn = 0;
    u64 row = GROUP_X;
    TileKeys keys = many_places(args, row, all_places);
    warp_arrives(base + MANY_PLACED_AT);
    signal_wait(base + MANY_PLACED_AT, parity);
    // Asks for a lane's key of the n-th tile of all, which is tile `at` of a row.
    const auto bring = [&](const u32* places, const TileKeys& keys, u32 at, u32 n) {
        const u32 place = places[at * 32u + own], to = own_raw + n % 2u * (32u * MANY_RAW);
        const u64 row = place & 0x3fffffffu;
        if (at * 32u >= keys.padded && at * 32u < keys.count) copy_key<true>(args.pool + row * compressed_bytes(TILE_DIM), to);
        else copy_key<false>((place >> 30 == KEY_RING ? args.ring : args.fresh) + row * window_bytes(TILE_DIM), to);
        copies_commit();
    };
    bring(all_places, keys, 0u, 0u);
    bring(all_places, keys, 1u, 1u);
    while (row < args.row_count) {
        const TileKeys held = keys;
        const u32 n_tiles = many_tiles(held.count);
        const u32* places = all_places + buffer * TILE_KEYS;
#pragma unroll 1
        for (u32 i = 0; i < 4u; i++) {
            const u32 to = many_stage(base, use), full = many_full(base, use);
            await_free(base, use);
            // No lane waits for this any more when the stage comes to be free again.
            __syncwarp();
            if (lane == 0) {
                if (warp == 0) store_word(to + MANY_COUNT, n_tiles);
                signal_expect(full, 4u * TILE_DIM * 4u);
#pragma unroll 1
                for (u32 h = warp * 4u; h < warp * 4u + 4u; h++) {
                    const u32 head = head0 + i * 16u + (PLANTED(FAULT_ATTEND_NEIGHBOUR_HEAD) ? h ^ 1u : h);
                    const float* from = args.q + (row * args.heads + head) * TILE_DIM;
                    copy_bulk(to + h * MANY_QUERY, reinterpret_cast<GLOBAL const u8*>(from), TILE_DIM * 4u, full, policy);
                }
            } else if (lane < WARP_ARRIVALS) {
                signal_arrive(full);
            }
            use++;
        }
        row += GROUPS_X;
        parity ^= 1u;
        buffer = buffer == 2u ? 0u : buffer + 1u;
        // The places of the next row, while this one's first tiles are on their way.
        u32* next_places = all_places + buffer * TILE_KEYS;
        if (row < args.row_count) keys = many_places(args, row, next_places);
        warp_arrives(base + MANY_PLACED_AT);
        signal_wait(base + MANY_PLACED_AT, parity);
#pragma unroll 1
        for (u32 at = 0; at < n_tiles; at++) {
            const u32 from = own_raw + turn % 2u * (32u * MANY_RAW), to = many_stage(base, use), until = keys_until(held, at * 32u);
            const bool there = places[at * 32u + own] >> 30 != KEY_NONE;
            copies_wait<1>();
            __syncwarp();
            await_free(base, use);
            if (LANE % 128u == 0) store_word(to + MANY_COUNT, until > at * 32u ? until - at * 32u : 0u);
            if (at * 32u >= held.padded && at * 32u < held.count) lift_key<true>(from, there, to, own);
            else lift_key<false>(from, there, to, own);
            copies_shown();
            warp_arrives(many_full(base, use));
            use++;
            // Past the last row nothing is asked for, and nothing waits for it.
            if (at + 2u < n_tiles) bring(places, held, at + 2u, turn);
            else if (row < args.row_count) bring(next_places, keys, at + 2u - n_tiles, turn);
            else copies_commit();
            turn++;
        }
    }
}

// The scores of each row, and its weights.
DEVICE void many_scores(const TileAttendArgs& args, u32 base) {
    const u32 lane = LANE % 32u, warp = LANE / 32u, g = lane / 4u, t = lane % 4u, own_head = warp * 16u + g;
    const float* sinks = args.sinks + GROUP_Y * MANY_HEADS + own_head;
    const float sink[2] = {sinks[0], sinks[8]};
    u32 use = 0, parity = 0, turn = 0;
    for (u64 row = GROUP_X; row < args.row_count; row += GROUPS_X) {
        u32 a[32u - MANY_HELD][4], n_tiles = 0;
#pragma unroll 1
        for (u32 i = 0; i < 4u; i++) {
            const u32 from = many_stage(base, use);
            await_full(base, use);
            if (i == 0) n_tiles = alike(load_word(from + MANY_COUNT));
            // A warp has 16 heads.
            if (i == warp)
#pragma unroll
                for (u32 j = 0; j < 8u; j++)
#pragma unroll
                    for (u32 e = 0; e < 2u; e++)
#pragma unroll
                        for (u32 m = 0; m < 2u; m++) {
                            const u32 c = 64u * j + 16u * t + 8u * m, at = from + (g + 8u * e) * MANY_QUERY + c * 4u;
                            float x[8];
                            u32 word[4];
                            load_floats(at, x);
                            load_floats(at + 16u, x + 4);
                            pack_query(x, angles_of(args, row, c), word);
                            if (j < MANY_HELD / 4u) {
                                const u32 line = base + MANY_QUERIES_AT + j * (MANY_HEADS * 128u) + (own_head + 8u * e) * 128u + t * 4u;
#pragma unroll
                                for (u32 p = 0; p < 4u; p++) store_word(line + (((4u * m + p) ^ g) << 4), word[p]);
                            } else {
                                const u32 step = 4u * j + 2u * m - MANY_HELD;
                                a[step][e] = word[0], a[step][e + 2u] = word[1];
                                a[step + 1u][e] = word[2], a[step + 1u][e + 2u] = word[3];
                            }
                        }
            // For the warps that read no queries too.
            for (u32 k = 0; k < 3u; k++) warp_arrives(many_free(base, use));
            use++;
        }
        copies_shown();
        warp_arrives(base + MANY_ASKED_AT);
        signal_wait(base + MANY_ASKED_AT, parity);
        parity ^= 1u;
        u32 tile = 0;
        float top[2] = {first_top(sink[0]), first_top(sink[1])}, all[2] = {0.0f, 0.0f}, even[16], odd[16];
        const auto ask = [&](float (&s)[16]) {
            await_full(base, use);
            const u64 q = rows_descriptor(base + MANY_QUERIES_AT), b = rows_descriptor(many_stage(base, use));
            group_begin();
#pragma unroll
            for (u32 i = 0; i < 32u; i++) {
                const u64 keys = b + i / 4u * (MANY_BLOCK / 16u) + i % 4u * 2u;
                if (i < MANY_HELD) multiply_rows<32u>(s, q + i / 4u * (MANY_HEADS * 8u) + i % 4u * 2u, keys, i > 0);
                else multiply_rows<32u>(s, a[i - MANY_HELD], keys, true);
            }
            group_commit();
            use++;
        };
        // `of`, the use of the stage that they are scores of.
        const auto weigh = [&](float (&s)[16], u32 of) {
#pragma unroll
            for (u32 i = 0; i < 16u; i++) settled(s[i]);
            const u32 count = load_word(many_stage(base, of) + MANY_COUNT);
            warp_arrives(many_free(base, of));
            float shrink[2];
#pragma unroll
            for (u32 e = 0; e < 2u; e++) {
                float most = -infinity();
#pragma unroll
                for (u32 k = 0; k < 8u; k++) {
                    float& own = s[k / 2u * 4u + 2u * e + k % 2u];
                    own = k / 2u * 8u + 2u * t + k % 2u < count ? own * args.scale : -infinity();
                    most = max_of(own, most);
                }
                most = max_of(SHUFFLE_XOR(most, 1u), most);
                most = max_of(SHUFFLE_XOR(most, 2u), most);
                shrink[e] = rise(top[e], most);
#pragma unroll
                for (u32 k = 0; k < 8u; k++) {
                    float& own = s[k / 2u * 4u + 2u * e + k % 2u];
                    own = exp_fast(own - top[e]);
                }
                float part[4];
#pragma unroll
                for (u32 n = 0; n < 4u; n++) part[n] = s[n * 4u + 2u * e] + s[n * 4u + 2u * e + 1u];
                all[e] = all[e] * shrink[e] + ((part[0] + part[1]) + (part[2] + part[3]));
            }
            const u32 to = base + MANY_WEIGHTS_AT + turn % 2u * MANY_WEIGHTS;
            signal_wait(base + MANY_MIXED_AT + turn % 2u * 8u, turn / 2u % 2u ^ 1u);
#pragma unroll
            for (u32 e = 0; e < 2u; e++)
#pragma unroll
                for (u32 n = 0; n < 4u; n++) {
                    const float x = s[n * 4u + 2u * e], y = s[n * 4u + 2u * e + 1u];
                    const u32 high = pair_bf16(x, y), line = to + (own_head + 8u * e) * 128u + t * 4u;
                    store_word(line + ((n ^ g) << 4), high);
                    store_word(line + (((n + 4u) ^ g) << 4), pair_bf16(x - lift_bf16(high & 0xffffu), y - lift_bf16(high >> 16)));
                }
            const bool last = tile + 1u == n_tiles;
            if (LANE == 0) store_word(to + MANY_LAST, last);
#pragma unroll
            for (u32 e = 0; e < 2u; e++) {
                const u32 head = (own_head + 8u * e) * 4u;
                if (t == 0) store_word(to + MANY_SHRINK + head, AS_BITS(shrink[e]));
                if (!last) continue;
                float sum = all[e] + SHUFFLE_XOR(all[e], 1u);
                sum = sum + SHUFFLE_XOR(sum, 2u);
                const float divisor = one_over(sum, sink[e], top[e]);
                if (t == 0) store_word(to + MANY_DIVISOR + head, AS_BITS(divisor));
            }
            copies_shown();
            warp_arrives(base + MANY_WEIGHED_AT + turn % 2u * 8u);
            turn++;
            tile++;
        };
        // The scores of a tile are on their way while the weights of the one before are made.
        ask(even);
#pragma unroll 1
        while (tile + 2u < n_tiles) {
            ask(odd);
            group_wait<1>();
            weigh(even, use - 2u);
            ask(even);
            group_wait<1>();
            weigh(odd, use - 2u);
        }
        if (tile + 2u == n_tiles) {
            ask(odd);
            group_wait<1>();
            weigh(even, use - 2u);
            group_wait();
            weigh(odd, use - 1u);
        } else {
            group_wait();
            weigh(even, use - 1u);
        }
    }
}

// The outputs of each row.
DEVICE void many_mix(const TileAttendArgs& args, u32 base) {
    const u32 lane = LANE % 32u, g = lane / 4u, t = lane % 4u, half = alike(LANE / 128u - 1u), own_head = LANE / 32u % 4u * 16u + g;
    u32 use = 0, turn = 0;
    float sum[2][64];
    for (u64 row = GROUP_X; row < args.row_count; row += GROUPS_X) {
        // The stages of the queries.
        use += 4u;
        float by[2];
        bool last = false;
#pragma unroll 1
        for (u32 tile = 0; !last; tile++) {
            const u32 from = base + MANY_WEIGHTS_AT + turn % 2u * MANY_WEIGHTS, own = from + own_head * 4u;
            signal_wait(base + MANY_WEIGHED_AT + turn % 2u * 8u, turn / 2u % 2u);
            await_full(base, use);
            last = alike(load_word(from + MANY_LAST)) != 0;
            const float shrink[2] = {AS_FLOAT(load_word(own + MANY_SHRINK)), AS_FLOAT(load_word(own + MANY_SHRINK + 32u))};
            const bool any = shrink[0] != 1.0f || shrink[1] != 1.0f;
            if (tile > 0 && __ballot_sync(0xffffffffu, any) != 0 && !PLANTED(FAULT_ATTEND_KEPT_SUMS))
#pragma unroll
                for (u32 i = 0; i < 64u; i++) {
                    sum[0][i] = sum[0][i] * shrink[i / 2u % 2u];
                    sum[1][i] = sum[1][i] * shrink[i / 2u % 2u];
                }
            const u64 a = rows_descriptor(from), b = columns_descriptor(many_stage(base, use) + half * 4u * MANY_BLOCK);
            group_begin();
#pragma unroll
            for (u32 step = 0; step < 2u; step++)
#pragma unroll
                for (u32 part = 0; part < 2u; part++) {
                    const u64 columns = b + part * (MANY_BLOCK / 8u) + step * 128u;
                    multiply_columns(sum[part], a + step * 2u, columns, tile + step > 0);
                    multiply_columns(sum[part], a + 4u + step * 2u, columns, true);
                }
            group_commit();
            if (last) by[0] = AS_FLOAT(load_word(own + MANY_DIVISOR)), by[1] = AS_FLOAT(load_word(own + MANY_DIVISOR + 32u));
            group_wait();
            warp_arrives(many_free(base, use));
            warp_arrives(base + MANY_MIXED_AT + turn % 2u * 8u);
            use++;
            turn++;
        }
        // A lane has 16 channels in a row of each 64.
#pragma unroll
        for (u32 e = 0; e < 2u; e++)
#pragma unroll
            for (u32 n = 0; n < 8u; n++) {
                float x[8];
#pragma unroll
                for (u32 i = 0; i < 8u; i++) x[i] = sum[n / 4u][(n % 4u * 4u + i % 4u) * 4u + 2u * e + i / 4u] * by[e];
                const u32 c = half * 256u + n / 2u * 64u + t * 16u + n % 2u * 8u;
                store_eight(args, row, GROUP_Y * MANY_HEADS + own_head + 8u * e, c, x, angles_of(args, row, c));
            }
    }
}

CUDA_FULL_KERNEL(tile_attend_many, TileAttendArgs, 512) {
    LAUNCH_SHARED(__align__(1024) u8, shared);
    const u32 base = shared_address(shared);
    if (LANE == 0) {
        for (u32 i = 0; i < MANY_RING; i++) {
            signal_new(base + MANY_FULL_AT + i * 8u, 4u * WARP_ARRIVALS);
            signal_new(base + MANY_FREE_AT + i * 8u, 12u * WARP_ARRIVALS);
        }
        for (u32 i = 0; i < 2u; i++) {
            signal_new(base + MANY_WEIGHED_AT + i * 8u, 4u * WARP_ARRIVALS);
            signal_new(base + MANY_MIXED_AT + i * 8u, 8u * WARP_ARRIVALS);
        }
        signal_new(base + MANY_PLACED_AT, 4u * WARP_ARRIVALS);
        signal_new(base + MANY_ASKED_AT, 4u * WARP_ARRIVALS);
        signals_made();
    }
    dependents_may_start();
    wait_for_launches_before();
    __syncthreads();
    const u32 part = alike(LANE / 128u);
    if (part == 3u) {
        registers_give<56>();
        many_keys(args, base, reinterpret_cast<u32*>(shared + MANY_PLACES_AT));
    } else if (part == 0) {
        registers_take<136>();
        many_scores(args, base);
    } else {
        registers_take<160>();
        many_mix(args, base);
    }
}
#endif
